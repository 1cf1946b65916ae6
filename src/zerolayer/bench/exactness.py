"""`zerolayer bench exactness`: a budget of 100 % against plain `model.generate` with a `DynamicCache`."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

import click

from zerolayer.bench.common import (
    Pair,
    conditions,
    load_pair,
    model_option,
    prefill,
    report,
    seed_option,
    slots_for,
    threads_option,
)
from zerolayer.cli.options import json_option
from zerolayer.core import BLOCK_TOKENS, IntArray

_CHINESE_CLAUSE = (
    "第{n}条 服务费用。甲方应当在收到乙方开具的发票之日起{days}日内，向乙方支付人民币{amount}元。"
    "逾期付款的，每逾期一日，应按未付金额的万分之{rate}支付违约金；逾期超过{limit}日的，乙方有权解除本合同，"
    "并要求甲方赔偿由此造成的损失。双方因履行本合同发生争议的，应当先行协商；协商不成的，由合同签订地人民法院管辖。\n"
)


def texts(characters: int = 6000) -> dict[str, str]:
    """Three texts of the project's own: pages of the synthetic contract, program source, Chinese clauses."""
    from zerolayer.bench.contract import write_contract
    from zerolayer.documents.reader import read_document
    from zerolayer.execution import verifier

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contract.pdf"
        write_contract(path, pages=60)
        contract = read_document(path).text
    chinese = "".join(
        _CHINESE_CLAUSE.format(n=n, days=10 + n % 7 * 5, amount=12500 * n, rate=1 + n % 5, limit=20 + n)
        for n in range(1, 40)
    )
    return {
        "contract": contract[:characters],
        "code": inspect.getsource(verifier)[:characters],
        # About as many tokens: a small English vocabulary spells a Chinese character in bytes.
        "chinese": chinese[: characters // 4],
    }


def compare(pair: Pair, ids: IntArray, new_tokens: int, chunk: int) -> dict[str, Any]:
    """Greedy tokens and logits of both on one text. `first_difference` counts answer tokens from 0."""
    import torch

    engine = pair.engine
    encoded = torch.as_tensor(ids)[None]
    with torch.inference_mode():
        plain = pair.plain.generate(
            encoded,
            attention_mask=torch.ones_like(encoded),
            max_new_tokens=new_tokens,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    expected = plain.sequences[0, len(ids) :].tolist()
    engine.make_arena(slots_for(len(ids) + new_tokens), BLOCK_TOKENS)
    logits = prefill(engine, ids, chunk)
    tokens: list[int] = []
    largest = 0.0
    for step, reference in enumerate(plain.logits):
        largest = max(largest, float((logits - reference[0]).abs().max()))
        tokens.append(int(logits.argmax()))
        if tokens != expected[: step + 1]:
            break  # from here on the two answer different texts
        if step + 1 < len(plain.logits):
            logits, _ = engine.append(tokens[-1:], len(ids) + step, observe=True, logits=True)
    identical = tokens == expected
    return {
        "tokens": len(ids),
        "answer_tokens": len(expected),
        "identical": identical,
        "first_difference": None if identical else len(tokens) - 1,
        "largest_logit_difference": largest,
    }


@click.command()
@model_option
@seed_option
@threads_option
@click.option("--new-tokens", default=48, show_default=True, help="Greedy tokens compared a text.")
@click.option("--chunk-tokens", default=512, show_default=True, help="Tokens prefilled at a time.")
@json_option
def command(
    model: str, seed: int, threads: int | None, new_tokens: int, chunk_tokens: int, as_json: bool
) -> int:
    """Compare greedy tokens and logits with plain generation on three texts.

    Exits with 3 unless all greedy tokens are the same.
    """
    pair = load_pair(model, threads)
    state = conditions(model, seed)
    rows = []
    for name, text in texts().items():
        ids = pair.engine.tokenizer(text, return_tensors="np").input_ids[0]
        rows.append({"text": name, **compare(pair, ids, new_tokens, chunk_tokens)})
    passed = all(row["identical"] for row in rows)
    result = {
        "bench": "exactness",
        "baseline": "transformers model.generate, DynamicCache, sdpa",
        "threshold": "identical greedy tokens on all texts",
        "passed": passed,
        "identical": passed,
        "largest_logit_difference": max(row["largest_logit_difference"] for row in rows),
        "rows": rows,
        **state,
    }
    columns = ("text", "tokens", "answer tokens", "identical", "largest logit difference")
    cells = [
        (
            row["text"],
            row["tokens"],
            row["answer_tokens"],
            row["identical"],
            f"{row['largest_logit_difference']:.1e}",
        )
        for row in rows
    ]
    return report(result, as_json, "Exactness against plain generation", columns, cells)
