"""BF16Z: bfloat16 (round to nearest even), byte shuffle, Zstandard level 1."""

from __future__ import annotations

from typing import ClassVar

from zerolayer.execution.codecs.base import MAX_MAGNITUDE, BlockKV, check_range
from zerolayer.execution.codecs.planes import BF16
from zerolayer.execution.codecs.zstd import Zstd


class Bf16Z(Zstd):
    """Exact for a bfloat16 model; otherwise each value within 2^-8 of itself."""

    name: ClassVar[str] = "BF16Z"
    code: ClassVar[int] = 2
    kept: ClassVar[tuple[int, ...]] = BF16

    def _check(self, kv: BlockKV) -> None:
        for array in (kv.keys, kv.values):
            check_range(self, array.min(), array.max(), MAX_MAGNITUDE)
