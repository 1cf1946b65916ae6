"""INT8: keys 8 bits per channel of the block, values 8 bits per token."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from zerolayer.execution.codecs.affine import dequantise, quantise
from zerolayer.execution.codecs.base import (
    BlockKV,
    Buffer,
    Scratch,
    assemble,
    open_block,
    pack_header,
    split_body,
)

_LEVELS = 255


class Int8:
    """Half of fp16, relative error below one percent on any data whose range suits its group."""

    name: ClassVar[str] = "INT8"
    code: ClassVar[int] = 5

    def __init__(self) -> None:
        self._scratch = Scratch()

    def encode(self, kv: BlockKV) -> bytes:
        """See Codec.encode."""
        k = quantise(self, kv.keys, 2, _LEVELS, self._scratch, "key_codes")
        v = quantise(self, kv.values, 3, _LEVELS, self._scratch, "value_codes")
        header = pack_header(self.code, kv.shape)
        return assemble(header, k.low, k.scale, k.codes, v.low, v.scale, v.codes)

    def decode(self, data: Buffer, out: BlockKV | None = None) -> BlockKV:
        """See Codec.decode."""
        shape, body = open_block(self, data, out)
        layers, heads, tokens, dim = shape
        channel, token = (layers, heads, 1, dim), (layers, heads, tokens, 1)
        k_low, k_scale, k_codes, v_low, v_scale, v_codes = split_body(
            self,
            body,
            [
                *((np.uint16, channel), (np.uint16, channel), (np.uint8, shape)),
                *((np.uint16, token), (np.uint16, token), (np.uint8, shape)),
            ],
        )
        kv = out if out is not None else BlockKV.empty(shape)
        dequantise(k_codes, k_low, k_scale, kv.keys)
        dequantise(v_codes, v_low, v_scale, kv.values)
        return kv
