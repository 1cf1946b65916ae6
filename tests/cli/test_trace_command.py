"""`zerolayer trace`: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from zerolayer.cli.main import cli
from zerolayer.cli.trace_replay import capacity_blocks
from zerolayer.config import Settings
from zerolayer.core import Tier
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.errors import UsageError
from zerolayer.learning.trace_files import read_trace

LINES = [
    {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 2000, "input_length": 1400, "output_length": 7, "hash_ids": [0, 1, 2]},
]
TEXT = "The fee is five euro. The term ends in May. " * 12


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run():
    return lambda *args: CliRunner().invoke(cli, ["trace", *map(str, args)])


@pytest.fixture
def mooncake(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


@pytest.fixture
def tiny_sessions(monkeypatch):
    """Sessions of a tiny model with random weights instead of one that is fetched."""
    from tiny_models import make_engine
    from zerolayer.session import session_of

    def open_documents(files, settings: Settings):
        document = Document("d.txt", TEXT, (Page(1, 0, len(TEXT)),), "")
        small = {"block_tokens": 8, "max_new_tokens": 8, "encoder": "none", "chunk_tokens": 16}
        return session_of([document], make_engine("llama")[0], settings.model_copy(update=small))

    monkeypatch.setattr("zerolayer.cli.reading.open_documents", open_documents)


class TestInfo:
    def test_json(self, run, mooncake):
        found = json.loads(run("info", mooncake, "--json", "--windows", 2).stdout)
        assert (found["requests"], found["references"], found["unique_blocks"]) == (2, 5, 3)
        assert found["reused_references"] == pytest.approx(0.4) and found["sessions"] is None
        assert [window["working_set_blocks"] for window in found["windows"]] == [2, 3]

    def test_table(self, run, mooncake):
        stdout = run("info", mooncake).stdout
        assert "40.0 % (no cache hits more)" in stdout and "Working set" in stdout


class TestConvert:
    def test_there_and_back(self, run, mooncake, tmp_path):
        result = run("convert", mooncake, "deep/t.jsonl.zst")
        assert result.exit_code == 0 and result.stdout == "deep/t.jsonl.zst\n"
        assert result.stderr.startswith("2 requests, ")
        told = json.loads(run("convert", "deep/t.jsonl.zst", "plain.jsonl", "--json").stdout)
        assert told["requests"] == 2 and told["source"] == "mooncake: mooncake.jsonl"
        assert read_trace(tmp_path / "plain.jsonl").blocks.tolist() == [0, 1, 0, 1, 2]

    @pytest.mark.parametrize(
        ("args", "code", "message"),
        [
            (["--from", "moon"], 2, "unknown trace source 'moon'; known: bailian, mooncake, taubench"),
            (["--from", "taubench"], 1, "mooncake.jsonl line 1 is damaged: lacks 'session_id'"),
            (["--tokenizer", "smollm2"], 2, "holds block ids; leave the option out"),
        ],
    )
    def test_errors(self, run, mooncake, args, code, message):
        result = run("convert", mooncake, "out", *args)
        assert (result.exit_code, result.stdout) == (code, "") and message in result.stderr

    def test_the_source_is_never_overwritten(self, run, mooncake):
        before = mooncake.read_bytes()
        assert run("convert", mooncake, "mooncake.jsonl").exit_code == 2
        assert mooncake.read_bytes() == before


@pytest.mark.parametrize("command", ["info", "replay"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "t.jsonl is empty"),
        (lambda text: text[:-8], "line 3 is damaged: no whole JSON object, perhaps cut off"),
        (lambda text: text.replace('"version": 1', '"version": 3'), "has version 3"),
        (lambda text: text.replace("[0, 1, 2]", "[0, -1, 2]"), "line 3 is damaged: block -1 is negative"),
        (lambda text: text.replace("2.0", "-2.0"), "line 3 is damaged: time_s -2.0 comes after 0.0"),
        (lambda text: "hello", "is no trace"),
    ],
)
def test_bad_files_exit_1_with_one_line(run, mooncake, tmp_path, command, change, message):
    path = tmp_path / "t.jsonl"
    run("convert", mooncake, path)
    path.write_text(change(path.read_text()))
    result = run(command, path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr and result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


def test_capacity_in_blocks_or_as_a_share():
    assert [capacity_blocks(text, 250) for text in ("7", "10%", "0.5 %", "0.1%", "100%")] == [
        7,
        25,
        1,
        1,
        250,
    ]
    for text in ("0", "-1", "x", "", "%", "nan%", "101%", "1e9", "inf%"):
        with pytest.raises(UsageError, match="capacity"):
            capacity_blocks(text, 250)


class TestReplayOfRequests:
    def test_policies_beside_the_optimum(self, run, mooncake):
        told = json.loads(run("replay", mooncake, "--capacity", "2", "--json").stdout)
        assert (told["kind"], told["capacity_blocks"]) == ("requests", 2)
        assert (
            told["policies"]["optimal"]["hits"] == 2
            and told["policies"]["optimal"]["share_of_optimum"] == 1.0
        )
        assert told["policies"]["lru"]["hit_rate"] == pytest.approx(0.4) and len(told["policies"]) == 4
        assert all(result["simulated"] for result in told["policies"].values())

    def test_chosen_policies_as_a_table(self, run, mooncake):
        result = run("replay", mooncake, "--policy", "lfu", "--policy", "optimal", "--capacity", "50%")
        assert result.exit_code == 0 and "2 of 3 blocks on the device (simulated)" in result.stdout
        assert "lfu" in result.stdout and "lru" not in result.stdout

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["--policy", "magic"], "unknown request policy 'magic'; known: arc,"),
            (["--capacity", "0"], "capacity '0' is out of range"),
            (["--capacity", "some"], "capacity 'some' is no number"),
        ],
    )
    def test_usage_errors(self, run, mooncake, args, message):
        result = run("replay", mooncake, *args)
        assert (result.exit_code, result.stdout) == (2, "") and message in result.stderr


class TestRecord:
    QUESTIONS = ("-q", "What is the fee?", "-q", "When does the term end?")

    def test_demand_with_times_and_tiers_is_replayed(self, run, tiny_sessions, mooncake, tmp_path):
        told = json.loads(run("record", mooncake, *self.QUESTIONS, "-o", "demand.jsonl", "--json").stdout)
        trace = read_trace(tmp_path / "demand.jsonl")
        assert told["requests"] == len(trace) == 2 and told["tiers"]
        assert 0 <= trace.turns[0].time_s < trace.turns[1].time_s
        assert all(len(turn.tiers) == len(turn.used) and None not in turn.tiers for turn in trace.turns)
        replayed = json.loads(run("replay", "demand.jsonl", "--capacity", "50%", "--json").stdout)
        assert set(replayed["policies"]) == {"graded", "static-window", "lru", "optimal"}
        assert replayed["policies"]["lru"]["turns"] == 2 and replayed["policies"]["lru"]["simulated"]

    def test_requests(self, run, tiny_sessions, mooncake, tmp_path):
        result = run("record", mooncake, *self.QUESTIONS, "-o", "live.jsonl", "--kind", "requests")
        assert result.exit_code == 0 and result.stdout == "live.jsonl\n"
        trace = read_trace(tmp_path / "live.jsonl")
        assert len(trace) == 2 and trace.turns.tolist() == [0, 1] and trace.output_tokens.min() >= 0
        assert trace.chain(0).tolist() == trace.chain(1).tolist() == list(range(trace.num_blocks))
        assert {tuple(Tier)[tier] for tier in trace.tiers} == {Tier.DEVICE, Tier.HOST}

    def test_what_exists_is_not_overwritten(self, run, mooncake):
        result = run("record", mooncake, *self.QUESTIONS, "-o", mooncake)
        assert result.exit_code == 2 and "exists and is not overwritten" in result.stderr
