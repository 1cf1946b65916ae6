"""Curves from before a page was opened: the record itself, what the service puts into it, and its route."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import pytest
from asking import TEXT, ask, document, request, start_service, use_tiny_models, wait_until
from fastapi.testclient import TestClient
from scripted_service import ScriptedService

from zerolayer.errors import StoreError
from zerolayer.server import worker as worker_module
from zerolayer.server.history import History
from zerolayer.server.http.app import create_app
from zerolayer.server.http.options import HttpOptions
from zerolayer.server.views import TotalsSample

WALL = 1_000_000.0
MOST = 8


class Recorded:
    """A record under clocks that a test moves; each sample tells when it was taken, in seconds since the start."""

    def __init__(self) -> None:
        self.passed, self.wall = 0.0, WALL
        self.history = History(2.0, MOST, lambda: 50.0 + self.passed, lambda: self.wall)

    def run(self, looks: int, step_s: float) -> None:
        for _ in range(looks):
            self.history.sample(lambda: TotalsSample(discarded_tokens=int(self.passed)))
            self.passed += step_s
            self.wall += step_s

    @property
    def taken(self) -> list[int]:
        return [sample.discarded_tokens for sample in self.history.view(0.0).samples]

    @property
    def times(self) -> list[float]:
        return [sample.time for sample in self.history.view(0.0).samples]


class TestRecord:
    def test_a_sample_is_taken_only_where_it_is_time(self):
        recorded = Recorded()
        recorded.run(20, 0.5)
        view = recorded.history.view(7.0)
        assert recorded.taken == [0, 2, 4, 6, 8]
        assert [sample.time for sample in view.samples] == [WALL + second for second in recorded.taken]
        assert (view.started, view.now, view.interval_s) == (7.0, WALL + 10, 2.0)

    def test_the_full_record_keeps_every_second_sample_from_the_start_to_now(self):
        recorded = Recorded()
        recorded.run(MOST + 1, 2.0)
        assert recorded.taken == [0, 4, 8, 12, 16]
        recorded.run(4, 2.0)
        assert recorded.taken == [0, 4, 8, 12, 16, 20, 24]

    def test_it_is_bounded_and_spans_everything_however_long_it_runs(self):
        recorded = Recorded()
        for looks in range(1, 1000):
            recorded.run(1, 1.0)
            taken = recorded.taken
            assert len(taken) <= MOST and taken[0] == 0
            assert looks - taken[-1] <= recorded.history.view(0.0).interval_s
        assert len(taken) > MOST / 2
        assert len({after - before for before, after in pairwise(taken)}) == 1

    def test_looks_that_come_late_leave_gaps_and_nothing_else(self):
        recorded = Recorded()
        recorded.run(2, 3.0)
        recorded.run(1, 600.0)
        recorded.run(3, 3.0)
        assert recorded.taken == [0, 3, 6, 606, 609, 612]

    @pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
    def test_a_clock_jump_changes_neither_distances_nor_order(self, jump_s):
        recorded = Recorded()
        recorded.run(3, 2.0)
        recorded.wall += jump_s
        recorded.run(3, 2.0)
        assert recorded.taken == [0, 2, 4, 6, 8, 10]
        assert recorded.times == [WALL + jump_s + second for second in recorded.taken]

    def test_a_sample_that_fails_is_tried_again_an_interval_later(self):
        recorded = Recorded()
        recorded.run(1, 2.0)
        with pytest.raises(StoreError):
            recorded.history.sample(fail)
        recorded.history.sample(fail)  # not yet again
        recorded.passed += 2.0
        recorded.run(1, 2.0)
        assert recorded.taken == [0, 4]


def fail() -> TotalsSample:
    raise StoreError("gone")


class TestService:
    @pytest.fixture
    def service(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
        monkeypatch.setattr(worker_module, "History", lambda: History(0.02))
        use_tiny_models(monkeypatch)
        service = start_service()
        yield service
        service.close()

    def test_samples_tell_what_totals_tell_and_begin_before_the_first_turn(self, service):
        wait_until(lambda: service.history().samples)
        ask(service, request([document(), "What is the fee?"]))
        wait_until(lambda: told(service.history().samples[-1]) == told(service.totals()))
        history, totals = service.history(), service.totals()
        assert sum(history.samples[0].tier_bytes.values()) == history.samples[0].used_block_turns == 0
        assert min(totals.tier_bytes.values()) > 0 < sum(totals.grade_tokens.values())
        assert totals.used_block_turns
        assert history.started == totals.started <= history.samples[0].time
        assert all(before.time < after.time for before, after in pairwise(history.samples))

    def test_samples_are_taken_while_a_turn_is_worked_on(self, service, monkeypatch):
        states = []

        def take(counters, pool):
            states.extend(live.state for live in pool.live.values())
            return TotalsSample()

        monkeypatch.setattr(worker_module, "sample_of", take)
        ask(service, request([document(TEXT * 3), "What is the fee?"], max_tokens=100))
        assert {"reading", "answering"} <= set(states)

    def test_a_store_that_cannot_be_read_costs_points_and_no_turn(self, service, monkeypatch):
        monkeypatch.setattr(worker_module, "sample_of", lambda *_: fail())
        assert ask(service, request([document(), "What is the fee?"])).finished is not None
        assert service.ready().ok


def told(source: object) -> dict[str, object]:
    """The numbers of a sample, or the same ones of totals."""
    return {part.name: getattr(source, part.name) for part in fields(TotalsSample) if part.name != "time"}


class TestRoute:
    def test_samples_have_the_names_of_totals(self):
        client = TestClient(create_app(ScriptedService()))
        told, totals = client.get("/v1/rtls/history").json(), client.get("/v1/rtls/totals").json()
        assert {name: told[name] for name in ("started", "now", "interval_s")} == {
            "started": 1000.0,
            "now": 1009.5,
            "interval_s": 2.0,
        }
        first, second = told["samples"]
        assert first["time"] == 1006.0 and first["tier_bytes"] == {"device": 5}
        assert second["wasted_share"] is None  # what is not finite is no number in JSON
        assert set(first) - {"time"} <= set(totals)

    def test_it_stands_behind_the_guards_and_in_the_openapi(self):
        app = create_app(ScriptedService(), HttpOptions(api_keys=("k1=acme",), local_only=True))
        client = TestClient(app, base_url="http://127.0.0.1:8765")
        assert client.get("/v1/rtls/history").status_code == 401
        key = {"x-api-key": "k1"}
        assert client.get("/v1/rtls/history", headers=key).status_code == 200
        assert client.get("/v1/rtls/history", headers=key | {"host": "attacker.example"}).status_code == 403
        assert "/v1/rtls/history" in client.get("/openapi.json", headers=key).json()["paths"]
