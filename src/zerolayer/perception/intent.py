"""What the next question will need: a forecast over the document's sections, from what was asked and used so far.

Several ways of asking are weighed against each other: the next question may go anywhere that questions go
(`any order`), on in reading order (`reading`), or stay with the last answer (`stay`, likelier where the wording says
that the next turn corrects, refines or expands it). Each gives every block a probability; what a session has shown
moves the weights by Bayes' rule, with a fixed share (Herbster and Warmuth 1998), since users change their way.

No model is needed: text and block spans are enough. Nothing moves here: `Session.prefetch_intent` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2

import numpy as np

from zerolayer.core import FloatArray, IntArray
from zerolayer.perception.intent_acts import ACTS, STAYING, Act
from zerolayer.perception.intent_features import IntentFeatures, PlacedTurn
from zerolayer.perception.intent_model import IntentParameters, shipped_parameters, softmax
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.sections import Section, find_sections

NEEDS = 3
BLOCKS_PER_NEED = 8
STAY = "stay"
_STAY_PRIOR = 0.05
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
        self.sections: list[Section] = find_sections(text)
        self._blocks, self._pages = len(spans), pages
        starts = [section.char_start for section in self.sections]
        middles = [(spans[i][0] + spans[i][1]) // 2 for i in self.features.rows]
        self._section: IntArray = (np.searchsorted(starts, middles, side="right") - 1).astype(np.int64)

    def place(self, turn: AskedTurn, meaning: FloatArray | None = None) -> PlacedTurn | None:
        """Where a turn was in the document, None for a text without blocks.

        `meaning` [blocks] is the cosine of the question's vector with the blocks', where there is an encoder.
        """
        rows = self.features.rows
        if not len(rows):
            return None
        match = self.features.words(turn.question)
        used = np.flatnonzero(np.isin(rows, np.asarray(turn.blocks or (), dtype=np.int64)))
        weights = np.ones(len(used))
        if not len(used):
            used = np.argsort(-match, kind="stable")[:_INFERRED_BLOCKS]
            weights = match[used].astype(np.float64) ** 2 + 1e-6
        shares = (weights / weights.sum()).astype(np.float32)
        return PlacedTurn(turn.question, used, shares, match, None if meaning is None else meaning[rows])

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
        meanings: Sequence[FloatArray | None] | None = None,
        blocks_per_need: int = BLOCKS_PER_NEED,
    ) -> IntentForecast:
        """The forecast after `history`, oldest first; empty: before the first question.

        `meanings` are those of `place`, one a turn.
        """
        recent = list(history)[-_HISTORY:]
        given = list(meanings)[-_HISTORY:] if meanings is not None else [None] * len(recent)
        placed = [p for t, m in zip(recent, given, strict=True) if (p := self.place(t, m)) is not None]
        acts = self.parameters.act_probabilities([t.question for t in recent], [t.answer for t in recent])
        kinds = {act: float(p) for act, p in zip(ACTS, acts, strict=True)}
        mass = np.zeros(self._blocks, dtype=np.float32)
        if not len(self.features.rows) or not self.sections:
            return IntentForecast((), 1.0, 0.0, 0.0, kinds, {}, mass)
        weights, by_way = self._weigh(placed, acts)
        mass[self.features.rows] = sum(weights[name] * chance for name, chance in by_way.items())
        shares = np.zeros(len(self.sections), dtype=np.float32)
        np.add.at(shares, self._section, mass[self.features.rows])
        bits = float(-(shares[shares > 0] * np.log2(shares[shares > 0])).sum())
        needs = self._needs(shares, mass, blocks_per_need)
        return IntentForecast(
            needs,
            max(0.0, 1.0 - sum(need.probability for need in needs)),
            bits,
            bits / log2(len(shares)) if len(shares) > 1 else 0.0,
            kinds,
            weights,
            mass,
        )

    def _weigh(
        self, placed: Sequence[PlacedTurn], acts: FloatArray
    ) -> tuple[dict[str, float], dict[str, FloatArray]]:
        """What each way of asking weighs after these turns, and its forecast."""
        orders = list(self.parameters.orders)
        prior = dict.fromkeys(orders, (1 - _STAY_PRIOR) / len(orders)) | {STAY: _STAY_PRIOR}
        weights = dict(prior)
        for turn in range(1, len(placed)):
            now = placed[turn]
            seen = {
                name: float(np.log(chance[now.rows] + 1e-12) @ now.weights)
                for name, chance in self.ways(placed[:turn]).items()
            }
            best = max(seen.values())
            posterior = {name: weights[name] * float(np.exp(seen[name] - best)) for name in prior}
            total = sum(posterior.values())
            weights = {
                name: _FIXED_SHARE * prior[name] + (1 - _FIXED_SHARE) * posterior[name] / total
                for name in prior
            }
        by_way = self.ways(placed)
        # Who is likely to correct, refine or expand is likely to stay.
        staying = [ACTS.index(act) for act in STAYING]
        usual = float(self.parameters.act_rates[staying].sum())
        weights[STAY] *= float(acts[staying].sum()) / max(usual, 1e-6)
        total = sum(weights[name] for name in by_way)
        return {name: weights[name] / total for name in by_way}, by_way

    def _needs(self, shares: FloatArray, mass: FloatArray, limit: int) -> tuple[NextNeed, ...]:
        needs = []
        for index in np.argsort(-shares, kind="stable")[:NEEDS]:
            section = self.sections[index]
            blocks = self.features.rows[self._section == index]
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


def predict_next_intent(history: Sequence[AskedTurn | str], model: IntentModel) -> tuple[NextNeed, ...]:
    """The three most likely next needs after `history` (oldest first), best first; probabilities sum to at most 1."""
    return model.forecast([AskedTurn(turn) if isinstance(turn, str) else turn for turn in history]).needs
