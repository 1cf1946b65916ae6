"""kvpress itself on the conversations of `zerolayer bench quality --cases FILE`.

kvpress pins a transformers of its own, so this runs in an environment of its own, which needs torch, kvpress and click:

    PYTHONPATH=src kvpress-env/bin/python -m zerolayer.bench.quality_kvpress CASES --model-dir DIRECTORY

As in kvpress's pipeline, a document is compressed once and then asked all its questions. Its scores are taken in one
prefill for all presses and shares: a press prunes a layer only after the layer has computed, so this changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from zerolayer.bench.quality_metrics import Score, kl_divergence, summary, top1_agreement

FIRST_QUESTION = "SnapKVPress_first_question"
"""SnapKV with the first question as its observation window; the others press the document alone."""

Scores = dict[str, list[Any]]
"""Press → per layer, `[1, kv_heads, tokens]`."""


def prefill(model: Any, token_ids: Sequence[int], presses: Mapping[str, Any]) -> tuple[Any, Scores]:
    """The full cache of `token_ids`, and what each press thinks of its tokens."""
    import torch
    from transformers import DynamicCache

    scores: Scores = {name: [] for name in presses}

    class Recorder(import_module("kvpress").BasePress):  # type: ignore[misc]
        """Takes every press's scores and prunes nothing."""

        def compress(
            self, module: Any, hidden_states: Any, keys: Any, values: Any, attentions: Any, kwargs: Any
        ) -> tuple[Any, Any]:
            """Called by kvpress after each layer of the prefill."""
            for name, press in presses.items():
                scores[name].append(press.score(module, hidden_states, keys, values, attentions, kwargs))
            return keys, values

    cache = DynamicCache(config=model.config)
    with torch.inference_mode(), Recorder()(model):
        model.model(input_ids=torch.tensor([token_ids]), past_key_values=cache)
    return cache, scores


def pruned(model: Any, cache: Any, scores: Sequence[Any], kept: int) -> Any:
    """A cache of the `kept` best tokens of each layer and head, as `ScorerPress.compress` leaves it."""
    from transformers import DynamicCache

    small = DynamicCache(config=model.config)
    for layer, (full, score) in enumerate(zip(cache.layers, scores, strict=True)):
        index = score.topk(kept, dim=-1).indices.unsqueeze(-1).expand(-1, -1, -1, full.keys.shape[-1])
        small.update(full.keys.gather(2, index), full.values.gather(2, index), layer)
    return small


def forced(model: Any, cache: Any, tokens: int, question: Sequence[int], targets: Sequence[int]) -> Any:
    """Logits `[targets, vocabulary]` of a forced answer behind `tokens` document tokens; leaves `cache` as it was."""
    import torch

    ids = [*question, *targets[:-1]]
    positions = torch.arange(tokens, tokens + len(ids))[None]
    before = cache.get_seq_length()
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor([ids]),
            past_key_values=cache,
            position_ids=positions,
            logits_to_keep=len(targets),
        ).logits[0]
    for layer in cache.layers:  # as kvpress's pipeline takes an answer out again
        layer.keys, layer.values = layer.keys[:, :, :before], layer.values[:, :, :before]
    return logits


def of_case(model: Any, name: str, case: dict[str, Any], shares: Sequence[int]) -> list[Score]:
    """All presses and shares on one conversation."""
    kvpress = import_module("kvpress")
    document, turns = case["document"], case["turns"]
    presses = {
        press.__name__: press()
        for press in (kvpress.SnapKVPress, kvpress.KnormPress, kvpress.ExpectedAttentionPress)
    }
    cache, scores = prefill(model, document, presses)
    first = turns[0]["question"]
    _, aware = prefill(
        model, [*document, *first], {FIRST_QUESTION: kvpress.SnapKVPress(window_size=len(first))}
    )
    scores[FIRST_QUESTION] = [layer[..., : len(document)] for layer in aware[FIRST_QUESTION]]
    references = [
        forced(model, cache, len(document), turn["question"], turn["targets"]).log_softmax(-1)
        for turn in turns
    ]
    result = []
    for press, by_layer in scores.items():
        for share in shares:
            small = pruned(model, cache, by_layer, round(share * len(document) / 100))
            for number, (turn, reference) in enumerate(zip(turns, references, strict=True), start=1):
                logits = forced(model, small, len(document), turn["question"], turn["targets"])
                kl, top1 = kl_divergence(reference, logits), top1_agreement(reference, logits)
                result.append(Score(name, case["name"], number, press, share, kl, top1, None, share / 100))
    return result


@click.command()
@click.argument("cases", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model-dir", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--share", "shares", multiple=True, type=click.IntRange(1, 99), default=(5, 10, 25, 50))
@click.option("--seed", default=0, show_default=True, help="Seed of the bootstrap.")
def main(cases: Path, model_dir: Path, shares: tuple[int, ...], seed: int) -> None:
    """KL to the full cache of kvpress's presses, as one JSON object on the last line of stdout."""
    from transformers import AutoModelForCausalLM
    from transformers import __version__ as transformers_version

    loaded = json.loads(cases.read_text(encoding="utf-8"))
    model = AutoModelForCausalLM.from_pretrained(
        model_dir, dtype="float32", attn_implementation="sdpa"
    ).eval()
    scores: list[Score] = []
    for number, case in enumerate(loaded["cases"], start=1):
        scores += of_case(model, loaded["model"], case, shares)
        print(f"{number} of {len(loaded['cases'])} contracts", file=sys.stderr, flush=True)
    print(
        json.dumps(
            {
                "bench": "quality_kvpress",
                "model": loaded["model"],
                **summary(scores, seed),
                **{name: version(name) for name in ("kvpress", "torch")},
                "transformers": transformers_version,
            }
        )
    )


if __name__ == "__main__":
    main()
