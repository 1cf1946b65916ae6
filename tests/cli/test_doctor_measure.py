"""`zerolayer doctor --measure`: figures of this machine, written where simulations look."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from zerolayer.cli import doctor
from zerolayer.cli.main import cli
from zerolayer.learning.machine import machine_costs


def test_measured_figures_are_printed_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "CHECKS", (doctor._store,))  # the others have tests of their own
    result = CliRunner().invoke(cli, ["doctor", "--measure", "--json"], standalone_mode=False)
    assert result.exception is None
    measured = json.loads(result.stdout.splitlines()[-1])["measured"]
    kept = machine_costs(Path(measured["file"]))
    assert Path(measured["file"]).is_relative_to(tmp_path)
    assert round(kept.disk_bytes_per_s) == measured["disk_to_host_bytes_per_s"] > 1e6
    assert round(kept.host_bytes_per_s) == measured["host_to_device_bytes_per_s"] > 1e7
    assert measured["K8V4_decode_bytes_per_s"] == round(1.0 / kept.codecs["K8V4"].decode_s_per_byte)
