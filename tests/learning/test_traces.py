"""The demand trace file: round trip, clear errors, and the definition of use."""

from __future__ import annotations

import dataclasses
import json
from itertools import combinations

import numpy as np
import pytest
from demand_traces import random_trace, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.core import Tier
from zerolayer.errors import TraceError
from zerolayer.learning.traces import demand_set, read, write


def test_round_trip(tmp_path):
    trace = trace_of([[3, 1], [2]], 5, matches=[[(1, 0.5)], []], gold=[(1, 3), None])
    trace = dataclasses.replace(trace, commit="abc123", document="Vertrag § 1 合同")
    write(trace, tmp_path / "deep" / "demand.jsonl")
    assert read(tmp_path / "deep" / "demand.jsonl") == trace
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["demand.jsonl"]


def test_times_tiers_and_any_character_survive(tmp_path):
    trace = trace_of([[3, 1], [2]], 5)
    first = dataclasses.replace(
        trace.turns[0], question="a line\u2028separator", time_s=0.25, tiers=(Tier.HOST, None)
    )
    trace = dataclasses.replace(trace, turns=(first, trace.turns[1]))
    for name in ("t.jsonl", "t.jsonl.zst"):
        write(trace, tmp_path / name)
        assert read(tmp_path / name) == trace


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_s": 0.5}, "time_s 0.5 comes after 2.0; times must not go backwards"),
        ({"time_s": float("nan")}, "time_s nan is not a number"),
        ({"tiers": ["host", "moon"]}, "'moon' is not a valid Tier"),
        ({"tiers": ["host"]}, "tiers has 1 elements for 6 used blocks"),
    ],
)
def test_times_and_tiers_that_cannot_be(tmp_path, change, message):
    path = edited(tmp_path, 2, lambda record: record.update(time_s=2.0))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], json.dumps({**json.loads(lines[2]), **change}), *lines[3:]]))
    with pytest.raises(TraceError, match=f"line 3 is damaged: .*{message}"):
        read(path)


def test_file_is_the_documented_json_lines(tmp_path):
    write(trace_of([[3]], 5, matches=[[(3, 0.5)]]), tmp_path / "t")
    header, turn = (json.loads(line) for line in (tmp_path / "t").read_text().splitlines())
    assert header["format"] == "zerolayer-demand" and header["version"] == 1
    assert header["tokens"] == 320 and header["block_lengths"] == [64] * 5
    assert turn == {"turn": 0, "question": "question 0", "used": [[3, 1.0]], "match": [[3, 0.5]]}


def edited(tmp_path, line, change):
    path = tmp_path / "t"
    write(random_trace(0, turns=4), path)
    lines = path.read_text().splitlines()
    record = json.loads(lines[line - 1])
    change(record)
    lines[line - 1] = json.dumps(record)
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("text", ["hello", "[1, 2]", '{"format": "other"}', "{"])
def test_not_a_trace(tmp_path, text):
    (tmp_path / "t").write_text(text)
    with pytest.raises(TraceError, match="is not a demand trace"):
        read(tmp_path / "t")


def test_empty_file(tmp_path):
    (tmp_path / "t").write_text("")
    with pytest.raises(TraceError, match="t is empty: a trace begins with a header line"):
        read(tmp_path / "t")


def test_missing_and_binary_files(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x81")
    for name in ("absent", "binary"):
        with pytest.raises(TraceError, match=f"{name} cannot be read as a trace"):
            read(tmp_path / name)


def test_other_version(tmp_path):
    path = edited(tmp_path, 1, lambda record: record.update(version=2))
    with pytest.raises(TraceError, match="has version 2; this zerolayer reads version 1"):
        read(path)


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (1, lambda r: r.pop("seed"), "line 1 is damaged: lacks 'seed'"),
        (1, lambda r: r.update(tokens=7), "line 1 is damaged: tokens is 7"),
        (1, lambda r: r.update(block_lengths=[]), "line 1 is damaged: block_lengths"),
        (1, lambda r: r.update(sink_blocks=999), "line 1 is damaged: sink_blocks 999"),
        (
            3,
            lambda r: r.update(used=[[120, 0.1]]),
            "line 3 is damaged: turn 1: used block 120 is out of range",
        ),
        (
            3,
            lambda r: r.update(used=[[1, 0.1], [1, 0.2]]),
            "line 3 is damaged: turn 1: used names a block twice",
        ),
        (3, lambda r: r.update(used=[[1, -0.1]]), "line 3 is damaged: turn 1: the mass"),
        (3, lambda r: r.update(match=[[1, 1.5]]), "line 3 is damaged: turn 1: a match score"),
        (4, lambda r: r.update(gold=[-1]), "line 4 is damaged: turn 2: gold block -1"),
        (4, lambda r: r.update(turn=1), "line 4 is damaged: turn 1 follows turn 1"),
        (5, lambda r: r.pop("used"), "line 5 is damaged: lacks 'used'"),
        (5, lambda r: r.update(used=3), "line 5 is damaged"),
    ],
)
def test_damaged_line_is_named(tmp_path, line, change, message):
    path = edited(tmp_path, line, change)
    with pytest.raises(TraceError, match=message):
        read(path)


def test_torn_last_line_is_named(tmp_path):
    path = tmp_path / "t"
    write(random_trace(0, turns=4), path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(TraceError, match="line 5 is damaged"):
        read(path)


def test_demand_set_by_hand():
    mass = np.array([0.0, 0.05, 0.5, 0.05, 0.4], dtype=np.float32)
    assert demand_set(mass) == [2, 4]
    assert demand_set(mass, share=0.91) == [2, 4, 1]
    assert demand_set(np.zeros(4, dtype=np.float32)) == []
    assert demand_set(np.full(10, 0.1, dtype=np.float32)) == list(range(9))


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.sampled_from([0.5, 0.9, 0.99]))
def test_demand_set_is_the_smallest(mass, share):
    chosen = demand_set(np.array(mass, dtype=np.float32), share)
    needed = share * sum(mass) * (1 - 1e-6)
    assert sum(mass[block] for block in chosen) >= needed
    smaller = combinations(mass, len(chosen) - 1) if chosen else []
    assert all(sum(some) < needed for some in smaller)
