"""What the service counts, as Prometheus reads it. Names, units and definitions are those of metrics.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from zerolayer.metrics import METRICS
from zerolayer.server.http.latest import LatestTotals
from zerolayer.server.turns import Finished
from zerolayer.server.views import Percentiles, Totals

PREFIX = "zerolayer_"
TTFT_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
DECODE_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)

Value = float | int | None | Mapping[str, int] | Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Shown:
    """One metric of metrics.py: how it behaves, and where its value is found. `label` names a mapping's keys."""

    metric: str
    kind: Literal["counter", "gauge"]
    value: Callable[[Totals], Value]
    label: str = ""


SHOWN = (
    Shown("requests", "counter", lambda t: t.requests, "outcome"),
    Shown("input_tokens", "counter", lambda t: t.input_tokens),
    Shown("cache_creation_input_tokens", "counter", lambda t: t.cache_creation_input_tokens),
    Shown("cache_read_input_tokens", "counter", lambda t: t.cache_read_input_tokens),
    Shown("output_tokens", "counter", lambda t: t.output_tokens),
    Shown("loads", "counter", lambda t: t.loads),
    Shown("used_loads", "counter", lambda t: t.loads_used),
    Shown("wasted_load_count", "counter", lambda t: t.wasted_loads),
    Shown("wasted_loads", "gauge", lambda t: t.wasted_share),
    Shown("evictions", "counter", lambda t: t.evictions),
    Shown("faults", "counter", lambda t: t.faults),
    Shown("used_block_turns", "counter", lambda t: t.used_block_turns),
    Shown("covered_block_turns", "counter", lambda t: t.covered_block_turns),
    Shown("coverage", "gauge", lambda t: t.coverage),
    Shown("discarded_tokens", "counter", lambda t: t.discarded_tokens),
    Shown("recomputed_tokens", "counter", lambda t: t.recomputed_tokens),
    Shown("recalled_tokens", "counter", lambda t: t.recalled_tokens),
    Shown("prefilled_tokens", "counter", lambda t: t.prefilled_tokens),
    Shown("corrupt_blocks", "counter", lambda t: t.corrupt_blocks),
    Shown("evicted_p3_tokens", "counter", lambda t: t.evicted_p3_tokens),
    Shown("window_loads", "counter", lambda t: t.window_loads),
    Shown("window_wasted_loads", "gauge", lambda t: t.window_wasted_share),
    Shown("window_coverage", "gauge", lambda t: t.window_coverage),
    Shown("window_cut_tokens", "counter", lambda t: t.window_cut_tokens),
    Shown("p0_access_latency", "gauge", lambda t: _seconds(t.p0_access_latency_us), "quantile"),
    Shown("waiting_turns", "gauge", lambda t: t.queue_length),
    Shown("running_turns", "gauge", lambda t: t.running),
    Shown("live_sessions", "gauge", lambda t: t.sessions_live),
    Shown("parked_sessions", "gauge", lambda t: t.sessions_parked),
    Shown("parks", "counter", lambda t: t.parks),
    Shown("resumes", "counter", lambda t: t.resumes),
    Shown("pinned_blocks", "gauge", lambda t: t.pinned_blocks),
    Shown("grade_tokens", "gauge", lambda t: t.grade_tokens, "grade"),
    Shown("grade_counts", "gauge", lambda t: t.grade_blocks, "grade"),
    Shown("tier_tokens", "gauge", lambda t: t.tier_tokens, "tier"),
    Shown("tier_bytes", "gauge", lambda t: t.tier_bytes, "tier"),
    Shown("tier_capacity_bytes", "gauge", lambda t: t.tier_capacity_bytes, "tier"),
    Shown("host_available_bytes", "gauge", lambda t: t.host_available_bytes),
    Shown("uptime_s", "gauge", lambda t: t.uptime_s),
)


def exposed_name(metric: str) -> str:
    """The name under which a metric of metrics.py is exposed: the prefix, and its unit in the name.

    Counters get `_total` from the exposition format.
    """
    unit = METRICS[metric].unit
    name = metric.removesuffix("_count") + "s" if metric.endswith("_count") else metric
    if unit == "s":
        name = name.replace("_s_", "_seconds_") if "_s_" in name else name.removesuffix("_s") + "_seconds"
    elif METRICS[metric].kind == "ratio":
        name += "_ratio"
    elif unit in {"blocks", "tokens"} and unit.removesuffix("s") not in name:
        name = f"{name.removesuffix('_counts')}_{unit}"
    return PREFIX + name


def _seconds(us: Percentiles) -> dict[str, float]:
    return {"0.5": us.p50 / 1e6, "0.95": us.p95 / 1e6, "0.99": us.p99 / 1e6}


class ServiceCollector(Collector):
    """Tells the service's totals at every scrape, and how old they are."""

    def __init__(self, totals: LatestTotals) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Family]:
        """One family a metric; a value that is not known is left out."""
        totals, age_s = self._totals.get()
        name = exposed_name("totals_age_s")
        yield GaugeMetricFamily(name, METRICS["totals_age_s"].definition, value=age_s)
        for shown in SHOWN:
            value = shown.value(totals)
            name, text = exposed_name(shown.metric), METRICS[shown.metric].definition
            labels = [shown.label] if shown.label else []
            family = (
                CounterMetricFamily(name, text, labels=labels)
                if shown.kind == "counter"
                else GaugeMetricFamily(name, text, labels=labels)
            )
            if isinstance(value, Mapping):
                for key, number in value.items():
                    family.add_metric([key], float(number))
            elif value is not None:
                family.add_metric([], float(value))
            yield family


class TurnTimes:
    """How long turns took, as their metrics tell."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ttft = _histogram("ttft_s", TTFT_BUCKETS_S, registry)
        self._decode = _histogram("decode_s_per_token", DECODE_BUCKETS_S, registry)

    def observe(self, turn: Finished) -> None:
        """Count a finished turn; what its metrics do not tell is not counted."""
        for name, histogram in (("ttft_s", self._ttft), ("decode_s_per_token", self._decode)):
            value = turn.rtls_metrics.get(name)
            if isinstance(value, (int, float)):
                histogram.observe(value)


def _histogram(metric: str, buckets: tuple[float, ...], registry: CollectorRegistry) -> Histogram:
    return Histogram(exposed_name(metric), METRICS[metric].definition, buckets=buckets, registry=registry)


def request_counter(registry: CollectorRegistry) -> Counter:
    """Requests by route, method and status."""
    labels = ("route", "method", "status")
    return Counter(
        exposed_name("http_requests"), METRICS["http_requests"].definition, labels, registry=registry
    )


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The page that Prometheus scrapes, and its content type, in the newest format that it accepts."""
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
