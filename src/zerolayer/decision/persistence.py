"""Calibrated persistence: from a block's features to the probability of its use within the next 10 turns.

Logistic regression on standardised features, then isotonic calibration of its log-odds, interpolated between
the centres of its steps (centred isotonic regression, Oron and Flournoy 2017), so that ranks survive. Fitting
is learning.calibrate's; serving is one matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zerolayer.core import BLOCK_FEATURES, BlockTable, FloatArray
from zerolayer.errors import SettingError

VERSION = 1

TURN_FEATURES = (
    "recency", "used_last", "use_rate", "use_count", "attention", "neighbours", "match", "match_rank", "best_match",
    "turn", "session_rate", "blocks",
)  # fmt: skip
"""What a session's turns tell of a block; see `turn_features`."""

FEATURES = (*BLOCK_FEATURES, *TURN_FEATURES)

SIGNALS: Mapping[str, tuple[str, ...]] = {
    "dispersion": ("dispersion", "dispersion_min", "dispersion_max", "retrieval_dispersion"),
    "key norm": ("key_norm", "retrieval_key_norm"),
    "distinctiveness": ("distinctiveness",),
    "position": ("position", "head"),
    "section": ("heading", "clause_age"),
    "rarity": ("words", "idf"),
    "anchors": (
        "clause", "reference", "amount", "date", "duration", "percent", "party", "term", "identifier",
    ),
    "recency": ("recency", "used_last"),
    "frequency": ("use_rate", "use_count", "neighbours"),
    "attention": ("attention",),
    "question": ("match", "match_rank", "best_match"),
    "session": ("turn", "session_rate", "blocks"),
}  # fmt: skip
"""Features by the signal they come from: what `explain` and the ablation name."""

_MEMBERS: FloatArray = np.array(
    [[float(name in names) for names in SIGNALS.values()] for name in FEATURES], dtype=np.float32
)
"""[FEATURES, SIGNALS] which feature belongs to which signal."""

RECENCY_TURNS = 4.0
_ATTENTION_UNIT = 0.02
_RATE_PRIOR = (1.0, 50.0)  # pseudo-uses and pseudo-block-turns of the session's rate of use


def turn_features(table: BlockTable) -> FloatArray:
    """`[n, TURN_FEATURES]` of all blocks, from nothing but the table.

    recency: exponential in the turns since the last use. use_rate: uses per turn. neighbours: the larger use
    rate of the two blocks beside. attention: log of the decayed mass. match_rank: 1 / (1 + rank in the
    question's match). best_match: the larger match of the blocks beside. session_rate: log-odds that a block
    is used in a turn, over the session so far. turn and blocks: logs of their numbers.
    """
    n, turns = len(table), table.turn + 1
    used = table.last_used_turn >= 0
    age = np.maximum(table.turn - table.last_used_turn, 0)
    rate = table.use_count / turns
    ranks = np.empty(n, dtype=np.float32)
    ranks[np.argsort(-table.match, kind="stable")] = np.arange(n)
    share = (table.use_count.sum() + _RATE_PRIOR[0]) / (turns * n + _RATE_PRIOR[1])
    columns = (
        np.where(used, np.exp(-age / RECENCY_TURNS), 0.0),
        used & (age == 0),
        rate,
        np.log1p(table.use_count),
        np.log1p(np.maximum(table.attention, 0.0) / _ATTENTION_UNIT),
        _beside(rate),
        table.match,
        np.where(table.match > 0, 1.0 / (1.0 + ranks), 0.0),
        _beside(table.match),
        np.full(n, np.log1p(table.turn)),
        np.full(n, np.log(share / (1.0 - share))),
        np.full(n, np.log(max(n, 1))),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _beside(values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """[n] the larger value of the block before and the block after."""
    best = np.zeros_like(values)
    best[1:] = values[:-1]
    best[:-1] = np.maximum(best[:-1], values[1:])
    return best


def all_features(table: BlockTable) -> FloatArray:
    """`[n, FEATURES]`."""
    return np.concatenate([table.features, turn_features(table)], axis=1)


@dataclass(frozen=True)
class PersistenceModel:
    """A fit for one language, and for one model where `fingerprint` is not empty. Arrays are [FEATURES].

    A feature that the fit did not use has weight 0; a value that is not known counts as the mean.
    """

    language: str
    fingerprint: str
    demand: str  # what "used" meant in fitting
    mean: FloatArray
    scale: FloatArray
    weight: FloatArray
    bias: float
    knots: FloatArray  # [k, 2] rising log-odds and the probability at each
    notes: Mapping[str, Any] = field(default_factory=dict)  # how it was fitted and what it reached

    def probability(self, table: BlockTable) -> FloatArray:
        """[n] probability, 0 to 1, that a block is used within the next 10 turns."""
        return self.calibrated(self.log_odds(all_features(table)))

    def log_odds(self, features: FloatArray) -> FloatArray:
        """[n] of `[n, FEATURES]`, before calibration."""
        odds: FloatArray = self._standard(features) @ self.weight + np.float32(self.bias)
        return odds

    def calibrated(self, log_odds: FloatArray) -> FloatArray:
        """[n] probabilities of log-odds."""
        return np.interp(log_odds, self.knots[:, 0], self.knots[:, 1]).astype(np.float32)

    def contributions(self, features: FloatArray) -> dict[str, FloatArray]:
        """Log-odds that each signal adds, [n] each, of `[n, FEATURES]`; signals without weight are left out."""
        weighed: FloatArray = (self._standard(features) * self.weight).astype(np.float32)
        parts: FloatArray = weighed @ _MEMBERS
        weighted: FloatArray = np.abs(self.weight) @ _MEMBERS
        return {name: parts[:, i] for i, name in enumerate(SIGNALS) if weighted[i] > 0}

    def _standard(self, features: FloatArray) -> FloatArray:
        standard: FloatArray = np.nan_to_num((features - self.mean) / self.scale, posinf=0.0, neginf=0.0)
        return standard

    def to_json(self) -> dict[str, Any]:
        """Plain data for a file."""
        return {
            "version": VERSION,
            "language": self.language,
            "fingerprint": self.fingerprint,
            "demand": self.demand,
            "notes": dict(self.notes),
            "bias": round(float(self.bias), 5),
            "features": {
                name: [round(float(v), 5) for v in (self.mean[i], self.scale[i], self.weight[i])]
                for i, name in enumerate(FEATURES)
                if self.weight[i] != 0.0
            },
            "knots": [[round(float(x), 4), round(float(y), 5)] for x, y in self.knots],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PersistenceModel:
        """Raises SettingError for another version, an unknown feature, or numbers that are no fit."""
        if record.get("version") != VERSION:
            raise SettingError(
                f"a calibration of version {record.get('version')!r}; this zerolayer reads version {VERSION}: "
                "run `zerolayer calibrate` again"
            )
        mean, scale, weight = np.zeros((3, len(FEATURES)), dtype=np.float32)
        scale[:] = 1.0
        try:
            for name, values in record["features"].items():
                mean[FEATURES.index(name)], scale[FEATURES.index(name)], weight[FEATURES.index(name)] = values
            knots = np.asarray(record["knots"], dtype=np.float32).reshape(-1, 2)
            model = cls(
                str(record["language"]),
                str(record["fingerprint"]),
                str(record["demand"]),
                mean,
                scale,
                weight,
                float(record["bias"]),
                knots,
                dict(record.get("notes", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SettingError(
                f"a damaged calibration ({error!r}); run `zerolayer calibrate` again"
            ) from error
        rising = len(knots) and bool((np.diff(knots, axis=0) >= 0).all())
        if not rising or not ((knots[:, 1] >= 0) & (knots[:, 1] <= 1)).all() or not (scale > 0).all():
            raise SettingError(
                "a damaged calibration (knots must rise within 0 to 1); run `zerolayer calibrate` again"
            )
        return model
