"""What is known of documents before any key is looked at: their words, meaning, features and sections.

It is built once for a stream of documents, and shared by all conversations about them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zerolayer.config import cache_dir
from zerolayer.core import FloatArray
from zerolayer.documents.stream import DocumentStream
from zerolayer.perception.block_features import document_features, language_of
from zerolayer.perception.dense import encode_blocks
from zerolayer.perception.intent import AskedTurn, IntentForecast, IntentModel
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.recall import Signals
from zerolayer.runtime.early import ShortlistVectors

if TYPE_CHECKING:
    from zerolayer.perception.dense import SentenceEncoder

ENCODED_AT_A_TIME = 32
"""Blocks whose sentence vectors are computed in one step."""


class DocumentIndex:
    """Words, meaning and features of a stream's blocks. `identity` names the stream among stored vectors."""

    def __init__(self, stream: DocumentStream, identity: str, encoder: SentenceEncoder | None) -> None:
        self.stream, self._encoder = stream, encoder
        self._spans = [(block.char_start, block.char_end) for block in stream.blocks]
        self.lexical = LexicalIndex(stream.text, self._spans)
        self.features: FloatArray = document_features(stream.text, self._spans, self.lexical)
        """[blocks, DOCUMENT_FEATURES]"""
        self.language = language_of(stream.text)
        self._shortlist = ShortlistVectors(encoder, stream.text, self._spans) if encoder is not None else None
        self._path = (
            cache_dir() / "vectors" / f"{identity}-{encoder.name}-3.npy" if encoder is not None else None
        )
        self._vectors: FloatArray | None = None
        self._encoded: list[FloatArray] = []
        self._intent: IntentModel | None = None

    def signals(self, question: str) -> Signals:
        """What the question's words and meaning point at, [blocks] each, before any key is looked at."""
        words, dense = self.lexical.signals(question), None
        if self._vectors is not None and self._encoder is not None:
            dense = self._vectors @ self._encoder.encode([question])[0]
        elif self._shortlist is not None:
            dense = self._shortlist.cosines(question, words.words)
        return replace(words, meaning=dense)

    def forecast(self, turns: Sequence[AskedTurn]) -> IntentForecast:
        """Where the question after `turns` is likely to go."""
        if self._intent is None:
            pages = [(block.page_first, block.page_last) for block in self.stream.blocks]
            self._intent = IntentModel(self.stream.text, self._spans, pages, self.lexical)
        return self._intent.forecast(turns)

    @property
    def encoded(self) -> bool:
        """Whether nothing is left for `encode`."""
        return self._encoder is None or self._vectors is not None

    def encode(self, most: int | None = None) -> bool:
        """Sentence vectors of `most` further blocks (None: of all); whether all are there now.

        They are computed once per document and kept beside its blocks.
        """
        if self._encoder is None or self._vectors is not None or self._path is None:
            return True
        if not self._encoded and self._path.is_file():
            stored: FloatArray = np.load(self._path)
            if len(stored) == len(self._spans):
                self._vectors = stored
                return True
        first = sum(map(len, self._encoded))
        spans = self._spans[first:] if most is None else self._spans[first : first + most]
        if spans:
            self._encoded.append(encode_blocks(self._encoder, self.stream.text, spans))
        if first + len(spans) < len(self._spans):
            return False
        self._vectors = np.concatenate(self._encoded)
        self._encoded.clear()
        _save(self._path, self._vectors)
        return True


def _save(path: Path, vectors: FloatArray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{time.time_ns()}.tmp")
    with temporary.open("wb") as stream:
        np.save(stream, vectors)
    temporary.replace(path)
