"""The cache transformers writes into: layers that live in the arena.

`update` writes the new keys and values into rows of the arena and returns views of its resident prefix. Which rows
those are is the engine's decision, made once for all layers before a forward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from zerolayer.execution.arena import Arena
from zerolayer.execution.rotary import interleaved


class ArenaLayer(CacheLayerMixin):
    """One model layer's view of the arena."""

    is_sliding = False

    def __init__(self, cache: ArenaCache, layer: int) -> None:
        super().__init__()
        self._cache, self._layer = cache, layer
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """The arena is allocated before the first pass; nothing is left to do."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[1, kv_heads, tokens, head_dim]` into the rows of this pass; return the prefix, without a copy."""
        keys, values = self._cache.arena.keys[self._layer], self._cache.arena.values[self._layer]
        rows = self._cache.rows
        pairs = interleaved(key_states[0])
        if isinstance(rows, slice):
            keys[:, rows].view(pairs.shape).copy_(pairs)
            values[:, rows] = value_states[0]
        else:
            keys.index_copy_(1, rows, pairs.flatten(-2))
            values.index_copy_(1, rows, value_states[0])
        prefix = self._cache.prefix
        return keys[:, :prefix], values[:, :prefix]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys, for transformers' mask functions (unused: no mask is built)."""
        return self._cache.prefix, 0

    def get_seq_length(self) -> int:
        """Length of the resident prefix in tokens."""
        return self._cache.prefix

    def get_max_length(self) -> int:
        """Rows of the arena."""
        return self._cache.arena.slots * self._cache.arena.block_tokens


class ArenaCache(Cache):
    """All layers over one arena. Set `rows` and `prefix` before each forward pass."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.rows: slice | torch.Tensor = slice(0, 0)
        self.prefix = 0
        super().__init__(layers=[ArenaLayer(self, layer) for layer in range(arena.geometry.layers)])
