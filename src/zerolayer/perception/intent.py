"""What the next question will need: a forecast over the document's sections, from what was asked and used so far.

Several ways of asking are weighed against each other: the next question may go anywhere that questions go
(`any order`), on in reading order (`reading`), or stay with the last answer (`stay`, likelier where the wording says
that the next turn corrects, refines or expands it). Each gives every block a probability; what a session has shown
moves the weights of the orders by Bayes' rule, with a fixed share (Herbster and Warmuth 1998), since users change
their way; staying is a matter of the single turn, and its rate is counted.

No model is needed: text and block spans are enough. Nothing moves here: `Session.prefetch_intent` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log2

import numpy as np

from zerolayer.core import FloatArray, IntArray
from zerolayer.perception.intent_acts import ACTS, STAYING, Act
from zerolayer.perception.intent_features import IntentFeatures, PlacedTurn
from zerolayer.perception.intent_model import IntentParameters, shipped_parameters, softmax
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.sections import Section, find_sections

NEEDS = 3
BLOCKS_PER_NEED = 8
STAY, READING = "stay", "reading"
_READING_PRIOR = 0.3
_STAY_PRIOR = 0.1  # assumed: labelled questions are never asked again
_STAY_TURNS = 5.0  # the prior weighs as much as this many turns
_MOST_LIFT = 4.0  # the wording of the last turn moves the odds of staying by at most this factor
_STAY_REACH = 300.0  # characters
_STAY_FLOOR = 0.02  # share of `stay` that is spread over the whole document: nothing is impossible
_FIXED_SHARE = 0.05
_HISTORY = 24  # turns that are looked at
_INFERRED_BLOCKS = 3  # places of a question whose used blocks are not known


@dataclass(frozen=True, slots=True)
class AskedTurn:
    """A question of the past. `blocks` are those its answer used; None or empty: judged by its words."""

    question: str
    blocks: tuple[int, ...] | None = None
    answer: str = ""


@dataclass(frozen=True, slots=True)
class NextNeed:
    """One likely need of the next question: a section, and which of its blocks are likeliest, best first."""

    label: str
    probability: float  # that the next question's evidence lies in this section
    blocks: tuple[int, ...]
    pages: tuple[int, ...]  # of the blocks; empty where pages are not known
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class IntentForecast:
    """The likeliest needs, best first, and how sure the forecast is.

    The needs' probabilities and `other` add up to 1. `entropy_bits` is the entropy of the forecast over all
    sections; `entropy` the same over the largest possible one, 0 (certain) to 1 (no idea).
    """

    needs: tuple[NextNeed, ...]
    other: float
    entropy_bits: float
    entropy: float
    acts: dict[Act, float]  # kinds of turn
    ways: dict[str, float]  # weights of the ways of asking
    block_probability: FloatArray = field(repr=False, compare=False)  # [blocks], sum 1


@dataclass(frozen=True, slots=True)
class WayWeights:
    """What a session has shown: weights of the orders, sum 1, and how many of its turns stayed, prior included."""

    orders: dict[str, float]
    stayed: float
    turns: float


class IntentModel:
    """Forecasts over one text. `spans` are (start, end) characters of the blocks, by start.

    `pages` are (first, last) page of each block, where known; `lexical` saves building the index again.
    """

    def __init__(
        self,
        text: str,
        spans: Sequence[tuple[int, int]],
        pages: Sequence[tuple[int, int]] | None = None,
        lexical: LexicalIndex | None = None,
        parameters: IntentParameters | None = None,
    ) -> None:
        self.parameters = parameters or shipped_parameters()
        self.features = IntentFeatures(text, spans, lexical)
        self.sections: list[Section] = find_sections(text, self.features.lexical.headings)
        self._blocks, self._pages = len(spans), pages
        starts = [section.char_start for section in self.sections]
        middles = [(spans[i][0] + spans[i][1]) // 2 for i in self.features.rows]
        self.section_of: IntArray = (np.searchsorted(starts, middles, side="right") - 1).astype(np.int64)

    def place(self, turn: AskedTurn) -> PlacedTurn | None:
        """Where a turn was in the document, None for a text without blocks."""
        rows = self.features.rows
        if not len(rows):
            return None
        match = self.features.words(turn.question)
        used = np.flatnonzero(np.isin(rows, np.asarray(turn.blocks or (), dtype=np.int64)))
        if not len(used):
            return place_by_words(turn.question, match)
        even = np.full(len(used), 1 / len(used), dtype=np.float32)
        return PlacedTurn(turn.question, used, even, match)

    def ways(self, placed: Sequence[PlacedTurn]) -> dict[str, FloatArray]:
        """[rows] probability of each block by each way of asking, after the turns so far."""
        columns = self.features.of(placed)
        found = {
            name: softmax(columns @ weights + self.features.offset)
            for name, weights in self.parameters.orders.items()
        }
        if placed:
            near = np.add(*self.features.nearness(placed[-1], _STAY_REACH)) * np.exp(self.features.offset)
            even = np.exp(self.features.offset)
            found[STAY] = ((1 - _STAY_FLOOR) * near / near.sum() + _STAY_FLOOR * even / even.sum()).astype(
                np.float32
            )
        return found

    def forecast(
        self,
        history: Sequence[AskedTurn],
        blocks_per_need: int = BLOCKS_PER_NEED,
    ) -> IntentForecast:
        """The forecast after `history`, oldest first; empty: before the first question."""
        recent = list(history)[-_HISTORY:]
        placed = [p for turn in recent if (p := self.place(turn)) is not None]
        questions, answers = [t.question for t in recent], [t.answer for t in recent]
        acts = self.parameters.act_probabilities(questions, answers)
        kinds = {act: float(p) for act, p in zip(ACTS, acts, strict=True)}
        mass = np.zeros(self._blocks, dtype=np.float32)
        if not len(self.features.rows) or not self.sections:
            return IntentForecast((), 1.0, 0.0, 0.0, kinds, {}, mass)
        weights = self.prior()
        for turn in range(1, len(placed)):
            before = self.parameters.act_probabilities(questions[:turn], answers[:turn])
            weights = self.learn(weights, self.ways(placed[:turn]), placed[turn], before)
        mass[self.features.rows], shown = self.mix(weights, self.ways(placed), acts)
        shares = np.zeros(len(self.sections), dtype=np.float32)
        np.add.at(shares, self.section_of, mass[self.features.rows])
        bits = float(-(shares[shares > 0] * np.log2(shares[shares > 0])).sum())
        needs = self._needs(shares, mass, blocks_per_need)
        return IntentForecast(
            needs,
            max(0.0, 1.0 - sum(need.probability for need in needs)),
            bits,
            bits / log2(len(shares)) if len(shares) > 1 else 0.0,
            kinds,
            shown,
            mass,
        )

    def prior(self) -> WayWeights:
        """What is believed before anything was asked."""
        others = [name for name in self.parameters.orders if name != READING]
        orders = dict.fromkeys(others, (1 - _READING_PRIOR) / max(1, len(others))) | {READING: _READING_PRIOR}
        return WayWeights(orders, _STAY_PRIOR * _STAY_TURNS, _STAY_TURNS)

    def learn(
        self, weights: WayWeights, by_way: dict[str, FloatArray], now: PlacedTurn, acts: FloatArray
    ) -> WayWeights:
        """What is believed after the turn `now`, which each way had forecast as `by_way` says, after `acts`."""
        # The mean over a turn's places: its blocks are one observation, not many.
        seen = {
            name: float(np.log(chance[now.rows] + 1e-12) @ now.weights) for name, chance in by_way.items()
        }
        stay = self._stay(weights, acts)
        moved = sum(weight * exp(seen[name]) for name, weight in weights.orders.items())
        stayed = stay * exp(seen[STAY]) / (stay * exp(seen[STAY]) + (1 - stay) * moved)
        best = max(seen[name] for name in weights.orders)
        posterior = {
            name: weight * exp((1 - stayed) * (seen[name] - best)) for name, weight in weights.orders.items()
        }
        total = sum(posterior.values())
        orders = {
            name: _FIXED_SHARE * usual + (1 - _FIXED_SHARE) * posterior[name] / total
            for name, usual in self.prior().orders.items()
        }
        return WayWeights(orders, weights.stayed + stayed, weights.turns + 1)

    def mix(
        self, weights: WayWeights, by_way: dict[str, FloatArray], acts: FloatArray
    ) -> tuple[FloatArray, dict[str, float]]:
        """[rows] probability of each block, sum 1, and what each way of asking weighs in it."""
        stay = self._stay(weights, acts) if STAY in by_way else 0.0
        now = {name: (1 - stay) * weight for name, weight in weights.orders.items()} | {STAY: stay}
        mass = np.zeros(len(self.features.rows), dtype=np.float32)
        for name, chance in by_way.items():
            mass += now[name] * chance
        return mass, now

    def _stay(self, weights: WayWeights, acts: FloatArray) -> float:
        """Probability that the next turn stays: who is likely to correct, refine or expand (`acts` [acts]) does."""
        staying = [ACTS.index(act) for act in STAYING]
        lift = float(acts[staying].sum()) / max(float(self.parameters.act_rates[staying].sum()), 1e-6)
        rate = weights.stayed / weights.turns
        odds = rate / (1 - rate) * min(max(lift, 1 / _MOST_LIFT), _MOST_LIFT)
        return odds / (1 + odds)

    def _needs(self, shares: FloatArray, mass: FloatArray, limit: int) -> tuple[NextNeed, ...]:
        needs = []
        for index in np.argsort(-shares, kind="stable")[:NEEDS]:
            section = self.sections[index]
            blocks = self.features.rows[self.section_of == index]
            best = blocks[np.argsort(-mass[blocks], kind="stable")][:limit].tolist()
            if not best:
                continue
            pages = self._pages or []
            spread = {n for b in best if b < len(pages) for n in range(pages[b][0], pages[b][1] + 1)}
            needs.append(
                NextNeed(
                    section.title,
                    float(shares[index]),
                    tuple(best),
                    tuple(sorted(spread)),
                    section.char_start,
                    section.char_end,
                )
            )
        return tuple(needs)


def place_by_words(question: str, match: FloatArray) -> PlacedTurn:
    """A question placed where its words match best: for the past of which no answer was observed."""
    used = np.argsort(-match, kind="stable")[:_INFERRED_BLOCKS]
    weights = match[used].astype(np.float64) ** 2 + 1e-6
    return PlacedTurn(question, used, (weights / weights.sum()).astype(np.float32), match)


def predict_next_intent(history: Sequence[AskedTurn | str], model: IntentModel) -> tuple[NextNeed, ...]:
    """The three most likely next needs after `history` (oldest first), best first; probabilities sum to at most 1."""
    return model.forecast([AskedTurn(turn) if isinstance(turn, str) else turn for turn in history]).needs
