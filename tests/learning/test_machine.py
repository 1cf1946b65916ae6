"""Measured bandwidths: of this machine, kept, read back by simulations."""

from __future__ import annotations

import json

import pytest

from zerolayer.errors import SettingError
from zerolayer.learning.costs import TierCosts
from zerolayer.learning.machine import machine_costs, measure, write_costs


def test_figures_of_this_machine_are_kept_and_read_back(tmp_path):
    found = measure(tmp_path, repeats=1)
    assert found.disk_bytes_per_s > 1e6
    assert found.host_bytes_per_s > 1e8
    assert found.codecs["K8V4"].ratio == pytest.approx(0.42, abs=0.03)
    assert list(tmp_path.iterdir()) == []  # nothing is left of what was read and written
    path = write_costs(found, tmp_path / "machine.json")
    assert machine_costs(path) == found
    assert found.load_ms(100, 64, "K8V4") > 0


def test_nothing_measured_means_the_documented_figures(tmp_path):
    assert machine_costs(tmp_path / "absent.json") == TierCosts()


def test_a_damaged_file_is_refused_with_the_fix(tmp_path):
    path = write_costs(TierCosts(), tmp_path / "machine.json")
    record = json.loads(path.read_text())
    for broken in ("{", json.dumps({**record, "version": 2}), json.dumps({**record, "disk_bytes_per_s": 0})):
        path.write_text(broken)
        with pytest.raises(SettingError):
            machine_costs(path)


def test_slower_disks_make_spilled_documents_dearer(tmp_path):
    costs = TierCosts(host_budget_bytes=1e6)
    slow = TierCosts(host_budget_bytes=1e6, disk_bytes_per_s=1e7)
    assert slow.load_ms(100, 64, "K8V4") > 10 * costs.load_ms(100, 64, "K8V4")
