"""Model directories: what we can attach to, and GGUF files turned into such directories."""

from __future__ import annotations

import io
import json
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from zerolayer.errors import ModelError

SUPPORTED_MODEL_TYPES = ("llama", "qwen2", "qwen3")
"""`model_type` of the families whose attention and rotary positions we know."""

_WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")


def check_model_type(model_type: str, what: str) -> None:
    """Raise ModelError unless the family is one that the engine attaches to."""
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise ModelError(
            f"{what} has the model type {model_type!r}; supported: {', '.join(SUPPORTED_MODEL_TYPES)}. "
            "Choose a model of one of these families"
        )


def check_model_dir(path: Path) -> None:
    """Raise ModelError unless `path` holds a causal language model of a supported family, with weights."""
    config_path = path / "config.json"
    if not config_path.is_file():
        raise ModelError(
            f"{path} holds no config.json, so it is no model; give a directory saved by save_pretrained"
        )
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{config_path} is not JSON ({error}); save or download the model again") from error
    architectures = config.get("architectures") if isinstance(config, dict) else None
    names = [str(name) for name in architectures or []]
    if not any(name.endswith("ForCausalLM") for name in names):
        raise ModelError(
            f"{path} is no causal language model: its architectures are {names or 'not given'}, "
            "one that ends in ForCausalLM is needed"
        )
    check_model_type(str(config.get("model_type")), str(path))
    if not any(next(path.glob(pattern), None) for pattern in _WEIGHT_PATTERNS):
        raise ModelError(
            f"{path} holds no weights ({' or '.join(_WEIGHT_PATTERNS)}); download the model again"
        )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' warnings and its several kinds of progress bars off the terminal."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)


def convert_gguf(source: Path, target: Path) -> None:
    """Dequantise a GGUF file into a directory of fp32 safetensors, config and tokenizer.

    Done once per file: reading safetensors takes a second, dequantising a 135M model half a minute.
    Raises ModelError when the file is not GGUF, is damaged, or holds an unsupported family.
    """
    with source.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ModelError(
                f"{source} is not a GGUF file (it does not begin with 'GGUF'); give a .gguf file"
            )
    try:
        with quiet_transformers():
            _convert(source, target)
    except (ValueError, KeyError, IndexError, RuntimeError, OSError, struct.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk, not the file: its own message names the path
        raise ModelError(
            f"cannot convert {source}: {error}. Download the file again or give another model"
        ) from error


def _convert(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    check_model_type(AutoConfig.from_pretrained(**where).model_type, str(source))
    dequantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = dequantised.config
    # A model that was loaded from GGUF is marked as quantised and refuses to be saved; its weights are plain
    # fp32 by now, so they move into an unmarked twin.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    state = dequantised.state_dict()
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(state, assign=True)
    plain.tie_weights()
    plain.save_pretrained(target)
    AutoTokenizer.from_pretrained(**where).save_pretrained(target)
