"""Small random models of every supported family, with a byte-level tokenizer: real code paths, milliseconds a pass."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import torch

from zerolayer.engines.hf.engine import HFEngine

EOS = 256
VOCABULARY = 257
WINDOW = 512

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "factor": 4.0,
        "original_max_position_embeddings": 128,
    },
}
SUPPORTED = ("default", "linear", "llama3", "yarn")
FAMILIES = ("llama", "qwen2", "qwen3")


def make_model(family: str, rope: str = "default", **more: Any) -> Any:
    """A random model: Llama with grouped queries, Qwen2 with tied embeddings, Qwen3 with wide heads."""
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": WINDOW,
        "rope_parameters": dict(ROPES[rope]),
        "eos_token_id": EOS,
        "pad_token_id": EOS,
        "bos_token_id": None,
        "initializer_range": 0.3,  # far from uniform logits, so that greedy tokens mean something
        **more,
    }
    torch.manual_seed(7)
    if family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=False))
    elif family == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**shape, tie_word_embeddings=True))
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(weight, std=0.3)
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=16, tie_word_embeddings=True))
        for name, weight in model.named_parameters():
            if "_norm" in name:
                torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model.eval()


@cache
def byte_tokenizer(chat: bool = False) -> Any:
    """One token a byte, and an end token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
    assert fast.eos_token_id == EOS
    if chat:
        fast.chat_template = (
            "{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}"
        )
    return fast


def make_engine(family: str = "llama", rope: str = "default", **more: Any) -> tuple[HFEngine, Any]:
    """An engine, and a copy of its model that transformers runs as ever."""
    plain = make_model(family, rope, **more)
    return HFEngine(copy.deepcopy(plain), byte_tokenizer(), f"tiny-{family}"), plain


def random_tokens(count: int, seed: int = 0) -> np.ndarray:
    """Token ids without the end token."""
    return np.random.default_rng(seed).integers(0, 256, count)


def plain_logits(model: Any, token_ids: np.ndarray) -> torch.Tensor:
    """`[tokens, vocabulary]` of one plain pass."""
    with torch.inference_mode():
        return model(torch.as_tensor(token_ids)[None]).logits[0]


def plain_answer(model: Any, token_ids: np.ndarray, count: int) -> list[int]:
    """Greedy tokens of `model.generate` with its default DynamicCache, the end token left out."""
    with torch.inference_mode():
        ids = torch.as_tensor(token_ids)[None]
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            do_sample=False,
        )
    return [token for token in out[0, ids.shape[1] :].tolist() if token != EOS]
