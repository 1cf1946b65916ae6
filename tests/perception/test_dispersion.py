"""Key-norm dispersion: against the definition written out, over interruption, and with heads that retrieve."""

from __future__ import annotations

import numpy as np
import pytest

from zerolayer.core import KEY_FEATURES, SINK_TOKENS
from zerolayer.perception.dispersion import KeyDispersion
from zerolayer.perception.key_bounds import KeyBounds

SHAPE = (3, 2, 8)  # layers, KV heads, head_dim
TOKENS = 16


def blocks(count, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(1, 20, size=(*SHAPE[:2], 1, 1))  # heads differ in size, as real ones do
    return [
        (scale * (1 + rng.normal(size=(*SHAPE[:2], TOKENS, SHAPE[2])))).astype(np.float32)
        for _ in range(count)
    ]


class Both:
    """Bounds and dispersion as a working set keeps them."""

    def __init__(self, count, retrieval=None):
        self.bounds = KeyBounds(*SHAPE, count)
        self.dispersion = KeyDispersion(*SHAPE, count, retrieval)

    def observe(self, block, keys):
        first = self.bounds.observe(block, keys)
        return first, self.dispersion.observe(block, keys, self.bounds.centre(block))

    def restore(self, block, summary):
        assert self.bounds.restore(block, summary[0])
        return self.dispersion.restore(block, summary[1], self.bounds.centre(block))


def column(name):
    return KEY_FEATURES.index(name)


def written_out(all_keys, last):
    """Mean dispersion and norm of block `last`, from the definition, token by token."""
    norms = [np.linalg.norm(keys.astype(np.float64), axis=-1) for keys in all_keys[: last + 1]]
    norms[0] = norms[0][..., SINK_TOKENS:]
    seen = np.concatenate(norms, axis=-1)
    mean, spread = seen.mean(axis=-1, keepdims=True), seen.std(axis=-1, keepdims=True)
    standard = (norms[last] - mean) / spread
    per_token = [standard[:, :, token].std() for token in range(standard.shape[2])]
    return np.mean(per_token), standard.mean()


def test_follows_its_definition():
    keys, both = blocks(5), Both(5)
    for block, values in enumerate(keys):
        both.observe(block, values)
        dispersion, norm = written_out(keys, block)
        features = both.dispersion.features[block]
        assert features[column("dispersion")] == pytest.approx(dispersion, rel=1e-4)
        assert features[column("key_norm")] == pytest.approx(norm, abs=1e-4)
        assert features[column("dispersion_min")] <= dispersion <= features[column("dispersion_max")]
        assert 0 <= features[column("distinctiveness")] <= 2


def test_scale_of_a_head_does_not_count():
    keys, plain, scaled = blocks(3), Both(3), Both(3)
    factor = np.array([[1, 50], [0.02, 3], [7, 1]], dtype=np.float32)[..., None, None]
    for block, values in enumerate(keys):
        plain.observe(block, values)
        scaled.observe(block, values * factor)
    close = [name for name in KEY_FEATURES if not name.startswith("retrieval") and name != "distinctiveness"]
    for name in close:
        np.testing.assert_allclose(
            plain.dispersion.features[:, column(name)], scaled.dispersion.features[:, column(name)], atol=1e-3
        )


def test_an_unlike_block_stands_out():
    keys = blocks(6)
    keys[4] = -keys[4]  # the other way round, with the same norms
    both = Both(6)
    for block, values in enumerate(keys):
        both.observe(block, values)
    distinct = both.dispersion.features[:, column("distinctiveness")]
    assert distinct.argmax() == 4
    assert abs(both.dispersion.features[4, column("key_norm")]) < 1


def test_an_interrupted_reading_gets_the_same_values():
    keys, whole, first, second = blocks(6), Both(6), Both(6), Both(6)
    for block, values in enumerate(keys):
        whole.observe(block, values)
    stored = [first.observe(block, values) for block, values in enumerate(keys[:3])]
    for block, summary in enumerate(stored):
        assert second.restore(block, summary)
    for block in range(3, 6):
        second.observe(block, keys[block])
    np.testing.assert_array_equal(whole.dispersion.features, second.dispersion.features)


def test_a_block_that_is_knit_counts_once():
    keys, once, twice = blocks(4), Both(4), Both(4)
    for block, values in enumerate(keys[:3]):
        once.observe(block, values)
        twice.observe(block, values)
    twice.observe(1, keys[1] * 1.5)
    once.observe(3, keys[3])
    twice.observe(3, keys[3])
    np.testing.assert_array_equal(once.dispersion.features[3], twice.dispersion.features[3])
    assert twice.dispersion.features[1, column("key_norm")] > once.dispersion.features[1, column("key_norm")]


def test_retrieval_heads_read_their_own_heads_only():
    retrieval = np.zeros((3, 4), dtype=np.float32)  # two query heads a KV head
    retrieval[1, 2] = 2.0  # … of layer 1, KV head 1
    keys, both, without = blocks(3), Both(3, retrieval), Both(3)
    for block, values in enumerate(keys):
        both.observe(block, values)
        without.observe(block, values)
    found = both.dispersion.features[1]
    assert found[column("retrieval_dispersion")] == 0.0  # one head has no spread
    assert found[column("retrieval_key_norm")] != pytest.approx(found[column("key_norm")])
    assert np.isnan(without.dispersion.features[1, column("retrieval_dispersion")])


def test_constant_norms_give_no_noise():
    both = Both(2)
    for block, keys in enumerate(blocks(2)):
        keys = keys / np.linalg.norm(keys, axis=-1, keepdims=True) * 11  # as after a norm on keys
        both.observe(block, keys)
    assert both.dispersion.features[1, column("dispersion")] < 0.01


@pytest.mark.parametrize("damage", [b"", b"KD0\0" + b"0" * 300, None])
def test_other_bytes_are_refused(damage):
    one, other = Both(2), Both(2)
    summary = one.observe(0, blocks(1)[0])
    assert not other.restore(0, (summary[0], summary[1][:-1] if damage is None else damage))
    assert np.isnan(other.dispersion.features).all()


def test_grows():
    both = Both(1)
    both.observe(0, blocks(1)[0])
    both.bounds.resize(3)
    both.dispersion.resize(3)
    both.observe(2, blocks(3)[2])
    assert np.isnan(both.dispersion.features[1]).all() and np.isfinite(both.dispersion.features[2, 0])
