"""`zerolayer doctor`: one line a capability: OK, FALLBACK (why) or MISSING (how to fix).

To add a check: write a function that returns a `Check` and put it in `CHECKS`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from zerolayer.cli.options import json_option
from zerolayer.cli.output import emit_json

_GIB = 1 << 30
_HOST_HEADROOM = 2 * _GIB  # bytes: the default model's fp32 weights, its activations and some blocks
_DISK_HEADROOM = 2 * _GIB  # bytes: the default model and the KV of a few contracts
_PIN_BYTES = 1 << 20  # a range worth locking: about one L2 cache


class Status(StrEnum):
    """How a capability stands."""

    OK = "OK"
    FALLBACK = "FALLBACK"
    MISSING = "MISSING"


@dataclass(frozen=True, slots=True)
class Check:
    """The result for one capability; `detail` is the reason of a fallback or the fix of something missing."""

    name: str
    status: Status
    detail: str
    needed: bool = True  # whether the embedded engine cannot run without it


def _package(name: str, import_name: str, extra: str = "", needed: bool = True) -> Check:
    """Whether a distribution can be imported, and its version."""
    try:
        importlib.import_module(import_name)
    except ImportError as error:
        fix = f"pip install 'zerolayer[{extra}]'" if extra else f"pip install {name}"
        return Check(name, Status.MISSING, f"{fix} ({error})", needed)
    return Check(name, Status.OK, importlib.metadata.version(name), needed)


def _python() -> Check:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Check("python", Status.OK, version)
    return Check("python", Status.MISSING, f"{version} is not supported; install Python 3.11, 3.12 or 3.13")


def _torch() -> Check:
    check = _package("torch", "torch", "hf")
    if check.status is not Status.OK:
        return check
    import torch

    return Check("torch", Status.OK, f"{torch.__version__}, {torch.get_num_threads()} threads")


def _transformers() -> Check:
    check = _package("transformers", "transformers", "hf")
    if check.status is not Status.OK:
        return check
    try:
        from transformers import AttentionInterface, AttentionMaskInterface  # noqa: F401
    except ImportError:
        detail = f"{check.detail} has no AttentionInterface; run: pip install 'transformers>=5.20'"
        return Check("transformers", Status.MISSING, detail)
    return Check("transformers", Status.OK, f"{check.detail}, AttentionInterface present")


def _device() -> Check:
    try:
        import torch
    except ImportError:
        return Check("device", Status.MISSING, "needs torch: pip install 'zerolayer[hf]'")
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return Check(
            "device", Status.OK, f"cuda: {properties.name}, {properties.total_memory / _GIB:.0f} GiB"
        )
    capability = torch.backends.cpu.get_cpu_capability()
    flags = _cpu_flags()
    bf16 = "bf16 in hardware" if flags & {"avx512_bf16", "amx_bf16", "bf16"} else "no bf16 in hardware"
    return Check("device", Status.FALLBACK, f"no CUDA device: cpu with {capability}, {bf16}")


def _cpu_flags() -> set[str]:
    """Instruction set flags of the first CPU; empty where the system has no /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return set()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def _model() -> Check:
    from zerolayer.engines.hf.models import list_models

    default = list_models()[0]
    if default.present:
        return Check("default model", Status.OK, f"{default.name} in {default.path}")
    detail = f"{default.name} is fetched at first use; to have it now run: zerolayer model add {default.name}"
    return Check("default model", Status.FALLBACK, detail)


def _encoder() -> Check:
    from zerolayer.engines.hf.catalogue import DEFAULT_ENCODER
    from zerolayer.engines.hf.models import encoder_path

    name, path = "sentence encoder", encoder_path()
    if path is not None:
        return Check(name, Status.OK, f"{path.name} in {path}", needed=False)
    detail = f"recall by words and attention only; to fetch it run: zerolayer model add {DEFAULT_ENCODER}"
    return Check(name, Status.FALLBACK, detail, needed=False)


def _codecs() -> Check:
    for name in ("lz4", "zstandard", "xxhash"):
        check = _package(name, name)
        if check.status is not Status.OK:
            return Check("codecs", Status.MISSING, check.detail)
    from zerolayer.execution.codecs import CODECS

    return Check("codecs", Status.OK, ", ".join(sorted(CODECS)))


def _pdf() -> Check:
    check = _package("pypdfium2", "pypdfium2")
    return Check("PDF reading", check.status, f"pypdfium2 {check.detail}")


def _chinese() -> Check:
    try:
        import rjieba
    except ImportError:
        return Check("Chinese segmentation", Status.MISSING, "pip install rjieba")
    words = rjieba.cut("合同期限为三年")
    return Check("Chinese segmentation", Status.OK, f"rjieba: {' '.join(words)}")


def _reportlab() -> Check:
    name = "contract generator"
    check = _package("reportlab", "reportlab", "demo", needed=False)
    if check.status is not Status.OK:
        return Check(name, Status.MISSING, f"only the demo needs it: {check.detail}", needed=False)
    return Check(name, Status.OK, f"reportlab {check.detail}", needed=False)


def _store() -> Check:
    from zerolayer.config import cache_dir

    directory = cache_dir()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        detail = f"{directory} is not writable ({error.strerror}); choose another directory with --home"
        return Check("store directory", Status.MISSING, detail)
    free = shutil.disk_usage(directory).free
    detail = f"{directory}, {free / _GIB:.1f} GiB free"
    if free < _DISK_HEADROOM:
        return Check("store directory", Status.FALLBACK, f"{detail}: the oldest sessions will go early")
    return Check("store directory", Status.OK, detail)


def _host_memory() -> Check:
    from zerolayer.execution.tiers.host import available_memory

    available = available_memory()
    if available is None:
        return Check("host memory", Status.FALLBACK, "unknown, since psutil is not installed", needed=False)
    detail = f"{available / _GIB:.1f} GiB available"
    if available < _HOST_HEADROOM:
        return Check("host memory", Status.FALLBACK, f"{detail}, 2 GiB advised; lower --host-budget")
    return Check("host memory", Status.OK, detail)


def _mlock() -> Check:
    name = "PIN_L2 (mlock)"
    if sys.platform == "win32":
        return Check(
            name, Status.FALLBACK, "no mlock on Windows: pages are touched, not locked", needed=False
        )
    import resource

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return Check(name, Status.OK, "unlimited", needed=False)
    if limit >= _PIN_BYTES:
        return Check(name, Status.OK, f"up to {limit / (1 << 20):.0f} MiB", needed=False)
    detail = f"limit is {limit} bytes: pages are touched, not locked; raise it with: ulimit -l unlimited"
    return Check(name, Status.FALLBACK, detail, needed=False)


CHECKS: tuple[Callable[[], Check], ...] = (
    _python,
    _torch,
    _transformers,
    _device,
    _model,
    _encoder,
    _codecs,
    _pdf,
    _chinese,
    _reportlab,
    _store,
    _host_memory,
    _mlock,
)


@click.command()
@click.option("--measure", is_flag=True, help="Measure codecs and bandwidths, and keep them for simulations.")
@json_option
def doctor(measure: bool, as_json: bool) -> int:
    """Say what works on this machine: OK, FALLBACK (why) or MISSING (how to fix).

    Exit code 1 when something that is needed is missing. With --measure (seconds) the bandwidths from disk to host
    and from host to the device, and how fast codecs decode, are written to the store directory; `policy train` and
    `policy eval --documents` read them.
    """
    checks = [check() for check in CHECKS]
    ok = not any(check.needed and check.status is Status.MISSING for check in checks)
    figures = _measure() if measure and ok else None
    if as_json:
        emit_json({"ok": ok, "checks": checks} | ({"measured": figures} if figures else {}))
    else:
        for check in checks:
            click.echo(f"{check.status:<8}  {check.name:<20}  {check.detail}")
        for name, figure in (figures or {}).items():
            click.echo(f"MEASURED  {name:<20}  {figure}")
    return 0 if ok else 1


def _measure() -> dict[str, Any]:
    """Figures by name, as they were written."""
    from zerolayer.config import cache_dir
    from zerolayer.learning.machine import measure, write_costs

    costs = measure(cache_dir())
    decoding = {
        f"{name}_decode_bytes_per_s": round(1.0 / codec.decode_s_per_byte)
        for name, codec in costs.codecs.items()
    }
    return {
        "host_to_device_bytes_per_s": round(costs.host_bytes_per_s),
        "disk_to_host_bytes_per_s": round(costs.disk_bytes_per_s),
        **decoding,
        "file": str(write_costs(costs)),
    }
