"""The benches' measuring functions on a small random model: what they report, not how fast."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from zerolayer.bench import common, decode, exactness, isa, prefill
from zerolayer.engines.hf.engine import HFEngine
from zerolayer.execution.arena import KVGeometry
from zerolayer.execution.codecs import BlockKV

GEOMETRY = KVGeometry(layers=2, kv_heads=2, head_dim=16)


class _Tokenizer:
    eos_token_id = None


@pytest.fixture(scope="module")
def pair():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    plain = LlamaForCausalLM(config).eval()
    # A configuration of its own: the attention's name is kept there.
    ours = LlamaForCausalLM(deepcopy(config)).eval()
    ours.load_state_dict(plain.state_dict())
    plain.set_attn_implementation("sdpa")
    return common.Pair(HFEngine(ours, _Tokenizer(), "tiny"), plain)


@pytest.mark.parametrize("chunk", [48, 64, 512])
def test_exactness_compares_tokens_and_logits(pair, chunk):
    row = exactness.compare(pair, common.random_ids(200, 128, 0), new_tokens=12, chunk=chunk)
    assert row["identical"]
    assert row["first_difference"] is None
    assert row["answer_tokens"] == 12
    assert row["largest_logit_difference"] < 1e-4


def test_exactness_tells_where_two_models_part(pair):
    other = type(pair.plain)(pair.plain.config).eval()
    row = exactness.compare(
        common.Pair(pair.engine, other), common.random_ids(100, 128, 0), new_tokens=8, chunk=64
    )
    assert not row["identical"]
    assert row["first_difference"] is not None
    assert row["largest_logit_difference"] > 1e-3


def test_exactness_texts_are_of_three_kinds():
    texts = exactness.texts(3000)
    assert list(texts) == ["contract", "code", "chinese"]
    assert "Agreement" in texts["contract"]
    assert "def " in texts["code"]
    assert "第1条" in texts["chinese"]


def test_prefill_reports_both_rates(pair):
    row = prefill.measure(pair, 150, chunk=64, repetitions=2, seed=0)
    assert row["tokens"] == 150
    assert row["ratio"] == pytest.approx(row["tokens_per_s"] / row["plain_tokens_per_s"])
    assert all(len(runs) == 2 for runs in row["seconds"].values())


def test_decode_steps_of_both_see_the_same_context(pair):
    ids = common.random_ids(120, 128, 0)
    cache = decode.fill(pair, ids[:-1], room=4, chunk=64)
    ours = decode.step_ours(pair, int(ids[-1]))
    plain = common.plain_forward(pair.plain, ids[-1:], cache)
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)


def test_decode_reports_both_times(pair):
    row = decode.measure(pair, 100, steps=2, chunk=64, seed=0)
    assert row["context"] == 100
    assert row["ratio"] == pytest.approx(row["plain_s_per_token"] / row["s_per_token"])


def test_profile_shows_that_a_step_allocates_the_same_at_any_context(pair):
    short, long = (decode.profile(pair, context, steps=2, chunk=64, seed=0) for context in (64, 512))
    assert short["allocated_bytes_per_step"] == long["allocated_bytes_per_step"] > 0
    assert short["largest_allocation_bytes"] == long["largest_allocation_bytes"]
    assert short["copying_calls_per_step"] == long["copying_calls_per_step"]
    # The table shows the operators with most time of their own; on a loaded machine only this one is sure to be there.
    assert {operator["name"] for operator in long["operators"]} >= {"aten::mm"}


def test_llama_cpp_is_skipped_with_a_reason(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    skipped = decode.llama_cpp(None, 1, (8,), 1, 0)
    assert skipped["status"] == "skipped"
    assert "not installed" in skipped["reason"]


def test_eviction_and_free_are_measured_a_block():
    row = isa.evict(GEOMETRY, blocks=20, repetitions=1)
    assert row["blocks"] == 20
    assert row["block_bytes"] == GEOMETRY.token_bytes * 64
    assert row["evict_speedup"] == pytest.approx(row["free_ns"] / row["evict_ns"])


def test_moves_report_the_placement_and_the_whole_program():
    row = isa.move(GEOMETRY, slots=3, repetitions=4, seed=0)
    assert row["move_bandwidth_ratio"] == pytest.approx(row["move_bytes_per_s"] / row["copy_bytes_per_s"])
    assert set(row["program_bandwidth_ratio"]) == {"RAW", "INT8", "K8V4"}


def test_every_codec_and_instruction_has_a_line():
    shape = (2, 2, 64, 16)
    generator = np.random.default_rng(0)
    kv = BlockKV(*(generator.standard_normal(shape).astype(np.float32) for _ in range(2)))
    saved = isa.compress(kv)
    assert saved["K8V4"] > saved["INT8"] > 0 > saved["RAW"]
    assert set(isa.program_costs(GEOMETRY, slots=4)) == {"COMPRESS_P2", "PIN_L2", "UNPIN"}


def test_command_prints_json_last_and_exits_with_3_when_slower(pair, monkeypatch):
    monkeypatch.setattr(common, "load_pair", lambda *_: pair)
    row = {"tokens": 8, "tokens_per_s": 1.0, "plain_tokens_per_s": 2.0, "ratio": 0.5, "ratio_of_best": 0.5}
    monkeypatch.setattr(prefill, "measure", lambda *_: row)
    ran = CliRunner().invoke(prefill.command, ["--json"], standalone_mode=False)
    assert ran.exception is None
    assert ran.return_value == common.MISSED
    result = json.loads(ran.stdout.strip().splitlines()[-1])
    assert result["ratio"] == 0.5
    assert {"machine", "threads", "model", "seed", "commit", "baseline", "threshold"} <= set(result)
