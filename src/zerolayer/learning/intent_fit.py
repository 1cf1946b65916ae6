"""Fits what `perception/data/intent.json` ships: `python -m zerolayer.learning.intent_fit DATA OUT`.

Two ways of asking are fitted on the train contracts, in both wordings: shuffled (any order) and by evidence (reading
order). The order of the file is not fitted. Acts are fitted on the train dialogues. Same data and seed, same file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from zerolayer.core import FloatArray, IntArray
from zerolayer.learning.intent_data import Dialogue, IntentCase, Order, dialogues, intent_case
from zerolayer.learning.labelled import WORDINGS, labelled_contracts
from zerolayer.perception.intent_acts import ACTS, act_features, act_of
from zerolayer.perception.intent_features import FEATURES
from zerolayer.perception.intent_model import IntentParameters

FITTED: dict[str, Order] = {"any order": "shuffled", "reading": "reading"}
"""Way of asking → the order of the train questions that it is fitted on."""

DoubleArray = npt.NDArray[np.float64]

_OTHERS = 80  # blocks without evidence that are sampled a question
_RIDGE = 2.0
_ACT_RIDGE = 1.0  # by 4-fold cross-validation on the train dialogues


def conditional_logit(
    features: FloatArray, offsets: FloatArray, targets: FloatArray, ridge: float, rounds: int = 25
) -> FloatArray:
    """Weights [f] of the likeliest conditional logit, by Newton's method with halved steps.

    `features` [n, k, f], `offsets` [n, k] (-inf for no alternative), `targets` [n, k] probabilities that sum to 1.
    The penalty is ridge / 2 · |weights|².
    """
    weights: DoubleArray = np.zeros(features.shape[2])
    flat = features.reshape(-1, features.shape[2])
    wanted = targets.ravel() @ flat

    def evaluate(at: DoubleArray) -> tuple[float, DoubleArray]:
        scores = (flat @ at.astype(np.float32)).reshape(offsets.shape).astype(np.float64) + offsets
        top = scores.max(axis=1, keepdims=True)
        powers = np.exp(scores - top)
        total = powers.sum(axis=1, keepdims=True)
        logs = np.where(targets > 0, scores - top - np.log(total), 0.0)
        return float(-(targets * logs).sum() + ridge / 2 * at @ at), powers / total

    loss, chance = evaluate(weights)
    for _ in range(rounds):
        weighted = flat * chance.reshape(-1, 1)
        means = weighted.reshape(features.shape).sum(axis=1)
        gradient = means.sum(axis=0) - wanted + ridge * weights
        hessian = weighted.T @ flat - means.T @ means + ridge * np.eye(len(weights))
        step, size = np.linalg.solve(hessian, gradient), 1.0
        new_loss, new_chance = evaluate(weights - step)
        while new_loss > loss and size > 1e-3:
            size /= 2
            new_loss, new_chance = evaluate(weights - size * step)
        improved = loss - new_loss
        if improved <= 0:
            break
        weights, loss, chance = weights - size * step, new_loss, new_chance
        if improved < 1e-4 * abs(loss) / 100:
            break
    return weights.astype(np.float32)


def fit_order(cases: Sequence[IntentCase], order: Order, seed: int, ridge: float = _RIDGE) -> FloatArray:
    """Weights [features] of one way of asking: every question but the first, given those before it.

    Blocks without evidence are sampled, and the offset says so (sampling of alternatives, McFadden 1978).
    """
    generator = np.random.default_rng(seed)
    examples = []
    for case in cases:
        turns = [case.turns[i] for i in case.order(order, seed)]
        for at in range(len(turns)):
            columns = case.model.features.of(turns[:at])
            examples.append(_sample(columns, case.model.features.offset, turns[at].rows, generator))
    width = max(len(offset) for _, offset, _ in examples)
    features = np.zeros((len(examples), width, len(FEATURES)), dtype=np.float32)
    offsets = np.full((len(examples), width), -np.inf, dtype=np.float32)
    targets = np.zeros((len(examples), width), dtype=np.float32)
    for n, (columns, offset, target) in enumerate(examples):
        features[n, : len(offset)], offsets[n, : len(offset)] = columns, offset
        targets[n, : len(offset)] = target
    return conditional_logit(features, offsets, targets, ridge)


def _sample(
    columns: FloatArray, offset: FloatArray, used: IntArray, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Columns, offsets and targets of the used blocks and of a sample of the others."""
    others = np.setdiff1d(np.arange(len(offset)), used)
    chosen = generator.permutation(others)[:_OTHERS]
    rows = np.concatenate([used, chosen])
    shift = np.zeros(len(rows), dtype=np.float32)
    if len(chosen):
        shift[len(used) :] = np.log(len(others) / len(chosen))
    target = np.zeros(len(rows), dtype=np.float32)
    target[: len(used)] = 1 / len(used)
    return columns[rows], offset[rows] + shift, target


def fit_acts(train: Sequence[Dialogue], ridge: float = _ACT_RIDGE) -> tuple[FloatArray, FloatArray]:
    """Weights [acts, act features] of the next act, and the share of each act. First messages are not counted."""
    rows, labels = [], []
    for dialogue in train:
        for at in range(1, len(dialogue.questions)):
            for answers in (dialogue.answers[:at], ()):  # both where answers were observed and where not
                rows.append(act_features(dialogue.questions[:at], answers))
                labels.append(ACTS.index(act_of(dialogue.questions[at])))
    inputs, targets = np.asarray(rows), np.eye(len(ACTS), dtype=np.float32)[labels]
    identity = np.eye(len(ACTS), dtype=np.float32)
    features = np.einsum("kj,nf->nkjf", identity, inputs).reshape(len(rows), len(ACTS), -1)
    weights = conditional_logit(features, np.zeros_like(targets), targets, ridge)
    return weights.reshape(len(ACTS), -1), targets.mean(axis=0)


def fit(data: Path, seed: int = 0) -> IntentParameters:
    """All parameters from the train parts of `data`/cuad and `data`/dialogue. Raises UsageError."""
    nothing = np.zeros(0, dtype=np.float32)
    unfitted = IntentParameters({}, nothing, nothing)
    contracts = labelled_contracts(data / "cuad", "train")
    cases: list[IntentCase] = []
    for contract in contracts:
        model = None
        for wording in WORDINGS:
            cases.append(intent_case(contract, wording, unfitted, model))
            model = cases[-1].model
    orders = {name: fit_order(cases, order, seed) for name, order in FITTED.items()}
    return IntentParameters(orders, *fit_acts(dialogues(data, test=False)))


def main(arguments: Sequence[str]) -> int:
    """Fit on DATA and write OUT."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m zerolayer.learning.intent_fit DATA OUT\n")
        return 2
    text = json.dumps(fit(Path(arguments[0])).to_json(), ensure_ascii=False, indent=1)
    Path(arguments[1]).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
