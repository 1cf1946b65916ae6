"""A policy that steers a live session on a tiny model: decides while it runs, releases, falls back, and says so."""

from __future__ import annotations

import sys
from pathlib import Path

from test_scheduler import check_laws, open_scheduler, peak, question, read_all
from zerolayer.decision.guarded import Guarded
from zerolayer.decision.safety import LATE, SafetySettings
from zerolayer.decision.strategy import NO_CHANGE

sys.path.insert(0, str(Path(__file__).parent / "decision"))
from window_networks import always_network

EMPTY_TO_A_FIFTH = (4, 3, 0, 0, 0)


class Clock:
    """Advances by `step` with every look."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def steered(path, action=NO_CHANGE, step=0.0, **bounds):
    scheduler = open_scheduler(path, slots=24)
    scheduler.policy = Guarded(always_network(action), SafetySettings(**bounds), Clock(step))
    read_all(scheduler)
    return scheduler


def test_it_decides_between_tokens_once_a_decision_is_200_ms_old(tmp_path):
    scheduler = steered(tmp_path, step=0.09, time_budget_s=10.0)
    answer = scheduler.turn(question(1), peak(20))
    events = [decision.event for decision in scheduler.policy.decisions]
    assert events[0] == "question"
    assert "period" in events
    assert len(events) < len(answer.token_ids) + 2  # not with every token
    assert (answer.metrics.status, answer.metrics.reason) == ("active", "")


def test_watermarks_release_slots_at_the_end_of_a_turn_and_the_next_turn_finds_everything(tmp_path):
    scheduler, calm = steered(tmp_path / "a", EMPTY_TO_A_FIFTH, worse_by=1e9), steered(tmp_path / "b")
    before = scheduler.table.resident_count
    for turn in range(3):
        released = scheduler.turn(question(turn), peak(20 + turn))
        kept = calm.turn(question(turn), peak(20 + turn))
        check_laws(scheduler)
        assert scheduler.table.resident_count < calm.table.resident_count
        assert scheduler.table.resident[0]
        assert released.metrics.discarded_tokens == kept.metrics.discarded_tokens == 0
        assert (20 + turn) in released.attended.blocks
    assert scheduler.table.resident_count < before


def test_a_fallback_is_reported_as_degraded_with_its_reason(tmp_path):
    scheduler = steered(tmp_path, step=0.01)
    metrics = scheduler.turn(question(2), peak(15)).metrics
    assert metrics.status == "degraded"
    assert LATE in metrics.reason
    assert "allowed are 1000" in metrics.reason


def test_it_is_told_how_full_the_tiers_are(tmp_path):
    scheduler = steered(tmp_path)
    scheduler.turn(question(3), peak(15))
    host, history = scheduler.executor.tiers.host, scheduler.policy.history
    assert history.pressure_host == host.used_bytes / host.capacity_bytes > 0
    assert 0 < history.pressure_disk < 1
