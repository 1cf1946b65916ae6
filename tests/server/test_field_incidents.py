"""Four incidents known from the field (docs/serving.md): each once more, on purpose.

The fourth, too little of a Chinese document in use, is a matter of calibration: tests/cli/test_calibrate_command.py.
"""

from __future__ import annotations

import itertools

import pytest
from asking import ask, document, request, start_service, use_tiny_models, wait_until

from zerolayer.config import load_settings
from zerolayer.errors import OverloadedError
from zerolayer.server.options import ServiceOptions
from zerolayer.server.service import Service

pytest.importorskip("torch")

FEE = "What is the fee?"
SMALL = ServiceOptions(device_budget="64MiB", conversation_tokens=256, least_host_bytes=0)


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
    use_tiny_models(monkeypatch)


class TestSlowFirstRequest:
    """The first request paid for loading and warming up. Now nothing is ready before both are done."""

    def test_it_is_ready_only_after_it_has_warmed_up(self, monkeypatch):
        from zerolayer.engines.hf.engine import HFEngine

        service, warmed = Service(load_settings(encoder="none"), SMALL), []
        compute = HFEngine.append

        def append(engine, *args, **kwargs):
            warmed.append(service.ready())
            return compute(engine, *args, **kwargs)

        monkeypatch.setattr(HFEngine, "append", append)
        assert not service.ready().ok
        service.start()
        try:
            wait_until(lambda: service.ready().ok, 60.0)
            assert warmed, "no forward pass was made before it was ready"
            assert all(not seen.ok and "warmed up" in seen.reasons[0] for seen in warmed)
        finally:
            service.close()


class TestMetricsMissing:
    """Metrics vanished without a word when host memory was short."""

    def test_too_little_host_memory_is_said_by_readiness(self):
        options = ServiceOptions(device_budget="64MiB", least_host_bytes=1 << 60)
        service = Service(load_settings(encoder="none"), options)
        assert any("of host memory are available" in reason for reason in service.ready().reasons)

    @pytest.mark.parametrize("enabled", [True, False])
    def test_an_answer_tells_them_or_why_not(self, enabled):
        from zerolayer.server.turns import RtlsOptions

        service = start_service(SMALL)
        try:
            told = ask(service, request([document(), FEE], rtls=RtlsOptions(enabled=enabled)))
        finally:
            service.close()
        metrics = told.finished.rtls_metrics
        assert metrics["status"] == ("active" if enabled else "disabled")
        assert enabled or metrics["reason"]
        assert metrics["discarded_tokens_count"] == 0


class TestRepetitionWhenStreaming:
    """A client that put pieces together anew made the scheduler load, and text came twice."""

    def test_what_a_client_sends_back_in_pieces_is_the_same_conversation(self):
        service = start_service(SMALL, knit_share=0.0)
        try:
            told = ask(service, request([document(), FEE], max_tokens=16))
            assert "".join(delta.text for delta in told.deltas) == told.text
            assert all(a.token_end == b.token_start for a, b in itertools.pairwise(told.deltas))
            before = service.totals()
            again = ask(
                service, request([document(), FEE], [delta.text for delta in told.deltas], "And then?")
            )
            after = service.totals()
        finally:
            service.close()
        assert again.started.session_id == told.started.session_id
        assert after.recomputed_tokens - before.recomputed_tokens < load_settings().block_tokens


def test_a_service_that_is_being_closed_says_so():
    service = start_service(SMALL)
    service.close()
    with pytest.raises(OverloadedError, match="later"):
        service.submit(request([document(), FEE]))
