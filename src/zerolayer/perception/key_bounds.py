"""Which blocks a question's own attention wants: bounds of each block's keys, scored with the question's queries.

The score is an upper bound of any query's logit in the block, from the smallest and largest key of every channel
(Quest, arXiv:2406.10774), on keys and queries without rotation, so that distance does not count.
"""

from __future__ import annotations

import numpy as np

from zerolayer.core import FloatArray


class KeyBounds:
    """Smallest and largest key per channel of every block of a session, in host memory."""

    def __init__(self, layers: int, kv_heads: int, head_dim: int, blocks: int) -> None:
        self.shape = (layers, kv_heads, head_dim)
        self.known = np.zeros(blocks, dtype=np.bool_)
        # Channels before blocks: a matrix product over the channels needs no transposition.
        self._low = np.zeros((layers, kv_heads, head_dim, blocks), dtype=np.float32)
        self._high = np.zeros_like(self._low)

    def observe(self, block: int, keys: FloatArray) -> bytes:
        """Take in a block's keys `[layers, kv_heads, tokens, head_dim]`; returns the bounds for `restore`.

        Bounds are fp16, rounded outwards; channels beyond its range (±65504) are bounded by it.
        """
        bounds = np.stack([_rounded(keys.min(axis=2), -np.inf), _rounded(keys.max(axis=2), np.inf)])
        self._set(block, bounds)
        return bounds.tobytes()

    def restore(self, block: int, summary: bytes) -> bool:
        """Take in what `observe` returned; False if these bytes are not bounds of this shape."""
        if len(summary) != self.nbytes:
            return False
        self._set(block, np.frombuffer(summary, dtype=np.float16).reshape(2, *self.shape))
        return True

    @property
    def nbytes(self) -> int:
        """Length of what `observe` returns."""
        return 2 * 2 * int(np.prod(self.shape))

    def centre(self, block: int) -> FloatArray:
        """`[layers, kv_heads, head_dim]` middle between a block's smallest and largest keys."""
        middle: FloatArray = 0.5 * (self._low[..., block] + self._high[..., block])
        return middle

    def _set(self, block: int, bounds: np.ndarray) -> None:
        self._low[..., block], self._high[..., block] = bounds[0], bounds[1]
        self.known[block] = True

    def resize(self, blocks: int) -> None:
        """Make room for further blocks (a conversation grows)."""
        grow = blocks - len(self.known)
        if grow > 0:
            pad = ((0, 0), (0, 0), (0, 0), (0, grow))
            self._low, self._high = np.pad(self._low, pad), np.pad(self._high, pad)
            self.known = np.pad(self.known, (0, grow))

    def score(self, queries: FloatArray) -> FloatArray:
        """[blocks] attention that the queries `[layers, heads, tokens, head_dim]` may pay to each block, 0 to 1.

        Softmax over blocks of the bound, largest over the tokens, mean over heads and layers: the variant that
        recalled best in our trials. Blocks that are not known score 0.
        """
        layers, heads, tokens, head_dim = queries.shape
        kv_heads = self.shape[1]
        known = np.flatnonzero(self.known)
        total = np.zeros(len(self.known), dtype=np.float32)
        if not len(known) or not tokens:
            return total
        grouped = queries.reshape(layers, kv_heads, (heads // kv_heads) * tokens, head_dim)
        for layer in range(layers):
            positive = np.maximum(grouped[layer], 0)
            bound = positive @ self._high[layer][..., known]
            bound += (grouped[layer] - positive) @ self._low[layer][..., known]
            bound -= bound.max(axis=-1, keepdims=True)
            np.exp(bound, out=bound)
            bound /= bound.sum(axis=-1, keepdims=True)
            total[known] += bound.reshape(heads, tokens, -1).max(axis=1).mean(axis=0)
        total /= layers
        return total


def _rounded(values: FloatArray, towards: float) -> np.ndarray:
    """`values` as fp16, rounded down or up as `towards` says: rounding must not break the bound."""
    largest = np.finfo(np.float16).max
    near: np.ndarray = np.clip(values, -largest, largest).astype(np.float16)
    inside = (near > values if towards < 0 else near < values) & (np.abs(near) < largest)
    near[inside] = np.nextafter(near[inside], np.float16(towards))
    return near
