"""Traces of other sources: chains, sessions, times, and errors that name their line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from zerolayer.errors import TraceError, UnknownNameError
from zerolayer.learning.converters import convert, detect, taubench
from zerolayer.learning.trace_files import load_trace, read_trace, write_trace


def lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def mooncake(timestamp, hashes, **more):
    return {"timestamp": timestamp, "input_length": 700, "output_length": 5, "hash_ids": hashes, **more}


def call(timestamp, text, session="a", output="fine"):
    return {"timestamp": timestamp, "input": text, "output": output, "session_id": session}


def test_mooncake(tmp_path):
    path = lines(tmp_path / "t", [mooncake(3000, [9, 4]), mooncake(3500, [9, 7], session_id="x")])
    trace = convert(path)
    assert detect(path) == "mooncake"
    assert [trace.chain(r).tolist() for r in range(2)] == [[0, 1], [0, 2]]
    assert trace.times_s.tolist() == [0.0, 0.5] and trace.sessions.tolist() == [-1, 0]
    assert trace.input_tokens.tolist() == [700, 700] and trace.block_tokens == 512


def test_bailian_blocks_are_numbered_by_prefix_and_chats_joined(tmp_path):
    def chat(chat_id, parent, when, hashes):
        return {
            "chat_id": chat_id, "parent_chat_id": parent, "timestamp": when, "input_length": 33, "output_length": 4,
            "type": "text", "turn": 1, "hash_ids": hashes,
        }  # fmt: skip

    records = [
        chat(5, -1, 1.5, [1, 2]),
        chat(6, -1, 2.0, [3, 2]),
        chat(7, 5, 2.5, [1, 2, 2]),
        chat(8, 7, 3.0, [1]),
    ]
    trace = convert(lines(tmp_path / "t", records))
    assert [trace.chain(r).tolist() for r in range(4)] == [[0, 1], [2, 3], [0, 1, 4], [0]]
    assert trace.sessions.tolist() == [0, 1, 0, 0] and trace.turns.tolist() == [0, 0, 1, 2]
    assert trace.times_s.tolist() == [0.0, 0.5, 1.0, 1.5]


def test_agent_sessions_share_equal_prefixes_only(tmp_path):
    prefix, width = "x" * 128, 64
    first = [call(2_000_000, prefix + "question one"), call(1_000_000, prefix)]
    second = [call(1_500_000, prefix + "question two", "b"), call(3_000_000, "y" * width + prefix, "b")]
    lines(tmp_path / "d" / "a.jsonl", first)
    lines(tmp_path / "d" / "b.jsonl", second)
    trace = convert(tmp_path / "d")
    assert detect(tmp_path / "d") == "taubench"
    assert [trace.chain(r).tolist() for r in range(4)] == [[0, 1], [0, 1, 2], [0, 1, 3], [4, 5, 6]]
    assert trace.sessions.tolist() == [0, 1, 0, 1] and trace.turns.tolist() == [0, 0, 1, 1]
    assert trace.times_s.tolist() == [0.0, 0.5, 1.0, 2.0]
    assert trace.input_tokens.tolist() == [32, 35, 35, 48] and set(trace.output_tokens.tolist()) == {1}


def test_agent_sessions_with_a_tokenizer(tmp_path):
    path = lines(tmp_path / "t", [call(0, " ".join("word" for _ in range(40)), output="yes it is")])
    trace = taubench.convert(path, lambda text: [len(word) for word in text.split()])
    assert trace.input_tokens.tolist() == [40] and trace.output_tokens.tolist() == [3]
    assert trace.blocks.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (mooncake(-1, [0]), "line 2 is damaged: its time -0.001 comes after 0.0; sort the lines by time"),
        (mooncake(1, [0, -3]), "line 2 is damaged: hash_ids has -3; a block id must not be negative"),
        (mooncake(1, [0.5]), "line 2 is damaged: hash_ids must be a list"),
        (mooncake(1, None), "line 2 is damaged: hash_ids must be a list"),
        (mooncake("soon", [0]), "line 2 is damaged: timestamp 'soon' is not a number"),
        (mooncake(1, [0], output_length=-2), "line 2 is damaged: output_length -2"),
        ({"timestamp": 1}, "line 2 is damaged: lacks 'hash_ids'"),
        ([], "line 2 is damaged: no JSON object"),
    ],
)
def test_damaged_line_is_named(tmp_path, record, message):
    with pytest.raises(TraceError, match=message):
        convert(lines(tmp_path / "t", [mooncake(0, [0]), record]))


def test_cut_lines_and_sources_that_are_none(tmp_path):
    path = lines(tmp_path / "t", [mooncake(0, [0]), mooncake(1, [0])])
    path.write_text(path.read_text()[:-9])
    with pytest.raises(TraceError, match="line 2 is damaged: no whole JSON object, perhaps cut off"):
        convert(path)
    with pytest.raises(
        UnknownNameError, match="unknown trace source 'moon'; known: bailian, mooncake, taubench"
    ):
        convert(path, "moon")
    with pytest.raises(TraceError, match="looks like no known source"):
        convert(lines(tmp_path / "other", [{"a": 1}]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="holds no"):
        convert(tmp_path / "empty")
    with pytest.raises(TraceError, match="line 1 is damaged: session_id, input and output must be text"):
        convert(lines(tmp_path / "numbers", [call(0, 5)]))


@pytest.mark.data
def test_the_real_conversation_trace(shared_data, tmp_path):
    path = shared_data / "mooncake" / "conversation_trace.jsonl"
    trace, raw = load_trace(path), [json.loads(line) for line in path.read_text().splitlines()]
    assert (len(trace), trace.num_blocks) == (12_031, 182_790)
    assert trace.blocks.tolist() == [block for record in raw for block in record["hash_ids"]]
    assert np.array_equal(np.diff(trace.starts), -(-trace.input_tokens // trace.block_tokens))
    assert (trace.parents < np.arange(trace.num_blocks)).all()
    write_trace(trace, tmp_path / "t.zst")
    assert np.array_equal(read_trace(tmp_path / "t.zst").blocks, trace.blocks)


@pytest.mark.data
def test_the_real_agent_sessions(shared_data):
    trace = load_trace(shared_data / "agent_traces" / "taubench")
    assert (len(trace), trace.sessions.max()) == (471, 23)
    assert 1 - trace.num_blocks / trace.references > 0.8  # every turn resends its conversation
