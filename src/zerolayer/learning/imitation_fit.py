"""Fits the imitation policy to the choices of the offline optimum on a request trace."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerolayer.core import BoolArray, FloatArray, IntArray
from zerolayer.decision.request_features import BlockHistory
from zerolayer.decision.request_model import BlockTracker, RequestModel
from zerolayer.decision.request_oracle import NEVER, next_uses, optimal_hits
from zerolayer.decision.request_survival import AGES
from zerolayer.decision.request_trees import DEPTH, LEAVES, NODES, TreeScores
from zerolayer.errors import TraceError
from zerolayer.learning.requests import RequestTrace
from zerolayer.learning.simulate import requests_of

LENGTH_POWER = 0.7
"""A request weighs as its length to this power: blocks of one request return together and are no independent cases."""

FORESTS = 4
"""Each score is the mean of so many boosted models of other seeds: one alone moves the share of the optimum by up to 3
points from seed to seed."""

TREES = 30
"""Of each boosted model."""

CLASSES = (3, 10)
"""Of each score; few, because every class has to show its own times of return."""

LABEL_CAPACITY = 0.02
"""Share of unique blocks at which the optimum's choices are the label."""

_ALWAYS_LEFT = np.float32(1e30)


def trace_hash(trace: RequestTrace) -> str:
    """SHA-256 of a trace's references and times: what it is known by."""
    digest = hashlib.sha256()
    for part in (trace.blocks, trace.starts, np.round(trace.times_s, 3)):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def fit_imitation(
    trace: RequestTrace, seed: int = 0, command: str = "", trained_on: str = ""
) -> RequestModel:
    """Fit on a whole trace; give the part that may be fitted on.

    Raises TraceError where nothing ever returns. Needs scikit-learn (the learn extra).
    """
    observed = observe(trace)
    weight = observed.weights(trace)
    heads = []
    for label, usable in _labels(trace, observed.scale):
        good, bad = (observed.sums(part & usable) * weight for part in (label, ~label))
        if not good.any():
            raise TraceError(
                f"no block of {trace.source} returns: there is nothing to fit; give a longer trace"
            )
        seeds = range(FORESTS * seed, FORESTS * (seed + 1))
        heads.append([_boost(observed.features, good, bad, number) for number in seeds])
    trees = _stack(heads)
    scores = trees.scores(observed.features)
    weight = weight * observed.sums(np.ones(trace.references, dtype=np.bool_))
    edges = [_cuts(scores[:, head], weight, classes) for head, classes in enumerate(CLASSES)]
    model = RequestModel(
        trees,
        (edges[0], edges[1]),
        np.full((CLASSES[0] * CLASSES[1], AGES), 0.02),
        trained_on or trace_hash(trace),
        seed,
        command,
    )
    return _with_hazard(model, trace)


def _cuts(scores: FloatArray, weight: FloatArray, classes: int) -> FloatArray:
    """Inner cuts at quantiles that lie closer towards high scores, where the choices are made."""
    shares = np.linspace(0, 1, classes + 1)[1:-1]
    order = np.argsort(scores)
    passed = np.cumsum(weight[order])
    return np.asarray(scores[order][np.searchsorted(passed, (1 - (1 - shares) ** 2) * passed[-1])])


@dataclass(frozen=True, eq=False)
class Observed:
    """The segments of all requests, as a policy sees them."""

    features: FloatArray  # [segments, REQUEST_FEATURES]
    first: IntArray  # [segments] its first reference
    request: IntArray  # [segments] its request
    scale: FloatArray  # [references] the timescale then, in seconds

    def sums(self, flags: BoolArray) -> FloatArray:
        """[segments] references that have the flag."""
        return np.add.reduceat(flags.astype(np.float64), self.first)

    def weights(self, trace: RequestTrace) -> FloatArray:
        """[segments] of a reference: a long request weighs more than a short one, but less than its length."""
        return np.asarray(np.diff(trace.starts)[self.request] ** (LENGTH_POWER - 1.0))


def observe(trace: RequestTrace) -> Observed:
    """What a policy would see of each request. Raises TraceError for a trace without references."""
    if not trace.references:
        raise TraceError(f"{trace.source} references no block; give a longer trace")
    history = BlockHistory()
    features, first, owner = [], [], []
    scale = np.empty(trace.references, dtype=np.float32)
    for number, request in enumerate(requests_of(trace)):
        low, high = int(trace.starts[number]), int(trace.starts[number + 1])
        if low < high:
            segments = history.observe(request)
            features.append(segments.features)
            first.append(low + np.concatenate([[0], segments.ends[:-1]]))
            owner.append(np.full(len(segments.ends), number))
            scale[low:high] = history.timescale_s
    return Observed(np.concatenate(features), np.concatenate(first), np.concatenate(owner), scale)


def _labels(trace: RequestTrace, scale: FloatArray) -> list[tuple[BoolArray, BoolArray]]:
    """For each score: [references] the label, and whether it is known before the trace ends."""
    times = np.repeat(trace.times_s, np.diff(trace.starts))
    upcoming = next_uses(trace.blocks)
    known = upcoming != NEVER
    wait = np.where(known, times[np.where(known, upcoming, 0)] - times, np.inf)
    left = times[-1] - times
    unique = len(np.unique(trace.blocks))
    hits = optimal_hits(trace.blocks, max(1, round(LABEL_CAPACITY * unique)))
    kept = known & hits[np.where(known, upcoming, 0)]
    return [(wait <= scale / 2, left >= scale / 2), (kept, left >= 2 * scale)]


def _boost(features: FloatArray, good: FloatArray, bad: FloatArray, seed: int) -> Any:
    """A classifier of segments, `good` of whose (weighted) blocks have the label and `bad` do not."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=TREES,
        learning_rate=0.12,
        max_depth=DEPTH,
        min_samples_leaf=150,
        l2_regularization=5.0,
        max_features=0.4,
        early_stopping=False,
        random_state=seed,
    )
    rows = np.concatenate([np.flatnonzero(good), np.flatnonzero(bad)])
    label = np.arange(len(rows)) < np.count_nonzero(good)
    weight = np.concatenate([good[good > 0], bad[bad > 0]])
    return model.fit(features[rows], label, sample_weight=weight / weight.mean())


def _stack(heads: list[list[Any]]) -> TreeScores:
    """The trees of all models; a score is the mean of its head's models."""
    parts = [
        (head, 1 / len(models), predictors[0].nodes)
        for head, models in enumerate(heads)
        for model in models
        for predictors in model._predictors
    ]
    feature = np.zeros((len(parts), NODES), dtype=np.int64)
    threshold = np.full((len(parts), NODES), _ALWAYS_LEFT, dtype=np.float32)
    leaf = np.zeros((len(parts), LEAVES), dtype=np.float32)
    for row, (_, share, nodes) in enumerate(parts):
        _fill(nodes, 0, 0, feature[row], threshold[row], leaf[row])
        leaf[row] *= share
    base = [np.mean([float(model._baseline_prediction.ravel()[0]) for model in models]) for models in heads]
    owner = np.array([head for head, _, _ in parts])
    return TreeScores(feature, threshold, leaf, owner, np.array(base, dtype=np.float32))


def _fill(
    nodes: Any, source: int, place: int, feature: IntArray, threshold: FloatArray, leaf: FloatArray
) -> None:
    """Copy the tree below node `source` to `place`; a leaf above the last level is passed down to the left."""
    node = nodes[source]
    if place >= NODES:
        leaf[place - NODES] = node["value"]
    elif node["is_leaf"]:
        _fill(nodes, source, 2 * place + 1, feature, threshold, leaf)
    else:
        feature[place], threshold[place] = node["feature_idx"], node["num_threshold"]
        _fill(nodes, int(node["left"]), 2 * place + 1, feature, threshold, leaf)
        _fill(nodes, int(node["right"]), 2 * place + 2, feature, threshold, leaf)


def _with_hazard(model: RequestModel, trace: RequestTrace) -> RequestModel:
    """The model with the times of return that its classes show on the trace."""
    tracker = BlockTracker(model)
    for request in requests_of(trace):
        tracker.begin(request)
    survival = tracker.survival
    pooled = (survival.events.sum(axis=0) + 1) / (survival.exposed.sum(axis=0) + 50)
    hazard = (survival.events + pooled * 100) / (survival.exposed + 100)
    return replace(model, hazard=np.clip(hazard, 1e-6, 0.999))
