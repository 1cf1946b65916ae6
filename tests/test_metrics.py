"""Every reported name is declared once, with unit, kind and definition."""

from __future__ import annotations

import dataclasses

import pytest

from zerolayer.core import TurnMetrics
from zerolayer.learning.replay import replay_all
from zerolayer.learning.traces import DemandTrace, DemandTurn
from zerolayer.metrics import METRICS, Metric


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_declaration_is_complete(metric: Metric):
    assert METRICS[metric.name] is metric
    assert metric.definition and not metric.definition.endswith(".")
    assert metric.unit or metric.kind == "label"
    assert metric.kind != "bytes" or metric.unit == "B"
    assert metric.kind != "seconds" or metric.unit == "s"


def test_names_are_unique():
    from zerolayer import metrics

    assert len(metrics._DECLARED) == len(METRICS)


def test_every_turn_metric_is_declared():
    assert {field.name for field in dataclasses.fields(TurnMetrics)} <= set(METRICS)


def test_every_replay_key_is_declared_and_plain():
    turns = (DemandTurn(0, "?", ((2, 1.0),)),)
    trace = DemandTrace("m", "d", 64, (64,) * 9, 1, "synthetic", 0, turns)
    for name, result in replay_all(trace, 7).items():
        record = result.to_json()
        assert set(record) <= set(METRICS)
        assert record["policy"] == name and record["simulated"] is True
        assert all(value is None or isinstance(value, str | int | float) for value in record.values())
