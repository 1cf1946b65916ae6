"""How a model gets into the cache: built aside under a lock, then renamed into place.

Everything fetched or converted lies in `cache_dir()/models/<name>`, put there by one rename of a finished
directory, so a model is there whole or not at all. A file lock lets two processes build once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zerolayer.config import cache_dir
from zerolayer.errors import ModelError


def models_dir() -> Path:
    """The directory that holds fetched and added models."""
    return cache_dir() / "models"


def install(name: str, build: Callable[[Path, Path], None]) -> Path:
    """Run `build(scratch, target)` under the name's lock and rename the directory it made into place.

    `scratch` is an empty directory that goes afterwards. What `build` raises leaves nothing behind.
    """
    final = models_dir() / name
    if final.is_dir():
        return final
    with _locked(name):
        if final.is_dir():  # another process was faster
            return final
        scratch = models_dir() / f".building-{name}"
        shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process: the lock says nobody is at it
        scratch.mkdir()
        try:
            made = scratch / "model"
            build(scratch, made)
            made.rename(final)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return final


@contextmanager
def _locked(name: str) -> Iterator[None]:
    from filelock import FileLock

    models_dir().mkdir(parents=True, exist_ok=True)
    with FileLock(models_dir() / f".{name}.lock"):
        yield


def check_free_space(name: str, needed: int) -> None:
    """Raise ModelError unless `needed` bytes are free where models lie."""
    free = shutil.disk_usage(models_dir()).free
    if free < needed:
        raise ModelError(
            f"model {name!r} needs {needed / 1e9:.1f} GB of free disk, "
            f"{models_dir()} has {free / 1e9:.1f} GB; free some, or choose another directory with --home"
        )
