"""From a question to blocks: what its words, its meaning and its attention point at, fused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zerolayer.core import FloatArray
from zerolayer.perception.scores import smooth, standard, unit


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of a question before any key is looked at, [blocks] each."""

    words: FloatArray
    """Lexical match, 0 to 1."""
    meaning: FloatArray | None = None
    """Cosine of sentence vectors, where there is an encoder."""
    coverage: float = 0.5
    """Share of the question's words, by rarity, that the block with most of them holds, 0 to 1."""

    def padded(self, blocks: int) -> Signals:
        """The same for `blocks` blocks: those of a conversation, behind the document's, match nothing."""
        missing = blocks - len(self.words)
        if missing <= 0:
            return self
        meaning = None if self.meaning is None else np.pad(self.meaning, (0, missing))
        return Signals(np.pad(self.words, (0, missing)), meaning, self.coverage)


@dataclass(frozen=True, slots=True)
class RecallWeights:
    """How the signals are added. Words and meaning count in standard deviations from the document's mean.

    Chosen on the train split of CUAD and on generated contracts that ask in a layperson's words (docs/signals.md).
    Far above the mean a rare word says less than it seems to, and meaning says something only there: so words
    saturate, and what meaning adds for questions whose words the document lacks starts where a block stands out.
    """

    words_limit: float = 4.0  # standard deviations of words that count in full …
    words_beyond: float = 0.1  # … and what each further one counts
    meaning: float = 0.36  # against 1 for words
    meaning_uncovered: float = 1.8  # more of what stands out, in proportion to what words leave uncovered
    meaning_stands_out: float = 1.5  # standard deviations
    meaning_sigma: float = 0.7  # blocks that meaning is smoothed over: a clause spans blocks
    attention: float = 0.5  # of the best block; the others in proportion
    after: float = 0.7  # what a block's attention passes on to the block after it: sentences run over
    before: float = 0.5  # … and to the block before it


def fuse(signals: Signals, attention: FloatArray, weights: RecallWeights | None = None) -> FloatArray:
    """[blocks] match with the question, 0 to 1: the best block 1, an average one 0."""
    weights = weights or RecallWeights()
    words = standard(signals.words)
    score = np.minimum(words, weights.words_limit)
    score = score + weights.words_beyond * np.maximum(words - weights.words_limit, 0)
    if signals.meaning is not None:
        meaning = standard(smooth(signals.meaning, weights.meaning_sigma))
        standing_out = np.maximum(meaning - weights.meaning_stands_out, 0)
        uncovered = weights.meaning_uncovered * (1 - signals.coverage)
        score = score + weights.meaning * meaning + uncovered * standing_out
    score = score + weights.attention * _spread(unit(attention), weights)
    return unit(score)


def _spread(score: FloatArray, weights: RecallWeights) -> FloatArray:
    wide = score.copy()
    wide[1:] = np.maximum(wide[1:], weights.after * score[:-1])
    wide[:-1] = np.maximum(wide[:-1], weights.before * score[1:])
    return wide
