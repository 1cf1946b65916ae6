"""K8V4, the default: keys 8 bits per channel of the block, values 4 bits per token in groups of 32 channels.

Keys need the bits: attention multiplies their error by the query, while errors of values average out (KIVI,
arXiv:2402.02750).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from zerolayer.core import FloatArray
from zerolayer.execution.codecs.affine import Codes, dequantise, quantise
from zerolayer.execution.codecs.base import (
    BlockKV,
    Buffer,
    Scratch,
    assemble,
    open_block,
    pack_header,
    split_body,
)

_KEY_LEVELS = 255
_VALUE_LEVELS = 15
_GROUP = 32
_SMALLEST_GROUP = 8  # below it a group's scale and offset would weigh more than its codes


def group_size(head_dim: int) -> int:
    """Channels that share a scale: the largest divisor of `head_dim` from 8 to 32, else the whole head."""
    fitting = [size for size in range(_SMALLEST_GROUP, _GROUP + 1) if head_dim % size == 0]
    return max(fitting, default=head_dim)


def _grouped(x: FloatArray) -> FloatArray:
    """`x` as `[layers, heads, tokens, groups, channels]`: splitting an axis never copies."""
    size = group_size(x.shape[-1])
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


class K8V4:
    """About 0.42 of fp16."""

    name: ClassVar[str] = "K8V4"
    code: ClassVar[int] = 6

    def __init__(self) -> None:
        self._scratch = Scratch()

    def encode(self, kv: BlockKV) -> bytes:
        """See Codec.encode."""
        keys = quantise(self, kv.keys, 2, _KEY_LEVELS, self._scratch, "key_codes")
        values = quantise(self, _grouped(kv.values), 4, _VALUE_LEVELS, self._scratch, "value_codes")
        packed = self._pack(values.codes)
        header = pack_header(self.code, kv.shape)
        return assemble(header, keys.low, keys.scale, keys.codes, values.low, values.scale, packed)

    def decode(self, data: Buffer, out: BlockKV | None = None) -> BlockKV:
        """See Codec.decode."""
        shape, body = open_block(self, data, out)
        layers, heads, tokens, dim = shape
        channel = (layers, heads, 1, dim)
        group = (layers, heads, tokens, dim // group_size(dim))
        packed = (1, 1, 1, (layers * heads * tokens * dim + 1) // 2)
        k_low, k_scale, k_codes, v_low, v_scale, v_codes = split_body(
            self,
            body,
            [
                *((np.uint16, channel), (np.uint16, channel), (np.uint8, shape)),
                *((np.uint16, group), (np.uint16, group), (np.uint8, packed)),
            ],
        )
        kv = out if out is not None else BlockKV.empty(shape)
        dequantise(k_codes, k_low, k_scale, kv.keys)
        values = _grouped(kv.values)
        codes = self._unpack(v_codes.reshape(-1), values.size).reshape(values.shape)
        dequantise(codes, v_low[..., None], v_scale[..., None], values)
        return kv

    def _pack(self, codes: Codes) -> Codes:
        """Byte i holds code i low and code half + i high: contiguous halves vectorise."""
        flat = codes.reshape(-1)
        half = (flat.size + 1) // 2
        packed: Codes = self._scratch.array("packed", (half,), np.uint8)
        packed[-1] = 0  # the last high nibble of an odd count
        np.left_shift(flat[half:], 4, out=packed[: flat.size - half])
        np.bitwise_or(packed, flat[:half], out=packed)
        return packed

    def _unpack(self, packed: Codes, count: int) -> Codes:
        codes: Codes = self._scratch.array("codes", (count,), np.uint8)
        np.bitwise_and(packed, 15, out=codes[: packed.size])
        np.right_shift(packed[: count - packed.size], 4, out=codes[packed.size :])
        return codes
