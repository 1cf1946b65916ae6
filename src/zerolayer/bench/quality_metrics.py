"""Numbers of the quality bench: divergence from the full cache, agreement, answer F1, and their means."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zerolayer.bench.common import bootstrap_interval

if TYPE_CHECKING:
    import torch

RESAMPLES = 2000
"""Bootstrap resamples of an interval."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Score:
    """One method's answer to one question, beside the full cache's."""

    model: str
    contract: str
    turn: int  # from 1
    method: str
    share: int  # percent of the document's blocks
    kl: float  # nats, mean over the answer's tokens
    top1: float
    f1: float | None  # of the method's own greedy answer against the gold answer
    visible: float  # share of the document's tokens in sight
    knit_tokens: int = 0


def kl_divergence(reference: torch.Tensor, logits: torch.Tensor) -> float:
    """KL(reference || logits) in nats, mean over tokens. Log-probabilities and logits, `[tokens, vocabulary]`."""
    own = logits.log_softmax(dim=-1)
    return max(0.0, float((reference.exp() * (reference - own)).sum(-1).mean()))


def top1_agreement(reference: torch.Tensor, logits: torch.Tensor) -> float:
    """Share of rows whose likeliest token is the same."""
    return float((reference.argmax(-1) == logits.argmax(-1)).float().mean())


def answer_f1(answer: str, gold: str) -> float:
    """Harmonic mean of precision and recall of words (SQuAD, arXiv:1606.05250): case and articles do not count."""
    words, expected = (Counter(_WORD.findall(_ARTICLES.sub(" ", text.lower()))) for text in (answer, gold))
    common = sum((words & expected).values())
    if not common:
        return float(not words and not expected)
    precision, recall = common / sum(words.values()), common / sum(expected.values())
    return 2 * precision * recall / (precision + recall)


def interval(values: Sequence[Sequence[float]], seed: int) -> list[float]:
    """95 % bootstrap interval of the mean over groups of values (contracts): groups are drawn, not values."""
    groups = [number for number, group in enumerate(values) for _ in group]
    flat = [value for group in values for value in group]
    return list(bootstrap_interval(flat, groups, seed, RESAMPLES))


def summary(scores: Sequence[Score], seed: int) -> dict[str, Any]:
    """Means of one model's scores by method and share, intervals over contracts, and KL by turn."""
    methods = list(dict.fromkeys(score.method for score in scores))
    shares = sorted({score.share for score in scores})
    result: dict[str, Any] = {name: {} for name in ("kl", "kl_interval", "top1", "f1", "visible", "by_turn")}
    for method in methods:
        rows = {share: [s for s in scores if s.method == method and s.share == share] for share in shares}
        rows = {share: row for share, row in rows.items() if row}
        for name, value in _VALUES.items():
            result[name][method] = {str(share): _mean(row, value) for share, row in rows.items()}
        result["kl_interval"][method] = {
            str(share): interval(list(_by_contract(row).values()), seed) for share, row in rows.items()
        }
        result["by_turn"][method] = {str(share): _turns(row) for share, row in rows.items()}
    return result


_VALUES: dict[str, Callable[[Score], float | None]] = {
    "kl": lambda score: score.kl,
    "top1": lambda score: score.top1,
    "f1": lambda score: score.f1,
    "visible": lambda score: score.visible,
}


def _mean(rows: Sequence[Score], value: Callable[[Score], float | None]) -> float | None:
    values = [number for row in rows if (number := value(row)) is not None]
    return float(np.mean(values)) if values else None


def _by_contract(rows: Sequence[Score]) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row.contract, []).append(row.kl)
    return groups


def _turns(rows: Sequence[Score]) -> dict[str, list[float | None]]:
    """Means of every value by turn, the first turn first."""
    turns = sorted({row.turn for row in rows})
    return {
        name: [_mean([row for row in rows if row.turn == turn], _VALUES[name]) for turn in turns]
        for name in ("kl", "top1", "f1")
    }
