"""Keep a range of memory from being paged out: what `PIN_L2` does on CPU.

`mlock(2)` locks whole pages and faults them in; `RLIMIT_MEMLOCK` bounds what a process may lock. If locking
is not allowed, the pages are only touched, so that the next access does not fault, and the outcome says why.
Locks do not nest: unlocking a range unlocks every page that it shares with a neighbour.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from zerolayer.execution.isa import OutcomeStatus


@dataclass(frozen=True, slots=True)
class PinOutcome:
    """What became of a pin or unpin: done; deferred (touched, not locked) or refused, with the reason."""

    status: OutcomeStatus
    reason: str = ""
    locked_bytes: int = 0  # whole pages
    touched_bytes: int = 0  # whole pages


def pin_range(address: int, size: int) -> PinOutcome:
    """Lock and touch the pages of `size` bytes at virtual `address` of this process. Never raises.

    Deferred: touched, but not locked (privilege, limit), or not even touched (platform). Refused: not mapped.
    """
    problem = _problem(address, size)
    if problem:
        return problem
    start, length = _pages(address, size)
    reason = _over_limit(length)
    if not reason:
        if _libc().mlock(ctypes.c_void_p(start), ctypes.c_size_t(length)) == 0:
            return PinOutcome(OutcomeStatus.DONE, locked_bytes=length, touched_bytes=length)
        reason = f"mlock of {length} bytes failed: {os.strerror(ctypes.get_errno())}"
    _touch(start, length)
    return PinOutcome(OutcomeStatus.DEFERRED, f"{reason}; the pages are touched only", touched_bytes=length)


def unpin_range(address: int, size: int) -> PinOutcome:
    """Unlock the pages of `size` bytes at `address`; not being locked is fine too. Never raises."""
    problem = _problem(address, size)
    if problem:
        return problem
    start, length = _pages(address, size)
    if _libc().munlock(ctypes.c_void_p(start), ctypes.c_size_t(length)) == 0:
        return PinOutcome(OutcomeStatus.DONE)
    return PinOutcome(
        OutcomeStatus.DEFERRED, f"munlock of {length} bytes failed: {os.strerror(ctypes.get_errno())}"
    )


def locked_bytes() -> int:
    """Bytes that this process has locked, from /proc; 0 where the kernel does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmLck:"):
            return int(line.split()[1]) * 1024
    return 0


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _pages(address: int, size: int) -> tuple[int, int]:
    """First byte and length of the whole pages around a range."""
    start = address - address % mmap.PAGESIZE
    end = address + size
    return start, end + -end % mmap.PAGESIZE - start


def _problem(address: int, size: int) -> PinOutcome | None:
    """Why nothing can be done with the range, or None. Touching an unmapped page would kill the process."""
    if sys.platform != "linux":
        reason = f"pinning needs Linux, this is {sys.platform}; the range stays as it is"
        return PinOutcome(OutcomeStatus.DEFERRED, reason)
    if size <= 0 or not 0 < address <= sys.maxsize - size - mmap.PAGESIZE:
        reason = (
            f"range {hex(address)} + {size} is no memory range; give the address and size of a live buffer"
        )
        return PinOutcome(OutcomeStatus.REFUSED, reason)
    start, length = _pages(address, size)
    code = _examine(start, length)
    if code:
        why = "is not mapped" if code == errno.ENOMEM else f"cannot be examined: {os.strerror(code)}"
        reason = f"range {hex(address)} + {size} {why}; give the address and size of a live buffer"
        return PinOutcome(OutcomeStatus.REFUSED, reason)
    return None


def _examine(start: int, length: int) -> int:
    """0 when every page is mapped, else the error number of mincore(2)."""
    step = 16384 * mmap.PAGESIZE  # a byte of answer a page: a nonsense length must not allocate gigabytes
    answer = (ctypes.c_ubyte * 16384)()
    for offset in range(0, length, step):
        part = min(step, length - offset)
        if _libc().mincore(ctypes.c_void_p(start + offset), ctypes.c_size_t(part), answer) != 0:
            return ctypes.get_errno()
    return 0


def _over_limit(length: int) -> str:
    """Why RLIMIT_MEMLOCK forbids `length` more locked bytes, or "". It binds a privileged process too."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    used = 0 if soft == resource.RLIM_INFINITY else locked_bytes()
    if soft == resource.RLIM_INFINITY or used + length <= soft:
        return ""
    return (
        f"locking {length} bytes beside the {used} already locked exceeds RLIMIT_MEMLOCK of {soft}; "
        "raise it with `ulimit -l` or LimitMEMLOCK="
    )


def _touch(start: int, length: int) -> None:
    """Read a byte of every page. A read cannot change what the pages hold."""
    pages = (ctypes.c_ubyte * length).from_address(start)
    memoryview(pages)[:: mmap.PAGESIZE].tobytes()
