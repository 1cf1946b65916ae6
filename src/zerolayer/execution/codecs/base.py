"""What a codec is: a block's keys and values in, self-describing bytes out.

Encoded bytes start with a 28-byte header (magic, format version, codec number, shape, checksum of the
header); what follows belongs to the codec. The tiers checksum whole payloads, so a codec only has to refuse
bytes that cannot be a block of its own: wrong header, wrong length, a stream that does not decompress.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from zerolayer.core import FloatArray
from zerolayer.errors import BlockCorruptError, StoreError

Shape = tuple[int, int, int, int]
Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct("<4sBBHIIIII")
_MAGIC = b"ZLKV"
_VERSION = 1
HEADER_BYTES = _HEADER.size

MAX_MAGNITUDE = 1e37
"""Largest magnitude that the lossy codecs keep: ranges and bf16 rounding stay below the float32 maximum."""


@dataclass(frozen=True, slots=True)
class BlockKV:
    """Keys and values of one block, float32 `[layers, kv_heads, tokens, head_dim]`.

    Keys are stored without rotary rotation, so that a block can be placed at any position.
    Raises StoreError when the arrays are not two float32 arrays of one non-empty four-dimensional shape.
    """

    keys: FloatArray
    values: FloatArray

    def __post_init__(self) -> None:
        for name, array in (("keys", self.keys), ("values", self.values)):
            if array.dtype != np.float32 or array.ndim != 4 or array.size == 0:
                raise StoreError(
                    f"block {name} are {array.dtype}{list(array.shape)}; "
                    "pass non-empty float32 [layers, kv_heads, tokens, head_dim]"
                )
        if self.keys.shape != self.values.shape:
            raise StoreError(
                f"keys {list(self.keys.shape)} and values {list(self.values.shape)} differ in shape"
            )

    @classmethod
    def empty(cls, shape: Shape) -> BlockKV:
        """Uninitialised arrays of `shape`, to be passed as `out` of a decode."""
        return cls(np.empty(shape, np.float32), np.empty(shape, np.float32))

    @property
    def shape(self) -> Shape:
        """`(layers, kv_heads, tokens, head_dim)`."""
        layers, heads, tokens, dim = self.keys.shape
        return layers, heads, tokens, dim

    @property
    def fp16_bytes(self) -> int:
        """Bytes of keys and values at two bytes an element: the yardstick of every ratio."""
        return 2 * 2 * self.keys.size


class Codec(Protocol):
    """Encodes a block and decodes it again. One instance may be used from several threads."""

    name: ClassVar[str]
    code: ClassVar[int]  # number in the header; never reused for another format

    def encode(self, kv: BlockKV) -> bytes:
        """Self-describing bytes. Raises StoreError when a value is not finite or too large for the codec."""

    def decode(self, data: Buffer, out: BlockKV | None = None) -> BlockKV:
        """The block, written into `out` when given (strided views are fine).

        Raises BlockCorruptError when `data` is no block of this codec, StoreError when `out` does not fit.
        """


class Scratch(threading.local):
    """Working arrays kept between calls, one set a thread: a page fault costs more than the arithmetic."""

    def __init__(self) -> None:
        self._buffers: dict[str, npt.NDArray[np.uint8]] = {}

    def array(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An uninitialised C-contiguous array; valid until `name` is asked for again in the same thread."""
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size, np.uint8)
        return buffer[:size].view(kind).reshape(tuple(shape))


def pack_header(code: int, shape: Shape) -> bytes:
    """The header of a block of `shape` written by the codec with number `code`."""
    head = _HEADER.pack(_MAGIC, _VERSION, code, 0, *shape, 0)[:-4]
    return head + struct.pack("<I", xxhash.xxh32_intdigest(head))


def assemble(header: bytes, *arrays: npt.NDArray[Any]) -> bytes:
    """Header and C-contiguous arrays in one copy."""
    return b"".join((header, *(array.data for array in arrays)))


def read_header(data: Buffer) -> tuple[int, Shape]:
    """Codec number and shape. Raises BlockCorruptError when the bytes are no header of ours."""
    if len(data) < HEADER_BYTES:
        raise BlockCorruptError(
            f"encoded block has {len(data)} bytes, its header alone {HEADER_BYTES}; recompute it"
        )
    magic, version, code, reserved, layers, heads, tokens, dim, check = _HEADER.unpack_from(data)
    if magic != _MAGIC or check != xxhash.xxh32_intdigest(bytes(data[: HEADER_BYTES - 4])):
        raise BlockCorruptError("encoded block has a damaged header; recompute the block")
    if version != _VERSION or reserved != 0 or 0 in (layers, heads, tokens, dim):
        raise BlockCorruptError(
            f"encoded block has format {version}, this zerolayer reads {_VERSION}; recompute it"
        )
    return code, (layers, heads, tokens, dim)


def open_block(codec: Codec, data: Buffer, out: BlockKV | None) -> tuple[Shape, memoryview]:
    """Shape and body of `data`, checked against `codec` and `out`. Allocates nothing."""
    code, shape = read_header(data)
    if code != codec.code:
        raise BlockCorruptError(f"encoded block was written by codec number {code}, not by {codec.name}")
    if out is not None and out.shape != shape:
        raise StoreError(
            f"out has shape {list(out.shape)}, the block {list(shape)}; pass arrays of the block's shape"
        )
    return shape, memoryview(data)[HEADER_BYTES:]


def split_body(
    codec: Codec, body: memoryview, parts: Sequence[tuple[npt.DTypeLike, Shape]]
) -> list[npt.NDArray[Any]]:
    """Views of consecutive arrays in `body`. Raises BlockCorruptError when its length is not theirs."""
    sizes = [math.prod(shape) * np.dtype(dtype).itemsize for dtype, shape in parts]
    if len(body) != sum(sizes):
        raise BlockCorruptError(
            f"{codec.name} block has a body of {len(body)} bytes, its shape needs {sum(sizes)}; recompute it"
        )
    arrays: list[npt.NDArray[Any]] = []
    offset = 0
    for (dtype, shape), size in zip(parts, sizes, strict=True):
        arrays.append(np.frombuffer(body[offset : offset + size], dtype).reshape(shape))
        offset += size
    return arrays


def check_range(codec: Codec, low: FloatArray, high: FloatArray, limit: float = MAX_MAGNITUDE) -> None:
    """Raises StoreError unless the minima `low` and the maxima `high` lie within ±`limit`."""
    smallest, largest = float(low.min()), float(high.max())
    if not (smallest >= -limit and largest <= limit):  # written so that NaN fails
        raise StoreError(
            f"{codec.name} cannot encode a block with values from {smallest} to {largest}: they must be "
            f"finite and within ±{limit:g}; the model's keys or values overflowed; run it in float32"
        )


def check_finite(codec: Codec, kv: BlockKV) -> None:
    """Raises StoreError when a value is NaN or infinite."""
    largest = float(np.finfo(np.float32).max)
    for array in (kv.keys, kv.values):
        check_range(codec, array.min(), array.max(), largest)


def compression_ratio(data: Buffer) -> float:
    """Encoded bytes over the bytes of the same block in fp16; below 1 is a saving."""
    _, shape = read_header(data)
    return len(data) / (2 * 2 * math.prod(shape))
