"""What a session lets other processes see of itself: its heat map and last turn, in one small file a turn.

`zerolayer top` and `zerolayer heatmap` read it while the session runs and after it has ended. The file is whole or
absent, and one that is damaged or of another version counts as absent: it describes, nothing depends on it.
"""

from __future__ import annotations

import io
import json
import logging
import time
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zerolayer.core import Block, IntArray, TurnMetrics
from zerolayer.errors import SettingError, StoreError
from zerolayer.execution.tiers.files import write_atomic
from zerolayer.perception.heatmap import HeatMap

if TYPE_CHECKING:
    from zerolayer.scheduler import Scheduler

SNAPSHOT_NAME = "heatmap.npz"
SNAPSHOT_VERSION = 1

_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    NotImplementedError,  # a compression method that no zip reader knows
    RuntimeError,  # an encrypted member
    SyntaxError,
    tokenize.TokenError,  # numpy reads a header that is no literal as one of Python 2, token by token
    zipfile.BadZipFile,
    zlib.error,
    SettingError,
)
"""What reading a file of arbitrary bytes as an archive of arrays may raise."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session as it was at the end of its last turn."""

    heat: HeatMap
    occupant: IntArray  # [slots] block, negative where free
    pages: IntArray  # [blocks, 2] first and last page of each document block, 0 where it has none
    metrics: TurnMetrics
    model: str
    written: float  # seconds since the epoch

    def pages_of(self, blocks: tuple[int, ...]) -> list[int]:
        """Pages that these blocks lie on, rising; none for blocks of the conversation."""
        known = [block for block in blocks if block < len(self.pages)]
        spans = {(int(first), int(last)) for first, last in self.pages[known]}
        return sorted({page for first, last in spans for page in range(first, last + 1) if page > 0})


def save_snapshot(path: Path, scheduler: Scheduler, blocks: Sequence[Block], metrics: TurnMetrics) -> None:
    """Write what a scheduler's last turn left. A failure of the disk costs the snapshot, never the turn.

    `blocks` are those of the documents.
    """
    pages = np.asarray([(block.page_first, block.page_last) for block in blocks], dtype=np.int64)
    snapshot = Snapshot(
        scheduler.heat, scheduler.arena.occupant, pages, metrics, scheduler.engine.name, time.time()
    )
    try:
        write_snapshot(path, snapshot)
    except StoreError as error:
        _log.warning("the heat map was not saved: %s", error)


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Replace the file atomically. Raises StoreError."""
    about = {
        "version": SNAPSHOT_VERSION,
        "metrics": asdict(snapshot.metrics),
        "model": snapshot.model,
        "written": snapshot.written,
    }
    arrays: dict[str, Any] = {f"heat.{name}": array for name, array in snapshot.heat.state().items()}
    arrays["about"] = np.asarray(json.dumps(about))
    arrays["occupant"], arrays["pages"] = snapshot.occupant, snapshot.pages
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomic(path, [buffer.getvalue()])


def read_snapshot(path: Path) -> Snapshot | None:
    """The snapshot, None when there is none, or none that this version can read."""
    try:
        # From memory: np.load does not close a file that turns out to be damaged.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        about = json.loads(str(arrays["about"]))
        if about["version"] != SNAPSHOT_VERSION:
            _log.info("%s has version %r, this zerolayer reads %d", path, about["version"], SNAPSHOT_VERSION)
            return None
        heat = HeatMap.from_state({k[5:]: v for k, v in arrays.items() if k.startswith("heat.")})
        occupant, pages = arrays["occupant"], arrays["pages"]
        if occupant.shape != (heat.slots,) or pages.shape[1:] != (2,):
            raise ValueError("arrays of another shape")
        known = {field.name for field in fields(TurnMetrics)}
        metrics = TurnMetrics(**{k: v for k, v in about["metrics"].items() if k in known})
        return Snapshot(heat, occupant, pages, metrics, str(about["model"]), float(about["written"]))
    except FileNotFoundError:
        return None
    except _DAMAGE as error:
        _log.warning("%s is damaged (%s); it is written anew at the session's next turn", path, error)
        return None
