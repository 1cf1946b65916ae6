"""What a simulated load costs: bytes over bandwidth plus decoding, with figures that a machine can measure anew."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from zerolayer.errors import SettingError

RESIDENT_MS = 0.001
"""A block on the device is readable at once."""

_MB = 1e6


@dataclass(frozen=True, slots=True)
class CodecCost:
    """One codec: stored bytes per fp16 byte, seconds to decode an fp16 byte, relative error of keys and values."""

    ratio: float
    decode_s_per_byte: float
    error: float  # mean of keys' and values' relative error (L2)


CODEC_COSTS: Mapping[str, CodecCost] = {
    "K8V4": CodecCost(0.42, 8.3e-10, 0.042),
    "INT8": CodecCost(0.53, 7.3e-10, 0.0054),
    "BF16Z": CodecCost(0.69, 2.36e-9, 0.0017),
}
"""One CPU thread, normal random keys and values [30, 3, 64, 64], median of nine on an idle machine.

`measured` repeats it and takes the best, which a busy machine disturbs least."""


@dataclass(frozen=True, slots=True)
class TierCosts:
    """Sizes and speeds of a simulated session. Raises SettingError for a figure of zero or below."""

    token_bytes: int = 23_040  # fp16 keys and values of a token: 30 layers of 3 heads of 64
    host_bytes_per_s: float = 6e9
    disk_bytes_per_s: float = 1e9
    host_budget_bytes: float = 4 * 2**30
    disk_budget_bytes: float = 16 * 2**30
    codecs: Mapping[str, CodecCost] = field(default_factory=lambda: dict(CODEC_COSTS))

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not isinstance(value, Mapping) and not value > 0:
                raise SettingError(
                    f"{name} is {value}; it must be above 0, as `zerolayer doctor` measures it"
                )

    def device_mb(self, blocks: float, block_tokens: int) -> float:
        """Megabytes that `blocks` take on the device."""
        return blocks * block_tokens * self.token_bytes / _MB

    def stored_bytes(self, blocks: int, block_tokens: int, codec: str) -> float:
        """Bytes of `blocks` as `codec` stores them."""
        return blocks * block_tokens * self.token_bytes * self.codecs[codec].ratio

    def pressures(self, blocks: int, block_tokens: int, codec: str) -> tuple[float, float]:
        """Stored bytes over the host budget, and what does not fit there over the disk budget."""
        stored = self.stored_bytes(blocks, block_tokens, codec)
        spilled = max(0.0, stored - self.host_budget_bytes)
        return stored / self.host_budget_bytes, spilled / self.disk_budget_bytes

    def load_ms(self, blocks: int, block_tokens: int, codec: str) -> float:
        """Mean milliseconds to load one of the `blocks` of a document; what exceeds the host budget is on disk."""
        stored = self.stored_bytes(blocks, block_tokens, codec)
        on_disk = max(0.0, 1.0 - self.host_budget_bytes / stored)
        size = stored / blocks
        read = size * ((1.0 - on_disk) / self.host_bytes_per_s + on_disk / self.disk_bytes_per_s)
        return 1e3 * (read + block_tokens * self.token_bytes * self.codecs[codec].decode_s_per_byte)


def measured(costs: TierCosts | None = None, repeats: int = 9, seed: int = 0) -> TierCosts:
    """`costs` with this machine's codecs and memory copies, in about a second; disk and budgets stay."""
    from zerolayer.execution.codecs import BlockKV, get_codec

    base = costs or TierCosts()
    shape = (base.token_bytes // (2 * 2 * 3 * 64), 3, 64, 64)
    rng = np.random.default_rng(seed)
    block = BlockKV(
        rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape).astype(np.float32)
    )
    codecs = {}
    for name in base.codecs:
        codec, out = get_codec(name), BlockKV.empty(shape)
        data = codec.encode(block)
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            codec.decode(data, out)
            times.append(time.perf_counter() - started)
        errors = [
            float(np.linalg.norm(raw - read) / np.linalg.norm(raw))
            for raw, read in ((block.keys, out.keys), (block.values, out.values))
        ]
        codecs[name] = CodecCost(
            len(data) / block.fp16_bytes, min(times) / block.fp16_bytes, float(np.mean(errors))
        )
    source = np.frombuffer(rng.bytes(64 << 20), dtype=np.uint8)
    target = np.empty_like(source)
    copies = []
    for _ in range(repeats):
        started = time.perf_counter()
        np.copyto(target, source)
        copies.append(time.perf_counter() - started)
    return replace(base, codecs=codecs, host_bytes_per_s=source.nbytes / min(copies))
