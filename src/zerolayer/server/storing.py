"""What lies on disk for conversations: taken over from other documents' folders, swept, and bounded by tenant."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from zerolayer.errors import BudgetError, StoreError
from zerolayer.execution.tiers import SessionInfo, SessionStore, TierHierarchy
from zerolayer.execution.tiers.sessions import StoredSession
from zerolayer.runtime.working_set import knit_id
from zerolayer.server.kept import KeptConversation, delete_kept, read_kept, referenced, shared_prefix

MOST_KEPT = 64
"""Conversations that are kept on disk for the same documents; the least recently used go first."""

_LEAST_SHARED = 2  # blocks: the prompt's frame is everybody's

_log = logging.getLogger(__name__)


class Storing:
    """Housekeeping of a service's store. Only the engine thread calls it."""

    def __init__(self, store: SessionStore, tenant_budget: int | None) -> None:
        self._store, self._tenant_budget = store, tenant_budget

    def prepare(self, info: SessionInfo, turns: Sequence[str], block_bytes: int) -> None:
        """Before documents are opened that nobody has open here: room for their tenant, and what others have of them.

        A document that was extended begins with the blocks of the shorter one: those are linked, with the
        conversation's. Raises BudgetError where the tenant's budget is too small for the documents.
        """
        stored = self._store.list()
        own = next((one for one in stored if one.info.id == info.id), None)
        self._make_room(info, stored, block_bytes)
        if own is None:
            self._take_over(info, [one.info for one in stored], turns, block_bytes)

    def sweep(self, info: SessionInfo, tiers: TierHierarchy) -> None:
        """Delete blocks that no document and no conversation names: a killed process may have left some."""
        kept = read_kept(self._store.directory(info.id))
        early = set(self._store.info(info.id).early_forms)
        named = {*info.block_ids, *map(knit_id, info.block_ids)} | referenced(kept) | early
        orphans = [block_id for block_id in tiers.keys() if block_id not in named]  # noqa: SIM118 - no mapping
        for block_id in orphans:
            tiers.delete(block_id)
        if orphans:
            _log.info("%s: %d blocks that nothing names were deleted", info.title, len(orphans))

    def prune(self, session_id: str, tiers: TierHierarchy, live: Collection[str]) -> None:
        """Forget the oldest conversations of a document beyond MOST_KEPT; `live` ones stay."""
        directory = self._store.directory(session_id)
        kept = read_kept(directory)
        old = [one for one in kept[MOST_KEPT:] if one.id not in live]
        if not old:
            return
        gone = {one.id for one in old}
        still = referenced(one for one in kept if one.id not in gone)
        for one in old:
            delete_kept(directory, one.id)
        for block_id in referenced(old) - still:
            if block_id in tiers:
                tiers.delete(block_id)

    def _take_over(
        self, info: SessionInfo, others: Sequence[SessionInfo], turns: Sequence[str], block_bytes: int
    ) -> None:
        fits = [one for one in others if (one.codec, one.tenant) == (info.codec, info.tenant)]
        best = max(fits, key=lambda one: _shared(info, one), default=None)
        if best is None or _shared(info, best) < _LEAST_SHARED:
            return
        ids = list(info.block_ids[: _shared(info, best)])
        wanted = [*ids, *map(knit_id, ids)]
        said = self._said(best, turns)
        if said is not None:
            wanted += [*said.block_ids, *map(knit_id, said.block_ids)]
        try:
            self._store.reserve(len(ids) * block_bytes, keep={best.id})
            count = self._store.share(best.id, info.id, wanted)
        except StoreError as error:
            _log.warning("blocks of %s were not taken over: %s", best.title, error)
            return
        _log.info("%s begins with %d blocks of %s", info.title, count, best.title)

    def _said(self, info: SessionInfo, turns: Sequence[str]) -> KeptConversation | None:
        kept = read_kept(self._store.directory(info.id))
        return max(kept, key=lambda one: one.shared_turns(turns), default=None)

    def origin(self, info: SessionInfo, turns: Sequence[str]) -> KeptConversation | None:
        """The conversation, behind documents that these begin with, that shares most turns; None where none does."""
        best: KeptConversation | None = None
        for one in self._store.list():
            if one.info.tenant != info.tenant or _shared(info, one.info) < _LEAST_SHARED:
                continue
            said = self._said(one.info, turns)
            if said is not None and said.shared_turns(turns) > (best.shared_turns(turns) if best else 0):
                best = said
        return best

    def _make_room(self, info: SessionInfo, stored: Sequence[StoredSession], block_bytes: int) -> None:
        """Keep the tenant within its disk budget: its least recently used documents go."""
        if self._tenant_budget is None:
            return
        own = [one for one in stored if one.info.tenant == info.tenant and one.info.id != info.id]
        need = len(info.block_ids) * block_bytes
        used = sum(one.nbytes for one in own)
        for one in reversed(own):
            if used + need <= self._tenant_budget:
                return
            if one.in_use:
                continue
            try:
                self._store.delete(one.info.id)
            except StoreError as error:
                _log.warning("documents %s were not deleted: %s", one.info.title, error)
                continue
            used -= one.nbytes
        if used + need > self._tenant_budget:
            raise BudgetError(
                f"the documents need about {need:,} bytes on disk beside the {used:,} that this tenant's open "
                f"documents use; a tenant may use {self._tenant_budget:,}; send less, or raise the tenant's budget"
            )


def _shared(info: SessionInfo, other: SessionInfo) -> int:
    """Leading blocks that two streams have in common."""
    return shared_prefix(info.block_ids, other.block_ids)
