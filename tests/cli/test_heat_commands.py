"""`heatmap` and `top` on the sessions that a small random model has left."""

from __future__ import annotations

import json
import re
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_models import make_engine
from zerolayer.cli.main import cli
from zerolayer.cli.stored import numbers
from zerolayer.config import load_settings
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.errors import SettingError
from zerolayer.runtime.snapshot import SNAPSHOT_NAME, read_snapshot
from zerolayer.session import session_of

PNG = b"\x89PNG\r\n\x1a\n"
QUESTIONS = ("How much is the fee?", "When does the term end?", "Who pays?")


def document(name: str, fee: str) -> Document:
    pages = [f"Page {n}. The fee is {fee} euro. The term ends in May. " * 8 for n in (1, 2, 3)]
    starts = np.cumsum([0, *map(len, pages)]).tolist()
    spans = tuple(Page(n + 1, starts[n], starts[n + 1]) for n in range(3))
    return Document(name, "".join(pages), spans, "")


def open_(name: str, fee: str, **flags):
    defaults = {"block_tokens": 8, "max_new_tokens": 8, "encoder": "none", "chunk_tokens": 16}
    return session_of([document(name, fee)], make_engine("llama")[0], load_settings(**{**defaults, **flags}))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Three sessions: `one.txt` answered three questions and was used last, `two.txt` none, `三.txt` one."""
    path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEROLAYER_HOME", str(path))
        with open_("two.txt", "nine") as session:
            session.read()
        with open_("三.txt", "ten", heatmap_side=4, pin_blocks=0) as session:
            session.read()
            session.ask(QUESTIONS[0])
        with open_("one.txt", "five", device_budget="40%") as session:
            session.read()
            for question in QUESTIONS:
                session.ask(question)
    return path


@pytest.fixture
def run(home, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(home))
    return lambda *args: CliRunner().invoke(cli, list(args))


@pytest.fixture(scope="module")
def stored(home):
    """The snapshot of `one.txt`."""
    paths = home.rglob(SNAPSHOT_NAME)
    return next(path for path in paths if read_snapshot(path).heat.turn == 3).read_bytes()


def top_json(run, *args):
    result = run("top", *args, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


class TestFinding:
    def test_latest_name_path_id_and_prefix_are_one_session(self, run):
        session = top_json(run)["session"]
        for name in ("latest", "one.txt", "some/where/one.txt", session, session[:10], session[:10].upper()):
            assert top_json(run, name)["session"] == session
        assert top_json(run, "two.txt")["session"] != session

    @pytest.mark.parametrize("command", [["top"], ["heatmap", "-o", "x.png"]])
    def test_an_unknown_session_is_answered_with_the_known(self, run, command):
        result = run(*command, "four.txt")
        assert result.exit_code == 2
        assert result.stderr.startswith("error: unknown session 'four.txt'; known: ")
        assert all(name in result.stderr for name in ("(one.txt)", "(two.txt)", "(三.txt)", "latest"))

    def test_a_prefix_of_several_is_ambiguous(self, run, home):
        from zerolayer.cli.stored import find_session, open_store
        from zerolayer.errors import UnknownNameError, UsageError

        class Twice:
            def list(self):
                return open_store().list() * 2

        session = top_json(run)["session"]
        with pytest.raises(UsageError, match="could be any of"):
            find_session(Twice(), session[:4])
        with pytest.raises(UnknownNameError):
            find_session(Twice(), "")

    def test_an_empty_store_says_what_to_do(self, tmp_path):
        result = CliRunner().invoke(cli, ["--home", str(tmp_path), "top"])
        assert result.exit_code == 2
        assert "no session is stored" in result.stderr and "zerolayer ask" in result.stderr


class TestTop:
    def test_once_shows_tiers_grades_heat_and_the_last_turn(self, run):
        stdout = run("top", "one.txt", "--once").stdout
        for shown in (
            "one.txt",
            "device",
            "host",
            "disk",
            "P0",
            "P3",
            "first token",
            "hot banks",
            "cold zones",
        ):
            assert shown in stdout
        assert "0x0 " in stdout and "█" in stdout
        assert "turn 2, ended" in stdout and "closed" in stdout
        assert "hot banks" in run("top", "one.txt").stdout  # and so where there is no terminal

    def test_json_has_what_the_frame_shows(self, run):
        shown = top_json(run, "one.txt")
        assert shown["turns"] == 3 and shown["heatmap_side"] == 256
        assert shown["metrics"]["turn"] == 2 and set(shown["metrics"]["tier_tokens"]) == {
            "device",
            "host",
            "disk",
        }
        heat = np.asarray(shown["heat"])
        assert heat.shape == (16, 16) and heat.min() >= 0
        answered = 1 + 0.8 + 0.64  # turns, decayed; each has at least its question's tokens
        assert heat.sum() > answered * shown["metrics"]["question_tokens"] / 2
        for region in (*shown["hot_banks"], *shown["cold_zones"]):
            assert int(region["address"], 16) + region["size"] <= shown["arena_bytes"]
            assert len(region["blocks"]) == region["slots"]
            assert set(region["pages"]) <= {1, 2, 3}

    def test_before_its_first_turn_a_session_has_no_heat(self, run):
        assert top_json(run, "two.txt")["turns"] == 0
        assert "no turn has ended yet" in run("top", "two.txt", "--once").stdout

    def test_the_small_map_is_shown_too(self, run):
        shown = top_json(run, "三.txt")
        assert shown["heatmap_side"] == 4 and np.asarray(shown["heat"]).shape == (4, 4)
        assert "三.txt" in run("top", "三.txt", "--once").stdout

    def test_an_open_session_is_said_to_be_open(self, run, home):
        with open_("two.txt", "nine"):
            assert top_json(run, "two.txt")["in_use"]
        assert not top_json(run, "two.txt")["in_use"]


class TestPicture:
    @pytest.mark.parametrize(("name", "start"), [("a.png", PNG), ("b.svg", b"<?xml"), ("c.PDF", b"%PDF")])
    def test_a_picture_in_the_format_of_its_name(self, run, tmp_path, name, start):
        result = run("heatmap", "one.txt", "-o", str(tmp_path / name))
        assert result.exit_code == 0, result.stderr
        assert result.stdout == f"{tmp_path / name}\n"
        assert (tmp_path / name).read_bytes().startswith(start)

    def test_json_names_banks_and_zones(self, run, tmp_path):
        result = run("heatmap", "三.txt", "-o", str(tmp_path / "a.png"), "--json")
        shown = json.loads(result.stdout)
        assert shown["title"] == "三.txt" and shown["side"] == 4 and shown["turns"] == 1
        assert shown["file"] == str(tmp_path / "a.png")
        assert isinstance(shown["hot_banks"], list) and isinstance(shown["cold_zones"], list)

    def test_what_cannot_be_drawn_is_said(self, run, tmp_path):
        unknown = run("heatmap", "one.txt", "-o", str(tmp_path / "a.gif"))
        assert unknown.exit_code == 2 and "end it in .png, .svg, .pdf" in unknown.stderr
        cold = run("heatmap", "two.txt", "-o", str(tmp_path / "a.png"))
        assert cold.exit_code == 1 and "has no heat map" in cold.stderr
        nowhere = run("heatmap", "one.txt", "-o", str(tmp_path / "absent" / "a.png"))
        assert nowhere.exit_code == 1 and "absent" in nowhere.stderr
        assert not list(tmp_path.iterdir())


class TestSnapshot:
    def test_two_sessions_leave_the_same_heat(self, home, stored, tmp_path, monkeypatch):
        monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
        with open_("one.txt", "five", device_budget="40%") as session:
            session.read()
            for question in QUESTIONS:
                session.ask(question)
            live, occupant = session.scheduler.heat, session.scheduler.arena.occupant
        (path,) = tmp_path.rglob(SNAPSHOT_NAME)
        (tmp_path / "before.npz").write_bytes(stored)
        again, before = read_snapshot(path), read_snapshot(tmp_path / "before.npz")
        assert (again.heat.heat == before.heat.heat).all() and (again.heat.heat == live.heat).all()
        assert (again.occupant == before.occupant).all() and (again.occupant == occupant).all()
        assert again.pages_of((0, 10, 10_000)) == [1]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_damage_is_ignored(self, stored, tmp_path, data):
        path = tmp_path / "damaged.npz"
        place = data.draw(st.integers(0, len(stored) - 1))
        damaged = bytearray(stored)
        damaged[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(damaged if data.draw(st.booleans()) else stored[:place])
        snapshot = read_snapshot(path)
        assert snapshot is None or snapshot.heat.turn == 3  # a bit of the archive's dates changes nothing

    @pytest.mark.parametrize("bracket", [b")", b"{", b"'"])
    def test_a_header_that_does_not_parse_is_damage(self, stored, tmp_path, bracket):
        """Of a large array it is read before the checksum of all of it is known."""
        path = tmp_path / "damaged.npz"
        places = [match.end() - 1 for match in re.finditer(rb"'shape': \(", stored)]
        assert places
        for place in places:
            path.write_bytes(stored[:place] + bracket + stored[place + 1 :])
            assert read_snapshot(path) is None

    def test_another_version_and_no_file_are_none(self, stored, tmp_path):
        path = tmp_path / "s.npz"
        assert read_snapshot(path) is None
        path.write_bytes(stored)
        with np.load(path) as arrays:
            kept = dict(arrays)
        kept["about"] = np.asarray(str(kept["about"]).replace('"version": 1', '"version": 99'))
        np.savez(path, **kept)
        assert read_snapshot(path) is None
        assert zipfile.is_zipfile(path)

    def test_a_full_disk_costs_the_snapshot_and_not_the_turn(self, tmp_path, monkeypatch, caplog):
        from zerolayer.errors import StoreFullError
        from zerolayer.runtime import snapshot

        def full(*_: object) -> None:
            raise StoreFullError("no space left")

        monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
        monkeypatch.setattr(snapshot, "write_atomic", full)
        with open_("one.txt", "five") as session:
            session.read()
            assert session.ask(QUESTIONS[0]).metrics.discarded_tokens == 0
        assert "the heat map was not saved: no space left" in caplog.text


class TestPins:
    def test_the_hottest_bank_is_pinned_within_its_budget_the_same_way_each_time(self, tmp_path, monkeypatch):
        from zerolayer.execution.isa import PinL2, Unpin

        programs = []
        for name in ("a", "b"):
            monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path / name))
            with open_("one.txt", "five", device_budget="40%", pin_blocks=1) as session:
                session.read()
                held, lines = set(), []
                width = session.scheduler.arena.slot_bytes
                for question in QUESTIONS:
                    log = session.answer(question)[1].log
                    for line in (o.instruction for o in log if isinstance(o.instruction, PinL2 | Unpin)):
                        slots = range(line.addr // width, (line.addr + line.size) // width)
                        held = held | set(slots) if isinstance(line, PinL2) else held - set(slots)
                        lines.append(line)
                    heat, occupant = session.scheduler.heat, session.scheduler.arena.occupant
                    assert len(held) <= 1
                    assert held == set(heat.hottest_slots(occupant, 1))
                programs.append(lines)
        assert programs[0] == programs[1] and any(isinstance(line, PinL2) for line in programs[0])

    def test_none_are_pinned_without_a_budget(self, tmp_path, monkeypatch):
        from zerolayer.execution.isa import PinL2

        monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
        with open_("one.txt", "five", pin_blocks=0) as session:
            session.read()
            log = session.answer(QUESTIONS[0])[1].log
        assert not any(isinstance(outcome.instruction, PinL2) for outcome in log)


@pytest.mark.parametrize("side", ["0", "3", "2048", "-4"])
def test_an_impossible_side_is_a_setting_error(side, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HEATMAP_SIDE", side)
    with pytest.raises(
        SettingError, match=f"heatmap_side is {side}; it must be a power of two from 2 to 1024"
    ):
        load_settings()


def test_numbers_are_runs():
    assert numbers([3, 4, 5, 9]) == "3–5, 9"
    assert numbers(range(0, 40, 2), most=2) == "0, 2, …"
    assert numbers([]) == ""
