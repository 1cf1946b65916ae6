"""Byte shuffle: byte i of every element side by side, so that a compressor sees the exponents as runs.

Without it LZ4 and zstd save nothing on KV: mantissas are noise and sit between the exponents.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zerolayer.core import FloatArray
from zerolayer.errors import BlockCorruptError
from zerolayer.execution.codecs.base import BlockKV, Codec, Scratch, Shape

Planes = npt.NDArray[np.uint8]

FP32 = (0, 1, 2, 3)
BF16 = (2, 3)  # the upper half of a little-endian float32


def _round_bf16(x: FloatArray, out: npt.NDArray[np.uint32], scratch: Scratch) -> None:
    """Bits of `x` rounded to bfloat16, nearest-even, in the upper half of each element of `out`."""
    np.copyto(out.view(np.float32), x)
    odd = scratch.array("odd", out.shape, np.uint32)
    np.right_shift(out, 16, out=odd)
    np.bitwise_and(odd, 1, out=odd)
    np.add(odd, 0x7FFF, out=odd)
    np.add(out, odd, out=out)


def shuffle(kv: BlockKV, kept: tuple[int, ...], scratch: Scratch) -> Planes:
    """Planes `[len(kept), 2 · elements]` of keys, then values (scratch memory)."""
    size = kv.keys.size
    planes: Planes = scratch.array("planes", (len(kept), 2 * size), np.uint8)
    words = scratch.array("words", kv.shape, np.uint32)
    for part, x in enumerate((kv.keys, kv.values)):
        if kept == BF16:
            _round_bf16(x, words, scratch)
        else:
            np.copyto(words.view(np.float32), x)
        octets = words.view(np.uint8).reshape(size, 4)
        for plane, byte in enumerate(kept):
            planes[plane, part * size : (part + 1) * size] = octets[:, byte]
    return planes


def unshuffle(
    codec: Codec, data: bytes, kept: tuple[int, ...], shape: Shape, scratch: Scratch, out: BlockKV | None
) -> BlockKV:
    """The block whose planes are `data`. Raises BlockCorruptError when `data` has another length."""
    size = int(np.prod(shape, dtype=np.int64))
    if len(data) != len(kept) * 2 * size:
        raise BlockCorruptError(
            f"{codec.name} block holds {len(data)} bytes, shape {list(shape)} needs {len(kept) * 2 * size}"
        )
    kv = out if out is not None else BlockKV.empty(shape)
    planes = np.frombuffer(data, np.uint8).reshape(len(kept), 2 * size)
    words = scratch.array("words", (size, 4), np.uint8)
    words.fill(0)
    for part, x in enumerate((kv.keys, kv.values)):
        for plane, byte in enumerate(kept):
            words[:, byte] = planes[plane, part * size : (part + 1) * size]
        np.copyto(x, words.view(np.float32).reshape(shape))
    return kv
