"""Fits the imitation policy to the choices of the offline optimum on a request trace."""

from __future__ import annotations

import hashlib
from dataclasses import replace
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

BLOCKS_PER_REQUEST = 6
"""Blocks of one request are alike: more of them would only drown short requests."""

TREES = 60
CLASSES = (3, 10)
"""Of each score; few, because every class has to show its own times of return.

Chosen on an inner split of the first 60 %, after some larger settings had been seen on the rest.
"""

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
    features, scale = observe(trace)
    labels = _labels(trace, scale)
    if not all(label[rows].any() for label, rows in labels):
        raise TraceError(f"no block of {trace.source} returns: there is nothing to fit; give a longer trace")
    rng = np.random.default_rng(seed)
    rows, weight = _sample(trace, rng)
    heads = []
    for label, usable in labels:
        chosen = usable[rows]
        heads.append(_boost(features[rows[chosen]], label[rows[chosen]], weight[chosen], seed))
    trees = _stack(heads)
    scores = trees.scores(features[rows])
    edges = [_cuts(scores[:, head], classes) for head, classes in enumerate(CLASSES)]
    model = RequestModel(
        trees,
        (edges[0], edges[1]),
        np.full((CLASSES[0] * CLASSES[1], AGES), 0.02),
        trained_on or trace_hash(trace),
        seed,
        command,
    )
    return _with_hazard(model, trace)


def _cuts(scores: FloatArray, classes: int) -> FloatArray:
    """Inner cuts at quantiles that lie closer towards high scores, where the choices are made."""
    shares = np.linspace(0, 1, classes + 1)[1:-1]
    return np.asarray(np.quantile(scores, 1 - (1 - shares) ** 2))


def observe(trace: RequestTrace) -> tuple[FloatArray, FloatArray]:
    """[references, features] at each reference, and [references] the timescale then, in seconds."""
    history = BlockHistory()
    rows, scales = [], []
    for request in requests_of(trace):
        if request.blocks:
            rows.append(history.observe(request))
            scales.append(np.full(len(request.blocks), history.timescale_s))
    return np.concatenate(rows), np.concatenate(scales)


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


def _sample(trace: RequestTrace, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """References to fit on, and their weights: a long request weighs more than a short one, less than its length."""
    rows, weights = [], []
    for low, high in zip(trace.starts[:-1], trace.starts[1:], strict=True):
        count = min(BLOCKS_PER_REQUEST, high - low)
        rows.append(rng.choice(np.arange(low, high), count, replace=False))
        weights.append(np.full(count, ((high - low) / max(count, 1)) ** 0.7))
    return np.concatenate(rows), np.concatenate(weights)


def _boost(features: FloatArray, label: BoolArray, weight: FloatArray, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=TREES,
        learning_rate=0.08,
        max_depth=DEPTH,
        min_samples_leaf=150,
        l2_regularization=5.0,
        max_features=0.4,
        early_stopping=False,
        random_state=seed,
    )
    return model.fit(features, label, sample_weight=weight)


def _stack(heads: list[Any]) -> TreeScores:
    parts = [
        (head, predictors[0].nodes) for head, model in enumerate(heads) for predictors in model._predictors
    ]
    feature = np.zeros((len(parts), NODES), dtype=np.int64)
    threshold = np.full((len(parts), NODES), _ALWAYS_LEFT, dtype=np.float32)
    leaf = np.zeros((len(parts), LEAVES), dtype=np.float32)
    for row, (_, nodes) in enumerate(parts):
        _fill(nodes, 0, 0, feature[row], threshold[row], leaf[row])
    base = np.array([float(model._baseline_prediction.ravel()[0]) for model in heads], dtype=np.float32)
    return TreeScores(feature, threshold, leaf, np.array([head for head, _ in parts]), base)


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
