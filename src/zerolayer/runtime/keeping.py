"""A conversation's kept turns as blocks of its stream, behind the document's: written, taken over again, forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.documents.stream import chained_id
from zerolayer.runtime.working_set import WorkingSet

RECENT_SHARE = 8
"""One slot in this many is kept for the latest blocks of a conversation."""


def keep_tail(ws: WorkingSet, token_ids: Sequence[int]) -> None:
    """The whole blocks of the tail become blocks of the stream; the rest of its tokens is pending, its KV held."""
    width = ws.settings.block_tokens
    count = (ws.arena.rows - ws.arena.in_sight * width) // width
    new = _grow(ws, token_ids, count)
    for block in new:
        ws.executor.ids.append(chained_id(ws.executor.ids[-1], ws.tokens_of(block).tolist()))
    ws.claim(new)
    ws.hold_tail()
    pin_latest(ws)


def adopt(ws: WorkingSet, token_ids: Sequence[int], block_ids: Sequence[str]) -> None:
    """Take over the turns of a conversation that an earlier session kept, behind a document that has been read.

    The tiers hold their blocks under `block_ids`, in order; what is missing or damaged is computed again from the
    tokens. Tokens that fill no block are pending.
    """
    new = _grow(ws, token_ids, len(block_ids))
    ws.executor.ids += block_ids
    for block in new:
        if not ws.restore_bounds(block):
            ws.executor.repair(block)
        ws.done += 1
    pin_latest(ws)


def _grow(ws: WorkingSet, token_ids: Sequence[int], count: int) -> list[int]:
    """Room for `count` further blocks of these tokens; returns their indices."""
    table, width = ws.table, ws.settings.block_tokens
    ws.tokens = np.concatenate([ws.tokens, np.asarray(token_ids[: count * width], dtype=np.int64)])
    ws.pending, ws.pending_kv = list(token_ids[count * width :]), None
    new = list(range(len(table), len(table) + count))
    table.grow(count)
    ws.bounds.resize(len(table))
    ws.dispersion.resize(len(table))
    return new


def pin_latest(ws: WorkingSet) -> None:
    """The conversation's latest blocks stay in sight; older ones compete with the document's, unless hints pin them."""
    table, first = ws.table, ws.document_blocks
    recent = max(1, ws.settings.slots // RECENT_SHARE)
    table.pinned[first:] = False
    table.pinned[max(first, len(table) - recent) :] = True
    table.pinned[list(ws.hinted)] = True


def forget(ws: WorkingSet) -> None:
    """Drop the kept turns from the tiers: what persists is the document."""
    for block_id in ws.executor.ids[ws.document_blocks :]:
        if block_id in ws.executor.tiers:
            ws.executor.tiers.delete(block_id)
