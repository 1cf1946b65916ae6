"""What grading a session knows: features of its blocks, thresholds, the user's own calibration, drift."""

from __future__ import annotations

import numpy as np
import pytest

from tiny_models import make_engine
from zerolayer.config import load_settings
from zerolayer.core import BLOCK_FEATURES, KEY_FEATURES
from zerolayer.decision.persistence import FEATURES, PersistenceModel
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.errors import SettingError
from zerolayer.learning import calibrate_files
from zerolayer.session import session_of

TEXT = "1. The fee is five euro.\n\n2. The term ends on May 1, 2031.\n\n" * 8


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))

    def open_(text=TEXT, **settings):
        document = Document("d", text, (Page(1, 0, len(text)),), "")
        defaults = {"block_tokens": 16, "max_new_tokens": 8, "encoder": "none", "chunk_tokens": 32}
        return session_of([document], make_engine("llama")[0], load_settings(**{**defaults, **settings}))

    return open_


def constant_model(probability: float) -> PersistenceModel:
    n = len(FEATURES)
    zeros, knots = np.zeros(n, np.float32), np.array([[0.0, probability]], dtype=np.float32)
    return PersistenceModel("en", "", "synthetic", zeros, zeros + 1, zeros, 0.0, knots)


def column(session, name):
    return session.scheduler.table.features[:, BLOCK_FEATURES.index(name)]


def test_keys_and_text_tell_of_every_block(opened):
    with opened() as session:
        session.read()
        features = session.scheduler.table.features.copy()
        assert np.isfinite(column(session, "dispersion")).all()
        assert (column(session, "dispersion") > 0).all()
        dated = [
            b.index for b in session.stream.blocks if "May 1, 2031" in TEXT[b.char_start : b.char_end + 12]
        ]
        assert column(session, "date")[dated].any()
    with opened() as session:
        session.read()
        again = session.scheduler.table.features
    np.testing.assert_array_equal(features, again)  # from storage, without a pass


def test_a_store_without_dispersion_stays_readable(opened):
    with opened() as session:
        session.read()
        tiers, bounds = session.scheduler.executor.tiers, session.scheduler.working_set.bounds.nbytes
        for block_id in session.scheduler.executor.ids:
            record = tiers.read(block_id)
            old = type(record)(record.payload, record.summary[:bounds], record.codec, record.meta)
            tiers.delete(block_id)
            tiers.write_behind(block_id, old)
    with opened() as session:
        report = session.read()
        assert report.tokens_prefilled == 0
        assert np.isnan(session.scheduler.table.features[:, : len(KEY_FEATURES)]).all()
        assert session.ask("How much is the fee?").metrics.corrupt_blocks == 0


def test_thresholds_can_be_moved(opened):
    with opened() as session:
        session.read()
        session.ask("How much is the fee?")
        session.set_entropy_thresholds(p0_min=0.9, p1_min=0.8, p2_min=0.7)
        strict = session.scheduler.table.grade.copy()
        session.set_entropy_thresholds(p0_min=0.03, p1_min=0.02, p2_min=0.01)
        assert session.scheduler.table.grade.sum() < strict.sum()
        with pytest.raises(SettingError, match="must fall from P0 to P2"):
            session.set_entropy_thresholds(p0_min=0.1, p1_min=0.2, p2_min=0.05)


def test_a_policy_without_grades_has_no_thresholds(opened):
    with opened(policy="lru") as session:
        session.read()
        assert session.ask("How much is the fee?").metrics.calibration_drift is None
        with pytest.raises(SettingError, match="policy 'lru' does not grade"):
            session.set_entropy_thresholds()


def test_the_users_calibration_grades_and_its_drift_is_measured(opened, tmp_path):
    path = calibrate_files.keep_model(constant_model(0.97), "zerolayer calibrate mine.txt")
    assert path.is_relative_to(tmp_path)
    with opened() as session:
        session.read()
        drifts = [session.ask("How much is the fee?").metrics.calibration_drift for _ in range(4)]
        assert "persistence 0.97 (calibrated" in session.scheduler.policy.explain(3)
    assert drifts[0] == 0
    assert all(-1 <= drift <= 1 for drift in drifts) and drifts[-1] != 0


def test_a_damaged_calibration_is_named(opened):
    calibrate_files.user_file().parent.mkdir(parents=True)
    calibrate_files.user_file().write_text("not json")
    with pytest.raises(SettingError, match=r"persistence\.json is no calibration"):
        opened()
