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

BATCH = 64
LONGEST_TOKENS = 256


class SentenceEncoder:
    """A small text encoder of the BERT family, loaded from a directory."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.name = path.name
        self._tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self._model: Any = AutoModel.from_pretrained(path).eval()

    def encode(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> FloatArray:
        """Unit vectors `[texts, dimensions]`. `on_progress` hears how many are done."""
        import torch

        vectors = []
        with torch.inference_mode():
            for first in range(0, len(texts), BATCH):
                batch = self._tokenizer(
                    list(texts[first : first + BATCH]),
                    padding=True,
                    truncation=True,
                    max_length=LONGEST_TOKENS,
                    return_tensors="pt",
                )
                states = self._model(**batch).last_hidden_state
                mask = batch["attention_mask"][..., None]
                mean = (states * mask).sum(1) / mask.sum(1)
                vectors.append(torch.nn.functional.normalize(mean, dim=-1))
                if on_progress is not None:
                    on_progress(min(len(texts), first + BATCH))
        result: FloatArray = torch.cat(vectors).numpy()
        return result


class DenseIndex:
    """Vectors of the blocks of one text, `[blocks, dimensions]`; a block without text has a zero vector."""

    def __init__(self, vectors: FloatArray) -> None:
        self.vectors = vectors

    def scores(self, question: FloatArray) -> FloatArray:
        """[blocks] cosine with the question's vector, each block heard together with its neighbours.

        A clause spans blocks, and the block after a match often holds the fact that was asked for.
        """
        cosine = self.vectors @ question
        padded = np.pad(cosine, 1, mode="edge")
        return (0.5 * cosine + 0.25 * padded[:-2] + 0.25 * padded[2:]).astype(np.float32)
