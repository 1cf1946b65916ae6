"""The contract of every codec: exact or bounded round trip, refusal of bad values, no crash on bad bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.errors import BlockCorruptError, StoreError, UnknownNameError, ZerolayerError
from zerolayer.execution.codecs import CODECS, BlockKV, codec_of, compression_ratio, get_codec
from zerolayer.execution.codecs.base import HEADER_BYTES, MAX_MAGNITUDE
from zerolayer.execution.codecs.k8v4 import group_size

NAMES = sorted(CODECS)
LOSSLESS = {"RAW", "ZSTD"}

shapes = st.tuples(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 33), st.sampled_from([1, 2, 3, 8, 37, 64, 80, 96])
)


def random_block(shape, seed: int = 0, spread: float = 1.0) -> BlockKV:
    """Gaussian keys and values; one key channel in sixteen has a large offset, as real keys have."""
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal(shape) + 15 * (rng.random((*shape[:2], 1, shape[3])) < 1 / 16)
    values = rng.standard_normal(shape) * 0.3
    return BlockKV((keys * spread).astype(np.float32), (values * spread).astype(np.float32))


def relative(exact, got) -> float:
    return float(np.linalg.norm(exact - got) / np.linalg.norm(exact))


def affine_bound(x, axis: int, levels: int):
    """Half a step of the group, widened by the bfloat16 rounding of its offset and scale."""
    x = x.astype(np.float64)
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    largest = np.maximum(abs(low), abs(high))
    return ((high - low + abs(low) / 128) / levels * (1 + 1 / 128)) / 2 + largest * 1e-6 + 1e-30


def assert_within_bounds(name: str, kv: BlockKV, got: BlockKV) -> None:
    if name in LOSSLESS:
        assert np.array_equal(kv.keys.view(np.uint32), got.keys.view(np.uint32))
        assert np.array_equal(kv.values.view(np.uint32), got.values.view(np.uint32))
    elif name in {"BF16Z", "LZ4"}:
        for exact, other in ((kv.keys, got.keys), (kv.values, got.values)):
            # 2^-8 relative while normal; half the spacing of subnormal bfloat16 below
            assert np.all(
                np.abs(exact.astype(np.float64) - other)
                <= np.abs(exact.astype(np.float64)) * 2.0**-8 + 2.0**-134
            )
    else:
        assert np.all(np.abs(kv.keys.astype(np.float64) - got.keys) <= affine_bound(kv.keys, 2, 255))
        if name == "INT8":
            bound = affine_bound(kv.values, 3, 255)
            assert np.all(np.abs(kv.values.astype(np.float64) - got.values) <= bound)
        else:
            size = group_size(kv.shape[3])
            grouped = kv.values.reshape(*kv.shape[:3], -1, size)
            error = np.abs(grouped.astype(np.float64) - got.values.reshape(grouped.shape))
            assert np.all(error <= affine_bound(grouped, 4, 15))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(shape=shapes, seed=st.integers(0, 2**31), spread=st.sampled_from([1e-38, 1e-20, 1.0, 1e6, 1e35]))
def test_round_trip_stays_within_the_bounds_of_the_codec(name, shape, seed, spread):
    kv = random_block(shape, seed, spread)
    codec = get_codec(name)
    data = codec.encode(kv)
    got = codec.decode(data)
    assert got.shape == shape
    assert codec_of(data) == name
    assert_within_bounds(name, kv, got)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.floats(-(2.0**122), 2.0**122, width=32), min_size=4, max_size=12).filter(
        lambda v: len(v) % 2 == 0
    ),
)
def test_extreme_and_mixed_values_round_trip(name, values):
    x = np.asarray(values, np.float32).reshape(1, 1, len(values) // 2, 2)
    kv = BlockKV(x, x[:, :, ::-1])  # values are a strided view
    codec = get_codec(name)
    assert_within_bounds(name, kv, codec.decode(codec.encode(kv)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fill", [0.0, -0.0, 3.25, -1e37, 1e-45])
def test_constant_blocks_come_back(name, fill):
    x = np.full((2, 1, 5, 32), fill, np.float32)
    codec = get_codec(name)
    got = codec.decode(codec.encode(BlockKV(x, x)))
    assert_within_bounds(name, BlockKV(x, x), got)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["keys", "values"])
def test_values_that_are_not_finite_are_refused(name, bad, where):
    kv = random_block((1, 2, 7, 32))
    getattr(kv, where)[0, 1, 3, 5] = bad
    with pytest.raises(StoreError, match=f"{name} cannot encode.*finite"):
        get_codec(name).encode(kv)


@pytest.mark.parametrize("name", sorted(set(NAMES) - LOSSLESS))
def test_lossy_codecs_refuse_values_that_would_overflow(name):
    kv = random_block((1, 1, 4, 32))
    kv.values[0, 0, 0, 0] = 2 * MAX_MAGNITUDE
    with pytest.raises(StoreError, match="within"):
        get_codec(name).encode(kv)


@pytest.mark.parametrize("name", sorted(LOSSLESS))
def test_lossless_codecs_keep_the_whole_range(name):
    largest = np.finfo(np.float32).max
    x = np.array([[[[largest, -largest, 1e-45, -0.0]]]], np.float32)
    got = get_codec(name).decode(get_codec(name).encode(BlockKV(x, x)))
    assert np.array_equal(got.keys.view(np.uint32), x.view(np.uint32))


@pytest.mark.parametrize("name", ["BF16Z", "LZ4"])
def test_bfloat16_rounding_is_to_nearest_even(name):
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF808000], np.uint32)
    x = bits.view(np.float32).reshape(1, 1, 1, 4)
    got = get_codec(name).decode(get_codec(name).encode(BlockKV(x, x)))
    expected = [0x3F800000, 0x3F820000, 0x3F810000, 0xBF800000]
    assert got.keys.view(np.uint32).reshape(-1).tolist() == expected


@pytest.mark.parametrize("name", NAMES)
def test_decode_writes_into_given_arrays_even_strided_ones(name):
    kv = random_block((3, 2, 9, 64))
    codec = get_codec(name)
    data = codec.encode(kv)
    arena = np.full((2, 3, 2, 40, 64), 7.0, np.float32)
    out = BlockKV(arena[0, :, :, 9:18], arena[1, :, :, 9:18])
    assert codec.decode(memoryview(data), out) is out
    fresh = codec.decode(data)
    assert np.array_equal(out.keys, fresh.keys)
    assert np.array_equal(out.values, fresh.values)
    assert np.all(arena[:, :, :, :9] == 7) and np.all(arena[:, :, :, 18:] == 7)
    with pytest.raises(StoreError, match="shape"):
        codec.decode(data, BlockKV.empty((3, 2, 8, 64)))


@pytest.mark.parametrize("name", NAMES)
def test_every_truncation_is_corrupt(name):
    codec = get_codec(name)
    data = codec.encode(random_block((1, 2, 5, 8)))
    for length in range(len(data)):
        with pytest.raises(BlockCorruptError):
            codec.decode(data[:length])
    with pytest.raises(BlockCorruptError):
        codec.decode(data + b"\0")


@pytest.mark.parametrize("name", NAMES)
def test_every_damaged_header_byte_is_corrupt(name):
    codec = get_codec(name)
    data = codec.encode(random_block((1, 2, 5, 8)))
    for position in range(HEADER_BYTES):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            with pytest.raises(BlockCorruptError):
                codec.decode(bytes(broken))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(garbage=st.binary(max_size=200), keep=st.integers(0, HEADER_BYTES + 8))
def test_garbage_never_escapes_the_error_tree(name, garbage, keep):
    codec = get_codec(name)
    data = codec.encode(random_block((1, 1, 3, 8)))[:keep] + garbage
    try:
        got = codec.decode(data)
    except ZerolayerError:
        return
    assert got.shape == (1, 1, 3, 8)


@pytest.mark.parametrize("first, second", list(pairwise(NAMES)))
def test_bytes_of_another_codec_are_refused(first, second):
    data = get_codec(first).encode(random_block((1, 1, 4, 32)))
    with pytest.raises(BlockCorruptError, match="codec number"):
        get_codec(second).decode(data)


@pytest.mark.parametrize(
    "name, ratio, key_error, value_error",
    [
        ("RAW", 2.01, 0, 0),
        ("ZSTD", 1.8, 0, 0),
        ("BF16Z", 0.75, 0.003, 0.003),
        ("LZ4", 0.95, 0.003, 0.003),
        ("INT8", 0.54, 0.006, 0.008),
        ("K8V4", 0.43, 0.006, 0.10),
    ],
)
def test_size_and_relative_error_on_keys_with_outlier_channels(name, ratio, key_error, value_error):
    kv = random_block((8, 3, 64, 64))
    codec = get_codec(name)
    data = codec.encode(kv)
    got = codec.decode(data)
    assert compression_ratio(data) == len(data) / kv.fp16_bytes <= ratio
    assert relative(kv.keys, got.keys) <= key_error
    assert relative(kv.values, got.values) <= value_error


def test_one_instance_serves_blocks_of_changing_shapes_and_keeps_its_results():
    codec = get_codec("K8V4")
    blocks = [random_block((2, 2, tokens, 64), tokens) for tokens in (64, 3, 17, 64)]
    encoded = [codec.encode(kv) for kv in blocks]
    decoded = [codec.decode(data) for data in encoded]
    for kv, data, got in zip(blocks, encoded, decoded, strict=True):
        assert data == get_codec("K8V4").encode(kv)
        assert np.array_equal(got.values, get_codec("K8V4").decode(data).values)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(
        UnknownNameError, match="unknown codec 'GZIP'; known: BF16Z, INT8, K8V4, LZ4, RAW, ZSTD"
    ):
        get_codec("GZIP")
    assert get_codec("k8v4").name == "K8V4"


def test_numbers_in_headers_are_unique():
    assert len({codec.code for codec in CODECS.values()}) == len(CODECS)


def test_blocks_of_the_wrong_kind_are_refused():
    good = np.zeros((1, 1, 2, 4), np.float32)
    for keys, values in (
        (good.astype(np.float64), good),
        (good[0], good),
        (good, good[:, :, :1]),
        (good[:0], good),
    ):
        with pytest.raises(StoreError):
            BlockKV(keys, values)


@pytest.mark.parametrize("name", NAMES)
def test_one_instance_serves_several_threads(name):
    codec = get_codec(name)
    blocks = [random_block((4, 2, 32, 64), seed) for seed in range(8)]
    expected = [codec.encode(kv) for kv in blocks]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(codec.encode, blocks)) == expected
            for kv, got in zip(map(codec.decode, expected), pool.map(codec.decode, expected), strict=True):
                assert np.array_equal(kv.keys, got.keys) and np.array_equal(kv.values, got.values)
