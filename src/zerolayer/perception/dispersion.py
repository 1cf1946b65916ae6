"""Key-norm dispersion, the description's "semantic entropy": how far the norms of a token's keys spread.

For a token, the norm of its key is taken in every layer and KV head (before rotation, which keeps norms, in
fp32), put in standard deviations of that head over the document so far, and the spread is the standard
deviation of these values over layers and heads. A block keeps a few sums of it, computed as its keys are
written behind: nothing is read twice.

The statistics of a head run over the blocks up to and including the one observed, without the sinks, whose
norms are outliers. So values depend on the document's beginning only, never on its end, and a session that
is interrupted and resumed gets the same ones.

Other readings of the same keys: low norm (arXiv:2406.11430), the same two over the KV heads of retrieval
heads, and distinctiveness, 1 - cosine to the middle of the document's keys (after KeyDiff, arXiv:2504.15364).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zerolayer.core import KEY_FEATURES, SINK_TOKENS, FloatArray

_TAG = b"KD1\0"
"""Begins every summary; another version of this file gets another tag."""

_LEAST_SPREAD = 1e-3
"""Heads whose norm is all but constant (normalised keys): spread is at least this share of their mean norm."""

_Sums = npt.NDArray[np.float64]


class KeyDispersion:
    """Features of every block's keys, `[blocks, KEY_FEATURES]`; NaN for blocks that have not been observed.

    `retrieval` `[layers, heads]` are the weights of a model's retrieval heads, where they are known; without
    them the features of retrieval heads are NaN.
    """

    def __init__(
        self, layers: int, kv_heads: int, head_dim: int, blocks: int, retrieval: FloatArray | None = None
    ) -> None:
        self.features: FloatArray = np.full((blocks, len(KEY_FEATURES)), np.nan, dtype=np.float32)
        self._shape = (layers, kv_heads)
        self._retrieval = None if retrieval is None else retrieval.reshape(layers, kv_heads, -1).sum(axis=-1)
        self._counted = np.zeros(blocks, dtype=np.bool_)
        self._tokens = 0
        self._moments: _Sums = np.zeros((2, layers, kv_heads))  # sums of norms and of their squares
        self._centres: _Sums = np.zeros((layers, kv_heads, head_dim))

    def observe(self, block: int, keys: FloatArray, centre: FloatArray) -> bytes:
        """Take in a block's unrotated keys `[layers, kv_heads, tokens, head_dim]`; returns bytes for `restore`.

        `centre` `[layers, kv_heads, head_dim]` is the middle of the block's keys (`KeyBounds.centre`). A block
        that is observed again (knit, recomputed) gets new features but counts in the statistics once.
        """
        keys = keys.astype(np.float32, copy=False)
        if block == 0:
            keys = keys[:, :, SINK_TOKENS:]
        norms = np.sqrt(np.einsum("lhtd,lhtd->lht", keys, keys))
        wide = norms.astype(np.float64)
        moments = np.stack([wide.sum(axis=-1), (wide * wide).sum(axis=-1)])
        self._count(block, keys.shape[2], moments, centre)
        self.features[block] = self._read(keys, norms)
        tokens = np.array([keys.shape[2]], dtype=np.float64)
        return b"".join([_TAG, self.features[block].tobytes(), tokens.tobytes(), moments.tobytes()])

    def restore(self, block: int, summary: bytes, centre: FloatArray) -> bool:
        """Take in what `observe` returned; False, with nothing changed, if these bytes are of another kind."""
        first, second = len(_TAG) + 4 * len(KEY_FEATURES), len(_TAG) + 4 * len(KEY_FEATURES) + 8
        if not summary.startswith(_TAG) or len(summary) != second + 8 * self._moments.size:
            return False
        tokens = int(np.frombuffer(summary[first:second], dtype=np.float64)[0])
        moments = np.frombuffer(summary[second:], dtype=np.float64).reshape(self._moments.shape)
        self._count(block, tokens, moments, centre)
        self.features[block] = np.frombuffer(summary[len(_TAG) : first], dtype=np.float32)
        return True

    def resize(self, blocks: int) -> None:
        """Make room for further blocks (a conversation grows)."""
        grow = blocks - len(self._counted)
        if grow > 0:
            self.features = np.pad(self.features, ((0, grow), (0, 0)), constant_values=np.nan)
            self._counted = np.pad(self._counted, (0, grow))

    def _count(self, block: int, tokens: int, moments: _Sums, centre: FloatArray) -> None:
        if self._counted[block]:
            return
        self._counted[block] = True
        self._tokens += tokens
        self._moments += moments
        self._centres += centre

    def _read(self, keys: FloatArray, norms: FloatArray) -> FloatArray:
        """The features of one block, in the order of KEY_FEATURES."""
        mean = self._moments[0] / self._tokens
        variance = self._moments[1] / self._tokens - mean * mean
        spread = np.maximum(np.sqrt(np.maximum(variance, 0.0)), _LEAST_SPREAD * mean + 1e-9)
        standard = ((norms - mean[..., None]) / spread[..., None]).astype(np.float32)
        dispersion = standard.std(axis=(0, 1))
        direction = self._centres / np.maximum(np.linalg.norm(self._centres, axis=-1, keepdims=True), 1e-9)
        along = np.einsum("lhtd,lhd->lht", keys, direction.astype(np.float32)) / np.maximum(norms, 1e-9)
        found = [dispersion.mean(), dispersion.min(), dispersion.max(), standard.mean()]
        found += self._retrieval_heads(standard)
        return np.array([*found, 1.0 - along.mean()], dtype=np.float32)

    def _retrieval_heads(self, standard: FloatArray) -> list[float]:
        """Dispersion and norm over the retrieval heads, each weighted as it retrieves."""
        if self._retrieval is None:
            return [np.nan, np.nan]
        share = (self._retrieval / self._retrieval.sum())[..., None]
        mean = (share * standard).sum(axis=(0, 1))
        spread = np.sqrt((share * (standard - mean) ** 2).sum(axis=(0, 1)))
        return [float(spread.mean()), float(mean.mean())]
