"""Signals are fused to one match, 0 to 1, the best block 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.perception.recall import RecallWeights, Signals, fuse
from zerolayer.perception.scores import unit

fast = settings(max_examples=100, deadline=None)


def scores(n: int):
    return st.lists(st.floats(0, 1, width=32), min_size=n, max_size=n).map(lambda v: np.array(v, np.float32))


@fast
@given(data=st.data(), n=st.integers(1, 30), dense=st.booleans())
def test_match_is_zero_to_one(data, n, dense):
    meaning = data.draw(scores(n)) if dense else None
    match = fuse(Signals(data.draw(scores(n)), meaning), data.draw(scores(n)))
    assert match.dtype == np.float32 and match.shape == (n,)
    assert np.isfinite(match).all() and match.min() >= 0 and match.max() in (0.0, 1.0)


def test_nothing_known_matches_nothing():
    zeros = np.zeros(5, np.float32)
    assert not fuse(Signals(zeros), zeros).any()
    assert not fuse(Signals(zeros + 0.5, zeros + 0.5), zeros).any()  # all alike says nothing either
    assert fuse(Signals(zeros[:0]), zeros[:0]).shape == (0,)


@pytest.mark.parametrize("signal", ["words", "meaning", "attention"])
def test_each_signal_alone_finds_its_block(signal):
    peak = np.zeros(9, np.float32)
    peak[4] = 0.8
    zeros = np.zeros(9, np.float32)
    words, meaning, attention = (
        peak if signal == name else zeros for name in ("words", "meaning", "attention")
    )
    match = fuse(Signals(words, meaning), attention)
    assert int(match.argmax()) == 4 and match[4] == 1


def test_agreement_wins_over_one_signal():
    words, attention = np.zeros((2, 9), np.float32)
    words[[2, 6]], attention[6] = 1, 1
    assert int(fuse(Signals(words), attention).argmax()) == 6


def test_attention_spreads_to_neighbours_more_forward_than_back():
    attention = np.zeros(7, np.float32)
    attention[3] = 0.4
    match = fuse(Signals(np.zeros(7, np.float32)), attention)
    weights = RecallWeights()
    np.testing.assert_allclose(match, [0, 0, weights.before, 1, weights.after, 0, 0], atol=1e-6)


@fast
@given(data=st.data(), scale=st.sampled_from([0.01, 3.0]))
def test_scale_of_a_signal_does_not_matter(data, scale):
    words, meaning, attention = (data.draw(scores(8)) + np.float32(0.01) * np.arange(8) for _ in range(3))
    one = fuse(Signals(words, meaning), attention)
    other = fuse(Signals(words * scale, meaning * scale), attention * scale)
    np.testing.assert_allclose(one, other, atol=2e-4)


def test_conversation_blocks_match_no_document_signal():
    signals = Signals(np.ones(3, np.float32), np.ones(3, np.float32))
    padded = signals.padded(5)
    assert padded.words.tolist() == padded.meaning.tolist() == [1, 1, 1, 0, 0]
    assert signals.padded(3) is signals
    assert Signals(np.ones(2, np.float32)).padded(4).meaning is None


def test_unit_scales_by_the_largest():
    assert unit(np.array([1, 4, 0], np.float32)).tolist() == [0.25, 1, 0]
    assert unit(np.zeros(3, np.float32)).tolist() == [0, 0, 0]
