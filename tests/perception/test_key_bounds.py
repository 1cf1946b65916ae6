"""A block's bound is never below what a query really gives one of its keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.perception.key_bounds import KeyBounds

fast = settings(max_examples=80, deadline=None)


def some(rng, *shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


@fast
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-3, 0.1, 1.0]), tokens=st.integers(1, 9))
def test_bound_is_at_least_every_product(seed, scale, tokens):
    """Scores of one layer, head and token are a softmax of bounds; a block of zero keys has the bound 0."""
    rng = np.random.default_rng(seed)
    bounds = KeyBounds(1, 1, 8, 4)
    blocks = [
        np.zeros((1, 1, tokens, 8), np.float32),
        *(some(rng, 1, 1, tokens, 8, scale=scale) for _ in range(3)),
    ]
    for block, keys in enumerate(blocks):
        bounds.observe(block, keys)
    query = some(rng, 1, 1, 1, 8)
    score = bounds.score(query).astype(np.float64)
    bound = np.log(score / score[0])
    for block, keys in enumerate(blocks):
        best = float((keys[0, 0].astype(np.float64) @ query[0, 0, 0]).max())
        assert bound[block] >= best - 1e-5
    # … and it is the bound of the channels, not just anything above.
    for block, keys in enumerate(blocks):
        exact = np.maximum(query[0, 0, 0] * keys[0, 0].min(0), query[0, 0, 0] * keys[0, 0].max(0)).sum()
        assert bound[block] == pytest.approx(float(exact), abs=1e-5 + 0.01 * scale)


@fast
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-9, 1.0, 300.0, 1e6]))
def test_stored_bounds_hold_every_key(seed, scale):
    keys = some(np.random.default_rng(seed), 2, 3, 5, 4, scale=scale)
    bounds = KeyBounds(2, 3, 4, 1)
    bounds.observe(0, keys)
    low, high = bounds._low[..., 0], bounds._high[..., 0]
    assert np.isfinite(low).all() and np.isfinite(high).all()
    clipped = np.clip(keys, -65504, 65504)
    assert (low <= clipped.min(axis=2)).all() and (high >= clipped.max(axis=2)).all()
    np.testing.assert_allclose(low, clipped.min(axis=2), rtol=2e-3, atol=1e-6)


@fast
@given(seed=st.integers(0, 10_000))
def test_restoring_gives_the_same_scores(seed):
    rng = np.random.default_rng(seed)
    observed, restored = KeyBounds(2, 2, 8, 3), KeyBounds(2, 2, 8, 3)
    for block in range(3):
        assert restored.restore(block, observed.observe(block, some(rng, 2, 2, 6, 8)))
    queries = some(rng, 2, 4, 5, 8)
    assert np.array_equal(observed.score(queries), restored.score(queries))
    assert restored.known.all()


def test_bytes_of_another_shape_are_not_taken():
    bounds = KeyBounds(2, 2, 8, 3)
    summary = bounds.observe(0, np.ones((2, 2, 4, 8), np.float32))
    for wrong in (b"", summary[:-1], summary + b"x"):
        assert not bounds.restore(1, wrong)
    assert bounds.known.tolist() == [True, False, False]


def test_the_block_that_holds_the_asked_key_scores_best():
    rng = np.random.default_rng(3)
    bounds = KeyBounds(3, 2, 16, 20)
    for block in range(20):
        bounds.observe(block, some(rng, 3, 2, 8, 16, scale=0.3))
    needle = some(rng, 3, 2, 8, 16, scale=0.3)
    needle[:, :, 2] *= 4
    queries = np.repeat(needle[:, :, 2:3], 2, axis=1)  # two queries a group
    bounds.observe(7, needle)
    score = bounds.score(queries)
    assert int(score.argmax()) == 7
    assert score.min() >= 0 and score.max() <= 1


def test_unknown_blocks_score_nothing_and_resize_keeps_what_is_known():
    rng = np.random.default_rng(0)
    bounds = KeyBounds(1, 2, 4, 2)
    queries = some(rng, 1, 2, 3, 4)
    assert not bounds.score(queries).any()
    bounds.observe(1, some(rng, 1, 2, 5, 4))
    before = bounds.score(queries)
    assert before[0] == 0 < before[1]
    bounds.resize(5)
    assert np.array_equal(bounds.score(queries), [*before, 0, 0, 0])
    bounds.resize(2)
    assert len(bounds.known) == 5
    bounds.observe(4, some(rng, 1, 2, 5, 4))
    assert bounds.score(queries)[4] > 0
    assert not bounds.score(queries[:, :, :0]).any()
