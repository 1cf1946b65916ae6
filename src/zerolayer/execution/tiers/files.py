"""Files that are whole or absent, whatever kills the process, and locks that vanish with it (POSIX)."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from zerolayer.errors import StoreError, StoreFullError

TEMPORARY = ".tmp"

_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_serial = itertools.count()


def storage_error(error: OSError, path: Path) -> StoreError:
    """StoreFullError when the device is out of space, StoreError for any other failure of the system."""
    if error.errno in _SPACE:
        return StoreFullError(
            f"no space left while writing {path} ({error.strerror}); free disk space, "
            "delete sessions that are no longer needed, or point ZEROLAYER_HOME at a larger disk"
        )
    return StoreError(f"cannot access {path} ({error}); check that the directory exists and is writable")


def write_atomic(path: Path, parts: Sequence[bytes], *, durable: bool = False) -> None:
    """Writes a file so that `path` holds either its old content or all of `parts`.

    With `durable` the file and its directory are synced. Raises StoreFullError or StoreError; nothing of the
    new file is left then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{next(_serial)}{TEMPORARY}")
    try:
        descriptor = _create_locked(temporary)
        try:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            if durable:
                os.fsync(descriptor)
            temporary.replace(path)
        finally:
            os.close(descriptor)
        if durable:
            sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise storage_error(error, path) from error


def _create_locked(path: Path) -> int:
    """A descriptor of a new file, locked: the lock tells sweep() that its writer is alive."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # swept between its creation and its lock


def sweep(path: Path) -> None:
    """Removes a temporary file unless its writer lives. Process ids would not do: containers reuse them."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            return
        finally:
            os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Waits for the lock file `path` and holds it; not reentrant. The kernel frees it with the process."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def share(path: Path) -> int:
    """A descriptor that holds `path` as one of several users until closed; notes our process id in it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def user_of(path: Path) -> str | None:
    """Process id, as noted, of a live user of the lock file `path`; None when nobody uses it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 32, 0).decode("ascii", "replace") or "unknown"
    finally:
        os.close(descriptor)
    return None
