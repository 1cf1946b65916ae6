"""Request traces on disk: round trip, the documented lines, and errors that name their line."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from demand_traces import random_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from test_requests import CHAINS, trace_of

from zerolayer.core import Tier
from zerolayer.errors import TraceError
from zerolayer.learning.requests import RequestTrace
from zerolayer.learning.trace_files import load_trace, read_trace, write_trace

ARRAYS = ("blocks", "starts", "times_s", "sessions", "turns", "input_tokens", "output_tokens", "tiers")
TIERS = [0, 0, -1, *([1] * 8)]
HEADER = '{"format": "zerolayer-requests", "version": 1, "source": "by hand", "block_tokens": 16}'


def same(a: RequestTrace, b: RequestTrace) -> bool:
    return (a.source, a.block_tokens, a.num_blocks) == (b.source, b.block_tokens, b.num_blocks) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ARRAYS
    )


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.zst"])
def test_round_trip(tmp_path, name):
    trace = trace_of(
        sessions=[0, 1, 0, -1, 0], input_tokens=[40] * 5, output_tokens=[9, -1, 0, 1, 2], tiers=TIERS
    )
    for part in (trace, *trace.split(0.6), trace_of([])):
        write_trace(part, tmp_path / "deep" / name)
        assert same(read_trace(tmp_path / "deep" / name), part)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == [name]


def test_zstd_is_told_by_its_content(tmp_path):
    write_trace(trace_of(), tmp_path / "t.zst")
    (tmp_path / "t.zst").rename(tmp_path / "t.jsonl")
    assert same(read_trace(tmp_path / "t.jsonl"), trace_of())


def test_file_is_the_documented_json_lines(tmp_path):
    write_trace(trace_of([[0, 1, 2], [0]], tiers=[0, 0, -1, 1], sessions=[4, -1]), tmp_path / "t")
    header, first, second = (json.loads(line) for line in (tmp_path / "t").read_text().splitlines())
    assert header == {
        "format": "zerolayer-requests", "version": 1, "source": "test", "block_tokens": 16, "requests": 2,
        "num_blocks": 3,
    }  # fmt: skip
    runs = [["device", 2], [None, 1]]
    assert first == {"time_s": 0.0, "session": 4, "turn": 0, "blocks": [0, 1, 2], "tiers": runs}
    assert second == {"time_s": 1.0, "blocks": [0], "tiers": [["host", 1]]}


def test_the_examples_of_the_documentation_are_traces(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    requests, demand = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    for name, example in (("requests", requests), ("demand", demand)):
        (tmp_path / name).write_text(example, encoding="utf-8")
    trace = read_trace(tmp_path / "requests")
    assert trace.tiers.tolist() == [-1, -1, -1, 0, -1] and trace.num_blocks == 4
    assert read_trace(tmp_path / "demand").turns[0].tiers == (Tier.DEVICE, Tier.HOST)


def test_a_file_written_by_hand(tmp_path):
    path = tmp_path / "t"
    path.write_text(HEADER + '\r\n{"time_s": 0, "blocks": [0, 1]}\r\n{"time_s": 0.5, "blocks": [0, 2]}')
    trace = read_trace(path)
    assert (trace.source, trace.num_blocks, trace.blocks.tolist()) == ("by hand", 3, [0, 1, 0, 2])


def test_one_reader_for_both_kinds(tmp_path):
    demand = random_trace(0, turns=3)
    write_trace(demand, tmp_path / "demand.jsonl.zst")
    assert read_trace(tmp_path / "demand.jsonl.zst") == load_trace(tmp_path / "demand.jsonl.zst") == demand


def damage(tmp_path, line, change):
    path = tmp_path / "t"
    write_trace(trace_of(tiers=TIERS), path)
    lines = path.read_text().splitlines()
    record = json.loads(lines[line - 1])
    change(record)
    lines[line - 1] = json.dumps(record)
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (1, lambda r: r.pop("block_tokens"), "line 1 is damaged: lacks 'block_tokens'"),
        (1, lambda r: r.update(block_tokens=0), "line 1 is damaged: block_tokens 0"),
        (1, lambda r: r.update(num_blocks=-1), "line 1 is damaged: num_blocks -1"),
        (1, lambda r: r.update(requests=7), "has 5 requests, its header says 7"),
        (1, lambda r: r.update(version=2), "has version 2; this zerolayer reads version 1"),
        (3, lambda r: r.pop("blocks"), "line 3 is damaged: lacks 'blocks'"),
        (3, lambda r: r.update(blocks=[0, -1, 3]), "line 3 is damaged: block -1 is negative"),
        (3, lambda r: r.update(blocks=[0, 1, 6]), "line 3 is damaged: block 6 is out of range; num_blocks is 6"),
        (3, lambda r: r.update(blocks=[0, 1.5, 3]), "blocks must be a list of whole numbers"),
        (3, lambda r: r.update(blocks="012"), "blocks must be a list of whole numbers"),
        (3, lambda r: r.update(time_s=-5), "line 3 is damaged: time_s -5 comes after 0.0; times must not go back"),
        (3, lambda r: r.update(time_s="now"), "time_s 'now' is not a number"),
        (3, lambda r: r.update(time_s=float("nan")), "time_s nan is not a number"),
        (3, lambda r: r.update(session=-4), "session -4 must be a whole number from 0"),
        (3, lambda r: r.update(output_tokens=2.5), r"output_tokens 2\.5 must be a whole number"),
        (3, lambda r: r.update(tiers=[["moon", 3]]), "tier 'moon' is not known; allowed are device, host"),
        (3, lambda r: r.update(tiers=[["device", 2]]), "tiers do not add up to the 3 blocks"),
        (3, lambda r: r.update(tiers=[["device", 10**12]]), "tiers do not add up to the 3 blocks"),
        (3, lambda r: r.update(tiers=[3]), "line 3 is damaged"),
    ],
)  # fmt: skip
def test_damaged_line_is_named(tmp_path, line, change, message):
    with pytest.raises(TraceError, match=message):
        read_trace(damage(tmp_path, line, change))


def test_blocks_that_jump_ahead_without_a_count(tmp_path):
    (tmp_path / "t").write_text(HEADER + f'\n{{"time_s": 0, "blocks": [{10**15}]}}\n')
    with pytest.raises(
        TraceError, match=f"line 2 is damaged: block {10**15} is new, but 0 is the next number"
    ):
        read_trace(tmp_path / "t")


@pytest.mark.parametrize("text", ["hello", "{", "[]", '{"format": "other"}'])
def test_no_trace(tmp_path, text):
    (tmp_path / "t").write_text(text)
    with pytest.raises(TraceError, match="is no trace: the format in its first line must be"):
        read_trace(tmp_path / "t")


def test_empty_and_cut_files(tmp_path):
    path = tmp_path / "t.zst"
    for nothing in (b"", b"\n"):
        path.write_bytes(nothing)
        with pytest.raises(TraceError, match="is empty"):
            read_trace(path)
    write_trace(trace_of(), path)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with pytest.raises(TraceError, match="is cut off in its compressed data"):
        read_trace(path)
    path.write_bytes(data[:9] + b"\xff" * (len(data) - 9))
    with pytest.raises(TraceError, match="cannot be read as a trace"):
        read_trace(path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_cut_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "t"
    write_trace(trace_of(CHAINS), path)
    whole = path.read_bytes()
    keep = data.draw(st.integers(0, len(whole) - 2))
    path.write_bytes(whole[:keep])
    with pytest.raises(TraceError):
        read_trace(path)


def test_twelve_thousand_requests_take_seconds(tmp_path):
    rng = np.random.default_rng(0)
    chains = [[*range(12), *rng.integers(12, 150_000, 12).tolist()] for _ in range(12_000)]
    write_trace(trace_of(chains), tmp_path / "t.jsonl.zst")
    begun = time.perf_counter()
    assert read_trace(tmp_path / "t.jsonl.zst").references == 288_000
    assert time.perf_counter() - begun < 10  # under a second on an idle machine
