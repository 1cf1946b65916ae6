"""A service that is killed, whose disk is full, whose files are damaged: nothing that it says after is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from asking import TEXT, ask, document, request, start_service, use_tiny_models, wait_until

from zerolayer.execution.tiers.disk import DiskTier
from zerolayer.server.options import ServiceOptions
from zerolayer.server.turns import ContextHint

FEE, TERM = "What is the fee?", "And what is the term?"
ROOT = Path(__file__).resolve().parents[1]

SERVER = """
import sys, pytest
sys.path[:0] = [{tests!r}, {server!r}]
from asking import ask, document, request, start_service, use_tiny_models, TEXT
with pytest.MonkeyPatch.context() as patch:
    use_tiny_models(patch)
    service = start_service()
    said = [[document(TEXT * 3), {fee!r}]]
    print("ready", flush=True)
    for _ in range(40):
        told = ask(service, request(*said, max_tokens=24))
        print("answered", flush=True)
        said += [told.text, {term!r}]
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
    use_tiny_models(monkeypatch)
    return tmp_path


def killed_with(blocks: int, home: Path, answers: int) -> None:
    """A service process that is killed once it has given so many answers, and stored so many blocks."""
    script = SERVER.format(tests=str(ROOT), server=str(ROOT / "server"), fee=FEE, term=TERM)
    environment = {**os.environ, "ZEROLAYER_HOME": str(home)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for _ in range(1 + answers):
            assert process.stdout.readline(), "the service ended by itself"
        wait_until(lambda: len(list(home.rglob("*.kv"))) >= blocks)
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize(("blocks", "answers"), [(20, 0), (170, 2)])
def test_a_killed_service_goes_on_from_disk(home, blocks, answers):
    killed_with(blocks, home, answers)
    service = start_service()
    try:
        told = ask(service, request([document(TEXT * 3), FEE], max_tokens=24))
        after = ask(service, request([document(TEXT * 3), FEE], told.text, TERM))
        totals = service.totals()
    finally:
        service.close()
    assert told.finished is not None and after.finished is not None
    assert totals.discarded_tokens == totals.corrupt_blocks == 0
    assert told.usage.cache_read_input_tokens >= 20 * 8 * 0.9, "what had been read came from disk"
    assert not list(home.rglob("*.tmp"))


def test_flipped_bits_are_recomputed_and_counted_never_told(home):
    service = start_service()
    first = ask(service, request([document(), FEE]))
    service.close()
    files = sorted(home.rglob("*.kv"))
    for path in files[5:8]:
        data = bytearray(path.read_bytes())
        data[-7] ^= 0x10
        path.write_bytes(bytes(data))
    service = start_service(device_budget="100%")
    try:
        again = ask(service, request([document(), FEE], first.text, TERM))
        told = [ask(service, request([document(), question])) for question in (FEE, "What is the audit?")]
        totals = service.totals()
    finally:
        service.close()
    assert all(turn.finished is not None for turn in (again, *told))
    assert totals.discarded_tokens == 0 and totals.recomputed_tokens >= 8 * totals.corrupt_blocks


def test_a_damaged_note_of_a_conversation_costs_its_turns_and_nothing_else(home):
    service = start_service()
    first = ask(service, request([document(), FEE], max_tokens=40))
    service.close()
    (note,) = home.rglob("conversations/*.json")
    note.write_text(note.read_text()[:-9])
    service = start_service()
    try:
        second = ask(service, request([document(), FEE], first.text, TERM))
    finally:
        service.close()
    assert second.finished is not None and second.metrics["recomputed_tokens_count"] >= 40
    assert second.usage.cache_read_input_tokens > len(TEXT) - 64


def test_a_full_disk_keeps_the_service_up(home):
    service = start_service(disk_budget="40KiB")
    try:
        told = ask(service, request([document(), FEE]))
        after = ask(service, request([document(), FEE], told.text, TERM))
        totals = service.totals()
    finally:
        service.close()
    assert told.finished is not None and after.finished is not None
    assert totals.discarded_tokens == 0 and service.totals().requests["failed"] == 0


def test_a_slow_disk_changes_no_answer(home, monkeypatch):
    def answers(folder: str) -> list[str]:
        monkeypatch.setenv("ZEROLAYER_HOME", str(home / folder))
        service = start_service()
        try:
            first = ask(service, request([document(), FEE]))
            second = ask(service, request([document(), FEE], first.text, TERM))
            assert service.totals().discarded_tokens == 0
        finally:
            service.close()
        return [first.text, second.text]

    fast = answers("fast")
    for name in ("put", "get", "get_summary"):
        original = getattr(DiskTier, name)

        def slow(*args, original=original):
            time.sleep(0.02)
            return original(*args)

        monkeypatch.setattr(DiskTier, name, slow)
    assert answers("slow") == fast


def test_a_wall_clock_that_jumps_ends_no_pin(home, monkeypatch):
    service = start_service()
    hints = (ContextHint("The audit", ttl_s=3600.0),)
    try:
        told = ask(service, request([document(), FEE], hints=hints))
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 10**7)
        after = ask(service, request([document(), FEE], told.text, TERM))
        pinned = service.sessions()[0].pin_blocks
    finally:
        service.close()
    assert after.metrics["hints"] == [] and pinned > 0


def test_an_error_in_one_turn_ends_no_other(home, monkeypatch):
    from zerolayer.scheduler import Scheduler

    service = start_service()
    try:
        first = ask(service, request([document(), FEE]))
        whole = Scheduler._learn

        def broken(self, attended):
            raise RuntimeError("a defect")

        monkeypatch.setattr(Scheduler, "_learn", broken)
        failed = ask(service, request([document(), FEE], first.text, TERM))
        monkeypatch.setattr(Scheduler, "_learn", whole)
        after = ask(service, request([document(), FEE], first.text, TERM))
    finally:
        service.close()
    assert isinstance(failed.error, RuntimeError)
    assert after.finished is not None and after.metrics["discarded_tokens_count"] == 0


def test_turns_that_wait_when_the_service_ends_are_told(home):
    service = start_service(ServiceOptions(device_budget="64MiB", max_running=1, least_host_bytes=0))
    turns = [service.submit(request([document(TEXT * 8), FEE])) for _ in range(3)]
    wait_until(lambda: service.totals().running == 1)
    service.close()
    assert all(turn.ended for turn in turns)
    assert not service.ready().ok
