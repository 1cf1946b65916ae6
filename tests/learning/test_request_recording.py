"""The recorder of live request streams: order of arrival, numbers instead of names, readable while it grows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from zerolayer.core import Tier
from zerolayer.errors import UsageError
from zerolayer.learning.request_recording import RequestRecorder
from zerolayer.learning.trace_files import read_trace


def test_records_ids_as_numbers_sessions_turns_and_tiers(tmp_path):
    path = tmp_path / "deep" / "live.jsonl"
    with RequestRecorder(path, 64, "server") as recorder:
        recorder.record(["aa", "bb"], "alice", 128, 7, [Tier.DEVICE, Tier.HOST])
        recorder.record(["aa", "cc"], "bob", 100, 9, [Tier.DISK, None])
        recorder.record(["aa", "bb", "dd"], "alice")
        recorder.record([])
    trace = read_trace(path)
    assert [trace.chain(r).tolist() for r in range(4)] == [[0, 1], [0, 2], [0, 1, 3], []]
    assert trace.sessions.tolist() == [0, 1, 0, -1] and trace.turns.tolist() == [0, 0, 1, -1]
    assert trace.tiers.tolist() == [0, 1, 2, -1, -1, -1, -1]
    assert trace.input_tokens.tolist() == [128, 100, -1, -1] and trace.output_tokens.tolist() == [
        7,
        9,
        -1,
        -1,
    ]
    assert "alice" not in path.read_text() and "aa" not in path.read_text()


def test_lines_come_in_order_of_arrival_as_soon_as_they_can(tmp_path):
    path = tmp_path / "live.jsonl"
    recorder = RequestRecorder(path, 64, "server")
    slow, quick = recorder.arrive(["a"]), recorder.arrive(["a", "b"])
    recorder.finish(quick, 5)
    assert len(read_trace(path)) == 0
    recorder.finish(slow, 3)
    assert read_trace(path).output_tokens.tolist() == [3, 5]
    recorder.arrive(["c"])
    recorder.close()
    assert read_trace(path).output_tokens.tolist() == [3, 5, -1]
    for ticket in (quick, 99):
        with pytest.raises(KeyError):
            recorder.finish(ticket)


def test_threads_share_a_recorder(tmp_path):
    path = tmp_path / "live.jsonl"
    with RequestRecorder(path, 64, "server") as recorder, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: recorder.record(["system", f"u{n % 5}"], f"s{n % 5}", 80, n), range(200)))
    trace = read_trace(path)
    assert len(trace) == 200 and trace.num_blocks == 6
    assert sorted(trace.output_tokens.tolist()) == list(range(200)) and trace.turns.max() == 39


def test_what_it_refuses(tmp_path):
    with (
        RequestRecorder(tmp_path / "t", 64, "server") as recorder,
        pytest.raises(ValueError, match="1 tiers for 2"),
    ):
        recorder.arrive(["a", "b"], tiers=[Tier.HOST])
    with pytest.raises(UsageError, match="exists and is not overwritten"):
        RequestRecorder(tmp_path / "t", 64, "server")
    with pytest.raises(UsageError, match="cannot grow compressed"):
        RequestRecorder(tmp_path / "t.zst", 64, "server")
