"""The device arena: pre-allocated keys and values, cut into slots, read in place by attention.

One tensor a layer for keys and one for values, each `[kv_heads, slots * block_tokens, head_dim]`; all of them are
views of one allocation, so that a block is moved or rotated through every layer by one kernel. The prefix that
attention reads is dense: a hole is closed by moving a slot into it (layout.py). Attention does not mind
in which slot a block lies, only at which position its keys were rotated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zerolayer.execution.layout import FREE
from zerolayer.execution.rotary import RotaryTable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class KVGeometry:
    """The shape of a model's keys and values."""

    layers: int
    kv_heads: int
    head_dim: int
    itemsize: int = 4  # bytes of one element on the device

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values through all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.itemsize


class Arena:
    """Slots of the device memory that belongs to one session."""

    def __init__(
        self,
        geometry: KVGeometry,
        slots: int,
        block_tokens: int,
        rotary: RotaryTable,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        import torch

        self.geometry, self.slots, self.block_tokens, self.rotary = geometry, slots, block_tokens, rotary
        self._allocate(slots, device, dtype or torch.float32)
        self.slot_bytes = self.nbytes // slots
        """Bytes of one block through all layers."""
        self.occupant = np.full(slots, FREE, dtype=np.int64)  # block index, or FREE
        self.position = np.zeros(slots, dtype=np.int64)  # rotary position of the slot's first token
        self.in_sight = 0
        """Slots that attention reads: the first ones. Resident blocks behind the tail are out of sight."""
        self.rows = 0
        """Length of the prefix that attention reads, in tokens: the slots in sight, then the open tail."""
        self.attachment: Any = None
        """What the engine keeps for its passes over this arena; it goes with the arena's memory."""

    def _allocate(self, slots: int, device: torch.device | str, dtype: torch.dtype) -> None:
        import torch

        geometry = self.geometry
        shape = (2, geometry.layers, geometry.kv_heads, slots * self.block_tokens, geometry.head_dim)
        self._storage = torch.zeros(shape, dtype=dtype, device=device)
        self.keys = list(self._storage[0])
        self.values = list(self._storage[1])

    def release(self) -> None:
        """Give the memory back: every slot is free and nothing may be placed until `renew`."""
        self._allocate(0, self._storage.device, self._storage.dtype)
        self.occupant[:] = FREE
        self.in_sight = self.rows = 0
        self.attachment = None  # its buffers, too

    def renew(self) -> None:
        """Allocate the memory again after `release`. Nothing to do where it was not released."""
        if self.nbytes == 0:
            self._allocate(self.slots, self._storage.device, self._storage.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes allocated on the device, keys and values of all layers."""
        return self._storage.numel() * self._storage.element_size()

    @property
    def used_slots(self) -> int:
        """Slots that hold a block."""
        return int((self.occupant != FREE).sum())

    @property
    def device_type(self) -> str:
        """`cpu` or `cuda`."""
        return str(self._storage.device.type)

    def memory_ranges(self, slot: int) -> list[tuple[int, int]]:
        """Virtual (address, bytes) of a slot: one range for each layer, head, and keys or values."""
        rows = self.rows_of(slot)
        pieces = self._storage[:, :, :, rows].flatten(0, 2)
        return [(piece.data_ptr(), piece.numel() * piece.element_size()) for piece in pieces]

    def slot_of(self, block: int) -> int:
        """The slot that holds `block`, or FREE."""
        found = np.flatnonzero(self.occupant == block)
        return int(found[0]) if len(found) else FREE

    def blocks(self) -> list[int]:
        """Resident block indices, by slot."""
        return [int(b) for b in self.occupant if b != FREE]

    def rows_of(self, slot: int) -> slice:
        """The rows of a slot in every layer's tensor."""
        return slice(slot * self.block_tokens, (slot + 1) * self.block_tokens)

    def slot_view(self, slot: int) -> torch.Tensor:
        """Keys and values of a slot in place, `[2, layers, kv_heads, tokens, head_dim]`, keys as rotated."""
        return self._storage[:, :, :, self.rows_of(slot)]

    def load(self, slot: int, block: int, position: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put a block into a slot; its keys are rotated once, to the slot's position.

        `keys` and `values` are `[layers, kv_heads, tokens, head_dim]` on any device, keys without rotation.
        """
        import torch

        self.place(slot, block, position, torch.stack([keys, values]))

    def place(self, slot: int, block: int, position: int, kv: torch.Tensor) -> None:
        """As `load`, of keys and values in one tensor `[2, layers, kv_heads, tokens, head_dim]`: one pass over both."""
        self.rotary.rotate_block(kv.to(self._storage.device), position, out=self.slot_view(slot))
        self.occupant[slot], self.position[slot] = block, position

    def claim(self, block: int, position: int) -> None:
        """The tail's first whole block, computed in place at `position`, becomes the last slot in sight."""
        self.occupant[self.in_sight], self.position[self.in_sight] = block, position
        self.in_sight += 1

    def drop_tail(self) -> None:
        """Forget the rows behind the slots in sight."""
        self.rows = self.in_sight * self.block_tokens

    def read_tail(self, position: int) -> torch.Tensor:
        """Keys (rotation taken back) and values of the open tail, `[2, layers, kv_heads, tokens, head_dim]`, copies.

        Its first token has the rotary `position`.
        """
        tail = self._storage[:, :, :, self.in_sight * self.block_tokens : self.rows].clone()
        tail[0] = self.rotary.unrotate(tail[0], position)
        return tail

    def write_tail(self, kv: torch.Tensor, position: int) -> None:
        """Put what `read_tail` gave behind the prefix, its first token at `position`."""
        first, self.rows = self.rows, self.rows + kv.shape[-2]
        place = self._storage[:, :, :, first : self.rows]
        self.rotary.rotate_block(kv.to(place.device), position, out=place)

    def push_tail(self) -> None:
        """Move the open tail one slot up, in memory and in position: a block comes in sight before it."""
        width, first = self.block_tokens, self.in_sight * self.block_tokens
        tail = self._storage[:, :, :, first : self.rows].clone()
        self._storage[:, :, :, first + width : self.rows + width] = tail
        self.rotary.shift(self._storage[0, :, :, first + width : self.rows + width], width)
        self.rows += width

    def read(self, slot: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (rotation taken back) and values of a slot, `[layers, kv_heads, tokens, head_dim]`, copies."""
        rows = self.rows_of(slot)
        keys = self.rotary.unrotate(self._storage[0, :, :, rows], int(self.position[slot]))
        return keys, self._storage[1, :, :, rows].clone()

    def move(self, source: int, target: int) -> None:
        """Copy a slot over another and free the source. Positions do not change, so nothing is rotated."""
        self._storage[:, :, :, self.rows_of(target)] = self._storage[:, :, :, self.rows_of(source)]
        self.occupant[target], self.position[target] = self.occupant[source], self.position[source]
        self.occupant[source] = FREE

    def free(self, slots: int | slice | Sequence[int]) -> None:
        """Mark slots free: no copy, no synchronisation."""
        self.occupant[slots] = FREE

    def relocate(self, slot: int, position: int) -> None:
        """Rotate a resident block to another position, in place."""
        shift = position - int(self.position[slot])
        if shift:
            self.rotary.shift(self._storage[0, :, :, self.rows_of(slot)], shift)
            self.position[slot] = position

    def ordered_slots(self) -> list[int]:
        """Slots in sight, in document order of their blocks."""
        return [int(slot) for slot in np.argsort(self.occupant[: self.in_sight], kind="stable")]

    def row_positions(self, tail_position: int) -> np.ndarray:
        """Rotary position of every row that attention reads, `[rows]`; the tail's first row has `tail_position`."""
        used = self.in_sight
        starts = np.repeat(self.position[:used], self.block_tokens)
        offsets = np.tile(np.arange(self.block_tokens), used)
        tail = tail_position + np.arange(self.rows - used * self.block_tokens)
        return np.concatenate([starts + offsets, tail])

    def tokens_of(self, slots: Sequence[int]) -> np.ndarray:
        """Row numbers of the given slots, in the order given."""
        width = np.arange(self.block_tokens)
        return (np.asarray(slots, dtype=np.int64)[:, None] * self.block_tokens + width).reshape(-1)
