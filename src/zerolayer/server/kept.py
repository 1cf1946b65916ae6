"""What of a conversation survives the process: its turns by hash, their tokens, and the blocks that hold them.

One small file a conversation, beside the blocks of its documents, written whole after every turn. A file that is
damaged counts as absent: the turns are computed again then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zerolayer.errors import StoreError
from zerolayer.execution.tiers.files import write_atomic
from zerolayer.runtime.working_set import knit_id

FOLDER = "conversations"
VERSION = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """The kept turns of one conversation. `ends` are the tokens up to each turn's end."""

    id: str
    title: str = ""
    tenant: str = ""
    turns: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    block_ids: tuple[str, ...] = ()
    last_used: float = 0.0  # seconds since the epoch

    def shared_turns(self, turns: Sequence[str]) -> int:
        """How many of these turns it begins with."""
        return shared_prefix(self.turns, turns)

    def first_turns(self, count: int, block_tokens: int) -> KeptConversation:
        """Its first turns alone, with the blocks that hold nothing else."""
        tokens = self.ends[count - 1] if count else 0
        blocks = min(tokens // block_tokens, len(self.block_ids))
        return replace(
            self,
            turns=self.turns[:count],
            ends=self.ends[:count],
            token_ids=self.token_ids[:tokens],
            block_ids=self.block_ids[:blocks],
        )


def shared_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    """How many leading items two sequences have in common."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def save_kept(directory: Path, kept: KeptConversation) -> None:
    """Write a conversation beside its documents. A full disk costs the note, never the turn."""
    path = directory / FOLDER / f"{kept.id}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, [json.dumps({"version": VERSION, **asdict(kept)}).encode()])
    except (StoreError, OSError) as error:
        _log.warning("conversation %s was not noted: %s", kept.id, error)


def delete_kept(directory: Path, conversation: str) -> None:
    """Forget a conversation's note."""
    (directory / FOLDER / f"{conversation}.json").unlink(missing_ok=True)


def read_kept(directory: Path) -> list[KeptConversation]:
    """All conversations beside these documents that can be read, the latest used first."""
    found = []
    for path in sorted((directory / FOLDER).glob("*.json")) if (directory / FOLDER).is_dir() else ():
        try:
            data = json.loads(path.read_bytes())
            if data.pop("version") != VERSION:
                continue
            values: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
            }
            kept = KeptConversation(**values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("%s is damaged (%s): its turns are computed again", path, error)
            continue
        if len(kept.turns) == len(kept.ends) and kept.id == path.stem:
            found.append(kept)
    return sorted(found, key=lambda kept: -kept.last_used)


def referenced(kept: Iterable[KeptConversation]) -> set[str]:
    """Ids of all blocks that these conversations hold, as they were computed and as knit."""
    ids = {block_id for one in kept for block_id in one.block_ids}
    return ids | {knit_id(block_id) for block_id in ids}
