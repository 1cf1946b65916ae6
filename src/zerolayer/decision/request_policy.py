"""The contract of a policy for request streams, where requests of many sessions share one cache of blocks.

A request references the blocks of its prompt in chain order. A reference is a hit if the block is resident at that
moment. On a miss the block's KV is computed; the policy then says whether it takes a slot, and whose (bypass is
allowed). Chain rule: a prefix block is kept while a descendant is worth keeping, because a descendant without its
prefix cannot be attended to. The offline optimum obeys it by itself: a prefix is never used later than what follows it.

Blocks are dense numbers from 0, as in `learning.requests.RequestTrace`; a policy object belongs to one cache, sees
every reference, and is deterministic by its seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Request:
    """What is known of a request when it arrives."""

    blocks: Sequence[int]  # the prompt's chain
    time_s: float  # of arrival, any origin, never falling


@runtime_checkable
class RequestPolicy(Protocol):
    """Who keeps which blocks. Created with the capacity in blocks (at least 1)."""

    name: str

    def begin(self, request: Request) -> None:
        """A request has arrived; its blocks are referenced next, in order."""
        ...

    def hit(self, block: int) -> None:
        """A resident block is referenced."""
        ...

    def miss(self, block: int) -> int | None:
        """An absent block is referenced: None takes a free slot, `block` bypasses, another block is evicted for it.

        None is allowed only while fewer than `capacity` blocks are resident.
        """
        ...
