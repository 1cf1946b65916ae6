"""`zerolayer bench intent`: forecasts of the next need against majority and bigram, on dialogues and contracts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from zerolayer.bench.common import MISSED, commit, processor, seed_option
from zerolayer.bench.intent_measures import Bigram, Scores, interval, summary
from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json, note, table
from zerolayer.core import FloatArray, IntArray
from zerolayer.learning.intent_data import ORDERS, IntentCase, Order, dialogues, intent_case
from zerolayer.learning.labelled import WORDINGS, Wording, labelled_contracts
from zerolayer.perception.intent import NEEDS, place_by_words
from zerolayer.perception.intent_acts import ACTS, act_of
from zerolayer.perception.intent_model import shipped_parameters

TENTHS = 10
SHARES = (0.05, 0.10)
_SHUFFLES = 5  # of the train contracts, for the bigram of that order
THRESHOLD = (
    "log loss below the bigram's on dialogues, in reading order and in shuffled order, by the 95 % interval"
)


def dialogue_scores(data: Path, seed: int) -> dict[str, Any]:
    """The next message's act on the test dialogues. Acts come from rules on the text; no label is looked at."""
    train = [[ACTS.index(act_of(q)) for q in d.questions] for d in dialogues(data, test=False)]
    bigram, parameters = Bigram(train, len(ACTS)), shipped_parameters()
    scores = {name: Scores() for name in ("majority", "bigram", "zerolayer", "zerolayer, questions only")}
    test = dialogues(data, test=True)
    for number, dialogue in enumerate(test):
        acts = [ACTS.index(act_of(question)) for question in dialogue.questions]
        for at in range(1, len(acts)):
            asked, answers = dialogue.questions[:at], dialogue.answers[:at]
            scores["majority"].add(bigram.majority, acts[at], number)
            scores["bigram"].add(bigram.after(acts[at - 1]), acts[at], number)
            scores["zerolayer"].add(parameters.act_probabilities(asked, answers), acts[at], number)
            unanswered = parameters.act_probabilities(asked, [])
            scores["zerolayer, questions only"].add(unanswered, acts[at], number)
    counts = np.bincount([act for acts in train for act in acts[1:]], minlength=len(ACTS))
    return {
        "classes": {act.value: int(n) for act, n in zip(ACTS, counts, strict=True)},
        "dialogues": {"train": len(train), "test": len(test)},
    } | summary(scores, "bigram", "zerolayer", seed)


def tenth_of(case: IntentCase, question: int) -> int:
    """The tenth of the document that holds most of a question's evidence."""
    turn = case.turns[question]
    counts = np.bincount(_tenths(case)[turn.rows], weights=turn.weights, minlength=TENTHS)
    return int(counts.argmax())


def _tenths(case: IntentCase) -> IntArray:
    """[rows] tenth of each block."""
    n = len(case.model.features.rows)
    return np.minimum((np.arange(n) + 0.5) / n * TENTHS, TENTHS - 1).astype(np.int64)


def forecasts(case: IntentCase, order: Sequence[int], inferred: bool) -> list[FloatArray]:
    """[rows] forecast before every question of `order` but the first. The ways' weights are learned as it goes.

    With `inferred`, past questions are placed by their words alone, as where no answer was observed.
    """
    model = case.model
    turns = [case.turns[i] for i in order]
    if inferred:
        turns = [place_by_words(turn.question, turn.match) for turn in turns]
    weights, found = model.prior(), []
    for at in range(1, len(turns)):
        by_way = model.ways(turns[:at])
        acts = model.parameters.act_probabilities([t.question for t in turns[:at]], [])
        found.append(model.mix(weights, by_way, acts)[0])
        weights = model.learn(weights, by_way, turns[at], acts)
    return found


def contract_scores(
    cases: Sequence[IntentCase], train: Sequence[Sequence[int]], order: Order, seed: int
) -> dict[str, Any]:
    """Which tenth of the contract the next question needs, and what the same forecast is worth as prefetch."""
    bigram = Bigram(train, TENTHS)
    scores = {name: Scores() for name in ("majority", "bigram", "zerolayer", "zerolayer, questions only")}
    kept = {share: Coverage(share, bigram.majority) for share in SHARES}
    for number, case in enumerate(cases):
        asked, tenths = case.order(order, seed), _tenths(case)
        labels = [tenth_of(case, i) for i in asked]
        guesses = forecasts(case, asked, inferred=False)
        blind = forecasts(case, asked, inferred=True)
        for at in range(1, len(asked)):
            for name, chance in (
                ("majority", bigram.majority),
                ("bigram", bigram.after(labels[at - 1])),
                ("zerolayer", _by_tenth(guesses[at - 1], tenths)),
                ("zerolayer, questions only", _by_tenth(blind[at - 1], tenths)),
            ):
                scores[name].add(chance, labels[at], number)
            for coverage in kept.values():
                coverage.add(case, guesses[at - 1], asked[at - 1], asked[at], number)
    result = summary(scores, "bigram", "zerolayer", seed)
    result["prefetch"] = {f"{share:.0%}": coverage.summary(seed) for share, coverage in kept.items()}
    return result


def _by_tenth(mass: FloatArray, tenths: IntArray) -> FloatArray:
    return np.bincount(tenths, weights=mass, minlength=TENTHS).astype(np.float32)


class Coverage:
    """Share of the next question's evidence blocks among equally many blocks, chosen in several ways."""

    def __init__(self, share: float, popular: FloatArray) -> None:
        self._share, self._popular = share, popular
        self._columns: dict[str, list[float]] = {}
        self._groups: list[int] = []

    def add(self, case: IntentCase, mass: FloatArray, last: int, question: int, group: int) -> None:
        """One forecast: `mass` [rows] before `question`, asked after `last`."""
        n = len(mass)
        limit = max(1, round(self._share * n))
        place = np.arange(n)
        distance = np.abs(place[:, None] - case.turns[last].rows).min(axis=1)
        chosen = {
            "three needs": -(mass + _in_needs(case, mass)),
            "forecast": -mass,
            "popular tenths": -self._popular[_tenths(case)],
            "last used": distance,
            "sliding window": -place,
        }
        wanted = case.turns[question].rows
        for name, key in chosen.items():
            best = np.argsort(key, kind="stable")[:limit]
            self._columns.setdefault(name, []).append(float(np.isin(wanted, best).mean()))
        self._columns.setdefault("random", []).append(limit / n)
        self._groups.append(group)

    def summary(self, seed: int) -> dict[str, Any]:
        """Means with intervals."""
        return {
            name: {
                "mean": round(float(np.mean(values)), 4),
                "interval": interval(np.asarray(values), self._groups, seed),
            }
            for name, values in self._columns.items()
        }


def _in_needs(case: IntentCase, mass: FloatArray) -> FloatArray:
    """[rows] 1 for the blocks of the likeliest three sections: they come first, the rest fills up."""
    sections = case.model.section_of
    shares = np.bincount(sections, weights=mass)
    best = np.argsort(-shares, kind="stable")[:NEEDS]
    return np.isin(sections, best).astype(np.float32)


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with cuad/ and dialogue/.",
)
@click.option("--wording", type=click.Choice(WORDINGS), default="question", show_default=True)
@seed_option
@json_option
def command(data: Path, wording: Wording, seed: int, as_json: bool) -> int:
    """Forecast the next need: kinds of turn in dialogues, tenths of a contract in three orders of its questions.

    The order of the file is the same list of categories for every contract, an artefact; nothing is fitted on it.
    Needs no model. Exits with 3 where the bigram's log loss is not beaten on dialogues and in reading order, or is
    better in shuffled order.
    """
    contracts = {split: labelled_contracts(data / "cuad", split) for split in ("train", "test")}
    cases = {split: [intent_case(c, wording) for c in found] for split, found in contracts.items()}
    found = {}
    for order in ORDERS:
        shuffles = range(_SHUFFLES if order == "shuffled" else 1)
        train = [[tenth_of(c, i) for i in c.order(order, s)] for s in shuffles for c in cases["train"]]
        found[order] = contract_scores(cases["test"], train, order, seed)
    talk = dialogue_scores(data, seed)
    better = "zerolayer minus bigram"
    losses = [r[better]["log_loss_bits"]["interval"] for r in (talk, found["reading"], found["shuffled"])]
    passed = losses[0][1] < 0 and losses[1][1] < 0 and losses[2][1] < 0
    result = {
        "bench": "intent",
        "wording": wording,
        "contracts": {split: len(c) for split, c in contracts.items()},
        "dialogue": talk,
        "contract_questions": found,
        "threshold": THRESHOLD,
        "passed": passed,
        "machine": processor(),
        "seed": seed,
        "commit": commit(),
    }
    _print(result, as_json)
    return 0 if passed else MISSED


def _print(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(result)
        return
    rows = []
    parts = {"dialogue": result["dialogue"], **result["contract_questions"]}
    for part, scores in parts.items():
        for name in ("majority", "bigram", "zerolayer", "zerolayer, questions only"):
            means = [f"{scores[name][m]['mean']:.3f}" for m in ("top1", "top3", "log_loss_bits")]
            rows.append((part, name, *means, f"{scores[name]['calibration_error']:.3f}"))
    table("Next need", ("questions", "forecast", "top 1", "top 3", "log loss, bits", "ECE"), rows)
    kept = [
        (order, share, name, f"{value['mean']:.3f}")
        for order, scores in result["contract_questions"].items()
        for share, names in scores["prefetch"].items()
        for name, value in names.items()
    ]
    table("Evidence of the next question that is there", ("order", "blocks", "chosen by", "share"), kept)
    note(f"{result['machine']}, seed {result['seed']}, commit {result['commit']}")
