"""How an answer's tokens are drawn, and its text given out: each piece once, never past a stop sequence."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerolayer.runtime.answering import Decoding
from zerolayer.server.turns import Sampling, TextDelta

if TYPE_CHECKING:
    import torch


def chooser(sampling: Sampling) -> Callable[[torch.Tensor], int] | None:
    """Draws a token id from logits `[vocabulary]`; None where the likeliest one is taken (temperature 0).

    Temperature, then the `top_k` likeliest, then the smallest set of at least `top_p` (Holtzman et al., The Curious
    Case of Neural Text Degeneration, 2020). One seed draws the same tokens from the same logits.
    """
    if sampling.temperature <= 0.0:
        return None
    import torch

    generator = torch.Generator().manual_seed(sampling.seed)

    def choose(logits: torch.Tensor) -> int:
        scores = logits.detach().float().cpu() / max(sampling.temperature, 1e-4)
        count = min(sampling.top_k, len(scores)) if sampling.top_k > 0 else len(scores)
        values, ids = torch.topk(scores, count)
        chances = torch.softmax(values, dim=-1)
        if sampling.top_p < 1.0:
            before = torch.cumsum(chances, dim=-1) - chances
            chances[before >= max(sampling.top_p, 1e-9)] = 0.0
        return int(ids[torch.multinomial(chances, 1, generator=generator)])

    return choose


class AnswerText:
    """An answer's text as its tokens come. A piece is given out when no later token can change it.

    It ends before the first stop sequence, wherever the borders of tokens lie; `decoding` is told then, and what of
    the answer is to be kept.
    """

    def __init__(
        self,
        tokenizer: Any,
        decoding: Decoding,
        stops: tuple[str, ...],
        give: Callable[[TextDelta], None],
    ) -> None:
        self._tokenizer, self._decoding, self._give = tokenizer, decoding, give
        self._stops = tuple(filter(None, stops))
        self._ids: list[int] = []
        self._ends: list[int] = []  # length of the settled text after each token
        self._text = ""  # settled
        self._from, self._read = 0, 0  # tokens that are decoded again, and of these those that are settled
        self._given, self._told = 0, 0  # characters given out, and their tokens
        self.stop: str | None = None
        """The stop sequence that ended the answer."""

    @property
    def tokens(self) -> int:
        """Tokens taken in."""
        return len(self._ids)

    @property
    def whole(self) -> str:
        """All that has been given out."""
        return self._text[: self._given]

    def add(self, token: int) -> None:
        """Take in a token; what it settles is given out."""
        self._ids.append(token)
        # Only the end is decoded again: a token may change what the one before it looks like, no earlier one.
        settled, now = self._decode(self._from, self._read), self._decode(self._from, len(self._ids))
        if len(now) > len(settled) and not now.endswith("\ufffd"):
            self._text += now[len(settled) :]
            self._from, self._read = self._read, len(self._ids)
        self._ends.append(len(self._text))
        self._advance(last=False)

    def finish(self) -> str:
        """The whole text, white space at its ends left out; gives out what is left, but for half a character."""
        if self.stop is None:
            settled, now = self._decode(self._from, self._read), self._decode(self._from, len(self._ids))
            self._text += now[len(settled) :].rstrip("\ufffd")
            if self._ends:
                self._ends[-1] = len(self._text)
            self._advance(last=True)
        return self._text.strip()

    def _decode(self, first: int, end: int) -> str:
        return str(self._tokenizer.decode(self._ids[first:end], skip_special_tokens=True))

    def _advance(self, last: bool) -> None:
        """Give out what is settled, up to where a stop sequence stands or may begin."""
        if self.stop is not None:
            return
        found = [(at, stop) for stop in self._stops if (at := self._text.find(stop, self._given)) >= 0]
        if found:
            at, self.stop = min(found)
            self._text = self._text[:at]
            self._cut()
            self._emit(at)
            return
        self._emit(len(self._text) - (0 if last else self._held()))

    def _held(self) -> int:
        """Characters at the end that may begin a stop sequence."""
        text = self._text[self._given :]
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0

    def _emit(self, end: int) -> None:
        if end <= self._given:
            return
        last = min(bisect_left(self._ends, end), len(self._ends) - 1)
        first = min(bisect_right(self._ends, self._given), self._told)
        self._give(TextDelta(self._text[self._given : end], first, last + 1))
        self._given, self._told = end, last + 1

    def _cut(self) -> None:
        """No further token; of those that there are, the ones before the stop are kept, and the text between."""
        inside = bisect_right(self._ends, len(self._text))
        whole = self._ends[inside - 1] if inside else 0
        rows = bisect_left(self._ends, whole) + 1 if whole else 0
        rest = self._text[whole:]
        more = self._tokenizer(rest, add_special_tokens=False)["input_ids"] if rest else []
        self._decoding.kept_ids = [*self._ids[:rows], *more]
        self._decoding.kept_rows = rows
        self._decoding.ended = True
