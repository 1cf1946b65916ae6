"""ZSTD (lossless float32) and its shared part with BF16Z: byte shuffle, then Zstandard level 1."""

from __future__ import annotations

import threading
from typing import ClassVar

import numpy as np
import zstandard

from zerolayer.errors import BlockCorruptError
from zerolayer.execution.codecs.base import (
    BlockKV,
    Buffer,
    Scratch,
    check_finite,
    open_block,
    pack_header,
)
from zerolayer.execution.codecs.planes import FP32, shuffle, unshuffle

_LEVEL = 1  # higher levels gain under 1 % on shuffled KV and cost several times the time


class _Contexts(threading.local):
    """Zstandard contexts must not be shared between threads."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


class Zstd:
    """Byte-shuffled float32 through Zstandard: bit exact."""

    name: ClassVar[str] = "ZSTD"
    code: ClassVar[int] = 4
    kept: ClassVar[tuple[int, ...]] = FP32

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._contexts = _Contexts()

    def _check(self, kv: BlockKV) -> None:
        check_finite(self, kv)

    def encode(self, kv: BlockKV) -> bytes:
        """See Codec.encode."""
        self._check(kv)
        planes = shuffle(kv, self.kept, self._scratch)
        return pack_header(self.code, kv.shape) + self._contexts.compressor.compress(planes.data)

    def decode(self, data: Buffer, out: BlockKV | None = None) -> BlockKV:
        """See Codec.decode."""
        shape, body = open_block(self, data, out)
        expected = len(self.kept) * 2 * int(np.prod(shape, dtype=np.int64))
        try:
            if zstandard.frame_content_size(body) != expected:  # before anything is allocated
                raise BlockCorruptError(f"{self.name} block does not hold the {expected} bytes of its shape")
            planes = self._contexts.decompressor.decompress(body, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise BlockCorruptError(
                f"{self.name} block does not decompress ({error}); recompute the block"
            ) from error
        return unshuffle(self, planes, self.kept, shape, self._scratch, out)
