"""`zerolayer bench isa`: instructions, verified and executed, against plain frees and copies."""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from zerolayer.bench import common
from zerolayer.bench.common import seed_option, threads_option
from zerolayer.cli.options import json_option
from zerolayer.core import BLOCK_TOKENS, BlockTable
from zerolayer.execution.arena import Arena, KVGeometry
from zerolayer.execution.codecs import BlockKV, get_codec
from zerolayer.execution.executor import Executor
from zerolayer.execution.isa import CompressP2, EvictP3, MoveP0, PinL2, Program, Unpin

if TYPE_CHECKING:
    import torch

EVICT_SPEEDUP, MOVE_RATIO = 17.0, 0.8
DEFAULT_GEOMETRY = KVGeometry(layers=30, kv_heads=3, head_dim=64)
"""SmolLM2-135M in float32: 2.95 MB a block of 64 tokens."""

_CODECS = ("RAW", "INT8", "K8V4", "LZ4", "ZSTD", "BF16Z")
_M_MMAP_THRESHOLD = -3  # malloc.h


class _NoComputer:
    """The programs of this bench never have to compute anything."""

    def recompute(self, block: int) -> tuple[torch.Tensor, torch.Tensor]:
        raise AssertionError(f"block {block} was not stored")

    def knit(self, slots: Sequence[int]) -> None:
        raise AssertionError(f"no knit of {len(slots)} slots was asked for")

    def summarise(self, block: int, keys: np.ndarray) -> bytes:
        return b""


@contextmanager
def _executor(geometry: KVGeometry, slots: int, blocks: int, host_bytes: int) -> Iterator[Executor]:
    import torch

    from zerolayer.execution.rotary import RotaryTable
    from zerolayer.execution.tiers import DiskTier, HostTier, TierHierarchy

    half = geometry.head_dim // 2
    angles = torch.arange(4096)[:, None] * 1e4 ** (-torch.arange(half) / half)
    arena = Arena(geometry, slots, BLOCK_TOKENS, RotaryTable(angles.cos(), angles.sin()))
    ids = [f"{block:032x}" for block in range(blocks)]
    with tempfile.TemporaryDirectory() as folder:
        disk = DiskTier(Path(folder), 1 << 30)
        tiers = TierHierarchy(HostTier(host_bytes), disk, lambda _: None)
        yield Executor(arena, tiers, ids, "RAW", _NoComputer())
        disk.close()


def evict(geometry: KVGeometry, blocks: int, repetitions: int) -> dict[str, float]:
    """Nanoseconds a block of EVICT_P3 (one instruction each, verified) and of freeing a tensor of its size.

    The tensors are touched before. Freed memory goes back to the system, as with cudaFree: the C library is told
    to map large blocks one by one.
    """
    table = BlockTable.create([BLOCK_TOKENS] * blocks, blocks)
    with _executor(geometry, blocks, blocks, 1) as executor:
        width = executor.arena.slot_bytes
        program = Program(tuple(EvictP3(executor.space.device(slot), width) for slot in range(blocks)))
        evicted = []
        for _ in range(max(5, repetitions)):
            executor.arena.occupant[:] = np.arange(blocks)
            started = time.perf_counter_ns()
            executor.run(program, table)
            evicted.append((time.perf_counter_ns() - started) / blocks)
    mapped = _map_large_blocks(min(width, 1 << 20))
    freed = [_free_tensors(width, blocks) for _ in range(repetitions)]
    ours, plain = common.middle(evicted), common.middle(freed)
    return {
        "evict_ns": ours,
        "free_ns": plain,
        "evict_speedup": plain / ours,
        "blocks": blocks,
        "block_bytes": width,
        "returned_to_system": float(mapped),
    }


def _free_tensors(nbytes: int, count: int) -> float:
    """Nanoseconds a tensor of freeing `count` tensors whose every page was written."""
    import torch

    tensors = [torch.empty(nbytes, dtype=torch.uint8).fill_(1) for _ in range(count)]
    started = time.perf_counter_ns()
    while tensors:
        tensors.pop()
    return (time.perf_counter_ns() - started) / count


def _map_large_blocks(threshold: int) -> bool:
    """Have glibc map blocks from `threshold` bytes one by one and give them back when freed; False elsewhere."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    done = bool(libc.mallopt(_M_MMAP_THRESHOLD, threshold))
    libc.malloc_trim(0)
    return done


def move(geometry: KVGeometry, slots: int, repetitions: int, seed: int) -> dict[str, Any]:
    """Bandwidth of MOVE_P0 in parts, bytes of the arena a second, beside a plain copy of as many bytes.

    `move`: a RAW block in host memory into a slot, keys rotated. `program`: the whole instruction, with verifier,
    checksum and decoding. Sources and slots change with every run, so that none of them stays in cache.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    shape = (2, geometry.layers, geometry.kv_heads, BLOCK_TOKENS, geometry.head_dim)
    sources = [torch.randn(shape, generator=generator) for _ in range(slots)]
    codecs = ("RAW", "INT8", "K8V4")
    result: dict[str, Any] = {}
    host_bytes = 4 * slots * sources[0].numel() * 4
    with _executor(geometry, slots, slots * len(codecs), host_bytes) as executor:
        arena, width = executor.arena, executor.arena.slot_bytes
        for slot in range(slots):  # touch every page first
            arena.slot_view(slot).fill_(0)
        table = BlockTable.create([BLOCK_TOKENS] * len(executor.ids), slots)
        for number, name in enumerate(codecs):
            for block, source in enumerate(sources):
                _store(executor, number * slots + block, source, name)
        seconds: dict[str, list[float]] = {"copy": [], "move": [], **{name: [] for name in codecs}}
        positions = dict.fromkeys(range(len(executor.ids)), 640)
        for run in range(repetitions):
            slot = run % slots
            # Neither finds its source or its slot in cache because the other has just used it.
            _copy(arena, slot, sources[run * 7 % slots], seconds["copy"])
            _place(arena, slots - 1 - slot, sources[(run * 7 + slots // 2) % slots], seconds["move"])
            for number, name in enumerate(codecs):
                block = number * slots + (run * 7) % slots
                program = Program((MoveP0(executor.space.host(block), executor.space.device(slot), width),))
                with _timed(seconds[name]):
                    executor.run(program, table, positions)
                arena.free(slot)
    medians = {name: common.middle(values) for name, values in seconds.items()}
    result["move_bandwidth_ratio"] = medians["copy"] / medians["move"]
    result["copy_bytes_per_s"] = width / medians["copy"]
    result["move_bytes_per_s"] = width / medians["move"]
    result["program_bytes_per_s"] = {name: width / medians[name] for name in codecs}
    result["program_bandwidth_ratio"] = {name: medians["copy"] / medians[name] for name in codecs}
    return result


def _copy(arena: Arena, slot: int, source: torch.Tensor, seconds: list[float]) -> None:
    with _timed(seconds):
        arena.slot_view(slot).copy_(source)


def _place(arena: Arena, slot: int, source: torch.Tensor, seconds: list[float]) -> None:
    with _timed(seconds):
        arena.place(slot, 0, 640, source)
    arena.free(slot)


def _store(executor: Executor, block: int, source: torch.Tensor, codec: str) -> None:
    from zerolayer.execution.tiers import BlockRecord

    payload = get_codec(codec).encode(BlockKV(source[0].numpy(), source[1].numpy()))
    executor.tiers.host.put(executor.ids[block], BlockRecord(payload, b"", codec))


@contextmanager
def _timed(into: list[float]) -> Iterator[None]:
    started = time.perf_counter()
    yield
    into.append(time.perf_counter() - started)


def compress(kv: BlockKV) -> dict[str, float]:
    """Saving of each codec on a block, against 16-bit floats: 0.6 means that 60 % is saved."""
    return {name: 1 - len(get_codec(name).encode(kv)) / kv.fp16_bytes for name in _CODECS}


def real_block(model: str) -> BlockKV:
    """A block of a real model's keys (without rotation) and values, over the synthetic contract's text."""
    from zerolayer.bench.exactness import texts
    from zerolayer.engines.hf.conversion import quiet_transformers
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.engines.hf.models import resolve_model

    with quiet_transformers():
        engine = HFEngine.load(resolve_model(model), "cpu", model)
    ids = engine.tokenizer(texts()["contract"]).input_ids
    keys, values = engine.compute_block(ids[: 4 * BLOCK_TOKENS], ids[4 * BLOCK_TOKENS : 5 * BLOCK_TOKENS])
    return BlockKV(keys.float().contiguous().numpy(), values.float().contiguous().numpy())


def program_costs(geometry: KVGeometry, slots: int) -> dict[str, Any]:
    """Nanoseconds of COMPRESS_P2 (K8V4), PIN_L2 and UNPIN of one block, and what PIN_L2 said."""
    table = BlockTable.create([BLOCK_TOKENS] * slots, slots)
    with _executor(geometry, slots, slots, slots * DEFAULT_GEOMETRY.token_bytes * BLOCK_TOKENS) as executor:
        executor.arena.occupant[:] = np.arange(slots)
        width = executor.arena.slot_bytes
        lines: dict[str, list[Any]] = {"COMPRESS_P2": [], "PIN_L2": [], "UNPIN": []}
        for slot in range(min(8, slots)):
            address = executor.space.device(slot)
            for instruction in (
                CompressP2(address, width, "K8V4"),
                PinL2(address, width),
                Unpin(address, width),
            ):
                (outcome,) = executor.run(Program((instruction,)), table)
                name = {CompressP2: "COMPRESS_P2", PinL2: "PIN_L2", Unpin: "UNPIN"}[type(instruction)]
                lines[name].append(outcome)
    return {
        name: {
            "ns": common.middle([float(outcome.nanoseconds) for outcome in outcomes]),
            "status": str(outcomes[-1].status),
            "reason": outcomes[-1].reason,
        }
        for name, outcomes in lines.items()
    }


@click.command()
@click.option("--model", default="smollm2", show_default=True, help="Model whose block is compressed.")
@seed_option
@threads_option
@click.option("--blocks", default=1000, show_default=True, help="Blocks evicted; as many tensors are freed.")
@click.option("--repetitions", default=96, show_default=True, help="Moves of each kind, interleaved.")
@json_option
def command(model: str, seed: int, threads: int | None, blocks: int, repetitions: int, as_json: bool) -> int:
    """Compare EVICT_P3 with freeing tensors, MOVE_P0 with a plain copy, and show what the codecs save.

    Exits with 3 when the eviction is less than 17 times faster or the move below 0.8 of a copy's bandwidth.
    """
    import torch

    if threads:
        torch.set_num_threads(threads)
    state = common.conditions(model, seed)
    moves = move(DEFAULT_GEOMETRY, 48, repetitions, seed)
    costs = program_costs(DEFAULT_GEOMETRY, 16)
    saved = compress(real_block(model))
    evictions = evict(DEFAULT_GEOMETRY, blocks, 3)
    passed = evictions["evict_speedup"] >= EVICT_SPEEDUP and moves["move_bandwidth_ratio"] >= MOVE_RATIO
    result = {
        "bench": "isa",
        "baseline": "free() of touched tensors; Tensor.copy_ of the same bytes into the same slots",
        "threshold": f"evict_speedup >= {EVICT_SPEEDUP:g} and move_bandwidth_ratio >= {MOVE_RATIO:g}",
        "passed": passed,
        **evictions,
        **moves,
        "compress_saved": saved,
        "instructions": costs,
        **state,
    }
    rows: list[tuple[object, ...]] = [
        ("EVICT_P3, ns a block", evictions["evict_ns"], evictions["free_ns"], evictions["evict_speedup"]),
        (
            "MOVE_P0, GB/s",
            moves["move_bytes_per_s"] / 1e9,
            moves["copy_bytes_per_s"] / 1e9,
            moves["move_bandwidth_ratio"],
        ),
    ]
    for name, ratio in moves["program_bandwidth_ratio"].items():
        rate = moves["program_bytes_per_s"][name] / 1e9
        rows.append((f"MOVE_P0 program from {name}, GB/s", rate, moves["copy_bytes_per_s"] / 1e9, ratio))
    rows += [(f"COMPRESS_P2 {name}, share saved", share, None, None) for name, share in saved.items()]
    rows += [(f"{name}, ns", cost["ns"], None, None) for name, cost in costs.items()]
    return common.report(
        result, as_json, "Instructions", ("instruction", "zerolayer", "free or copy", "ratio"), rows
    )
