"""LZ4: bfloat16 (round to nearest even), byte shuffle, LZ4 block format. Faster than zstd, saves less."""

from __future__ import annotations

from typing import ClassVar

import lz4.block
import numpy as np

from zerolayer.errors import BlockCorruptError
from zerolayer.execution.codecs.base import (
    BlockKV,
    Buffer,
    Scratch,
    check_range,
    open_block,
    pack_header,
)
from zerolayer.execution.codecs.planes import BF16, shuffle, unshuffle

_MAX_EXPANSION = (
    255  # LZ4 cannot expand a block by more: a larger claim is garbage, refused before allocating
)


class Lz4:
    """Byte-shuffled bfloat16 through LZ4; each value within 2^-8 of itself."""

    name: ClassVar[str] = "LZ4"
    code: ClassVar[int] = 3

    def __init__(self) -> None:
        self._scratch = Scratch()

    def encode(self, kv: BlockKV) -> bytes:
        """See Codec.encode."""
        for array in (kv.keys, kv.values):
            check_range(self, array.min(), array.max())
        planes = shuffle(kv, BF16, self._scratch)
        packed: bytes = lz4.block.compress(planes.data, store_size=False)
        return pack_header(self.code, kv.shape) + packed

    def decode(self, data: Buffer, out: BlockKV | None = None) -> BlockKV:
        """See Codec.decode."""
        shape, body = open_block(self, data, out)
        expected = len(BF16) * 2 * int(np.prod(shape, dtype=np.int64))
        if expected > _MAX_EXPANSION * len(body) + 64:
            raise BlockCorruptError(
                f"LZ4 block of {len(body)} bytes cannot hold the {expected} bytes of its shape"
            )
        try:
            planes: bytes = lz4.block.decompress(body, uncompressed_size=expected)
        except lz4.block.LZ4BlockError as error:
            raise BlockCorruptError(
                f"LZ4 block does not decompress ({error}); recompute the block"
            ) from error
        return unshuffle(self, planes, BF16, shape, self._scratch, out)
