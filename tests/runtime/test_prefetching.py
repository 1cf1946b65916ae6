"""Blocks of a forecast are warmed: from disk to host, and into free slots; nothing leaves for them, all is counted."""

from __future__ import annotations

import numpy as np
import pytest

from test_scheduler import (
    BLOCKS,
    SLOTS,
    TOKENS,
    WIDTH,
    arena_order,
    block_ids,
    check_laws,
    every_policy,
    no_room,
    open_scheduler,
    peak,
    question,
    read_all,
    sizes,
)
from tiny_models import make_engine
from zerolayer.config import load_settings
from zerolayer.decision.registry import create_policy
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.execution.isa import MoveP0, OutcomeStatus, Prefetch
from zerolayer.execution.tiers import DiskTier, HostTier, TierHierarchy
from zerolayer.scheduler import Scheduler
from zerolayer.session import session_of

RESERVE = 3


def reopened(path, policy="graded", host_bytes=1 << 20):
    """A session that starts from storage: all blocks on disk, only the sinks on the device."""
    read_all(open_scheduler(path, policy))
    engine, _ = make_engine("llama")
    tiers = TierHierarchy(HostTier(host_bytes), DiskTier(path, 1 << 24), no_room)
    scheduler = Scheduler(engine, tiers, create_policy(policy), TOKENS.tolist(), block_ids(), sizes())
    assert scheduler.restore() == BLOCKS
    return scheduler


def forecast_of(*blocks):
    """Probabilities that fall in the order given."""
    forecast = np.zeros(BLOCKS, np.float32)
    forecast[list(blocks)] = np.linspace(0.3, 0.1, len(blocks))
    return forecast


def prefetch(scheduler, *blocks, reserve=RESERVE):
    return scheduler.prefetcher.prefetch(scheduler.policy, forecast_of(*blocks), blocks, reserve)


def test_a_forecast_goes_to_host_and_into_free_slots(tmp_path):
    scheduler = reopened(tmp_path)
    resident, order = scheduler.table.resident.copy(), arena_order(scheduler)
    wanted, host = tuple(range(30, 10, -1)), scheduler.executor.tiers.host
    used_before = host.used_bytes
    report = prefetch(scheduler, *wanted)
    assert report.host_bytes == host.used_bytes - used_before
    check_laws(scheduler)
    assert report.wanted == report.to_host == wanted
    room = SLOTS - RESERVE - int(resident.sum())
    assert report.to_device == wanted[:room]  # the likeliest ones
    assert scheduler.table.free == RESERVE
    assert all(scheduler.executor.on_host(block) for block in wanted)
    assert (scheduler.table.resident[resident]).all() and arena_order(scheduler) == order
    kinds = {type(outcome.instruction) for outcome in report.outcomes}
    assert {Prefetch, MoveP0} == kinds
    assert all(outcome.status is OutcomeStatus.DONE for outcome in report.outcomes)
    assert report.device_bytes == room * scheduler.arena.slot_bytes


@every_policy
def test_no_policy_lets_a_block_go_for_a_forecast(policy, tmp_path):
    scheduler = open_scheduler(tmp_path, policy)
    read_all(scheduler)
    scheduler.turn(question(0), peak(20))
    before = set(scheduler.arena.blocks())
    report = prefetch(scheduler, 1, 2, 39, 3)
    check_laws(scheduler)
    assert before <= set(scheduler.arena.blocks()) == before | set(report.to_device)
    assert set(report.to_device) <= {1, 2, 3, 39}
    assert set(report.resident) == before & {1, 2, 3, 39}
    result = scheduler.turn(question(1), peak(2))
    check_laws(scheduler)
    assert 2 in result.attended.blocks and result.metrics.discarded_tokens == 0
    assert not scheduler.table.forecast.any()


def test_a_forecast_that_comes_true_saves_the_load(tmp_path):
    cold = reopened(tmp_path / "cold").turn(question(0), peak(25))
    scheduler = reopened(tmp_path / "warm")
    prefetch(scheduler, 25, 26, 24)
    warm = scheduler.turn(question(0), peak(25))
    assert 25 in warm.attended.blocks and 25 in cold.attended.blocks
    assert warm.metrics.prefetched_blocks == 3 and cold.metrics.prefetched_blocks == 0
    assert warm.metrics.recalled_blocks < cold.metrics.recalled_blocks


def test_loads_ahead_are_counted_as_used_or_wasted(tmp_path):
    scheduler = reopened(tmp_path)
    report = prefetch(scheduler, 25, 4, 5, 6, 7, 8)
    assert scheduler.prefetcher.totals.loaded == len(report.to_device) == 6
    wasted = 0
    for number, block in enumerate((25, 30, 15, 35, 18, 12, 38)):
        result = scheduler.turn(question(number), peak(block))
        wasted += result.metrics.wasted_prefetches
        assert result.metrics.prefetched_blocks == (6 if number == 0 else 0)
    totals = scheduler.prefetcher.totals
    assert totals.wasted == wasted > 0
    assert totals.used + totals.wasted + totals.waiting == totals.loaded == 6


def test_one_forecast_fills_at_most_half_of_the_host_budget(tmp_path):
    scheduler = reopened(tmp_path, host_bytes=20_000)
    size = scheduler.executor.tiers.disk.size_of(scheduler.executor.ids[20])
    report = prefetch(scheduler, *range(10, 40), reserve=SLOTS)
    assert report.to_device == ()
    assert 0 < len(report.to_host) <= 10_000 // size and report.host_bytes <= 10_000
    assert report.to_host == tuple(range(10, 10 + len(report.to_host)))
    check_laws(scheduler)


def test_blocks_that_are_not_read_yet_are_left_out(tmp_path):
    scheduler = open_scheduler(tmp_path)
    scheduler.read_chunk()
    done = scheduler.working_set.done
    report = prefetch(scheduler, done - 1, done, BLOCKS - 1)
    assert report.wanted == report.resident == (done - 1,)
    assert read_all(scheduler) == (BLOCKS - done) * WIDTH
    assert prefetch(scheduler).outcomes == ()


def test_reading_goes_on_after_a_forecast_was_loaded(tmp_path):
    first = open_scheduler(tmp_path)
    for _ in range(6):
        first.read_chunk()
    prefetch(first, 2, 3, 4, reserve=0)
    check_laws(first)
    read_all(first)
    first.turn(question(0), peak(3))
    check_laws(first)


def test_a_damaged_block_is_computed_again(tmp_path):
    scheduler = reopened(tmp_path)
    path = scheduler.executor.tiers.disk.path_of(scheduler.executor.ids[22])
    data = bytearray(path.read_bytes())
    data[-20] ^= 4
    path.write_bytes(data)
    report = prefetch(scheduler, 22, 23)
    assert report.to_device == (22, 23) and scheduler.executor.corrupt_blocks >= 1
    check_laws(scheduler)


TOPICS = ("fee", "term", "notice", "law", "insurance", "audit", "renewal", "warranty")
TEXT = "".join(
    f"{n}. The {t}\n" + f"The {t} of this deal is set out here. " * 24 for n, t in enumerate(TOPICS, 1)
)


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))

    def open_():
        half = len(TEXT) // 2
        document = Document("d", TEXT, (Page(1, 0, half), Page(2, half, len(TEXT))), "")
        flags = {"block_tokens": 32, "max_new_tokens": 8, "encoder": "none", "chunk_tokens": 64}
        return session_of([document], make_engine("llama")[0], load_settings(**flags, device_budget="30%"))

    return open_


def test_a_session_forecasts_and_warms(opened):
    with opened() as session:
        session.read()
    with opened() as session:
        session.read()
        before = session.forecast_intent()
        session.ask("What is the insurance?")
        asked = session.predict_next_intent()
        given = session.predict_next_intent(["What is the audit?", "And the renewal?"])
        report = session.prefetch_intent()
        again = session.ask("What is the audit?")
    for needs in (before.needs, asked, given):
        assert len(needs) == 3 and 0 < sum(need.probability for need in needs) <= 1
        assert all(need.pages and set(need.pages) <= {1, 2} for need in needs)
    assert asked not in (before.needs, given)
    assert set(report.wanted) <= {b for need in asked for b in need.blocks}
    assert report.to_host or report.to_device or report.resident
    assert again.metrics.prefetched_blocks == len(report.to_device)
    assert again.metrics.discarded_tokens == 0
