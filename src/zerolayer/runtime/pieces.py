"""Token ids become text piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Pieces(Protocol):
    """Takes tokens in and gives text out."""

    def add(self, token: int) -> None:
        """Take in a token; what it settles is given out."""
        ...

    def finish(self) -> str:
        """The whole text; gives out what is left."""
        ...


class TextPieces:
    """Turns token ids into text as they come: a piece is given out once, when it can no longer change."""

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None] | None) -> None:
        self._tokenizer, self._on_text = tokenizer, on_text
        self._ids: list[int] = []
        self._given = 0

    def add(self, token: int) -> None:
        """Take in a token; what it settles is given out."""
        self._ids.append(token)
        text = self._text()
        if not text.endswith("\ufffd"):  # half a character: the next token completes it
            self._give(text)

    def finish(self) -> str:
        """The whole text; gives out what is left, but for half a character at the end of a cut answer."""
        text = self._text().rstrip("\ufffd")
        self._give(text)
        return text.strip()

    def _text(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))

    def _give(self, text: str) -> None:
        if self._on_text is not None and len(text) > self._given:
            self._on_text(text[self._given :])
        self._given = max(self._given, len(text))
