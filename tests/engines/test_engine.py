"""The engine over an arena computes what the model computes, for every family and every rotary variant."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from tiny_models import (
    FAMILIES,
    SUPPORTED,
    byte_tokenizer,
    make_engine,
    make_model,
    plain_answer,
    plain_logits,
    random_tokens,
)
from zerolayer.engines.hf.engine import HFEngine, weights_fingerprint
from zerolayer.errors import ModelError

WIDTH = 8
every_model = pytest.mark.parametrize(
    ("family", "rope"), [(family, rope) for family in FAMILIES for rope in SUPPORTED]
)


def claim_all(engine: HFEngine) -> None:
    """Make every whole block of the tail a resident block."""
    arena = engine.arena
    while (arena.in_sight + 1) * arena.block_tokens <= arena.rows:
        arena.claim(arena.in_sight, arena.in_sight * arena.block_tokens)


@every_model
def test_chunked_logits_and_greedy_tokens_equal_the_plain_model(family, rope):
    engine, plain = make_engine(family, rope)
    tokens = random_tokens(300)  # beyond the 128 positions that the scaled variants were made for
    engine.make_arena(48, WIDTH)
    position = 0
    for size in (64, 1, 100, 3, 132):
        logits, _ = engine.append(tokens[position : position + size], position, logits=True)
        position += size
        expected = plain_logits(plain, tokens[:position])[-1]
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert list(engine.generate(logits, position, 20)) == plain_answer(plain, tokens, 20)


@every_model
def test_an_observed_question_computes_the_same_and_its_weights_sum_to_one(family, rope):
    engine, plain = make_engine(family, rope)
    tokens = random_tokens(90)
    arena = engine.make_arena(16, WIDTH)
    engine.append(tokens[:64], 0)
    claim_all(engine)
    logits, _ = engine.append(tokens[64:], 64, observe=True, logits=True)
    torch.testing.assert_close(logits, plain_logits(plain, tokens)[-1], atol=1e-4, rtol=1e-4)
    mass = engine.mass[:, :, : arena.rows].sum(-1)
    torch.testing.assert_close(mass, torch.full_like(mass, 26.0), atol=1e-3, rtol=0)
    assert not engine.mass[:, :, arena.rows :].any()


def test_observed_weights_are_the_plain_models_attention():
    engine, plain = make_engine("llama")
    plain.set_attn_implementation("eager")
    tokens = random_tokens(40)
    engine.make_arena(8, WIDTH)
    engine.append(tokens[:32], 0)
    engine.append(tokens[32:], 32, observe=True)
    with torch.inference_mode():
        attentions = plain(torch.as_tensor(tokens)[None], output_attentions=True).attentions
    for layer, weights in enumerate(attentions):
        expected = weights[0, :, 32:].sum(1)
        torch.testing.assert_close(engine.mass[layer, :, :40], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_untouched(family):
    model = make_model(family)
    before = copy.deepcopy(model.state_dict())
    engine = HFEngine(model, byte_tokenizer())
    engine.make_arena(8, WIDTH)
    logits, _ = engine.append(random_tokens(30), 0, observe=True, logits=True)
    list(engine.generate(logits, 30, 4))
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_rotary_variants_that_depend_on_length_are_refused(rope):
    model = make_model("llama", rope)
    with pytest.raises(ModelError, match=f"'{rope}'.*default, linear, llama3, yarn"):
        HFEngine(model, byte_tokenizer(), "tiny")


def test_sliding_attention_is_refused():
    model = make_model("qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=1)
    with pytest.raises(ModelError, match="sliding"):
        HFEngine(model, byte_tokenizer(), "tiny")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("part", ["keys", "values"])
def test_attention_reads_the_arena(family, part):
    engine, _ = make_engine(family)
    tokens = random_tokens(33)
    arena = engine.make_arena(8, WIDTH)
    results = []
    for corrupt in (False, True):
        arena.rows = 0
        engine.append(tokens[:32], 0)
        if corrupt:
            getattr(arena, part)[1][:, 5] += 3.0
        results.append(engine.append(tokens[32:], 32, logits=True)[0])
    assert float((results[0] - results[1]).abs().max()) > 1e-2


def test_blocks_out_of_sight_are_not_seen():
    engine, plain = make_engine("qwen3")
    tokens = random_tokens(24)
    arena = engine.make_arena(8, WIDTH)
    for layer in range(2):
        arena.keys[layer].fill_(100.0)
        arena.values[layer].fill_(100.0)
    logits, _ = engine.append(tokens, 0, logits=True)
    torch.testing.assert_close(logits, plain_logits(plain, tokens)[-1], atol=1e-4, rtol=1e-4)


@every_model
def test_isolated_queries_and_keys_give_the_models_logits(family, rope):
    """Scores need unrotated queries and keys: their product, rotated back, is the attention logit."""
    engine, _ = make_engine(family, rope)
    tokens = random_tokens(40)
    arena_pass = engine.isolated(tokens)
    queries = engine.question_queries(tokens[:10].tolist(), tokens[10:].tolist())
    keys, _ = engine.compute_block(tokens[:32].tolist(), tokens[32:].tolist())
    layers, heads, count, head_dim = queries.shape
    assert (layers, heads, count, head_dim) == (2, 4, 30, engine.geometry.head_dim)
    rotated = torch.empty_like(keys)
    engine.rotary.rotate(keys, 32, out=rotated)
    for layer in range(2):
        torch.testing.assert_close(
            rotated[layer], arena_pass.keys_values[layer][0][:, 32:], atol=1e-4, rtol=1e-4
        )
        query = torch.from_numpy(queries[layer]) * head_dim**0.5
        back = torch.empty_like(query)
        engine.rotary.rotate(query, 10, out=back)
        torch.testing.assert_close(back, arena_pass.queries[layer][:, 10:], atol=1e-4, rtol=1e-4)


@every_model
def test_knitting_what_was_computed_in_full_sight_changes_nothing(family, rope):
    engine, _ = make_engine(family, rope)
    tokens = random_tokens(48)
    arena = engine.make_arena(8, WIDTH)
    engine.append(tokens, 0)
    claim_all(engine)
    arena.drop_tail()
    before = arena._storage.clone()
    slots = [4, 1, 2]
    ids = np.concatenate([tokens[s * WIDTH : (s + 1) * WIDTH] for s in slots])
    engine.knit(ids, arena.tokens_of(slots), arena.row_positions(48))
    torch.testing.assert_close(arena._storage, before, atol=1e-4, rtol=1e-4)


def test_knitting_repairs_what_was_computed_apart():
    """Blocks computed in isolation, knit together, are those of one pass over all tokens."""
    engine, _ = make_engine("llama")
    tokens = random_tokens(32)
    arena = engine.make_arena(6, WIDTH)
    engine.append(tokens, 0)
    whole = arena._storage[:, :, :, :32].clone()
    arena.rows = 0
    for block in range(4):
        keys, values = engine.compute_block([], tokens[block * WIDTH : (block + 1) * WIDTH].tolist())
        arena.load(block, block, block * WIDTH, keys, values)
    arena.in_sight = 4
    arena.drop_tail()
    assert not torch.allclose(arena._storage[:, 1, :, 8:32], whole[:, 1, :, 8:32], atol=1e-2)
    engine.knit(tokens[8:], arena.tokens_of([1, 2, 3]), arena.row_positions(32))
    torch.testing.assert_close(arena._storage[:, :, :, :32], whole, atol=1e-4, rtol=1e-4)


def test_generation_stops_at_the_end_token():
    engine, _ = make_engine("llama")
    engine.make_arena(4, WIDTH)
    logits, _ = engine.append(random_tokens(8), 0, logits=True)
    engine.model.generation_config.eos_token_id = [int(logits.argmax()), 3]
    assert list(engine.generate(logits, 8, 5)) == []
    assert engine.arena.rows == 8


def test_fingerprint_tells_weights_and_configuration():
    model = make_model("llama")
    mark = weights_fingerprint(model)
    assert mark == weights_fingerprint(make_model("llama")) and len(mark) == 32
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] += 1
    assert weights_fingerprint(model) != mark
    assert weights_fingerprint(make_model("llama", "yarn")) != mark


def test_fingerprint_does_not_depend_on_where_the_model_lies(tmp_path):
    from transformers import AutoModelForCausalLM

    model = make_model("llama")
    marks = set()
    for name in ("here", "there"):
        model.save_pretrained(tmp_path / name)
        marks.add(weights_fingerprint(AutoModelForCausalLM.from_pretrained(tmp_path / name)))
    assert len(marks) == 1
