"""Sentence vectors: what a block means, for questions that avoid the document's words. Optional.

all-MiniLM-L6-v2 (Sentence-BERT, arXiv:1908.10084): mean of the last hidden states, normalised; 384 dimensions.
Without the encoder, recall works on words and attention alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zerolayer.core import FloatArray

BATCH = 32
LONGEST_TOKENS = 256


class SentenceEncoder:
    """A small text encoder of the BERT family, loaded from a directory."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.name = path.name
        self._tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self._model: Any = AutoModel.from_pretrained(path).eval()

    def encode(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> FloatArray:
        """Unit vectors `[texts, dimensions]`, in the order of the texts; what is beyond 256 tokens is cut.

        `on_progress` hears how many are done. Texts of like length go together, so that little is padded;
        padding is masked, so a vector does not depend on its neighbours beyond rounding.
        """
        import torch

        vectors = np.zeros((len(texts), self._model.config.hidden_size), dtype=np.float32)
        if not texts:
            return vectors
        ids = self._tokenizer(list(texts), truncation=True, max_length=LONGEST_TOKENS)["input_ids"]
        order = sorted(range(len(ids)), key=lambda text: len(ids[text]))
        with torch.inference_mode():
            for first in range(0, len(order), BATCH):
                batch = order[first : first + BATCH]
                vectors[batch] = self._vectors([ids[text] for text in batch])
                if on_progress is not None:
                    on_progress(first + len(batch))
        return vectors

    def _vectors(self, ids: list[list[int]]) -> FloatArray:
        """Unit vectors `[texts, dimensions]` of token ids."""
        import torch

        lengths = torch.tensor([len(row) for row in ids])
        padded = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row) for row in ids],
            batch_first=True,
            padding_value=self._tokenizer.pad_token_id,
        )
        mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()
        states = self._model(input_ids=padded, attention_mask=mask).last_hidden_state
        mean = (states * mask[..., None]).sum(1) / lengths[:, None]
        unit: FloatArray = torch.nn.functional.normalize(mean, dim=-1).numpy()
        return unit


def encode_blocks(encoder: SentenceEncoder, text: str, spans: Sequence[tuple[int, int]]) -> FloatArray:
    """[blocks, dimensions] of each block; zeros for a block without characters.

    A clause spans blocks, so `recall.fuse` smooths over neighbours. Encoding each block with its surroundings as well
    keeps one point more of evidence at 10 % (docs/signals.md) and takes three times as long.
    """
    vectors = encoder.encode([text[start:end] for start, end in spans])
    vectors[[start >= end for start, end in spans]] = 0.0
    return vectors
