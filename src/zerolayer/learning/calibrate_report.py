"""What a calibration is worth: scores on sessions it has not seen, by signal alone and with each left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zerolayer.core import FloatArray
from zerolayer.decision.persistence import FEATURES, SIGNALS, PersistenceModel
from zerolayer.learning.calibrate import columns_of, fit, regress
from zerolayer.learning.calibrate_scores import auroc, mean_auroc, reliability, scores
from zerolayer.learning.calibrate_sessions import Snapshots

_RESAMPLES = 200

_TEXT = ("position", "section", "rarity", "anchors")
_KEYS = ("dispersion", "key norm", "distinctiveness")


@dataclass(frozen=True, slots=True)
class Report:
    """One fit, and everything that was measured of it on the report part."""

    model: PersistenceModel
    values: dict[str, Any]


def report(
    train: Snapshots, test: Snapshots, language: str, fingerprint: str, demand: str, seed: int
) -> Report:
    """Fit on `train`, score on `test`, and take signals away and alone."""
    model = fit(train, language, fingerprint, demand, seed=seed)
    value = probability(model, test)
    known = [name for name in SIGNALS if np.isfinite(test.features[:, columns_of([name])]).any()]
    full = mean_auroc(regress(train, known, seed).log_odds(test.features), test.used, test.document)
    values = {
        "demand": demand,
        "documents": {"fit": _count(train), "report": _count(test)},
        "calibrated": scores(value, test.used).to_json(),
        "calibrated_auroc_in_document": mean_auroc(value, test.used, test.document),
        "hand_set": scores(test.hand_set, test.used).to_json(),
        "hand_set_auroc_in_document": mean_auroc(test.hand_set, test.used, test.document),
        "fit_part": scores(probability(model, train), train.used).to_json(),
        "by_size": _by_size(value, test),
        "ece_interval": _interval(value, test, seed),
        "reliability": reliability(value, test.used).round(5).tolist(),
        "hand_set_reliability": reliability(test.hand_set, test.used).round(5).tolist(),
        "all_signals_auroc_in_document": full,
        "signals": {name: _signal(train, test, name, known, full, model, seed) for name in known},
        "before_any_question": _cold(train, test, known, seed),
        "features": _features(test),
        "trial_gain": model.notes["trial_gain"],
        "boosted": boosted(train, test, known, seed),
    }
    return Report(model, values)


def probability(model: PersistenceModel, samples: Snapshots) -> FloatArray:
    """[m] calibrated probabilities of samples."""
    return model.calibrated(model.log_odds(samples.features))


def _signal(
    train: Snapshots,
    test: Snapshots,
    name: str,
    known: list[str],
    full: float | None,
    model: PersistenceModel,
    seed: int,
) -> dict[str, Any]:
    alone = regress(train, [name], seed).log_odds(test.features)
    rest = regress(train, [s for s in known if s != name], seed).log_odds(test.features)
    without = mean_auroc(rest, test.used, test.document)
    return {
        "alone": auroc(alone, test.used),
        "alone_in_document": mean_auroc(alone, test.used, test.document),
        "left_out_in_document": without,
        "adds_in_document": full - without if full is not None and without is not None else None,
        "weight": float(np.abs(model.weight[columns_of([name])]).sum()),
    }


def _cold(train: Snapshots, test: Snapshots, known: list[str], seed: int) -> dict[str, float | None]:
    """AUROC within a document of what is known before any question: text, and text with each signal of keys."""
    sets = {"text": [*_TEXT]}
    sets |= {f"text + {name}": [*_TEXT, name] for name in _KEYS if name in known}
    found = {name: regress(train, signals, seed).log_odds(test.features) for name, signals in sets.items()}
    return {name: mean_auroc(odds, test.used, test.document) for name, odds in found.items()}


def _features(test: Snapshots) -> dict[str, dict[str, float | None]]:
    """AUROC of every raw feature, of the larger values: below 0.5, small values speak for use."""
    found = {}
    for column, name in enumerate(FEATURES):
        values = test.features[:, column]
        if np.isfinite(values).any() and np.nanstd(values) > 1e-6:
            filled = np.nan_to_num(values, nan=float(np.nanmean(values)))
            found[name] = {
                "auroc": auroc(filled, test.used),
                "auroc_in_document": mean_auroc(filled, test.used, test.document),
            }
    return found


def _by_size(value: FloatArray, test: Snapshots) -> list[dict[str, Any]]:
    """Scores of the third of the sessions with the shortest, middle and longest documents."""
    names = np.unique(test.document)
    blocks = test.features[:, FEATURES.index("blocks")]
    size = np.array([blocks[test.document == name].max() for name in names])
    thirds = np.array_split(names[np.argsort(size, kind="stable")], 3)
    found = []
    for third in thirds:
        rows = np.isin(test.document, third)
        if rows.any():
            most = round(float(np.exp(blocks[rows].max())))
            found.append({"blocks_at_most": most, **scores(value[rows], test.used[rows]).to_json()})
    return found


def _interval(value: FloatArray, test: Snapshots, seed: int) -> list[float]:
    """90 % bootstrap interval of the calibration error (equal mass), documents drawn with replacement."""
    rng, names = np.random.default_rng(seed), np.unique(test.document)
    rows = {int(name): np.flatnonzero(test.document == name) for name in names}
    found = []
    for _ in range(_RESAMPLES):
        drawn = np.concatenate([rows[int(name)] for name in rng.choice(names, len(names))])
        found.append(scores(value[drawn], test.used[drawn]).ece_mass)
    return [round(float(v), 4) for v in np.quantile(found, [0.05, 0.95])]


def boosted(train: Snapshots, test: Snapshots, signals: list[str], seed: int) -> dict[str, Any]:
    """What gradient-boosted trees reach on the same features: how much the linear model leaves. Not served."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    # A column that never changes has no bins.
    spread = np.ptp(np.nan_to_num(train.features[:, columns_of(signals)]), axis=0)
    columns = columns_of(signals)[spread > 1e-6]
    trees = HistGradientBoostingClassifier(max_depth=4, max_iter=100, random_state=seed)
    trees.fit(train.features[:, columns], train.used)
    value = trees.predict_proba(test.features[:, columns])[:, 1].astype(np.float32)
    return {
        **scores(value, test.used).to_json(),
        "auroc_in_document": mean_auroc(value, test.used, test.document),
    }


def _count(samples: Snapshots) -> dict[str, int]:
    return {"sessions": len(np.unique(samples.document)), "observations": len(samples)}
