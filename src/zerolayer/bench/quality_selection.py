"""Which part of a document's cache each method keeps in sight: all of them with the same number of blocks.

A selection is a boolean array over the document's tokens, `[tokens]` for one choice through all layers, or
`[layers, kv_heads, tokens]` where a method chooses for each head. The first block (the sinks) is always in sight and
counts as one of the budget; question and answer are always in sight and do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zerolayer.core import SINK_TOKENS, BoolArray, FloatArray

SNAPKV_POOL = 5
"""Tokens over which SnapKV smooths its scores."""


@dataclass(frozen=True, slots=True)
class QuestionView:
    """What may be known of one question. Masses are `[layers, heads, tokens]`, the rest `[blocks]`."""

    question_mass: FloatArray  # attention of the question's tokens in full sight
    answer_mass: FloatArray  # attention of the reference's answer in full sight
    words: FloatArray  # BM25
    match: FloatArray  # zerolayer's recall: words, meaning and key bounds, fused
    evidence: FloatArray  # characters of gold evidence


@dataclass(frozen=True, slots=True)
class DocumentView:
    """What may be known of a document, and of its questions in the order of the conversation."""

    blocks: int
    block_tokens: int
    accumulated: FloatArray  # [layers, heads, tokens]: attention summed over all of the document's queries
    key_norms: FloatArray  # [layers, kv_heads, tokens]
    turns: Sequence[QuestionView]
    seed: int = 0

    def of_block(self, values: FloatArray) -> FloatArray:
        """[…, blocks] sums of `values` `[…, tokens]`."""
        sums: FloatArray = values.reshape(*values.shape[:-1], self.blocks, self.block_tokens).sum(-1)
        return sums

    def of_kv_head(self, mass: FloatArray) -> FloatArray:
        """[layers, kv_heads, tokens] of what the query heads of each group gave."""
        layers, heads, tokens = mass.shape
        kv_heads = self.key_norms.shape[1]
        mean: FloatArray = mass.reshape(layers, kv_heads, heads // kv_heads, tokens).mean(2)
        return mean


Selection = Callable[[DocumentView, int, int], BoolArray]
"""(document, number of the turn, blocks in sight) → what is in sight."""


def best_blocks(document: DocumentView, score: FloatArray, count: int) -> BoolArray:
    """[tokens] of the first block and the `count` - 1 blocks with the highest score, ties by order."""
    order = np.argsort(-score[1:], kind="stable")[: count - 1] + 1
    kept = np.zeros(document.blocks, dtype=np.bool_)
    kept[0] = True
    kept[order] = True
    return np.repeat(kept, document.block_tokens)


def best_tokens(document: DocumentView, score: FloatArray, count: int) -> BoolArray:
    """[layers, kv_heads, tokens] of the sinks and the best tokens of each head; as many as `count` blocks have."""
    number = count * document.block_tokens
    score = score.copy()
    score[..., :SINK_TOKENS] = np.inf
    best = np.argpartition(-score, number - 1, axis=-1)[..., :number]
    kept = np.zeros(score.shape, dtype=np.bool_)
    np.put_along_axis(kept, best, True, axis=-1)
    return kept


def zerolayer(document: DocumentView, turn: int, count: int) -> BoolArray:
    """The best matches of this turn's question, as a session ranks them. The others are away, not lost."""
    return best_blocks(document, document.turns[turn].match, count)


def zerolayer_recent(document: DocumentView, turn: int, count: int) -> BoolArray:
    """Half the blocks right before the question, half the best matches: tried, not what a session does."""
    match = document.turns[turn].match
    return best_blocks(document, _with_recent(match, round((count - 1) / 2)), count)


def bm25(document: DocumentView, turn: int, count: int) -> BoolArray:
    """BM25 over blocks alone, with each turn's question."""
    return best_blocks(document, document.turns[turn].words, count)


def gold(document: DocumentView, turn: int, count: int) -> BoolArray:
    """The blocks with evidence, then the most recent ones."""
    evidence = document.turns[turn].evidence
    recency = np.linspace(0.0, 0.9, document.blocks, dtype=np.float32)
    return best_blocks(document, np.where(evidence > 0, 1 + evidence, recency), count)


def answer_attention(document: DocumentView, turn: int, count: int) -> BoolArray:
    """The blocks that the reference's answer and its question attended to most: knows the answer; a bound."""
    view = document.turns[turn]
    mass = view.answer_mass + view.question_mass / max(1.0, float(view.question_mass[0, 0].sum()))
    return best_blocks(document, document.of_block(mass).mean((0, 1)), count)


def random(document: DocumentView, turn: int, count: int) -> BoolArray:
    """Blocks at random, drawn for each turn."""
    generator = np.random.default_rng((document.seed, document.blocks, turn))
    return best_blocks(document, generator.random(document.blocks, dtype=np.float32), count)


def static_window(document: DocumentView, turn: int, count: int) -> BoolArray:
    """Sinks and the last tokens."""
    return best_blocks(document, np.arange(document.blocks, dtype=np.float32), count)


def h2o(document: DocumentView, turn: int, count: int) -> BoolArray:
    """Half the most recent blocks, half those with most accumulated attention when the first answer began.

    After H2O (arXiv:2306.14048), a block at a time for all heads together; nothing that was dropped comes back.
    """
    mass = document.of_block(document.accumulated + document.turns[0].question_mass).mean((0, 1))
    return best_blocks(document, _with_recent(mass, count // 2), count)


def h2o_tokens(document: DocumentView, turn: int, count: int) -> BoolArray:
    """As H2O was published: a token at a time, for each head."""
    mass = document.of_kv_head(document.accumulated + document.turns[0].question_mass)
    return best_tokens(document, _with_recent(mass, count * document.block_tokens // 2), count)


def snapkv(document: DocumentView, turn: int, count: int) -> BoolArray:
    """What the first question attended to, kept for all turns.

    After SnapKV (arXiv:2404.14469), a block at a time for all heads together.
    """
    return best_blocks(document, document.of_block(document.turns[0].question_mass).mean((0, 1)), count)


def snapkv_rekeyed(document: DocumentView, turn: int, count: int) -> BoolArray:
    """What this turn's question attends to in full sight: needs the whole cache at every turn."""
    return best_blocks(document, document.of_block(document.turns[turn].question_mass).mean((0, 1)), count)


def snapkv_tokens(document: DocumentView, turn: int, count: int) -> BoolArray:
    """As SnapKV was published: a token at a time, for each head, keyed to the first question."""
    return best_tokens(document, _pooled(document.of_kv_head(document.turns[0].question_mass)), count)


def snapkv_rekeyed_tokens(document: DocumentView, turn: int, count: int) -> BoolArray:
    """The same with each turn's question: needs the whole cache at every turn."""
    return best_tokens(document, _pooled(document.of_kv_head(document.turns[turn].question_mass)), count)


def key_norm(document: DocumentView, turn: int, count: int) -> BoolArray:
    """The blocks whose keys are short (arXiv:2406.11430), in standard deviations of each head's."""
    norms = document.key_norms
    standard = (norms - norms.mean(-1, keepdims=True)) / norms.std(-1, keepdims=True)
    return best_blocks(document, -document.of_block(standard).mean((0, 1)), count)


def key_norm_tokens(document: DocumentView, turn: int, count: int) -> BoolArray:
    """The same, a token at a time, for each head."""
    return best_tokens(document, -document.key_norms, count)


METHODS: Mapping[str, Selection] = {
    method.__name__: method
    for method in (
        zerolayer,
        zerolayer_recent,
        static_window,
        h2o,
        h2o_tokens,
        snapkv,
        snapkv_tokens,
        snapkv_rekeyed,
        snapkv_rekeyed_tokens,
        key_norm,
        key_norm_tokens,
        random,
        bm25,
        gold,
        answer_attention,
    )
}
"""Every method that chooses from the exact cache."""


def _with_recent(score: FloatArray, recent: int) -> FloatArray:
    """`score` with the last `recent` elements above all others."""
    score = score.copy()
    if recent:
        score[..., -recent:] = np.inf
    return score


def _pooled(score: FloatArray) -> FloatArray:
    """Largest over a window of neighbouring tokens."""
    reach = SNAPKV_POOL // 2
    wide = np.pad(score, [(0, 0)] * (score.ndim - 1) + [(reach, reach)], mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(wide, SNAPKV_POOL, axis=-1)
    largest: FloatArray = windows.max(-1)
    return largest
