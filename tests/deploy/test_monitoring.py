"""Scrape configuration, alerts and the Grafana dashboard against the names that the server exposes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from shown_service import ShownService, serving

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = (DEPLOY / "prometheus/zerolayer.rules.yml").read_text()
BOARD = json.loads((DEPLOY / "grafana/zerolayer.json").read_text())


@pytest.fixture(scope="module")
def exposed():
    """Every sample name of a running server; histograms and labelled counters have no sample before their first."""
    with serving(ShownService()) as url:
        urllib.request.urlopen(f"{url}health").close()
        with urllib.request.urlopen(f"{url}metrics") as answer:
            text = answer.read().decode()
    names = set(re.findall(r"^([a-z_0-9]+)[{ ]", text, re.MULTILINE))
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names |= {f"{name}_bucket"} if kind == "histogram" else {name}
    return names


def used(expression: str) -> set[str]:
    return set(re.findall(r"(?<![\w:])zerolayer_\w+", expression))


def targets():
    return [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool on the path, of Debian's package prometheus")
    return subprocess.run(
        [program, *arguments], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )


def test_the_scrape_configuration_is_valid():
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stderr


def test_alerts_fire_when_they_should_and_only_then():
    done = promtool("test", "rules", "zerolayer.rules.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_that_is_scraped_is_well_formed():
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool on the path, of Debian's package prometheus")
    with serving(ShownService()) as url, urllib.request.urlopen(f"{url}metrics") as answer:
        page = answer.read()
    done = subprocess.run([program, "check", "metrics"], input=page, capture_output=True, check=False)
    assert done.returncode in (0, 3), done.stderr.decode()  # 3: remarks on style


def test_rules_and_panels_ask_only_for_what_is_exposed(exposed):
    asked = used(RULES) | {name for _, expression in targets() for name in used(expression)}
    assert len(asked) > 25
    assert asked <= exposed, asked - exposed


def test_expressions_of_the_dashboard_can_be_parsed(tmp_path):
    rules = []
    for index, (_, expression) in enumerate(targets()):
        plain = expression.replace("$__range", "1h").replace("$job", ".*").replace("$instance", ".*")
        rules.append({"record": f"panel:{index}", "expr": plain})
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_panel_has_a_unit_a_description_and_its_own_place():
    cells: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["description"], panel["title"]
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells and place["x"] + place["w"] <= 24, panel["title"]
        cells |= own
