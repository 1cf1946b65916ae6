"""Pinning a numpy buffer on this machine, with and without the permission to lock."""

from __future__ import annotations

import mmap
import resource
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from zerolayer.execution.isa import OutcomeStatus
from zerolayer.execution.pinning import locked_bytes, pin_range, unpin_range

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mlock is tested on Linux")
PAGE = mmap.PAGESIZE


@pytest.fixture
def buffer() -> Iterator[np.ndarray]:
    # Pages of its own: the heap hands out again what an earlier test had locked. It begins within a page, as arrays do.
    data = np.frombuffer(mmap.mmap(-1, 18 * PAGE), dtype=np.uint8)[64:][: 16 * PAGE]
    data[:] = np.arange(16 * PAGE, dtype=np.uint8)
    yield data
    unpin_range(data.ctypes.data, data.nbytes)


@pytest.fixture
def memlock() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    yield
    resource.setrlimit(resource.RLIMIT_MEMLOCK, limits)


def test_a_pinned_buffer_is_locked_until_it_is_unpinned(buffer: np.ndarray) -> None:
    before, content = locked_bytes(), buffer.copy()
    outcome = pin_range(buffer.ctypes.data, buffer.nbytes)
    if outcome.status is OutcomeStatus.DEFERRED:
        pytest.skip(f"this machine does not let us lock: {outcome.reason}")
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.locked_bytes == outcome.touched_bytes == locked_bytes() - before
    assert buffer.nbytes <= outcome.locked_bytes <= buffer.nbytes + 2 * PAGE
    assert outcome.locked_bytes % PAGE == 0
    assert unpin_range(buffer.ctypes.data, buffer.nbytes).status is OutcomeStatus.DONE
    assert locked_bytes() == before
    assert np.array_equal(buffer, content)


def test_beyond_the_limit_pages_are_touched_and_the_reason_is_given(
    buffer: np.ndarray, memlock: None
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (PAGE, hard))
    before = locked_bytes()
    outcome = pin_range(buffer.ctypes.data, buffer.nbytes)
    assert outcome.status is OutcomeStatus.DEFERRED
    assert f"RLIMIT_MEMLOCK of {PAGE}" in outcome.reason
    assert "ulimit -l" in outcome.reason
    assert outcome.locked_bytes == 0
    assert outcome.touched_bytes >= buffer.nbytes
    assert locked_bytes() == before


def test_touching_brings_pages_in(memlock: None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, hard))
    with mmap.mmap(-1, 64 * PAGE) as pages:
        view = np.frombuffer(pages, dtype=np.uint8)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        outcome = pin_range(view.ctypes.data, view.nbytes)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        assert outcome.status is OutcomeStatus.DEFERRED
        assert after > faults
        del view


def test_memory_that_is_not_mapped_is_refused_and_kills_nobody() -> None:
    pages = mmap.mmap(-1, 4 * PAGE)
    address = np.frombuffer(pages, dtype=np.uint8).ctypes.data
    pages.close()
    for outcome in (pin_range(address, 4 * PAGE), unpin_range(address, 4 * PAGE), pin_range(PAGE, PAGE)):
        assert outcome.status is OutcomeStatus.REFUSED
        assert "not mapped" in outcome.reason
        assert "live buffer" in outcome.reason


@pytest.mark.parametrize(
    ("address", "size"),
    [(0, PAGE), (-PAGE, PAGE), (PAGE, 0), (PAGE, -1), (2**70, 1), (1, 2**63), (PAGE, 2**60)],
)
def test_numbers_that_are_no_range_are_refused(address: int, size: int) -> None:
    assert pin_range(address, size).status is OutcomeStatus.REFUSED
    assert unpin_range(address, size).status is OutcomeStatus.REFUSED
