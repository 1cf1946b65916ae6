"""Synthetic documents of any length, out of the generated contract's clauses, for benches that need tokens."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from zerolayer.bench.contract import write_contract
from zerolayer.documents import Document, read_document
from zerolayer.documents.document import Page


@cache
def contract_text(seed: int = 0) -> str:
    """The text of a generated 127-page contract, about 59,000 SmolLM2 tokens."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contract.pdf"
        write_contract(path, seed=seed)
        return read_document(path).text


def long_text(tokenizer: Any, tokens: int, seed: int = 0) -> str:
    """At least `tokens` tokens of contracts with different seeds, cut close to that length."""
    text, part = "", 0
    while True:
        text += contract_text(seed + part) + "\n\n"
        offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)[
            "offset_mapping"
        ]
        if len(offsets) >= tokens:
            return text[: offsets[tokens - 1][1]]
        part += 1


def as_document(text: str, name: str) -> Document:
    """A document of one page."""
    return Document(name, text, (Page(1, 0, len(text)),), "")
