"""`ps` and `top --url`: sessions in the store of this machine, and those of a running server."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from messages_server import MessagesServer
from shown_service import ShownService, serving
from tiny_models import make_engine
from zerolayer.cli.main import cli
from zerolayer.config import load_settings
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.session import session_of

LIVE = "a1b2c3d4" * 8


def open_(name: str, fee: str):
    text = f"The fee is {fee} euro. The term ends in May. " * 8
    flags = {"block_tokens": 8, "max_new_tokens": 8, "encoder": "none", "chunk_tokens": 16}
    document = Document(name, text, (Page(1, 0, len(text)),), "")
    return session_of([document], make_engine("llama")[0], load_settings(**flags))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two stored sessions: `one.txt` answered a question and was used last, `two.txt` was read."""
    path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEROLAYER_HOME", str(path))
        with open_("two.txt", "nine") as session:
            session.read()
        with open_("one.txt", "five") as session:
            session.read()
            session.ask("How much is the fee?")
    return path


@pytest.fixture
def run(home, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(home))
    return lambda *args: CliRunner().invoke(cli, list(args))


@pytest.fixture(scope="module")
def url():
    with serving(ShownService()) as address:
        yield address


def listed(run, *args):
    result = run("ps", *args, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


class TestStore:
    def test_what_was_read_is_on_disk_and_counted_in_tokens(self, run):
        answer = listed(run)
        assert answer["source"] == "store"
        one, two = answer["sessions"]
        assert (one["title"], two["title"]) == ("one.txt", "two.txt")
        for session in (one, two):
            assert session["tier_tokens"] == {"device": 0, "host": 0, "disk": session["document_tokens"]}
            assert session["state"] == "stored" and session["until"] == "room is needed"
            assert session["disk_bytes"] > 0
        assert (one["turns"], two["turns"]) == (1, 0)
        assert one["policy"] == "graded"

    def test_an_open_one_has_the_tokens_of_its_last_turn(self, run):
        with open_("one.txt", "five") as session:
            session.read()
            session.ask("When does the term end?")
            (one, _) = listed(run)["sessions"]
        assert one["state"] == "open" and one["until"] == "its process ends"
        assert one["tier_tokens"]["device"] > 0

    def test_a_lost_block_is_not_counted(self, run, home):
        before = listed(run)["sessions"][1]["tier_tokens"]["disk"]
        directory = home / "sessions" / "sessions" / listed(run)["sessions"][1]["id"] / "blocks"
        file = next(directory.rglob("*.kv"))
        content = file.read_bytes()
        file.unlink()
        assert listed(run)["sessions"][1]["tier_tokens"]["disk"] == before - 8
        file.write_bytes(content)

    def test_the_table_names_units(self, run):
        stdout = run("ps").stdout
        assert "disk, tokens" in stdout and " MiB" in stdout and "kept until" in stdout
        assert stdout.index("one.txt") < stdout.index("two.txt")

    def test_an_empty_store_prints_nothing_on_stdout(self, tmp_path):
        result = CliRunner().invoke(cli, ["--home", str(tmp_path), "ps"])
        assert (result.exit_code, result.stdout) == (0, "")
        assert "no session yet" in result.stderr
        assert (
            json.loads(CliRunner().invoke(cli, ["--home", str(tmp_path), "ps", "--json"]).stdout)["sessions"]
            == []
        )


class TestServer:
    def test_sessions_of_a_server(self, run, url):
        answer = listed(run, "--url", url)
        live, parked, stored = answer["sessions"]
        assert answer["source"] == url and live["id"] == LIVE
        assert live["tier_tokens"] == {"device": 2048, "host": 12000, "disk": 16640}
        assert live["conversation_tokens"] == 512 and live["pinned_blocks"] == 2
        assert live["until"].startswith("at least ") and live["until"].endswith(" from now")
        assert [session["state"] for session in (parked, stored)] == ["parked", "stored"]
        assert stored["until"] == "room is needed"
        assert "answering" in run("ps", "--url", url).stdout

    def test_a_key_is_needed_where_there_are_keys(self, run, monkeypatch):
        with serving(ShownService(), api_keys=("open-sesame=house",)) as guarded:
            refused = run("ps", "--url", guarded)
            assert refused.exit_code == 1 and "401" in refused.stderr
            assert listed(run, "--url", guarded, "--api-key", "open-sesame")["sessions"]
            monkeypatch.setenv("ZEROLAYER_API_KEYS", "open-sesame=house,other")
            assert listed(run, "--url", guarded)["sessions"]

    def test_no_server_and_another_server_are_told_apart(self, run):
        with MessagesServer().running() as other:
            result = run("ps", "--url", other.url)
            assert result.exit_code == 1 and "404" in result.stderr
            other.get["/v1/rtls/sessions"] = (200, [])
            result = run("ps", "--url", other.url)
            assert result.exit_code == 1 and "does not answer as a zerolayer server does" in result.stderr
        gone = run("ps", "--url", other.url)
        assert gone.exit_code == 1 and "no server answers" in gone.stderr and "zerolayer serve" in gone.stderr
        assert "is no address of a server" in run("ps", "--url", "localhost").stderr

    def test_top_shows_the_latest_session_and_the_totals(self, run, url):
        stdout = run("top", "--url", url, "--once").stdout
        for shown in ("contract.pdf on http", "16,640 tokens of documents", "answering", "2,048", "blocks by grade",
                      "P0 p50 / p99", "µs", "0 tokens", "heat, 45.0 MiB", "ppo was late"):  # fmt: skip
            assert shown in stdout, shown

    def test_top_finds_by_name_and_prefix(self, run, url):
        for name in ("annex.txt", "0f1e2d"):
            answer = json.loads(run("top", name, "--url", url, "--json").stdout)
            assert answer["session"]["title"] == "Mietvertrag Straße.pdf, annex.txt"
            assert len(answer["heat"]["cells"]) == 256
        assert json.loads(run("top", "合同.pdf", "--url", url, "--json").stdout)["heat"] is None
        unknown = run("top", "four.txt", "--url", url)
        assert unknown.exit_code == 2 and "known: " in unknown.stderr and "(合同.pdf)" in unknown.stderr
