"""The file of one block: a fixed header, then metadata (JSON), summary and payload, each with its checksum.

    0   magic            8 bytes, "ZLBLOCK\\0"
    8   format version   u16
    10  header length    u16
    12  reserved         u32, zero
    16  header checksum  u64, xxh3_64 of the whole header with these eight bytes zero
    24  codec            16 ASCII characters, zero padded
    40  lengths          u32 metadata, u32 summary, u64 payload
    56  checksums        u64 block id, metadata, summary, payload (xxh3_64)

The first 24 bytes keep their place in every version, so a file of a later version is told from a damaged one.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import BinaryIO

import xxhash

from zerolayer.errors import BlockCorruptError, StoreError, StoreVersionError

FORMAT_VERSION = 1

_MAGIC = b"ZLBLOCK\0"
_PREAMBLE = struct.Struct("<8sHHIQ")
_FIELDS = struct.Struct("<16sIIQQQQQ")
HEADER_BYTES = _PREAMBLE.size + _FIELDS.size


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """What the header of a block's file says; its checksum has been verified."""

    codec: str
    meta_bytes: int
    summary_bytes: int
    payload_bytes: int
    meta_check: int
    summary_check: int
    payload_check: int

    @property
    def file_bytes(self) -> int:
        """Length of the whole file."""
        return HEADER_BYTES + self.meta_bytes + self.summary_bytes + self.payload_bytes


def checksum(data: bytes) -> int:
    """xxh3_64 of `data`."""
    return xxhash.xxh3_64_intdigest(data)


def encode_meta(meta: dict[str, str | int | float]) -> bytes:
    """Compact JSON; nothing for an empty dict."""
    return json.dumps(meta, separators=(",", ":"), sort_keys=True).encode() if meta else b""


def decode_meta(data: bytes) -> dict[str, str | int | float]:
    """The inverse of encode_meta, for bytes whose checksum matched."""
    meta: dict[str, str | int | float] = json.loads(data) if data else {}
    return meta


def pack(key: str, codec: str, meta: bytes, summary: bytes, payload: bytes) -> bytes:
    """The header of the file of block `key`. Raises StoreError when the codec's name does not fit."""
    name = codec.encode("ascii", "replace")
    if len(name) > 16:
        raise StoreError(f"codec name {codec!r} is longer than 16 characters")
    fields = _FIELDS.pack(
        name,
        len(meta),
        len(summary),
        len(payload),
        *(checksum(part) for part in (key.encode(), meta, summary, payload)),
    )
    preamble = _PREAMBLE.pack(_MAGIC, FORMAT_VERSION, HEADER_BYTES, 0, 0)
    return _PREAMBLE.pack(_MAGIC, FORMAT_VERSION, HEADER_BYTES, 0, checksum(preamble + fields)) + fields


def read_header(file: BinaryIO, key: str, path: object) -> BlockHeader:
    """Reads and verifies the header at the start of `file`.

    Raises StoreVersionError for an intact header of another version, BlockCorruptError for anything else.
    """
    start = file.read(_PREAMBLE.size)
    damaged = BlockCorruptError(
        f"block {key}: the header of {path} is damaged; the block has to be recomputed"
    )
    if len(start) < _PREAMBLE.size:
        raise damaged
    magic, version, length, reserved, check = _PREAMBLE.unpack(start)
    rest = file.read(max(0, length - _PREAMBLE.size))
    if magic != _MAGIC or check != checksum(_PREAMBLE.pack(magic, version, length, reserved, 0) + rest):
        raise damaged
    if version != FORMAT_VERSION:
        raise StoreVersionError(
            f"{path} has block format {version}, this zerolayer reads {FORMAT_VERSION}; "
            "use the version that wrote it, or delete the session and read the document again"
        )
    if length != HEADER_BYTES:
        raise damaged
    codec, meta_bytes, summary_bytes, payload_bytes, key_check, *checks = _FIELDS.unpack(rest)
    if key_check != checksum(key.encode()):
        raise BlockCorruptError(f"{path} holds another block than {key}; the block has to be recomputed")
    name = codec.rstrip(b"\0").decode("ascii", "replace")
    return BlockHeader(name, meta_bytes, summary_bytes, payload_bytes, *checks)


def read_part(file: BinaryIO, length: int, check: int, part: str, key: str, path: object) -> bytes:
    """The next `length` bytes. Raises BlockCorruptError when they are short or do not match `check`."""
    data = file.read(length)
    if len(data) != length or checksum(data) != check:
        raise BlockCorruptError(
            f"block {key}: the {part} in {path} does not match its checksum; the block has to be recomputed"
        )
    return data
