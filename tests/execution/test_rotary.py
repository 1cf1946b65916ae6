"""Rotations are those of the model, can be taken back, and add up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from tiny_models import SUPPORTED, make_engine
from zerolayer.execution.rotary import RotaryTable, interleaved

TABLES = {rope: make_engine("qwen3", rope)[0] for rope in SUPPORTED}
fast = settings(max_examples=25, deadline=None)
ropes = st.sampled_from(SUPPORTED)


def keys(seed: int, tokens: int = 8) -> torch.Tensor:
    return torch.randn(2, 3, tokens, 16, generator=torch.Generator().manual_seed(seed))


def rotated(table: RotaryTable, k: torch.Tensor, position: int) -> torch.Tensor:
    out = torch.empty_like(k)
    table.rotate(k, position, out=out)
    return out


def close(left: torch.Tensor, right: torch.Tensor, atol: float = 2e-5) -> None:
    torch.testing.assert_close(left, right, atol=atol, rtol=0)


def test_only_yarn_scales():
    assert {rope: TABLES[rope].rotary.scaling != 1.0 for rope in SUPPORTED} == {
        "default": False, "linear": False, "llama3": False, "yarn": True,
    }  # fmt: skip
    assert all(TABLES[rope].rotary.positions == 512 for rope in SUPPORTED)


@pytest.mark.parametrize("rope", SUPPORTED)
def test_rotation_is_the_models_own(rope):
    engine, k = TABLES[rope], keys(0)
    positions = torch.arange(70, 78)[None]
    cos, sin = engine.model.model.rotary_emb(k, positions)
    expected, _ = apply_rotary_pos_emb(k, k, cos, sin)
    close(rotated(engine.rotary, interleaved(k).flatten(-2), 70), interleaved(expected).flatten(-2), 1e-6)


@fast
@given(rope=ropes, seed=st.integers(0, 99), position=st.integers(0, 504))
def test_unrotate_is_the_inverse(rope, seed, position):
    table, k = TABLES[rope].rotary, keys(seed)
    turned = rotated(table, k, position)
    kept = turned.clone()
    close(table.unrotate(turned, position), k)
    assert torch.equal(turned, kept)


@fast
@given(rope=ropes, seed=st.integers(0, 99), start=st.integers(0, 504), end=st.integers(0, 504))
def test_shifting_is_rotating_to_the_other_position(rope, seed, start, end):
    table, k = TABLES[rope].rotary, keys(seed)
    moved = rotated(table, k, start)
    table.shift(moved, end - start)
    close(moved, rotated(table, k, end), 1e-4)
    table.shift(moved, start - end)
    close(moved, rotated(table, k, start), 1e-4)


@fast
@given(rope=ropes, a=st.integers(-200, 200), b=st.integers(-200, 200))
def test_shifts_add_up(rope, a, b):
    table = TABLES[rope].rotary
    twice, once = keys(1), keys(1)
    table.shift(twice, a)
    table.shift(twice, b)
    table.shift(once, a + b)
    close(twice, once, 1e-4)


@fast
@given(rope=ropes, seed=st.integers(0, 99), offset=st.integers(-500, 500))
def test_shifts_keep_lengths(rope, seed, offset):
    k = keys(seed)
    before = k.norm(dim=-1)
    TABLES[rope].rotary.shift(k, offset)
    close(k.norm(dim=-1), before)


def test_rotation_writes_into_a_strided_view():
    table, k = TABLES["yarn"].rotary, keys(3)
    storage = torch.zeros(2, 3, 40, 16)
    table.rotate(k, 9, out=storage[:, :, 16:24])
    close(storage[:, :, 16:24], rotated(table, k, 9), 1e-6)
    assert not storage[:, :, :16].any() and not storage[:, :, 24:].any()
