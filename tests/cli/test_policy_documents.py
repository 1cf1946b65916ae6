"""`zerolayer policy` for documents: the evaluation on recorded demand, and what `show` tells of the learned policy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from zerolayer.cli.main import cli
from zerolayer.decision.registry import DEFAULT_POLICY
from zerolayer.errors import UnknownNameError, UsageError
from zerolayer.learning import traces

sys.path.insert(0, str(Path(__file__).parents[1] / "learning"))
from demand_traces import random_trace


def run(*args: str) -> tuple[int, dict]:
    result = CliRunner().invoke(cli, ["policy", *args, "--json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value or 0, json.loads(result.stdout.splitlines()[-1])


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    for seed in range(3):
        traces.write(random_trace(seed, turns=8, num_blocks=60, noise=0.3), tmp_path / f"{seed}.jsonl")
    return tmp_path


def test_recorded_demand_is_evaluated_beside_both_bounds(recordings):
    code, found = run("eval", "--documents", str(recordings), "--policy", "lru")
    assert set(found["policies"]) == {"lru", DEFAULT_POLICY, "order-blind", "optimal"}
    assert found["default"]["name"] == DEFAULT_POLICY
    assert (found["sessions"], found["turns"], found["demand"]) == (3, 24, "synthetic")
    rows = found["policies"]["lru"]
    assert set(rows) == {"5%", "10%", "25%"}
    for key in ("coverage", "load_ratio", "wrong_eviction_share", "wasted_loads", "waste_at_coverage"):
        assert key in rows["10%"]
    default = [found["default"][budget] for budget in rows]
    meets = all(row["load_ratio"] <= 1.3 and row["wrong_eviction_share"] <= 0.01 for row in default)
    assert (code, found["meets_bar"]) == (0 if meets else 3, meets)


def test_one_recording_is_enough_and_a_folder_without_any_is_refused(recordings, tmp_path):
    _, found = run("eval", "--documents", str(recordings / "1.jsonl"), "--policy", "lru")
    assert found["sessions"] == 1
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match=r"neither questions\.jsonl .* nor a recorded demand trace"):
        run("eval", "--documents", str(empty))


def test_what_to_evaluate_must_be_said_once(recordings):
    with pytest.raises(UsageError, match="either --trace FILE or --documents PATH"):
        run("eval")
    with pytest.raises(UnknownNameError, match="unknown policy 'clever'"):
        run("eval", "--documents", str(recordings), "--policy", "clever")


def test_the_shipped_network_says_where_it_comes_from_and_its_curves_can_be_drawn(tmp_path):
    picture = tmp_path / "curves.png"
    _, found = run("show", "--plot", str(picture))
    assert found["ppo"]["command"].startswith("zerolayer policy train --documents")
    assert picture.read_bytes().startswith(b"\x89PNG")
