"""This machine's bandwidths: measured once (`zerolayer doctor --measure`), read by every simulation after that."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from zerolayer.config import cache_dir
from zerolayer.errors import SettingError
from zerolayer.learning.costs import CodecCost, TierCosts, measured

VERSION = 1

_BYTES = 32 << 20
_CHUNK = 1 << 20  # about a block of the default model as K8V4 stores it
_REPEATS = 3


def machine_file() -> Path:
    """Where the figures are kept."""
    return cache_dir() / "machine.json"


def measure(directory: Path, repeats: int = _REPEATS, seed: int = 0) -> TierCosts:
    """Codecs, host to device, and disk to host (of `directory`), in some seconds. Raises OSError for no room there.

    The best of `repeats`, which a busy machine disturbs least. Where there is no CUDA device the device is host
    memory, and host to device a copy within it. A disk is read past the system's cache where the system can be asked
    to forget a file (`posix_fadvise`).
    """
    base = measured(repeats=repeats, seed=seed)
    data = np.random.default_rng(seed).bytes(_BYTES)
    disk = _disk_bytes_per_s(directory, data, repeats)
    device = _device_bytes_per_s(data, repeats)
    return replace(base, disk_bytes_per_s=disk, host_bytes_per_s=device or base.host_bytes_per_s)


def _disk_bytes_per_s(directory: Path, data: bytes, repeats: int) -> float:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())

        def read() -> None:
            file.seek(0)
            while file.read(_CHUNK):
                pass

        def forget() -> None:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        return len(data) / _best_s(read, repeats, forget)


def _device_bytes_per_s(data: bytes, repeats: int) -> float | None:
    """Bandwidth of copies from page-locked memory to the first CUDA device; None without one."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    source = torch.frombuffer(bytearray(data), dtype=torch.uint8).pin_memory()
    target = torch.empty_like(source, device="cuda")

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()

    return len(data) / _best_s(copy, repeats)


def _best_s(work: Callable[[], None], repeats: int, before: Callable[[], None] | None = None) -> float:
    times = []
    for _ in range(repeats):
        if before is not None:
            before()
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def write_costs(costs: TierCosts, path: Path | None = None) -> Path:
    """Keep the figures; the file appears whole or not at all."""
    path = path or machine_file()
    record = {"version": VERSION, "machine": platform.platform(), "time_s": time.time(), **asdict(costs)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def machine_costs(path: Path | None = None) -> TierCosts:
    """The measured figures, the documented ones where nothing was measured. Raises SettingError for a damaged file."""
    path = path or machine_file()
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if record["version"] != VERSION:
            raise ValueError(f"version {record['version']}")
        codecs = {name: CodecCost(**figures) for name, figures in record["codecs"].items()}
        figures = {
            name: float(record[name])
            for name in ("host_bytes_per_s", "disk_bytes_per_s", "host_budget_bytes", "disk_budget_bytes")
        }
        return TierCosts(token_bytes=int(record["token_bytes"]), codecs=codecs, **figures)
    except FileNotFoundError:
        return TierCosts()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingError(
            f"{path} cannot be read ({error!r}); run `zerolayer doctor --measure` again or delete it"
        ) from error
