"""How blocks are encoded in the host and disk tiers. A new codec is one file and one line in CODECS."""

from __future__ import annotations

from zerolayer.errors import BlockCorruptError, UnknownNameError
from zerolayer.execution.codecs.base import (
    BlockKV,
    Buffer,
    Codec,
    compression_ratio,
    read_header,
)
from zerolayer.execution.codecs.bf16z import Bf16Z
from zerolayer.execution.codecs.int8 import Int8
from zerolayer.execution.codecs.k8v4 import K8V4
from zerolayer.execution.codecs.lz4 import Lz4
from zerolayer.execution.codecs.raw import Raw
from zerolayer.execution.codecs.zstd import Zstd

CODECS: dict[str, type[Codec]] = {codec.name: codec for codec in (Raw, Bf16Z, Lz4, Zstd, Int8, K8V4)}

__all__ = ["CODECS", "BlockKV", "Buffer", "Codec", "codec_of", "compression_ratio", "get_codec"]


def get_codec(name: str) -> Codec:
    """A new instance of the codec `name` (any case). Raises UnknownNameError naming the known ones."""
    try:
        return CODECS[name.upper()]()
    except KeyError:
        raise UnknownNameError("codec", name, CODECS) from None


def codec_of(data: Buffer) -> str:
    """Name of the codec that wrote `data`. Raises BlockCorruptError when no known codec did."""
    code, _ = read_header(data)
    for name, codec in CODECS.items():
        if codec.code == code:
            return name
    raise BlockCorruptError(
        f"encoded block names codec number {code}, which does not exist; recompute the block"
    )
