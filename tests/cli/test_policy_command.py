"""`zerolayer policy` for request streams: JSON, exit codes, and the rule of what is counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from zerolayer.cli.main import cli
from zerolayer.decision.request_registry import DEFAULT_REQUEST_POLICY, REQUEST_POLICIES


def run(*args: str) -> tuple[int, dict]:
    result = CliRunner().invoke(cli, ["policy", *args, "--json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value or 0, json.loads(result.stdout.splitlines()[-1])


@pytest.fixture
def mooncake_file(tmp_path: Path) -> Path:
    """A small conversation trace in Mooncake's form: six turns a conversation, one in three goes on."""
    rng = np.random.default_rng(0)
    lines, fresh, chains = [], 1, []
    for number in range(300):
        if chains and rng.random() < 0.6:
            chain = chains[rng.integers(max(0, len(chains) - 15), len(chains))]
        else:
            chain = [0]
            chains.append(chain)
        chain += [fresh, fresh + 1]
        fresh += 2
        lines.append(
            {
                "timestamp": 1000 * number,
                "input_length": 512 * len(chain),
                "output_length": 9,
                "hash_ids": list(chain),
            }
        )
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_every_policy_is_listed() -> None:
    code, found = run("list")
    names = {row["name"] for row in found["policies"] if row["for"] == "requests"}
    assert code == 0 and names == set(REQUEST_POLICIES)
    assert all(row["what"] for row in found["policies"])
    assert found["default_requests"] == DEFAULT_REQUEST_POLICY


def test_an_unknown_trace_is_counted_whole(mooncake_file: Path) -> None:
    code, found = run("eval", "--trace", str(mooncake_file), "--policy", "lru", "--jobs", "1")
    assert code in (0, 3) and found["meets_bar"] == (code == 0)
    assert found["requests"] == 300 and found["fitted_on_first_share"] is None
    assert set(found["policies"]) == {"lru", DEFAULT_REQUEST_POLICY, "optimum"}
    for size, row in found["policies"]["lru"].items():
        best = found["policies"]["optimum"][size]["hit_rate"]
        assert row["hit_rate"] == pytest.approx(row["share_of_optimum"] * best)
        low, high = row["share_interval"]
        assert 0 <= low <= row["share_of_optimum"] + 1e-9 and row["share_of_optimum"] <= high + 1e-9 <= 1.1
    assert found["default"]["name"] == DEFAULT_REQUEST_POLICY
    assert found["default"]["2%"] == found["policies"][DEFAULT_REQUEST_POLICY]["2%"]


def test_a_scale_check_fills_the_cache_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "scale.png"
    sizes = ("--blocks", "80", "--blocks", "800", "--references", "800", "--plot", str(plot))
    code, found = run("scale", "--policy", "lru", "--policy", "arc", *sizes)
    assert code == 0 and set(found["policies"]) == {"lru", "arc"}
    assert plot.read_bytes().startswith(b"\x89PNG")
    for rows in found["policies"].values():
        assert [row["resident_blocks"] for row in rows] == [80, 800]
        assert all(row["decision_us_p50"] > 0 for row in rows)


def test_fitting_needs_returns_and_reports_the_rest(mooncake_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    model = tmp_path / "model.json"
    code, found = run("fit", "--trace", str(mooncake_file), "--seed", "1", "--output", str(model))
    assert code == 0 and found["seed"] == 1
    assert json.loads(model.read_text())["trained_on"] == found["trained_on"]
    _, held = run("eval", "--trace", str(mooncake_file), "--policy", "imitation", "--fit", "--jobs", "1")
    assert held["requests"] == 120 and held["fitted_on_first_share"] == 0.6
