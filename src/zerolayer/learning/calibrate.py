"""Fits calibrated persistence: logistic regression on standardised features, calibrated by isotonic regression.

The isotonic step sees log-odds of documents that the regression it scores has not seen (cross-fitting by
document), so it corrects what fitting on few documents overstates. A signal of `on_trial` stays only if it
lowers the log loss on documents left out; otherwise its weight is 0. Needs scikit-learn; serving does not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zerolayer.core import BoolArray, FloatArray, IntArray
from zerolayer.decision.persistence import FEATURES, SIGNALS, PersistenceModel
from zerolayer.errors import UsageError
from zerolayer.learning.calibrate_sessions import Snapshots

ON_TRIAL = ("dispersion", "key norm", "distinctiveness")
"""Signals that have to earn their place: what keys tell, which literature and measurement disagree about."""

_FOLDS = 5
_PENALTY = 1.0  # scikit-learn's C: a weak L2 penalty
_LEAST_GAIN = 0.002  # of the log loss, as a share; smaller gains change from fold to fold
_KNOTS = 40
_MOST_SAMPLES = 200_000

_Columns = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Linear:
    """A logistic regression on some columns of the features; arrays are [FEATURES]."""

    mean: FloatArray
    scale: FloatArray
    weight: FloatArray
    bias: float

    def log_odds(self, features: FloatArray) -> FloatArray:
        """[m] of `[m, FEATURES]`; a value that is not known counts as the mean."""
        odds: FloatArray = np.nan_to_num((features - self.mean) / self.scale) @ self.weight + self.bias
        return odds


def fit(
    samples: Snapshots,
    language: str,
    fingerprint: str,
    demand: str,
    signals: Collection[str] = tuple(SIGNALS),
    on_trial: Collection[str] = ON_TRIAL,
    seed: int = 0,
    notes: dict[str, Any] | None = None,
) -> PersistenceModel:
    """The model of `signals`, of those `on_trial` only what helps. Raises UsageError where nothing can be learned."""
    chosen = _thinned(samples, seed)
    folds = _folds(chosen.document, seed)
    if not chosen.used.any() or chosen.used.all() or len(np.unique(folds)) < 2:
        raise UsageError(
            f"nothing to calibrate on: {len(np.unique(chosen.document))} documents with {int(chosen.used.sum())} "
            f"uses in {len(chosen)} observations; give at least two documents with numbered clauses or terms"
        )
    kept, gains = _kept(
        chosen, folds, [s for s in signals if s not in on_trial], [s for s in signals if s in on_trial]
    )
    columns = columns_of(kept)
    held_out = _cross_fitted(chosen, folds, columns)
    linear = _linear(chosen.features, chosen.used, columns)
    told = {**(notes or {}), "signals": list(kept), "trial_gain": gains, "seed": seed}
    return PersistenceModel(
        language,
        fingerprint,
        demand,
        linear.mean,
        linear.scale,
        linear.weight,
        linear.bias,
        centred_isotonic(held_out, chosen.used),
        told,
    )


def regress(samples: Snapshots, signals: Collection[str], seed: int = 0) -> Linear:
    """The regression alone, without calibration: enough to rank by."""
    chosen = _thinned(samples, seed)
    return _linear(chosen.features, chosen.used, columns_of(signals))


def columns_of(signals: Collection[str]) -> _Columns:
    """Columns of FEATURES that belong to these signals."""
    return np.asarray(
        [FEATURES.index(name) for signal in signals for name in SIGNALS[signal]], dtype=np.int64
    )


def _kept(
    samples: Snapshots, folds: IntArray, sure: Sequence[str], trial: Sequence[str]
) -> tuple[list[str], dict[str, float]]:
    """Signals that stay, and the share of the log loss that each of `trial` takes away when it is added."""
    kept = list(sure)
    gains: dict[str, float] = {}
    if not trial:
        return kept, gains
    best = _loss(_cross_fitted(samples, folds, columns_of(kept)), samples.used)
    for signal in trial:
        if not np.isfinite(samples.features[:, columns_of([signal])]).any():
            continue
        loss = _loss(_cross_fitted(samples, folds, columns_of([*kept, signal])), samples.used)
        gains[signal] = round(1.0 - loss / best, 5)
        if gains[signal] > _LEAST_GAIN:
            kept, best = [*kept, signal], loss
    return kept, gains


def _cross_fitted(samples: Snapshots, folds: IntArray, columns: _Columns) -> FloatArray:
    """[m] log-odds, each from a regression that has not seen the sample's document."""
    odds = np.zeros(len(samples), dtype=np.float32)
    for fold in np.unique(folds):
        out = folds == fold
        odds[out] = _linear(samples.features[~out], samples.used[~out], columns).log_odds(
            samples.features[out]
        )
    return odds


def _linear(features: FloatArray, used: BoolArray, columns: _Columns) -> Linear:
    from sklearn.linear_model import LogisticRegression

    mean, scale, weight = np.zeros((3, len(FEATURES)), dtype=np.float32)
    scale[:] = 1.0
    picked = features[:, columns].astype(np.float64)
    known = np.isfinite(picked)
    count = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, picked, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(known, (picked - centre) ** 2, 0.0).sum(axis=0) / count)
    varies = spread > 1e-6
    columns, centre, spread = columns[varies], centre[varies], spread[varies]
    if used.all() or not used.any() or not len(columns):
        share = (used.sum() + 1.0) / (len(used) + 2.0)
        return Linear(mean, scale, weight, float(np.log(share / (1.0 - share))))
    standard = np.nan_to_num((picked[:, varies] - centre) / spread)
    regression = LogisticRegression(C=_PENALTY, max_iter=300).fit(standard, used)
    mean[columns], scale[columns], weight[columns] = centre, spread, regression.coef_[0]
    return Linear(mean, scale, weight, float(regression.intercept_[0]))


def centred_isotonic(log_odds: FloatArray, used: BoolArray, knots: int = _KNOTS) -> FloatArray:
    """[k, 2] rising (log-odds, probability): isotonic regression, each of its steps as one point at its centre.

    Oron and Flournoy, Centered Isotonic Regression, Statistics in Biopharmaceutical Research 9 (2017). Steps
    are merged until at most `knots` are left, so that a file stays small.
    """
    from sklearn.isotonic import IsotonicRegression

    order = np.argsort(log_odds, kind="stable")
    x, y = log_odds[order].astype(np.float64), used[order].astype(np.float64)
    level = IsotonicRegression().fit_transform(x, y)
    cuts = np.flatnonzero(np.diff(level) > 1e-9) + 1
    # A step with few samples is noise: merge until each holds a share of them.
    least, ends, start = max(1, len(x) // knots), [], 0
    for cut in cuts:
        if cut - start >= least:
            ends.append(int(cut))
            start = int(cut)
    pieces = [piece for piece in np.split(np.arange(len(x)), ends) if len(piece)]
    points = [(x[piece].mean(), y[piece].mean()) for piece in pieces]
    found = np.asarray(points, dtype=np.float32).reshape(-1, 2)
    found[:, 1] = np.maximum.accumulate(found[:, 1])
    return found


def _folds(document: IntArray, seed: int) -> IntArray:
    """[m] number of the fold, whole documents together."""
    names, inverse = np.unique(document, return_inverse=True)
    fold_of = np.random.default_rng(seed).permutation(len(names)) % _FOLDS
    return np.asarray(fold_of[inverse], dtype=np.int64)


def _loss(log_odds: FloatArray, used: BoolArray) -> float:
    signed = np.where(used, log_odds, -log_odds).astype(np.float64)
    return float(np.logaddexp(0.0, -signed).mean())


def _thinned(samples: Snapshots, seed: int) -> Snapshots:
    if len(samples) <= _MOST_SAMPLES:
        return samples
    rows = np.sort(np.random.default_rng(seed).choice(len(samples), _MOST_SAMPLES, replace=False))
    return Snapshots(
        samples.features[rows], samples.used[rows], samples.hand_set[rows], samples.document[rows]
    )
