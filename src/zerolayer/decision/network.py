"""The network of a learned window strategy: a few numpy products, and the small file that holds it.

The file is JSON: `format` ("zerolayer-window-policy"), `version`, `seed`, `command` (what rebuilds it), `traces`
(SHA-256 of every session it was trained on), `fields` and `actions` (what it reads and sets, by name), `weights`,
`biases`, and what training noted (`curve`, `settings`, `scores`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from zerolayer.core import BoolArray, FloatArray
from zerolayer.decision.observation import FIELDS, SIZE
from zerolayer.decision.strategy import ACTION_FIELDS, ACTION_SIZES
from zerolayer.errors import SettingError

FORMAT = "zerolayer-window-policy"
VERSION = 1

SHIPPED = Path(__file__).parent / "data" / "ppo.json"
"""The policy that `ppo` uses where no other file is named."""


@dataclass(frozen=True)
class PolicyNetwork:
    """Two hidden layers of tanh and one logit for each index of each action field.

    `weights` are float32 [in, out], `biases` [out]. Raises SettingError for shapes that do not fit observation and
    actions, or for numbers that are not finite.
    """

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]

    def __post_init__(self) -> None:
        sizes = [SIZE, *(weight.shape[1] for weight in self.weights)]
        shapes = [weight.shape for weight in self.weights]
        expected = list(pairwise(sizes))
        if shapes != expected or sizes[-1] != sum(ACTION_SIZES) or [len(b) for b in self.biases] != sizes[1:]:
            raise SettingError(
                f"policy network has layers {shapes}; it must lead from {SIZE} observations to "
                f"{sum(ACTION_SIZES)} action logits: train it again with this version"
            )
        if not all(np.isfinite(array).all() for array in (*self.weights, *self.biases)):
            raise SettingError("policy network has weights that are not finite; train it again")

    def logits(self, observation: FloatArray) -> FloatArray:
        """[sum(ACTION_SIZES)] for one observation [SIZE]."""
        hidden = observation
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = hidden.dot(weight)  # dot, not @: half the overhead at this size
            hidden += bias
            np.tanh(hidden, out=hidden)
        out: FloatArray = hidden.dot(self.weights[-1])
        out += self.biases[-1]
        return out

    def act(self, observation: FloatArray, mask: BoolArray) -> tuple[int, ...]:
        """The likeliest valid index of each field."""
        logits = np.where(mask, self.logits(observation), -np.inf).tolist()
        chosen, start = [], 0
        for size in ACTION_SIZES:
            part = logits[start : start + size]
            chosen.append(part.index(max(part)))
            start += size
        return tuple(chosen)


@dataclass(frozen=True)
class PolicyFile:
    """A network and where it comes from."""

    network: PolicyNetwork
    seed: int
    command: str
    traces: tuple[str, ...]  # SHA-256 of the sessions that it was trained on
    notes: dict[str, Any] = field(default_factory=dict)  # learning curve, settings, scores

    def summary(self) -> dict[str, Any]:
        """Where it comes from and what it reached, without weights and curves."""
        return {
            "seed": self.seed,
            "command": self.command,
            "traces": len(self.traces),
            "fields": list(FIELDS),
            "actions": dict(zip(ACTION_FIELDS, ACTION_SIZES, strict=True)),
            **{name: value for name, value in self.notes.items() if name != "curves"},
        }

    def write(self, path: Path) -> None:
        """Write the file; it appears whole or not at all."""
        record = {
            "format": FORMAT,
            "version": VERSION,
            "seed": self.seed,
            "command": self.command,
            "traces": list(self.traces),
            "fields": list(FIELDS),
            "actions": dict(zip(ACTION_FIELDS, ACTION_SIZES, strict=True)),
            **self.notes,
            "weights": [_rounded(weight) for weight in self.network.weights],
            "biases": [_rounded(bias) for bias in self.network.biases],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(record) + "\n", encoding="utf-8")
        partial.replace(path)


def read_policy(path: Path = SHIPPED) -> PolicyFile:
    """Read a policy file. Raises SettingError where it is none, or was trained for other fields or actions."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingError(f"{path} cannot be read as a policy: {error}; train one") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT or record.get("version") != VERSION:
        raise SettingError(f"{path} is no policy of format {FORMAT} version {VERSION}; train it again")
    if record.get("fields") != list(FIELDS) or record.get("actions") != dict(
        zip(ACTION_FIELDS, ACTION_SIZES, strict=True)
    ):
        raise SettingError(
            f"{path} reads other fields or sets other actions than this version; train it again"
        )
    try:
        network = PolicyNetwork(
            tuple(np.asarray(weight, dtype=np.float32) for weight in record["weights"]),
            tuple(np.asarray(bias, dtype=np.float32) for bias in record["biases"]),
        )
        known = ("format", "version", "seed", "command", "traces", "fields", "actions", "weights", "biases")
        notes = {name: value for name, value in record.items() if name not in known}
        return PolicyFile(network, int(record["seed"]), record["command"], tuple(record["traces"]), notes)
    except (KeyError, TypeError, ValueError) as error:
        raise SettingError(f"{path} is damaged: {error!r}; train it again") from error


def _rounded(array: FloatArray) -> Any:
    """Nested lists at seven significant digits, which float32 needs no more than."""
    return [_rounded(row) if row.ndim else float(f"{float(row):.7g}") for row in array]
