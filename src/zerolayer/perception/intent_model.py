"""The fitted numbers behind a forecast: conditional logits over blocks, one per way of asking, and one over acts.

A conditional logit (McFadden 1974) gives every alternative exp(weights · features) over the sum of all. The numbers
and the command that rebuilds them stand in data/intent.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np

from zerolayer.core import FloatArray
from zerolayer.perception.intent_acts import ACTS, act_features
from zerolayer.perception.intent_features import FEATURES

REBUILD = "python -m zerolayer.learning.intent_fit ../shared/data src/zerolayer/perception/data/intent.json"
"""The command that fits the shipped parameters again."""


@dataclass(frozen=True, slots=True)
class IntentParameters:
    """What a fit gives. `orders` are weights [features] by the name of the way of asking they were fitted on."""

    orders: dict[str, FloatArray]
    acts: FloatArray  # [acts, act features]
    act_rates: FloatArray  # [acts] share of each act among the turns it was fitted on

    def to_json(self) -> dict[str, object]:
        """As `data/intent.json` holds it, numbers rounded to four digits."""
        return {
            "rebuild": REBUILD,
            "features": list(FEATURES),
            "orders": {name: _rounded(weights) for name, weights in self.orders.items()},
            "act_names": [act.value for act in ACTS],
            "acts": [_rounded(row) for row in self.acts],
            "act_rates": _rounded(self.act_rates),
        }

    @classmethod
    def from_json(cls, data: dict[str, object]) -> IntentParameters:
        """The inverse of `to_json`. Raises ValueError for parameters of other features or acts than the code's."""
        if data["features"] != list(FEATURES) or data["act_names"] != [act.value for act in ACTS]:
            raise ValueError(f"intent parameters belong to other features; fit them again: {REBUILD}")
        orders, acts = data["orders"], np.asarray(data["acts"], dtype=np.float32)
        if not isinstance(orders, dict) or acts.shape != (len(ACTS), len(act_features([], []))):
            raise ValueError(
                f"intent parameters have another shape than the code's; fit them again: {REBUILD}"
            )
        return cls(
            {str(name): np.asarray(weights, dtype=np.float32) for name, weights in orders.items()},
            acts,
            np.asarray(data["act_rates"], dtype=np.float32),
        )

    def act_probabilities(self, questions: Sequence[str], answers: Sequence[str]) -> FloatArray:
        """[acts] probability that the next message is of each kind, after the dialogue so far."""
        return softmax(self.acts @ act_features(questions, answers))


@lru_cache(maxsize=1)
def shipped_parameters() -> IntentParameters:
    """The parameters that come with the package."""
    text = files("zerolayer.perception").joinpath("data/intent.json").read_text(encoding="utf-8")
    return IntentParameters.from_json(json.loads(text))


def softmax(scores: FloatArray) -> FloatArray:
    """Probabilities proportional to exp(scores)."""
    powers: FloatArray = np.exp(scores - scores.max()).astype(np.float32)
    chances: FloatArray = (powers / powers.sum()).astype(np.float32)
    return chances


def _rounded(values: FloatArray) -> list[float]:
    return [round(float(value), 4) for value in values]
