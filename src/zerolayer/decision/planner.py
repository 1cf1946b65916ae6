"""Combines a policy's proposals into plans that fit the budget. No plan evicts a pinned or P0 block.

The functions change neither the table nor the device: a plan that cannot be carried out whole is an error
here, before anything moved. Capacity, reserve and room are counted in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolayer.core import BlockTable, FloatArray, Plan
from zerolayer.decision.grading import ATTENTION_DECAY
from zerolayer.decision.policy import Policy, SteeringPolicy, evictable
from zerolayer.errors import BudgetError, SettingError


def plan_turn(
    policy: Policy,
    table: BlockTable,
    reserve_blocks: int = 0,
    knit_tokens: int = 0,
    knittable: Sequence[int] = (),
) -> Plan:
    """What to do before an answer starts; `table.match` holds the question's match.

    Leaves `reserve_blocks` free for the question and its answer and recalls what the policy wants into the
    rest. At most `knit_tokens` tokens of the `knittable` blocks are knit, recalled now or for an earlier question.
    Raises BudgetError if even an empty recall leaves no room for the reserve.
    """
    _prepare(policy, table, "question")
    room = room_beside(table, reserve_blocks)
    if room < 0:
        raise _too_small(table, f"a reserve of {reserve_blocks} blocks for the question and its answer")
    load = policy.recall(table, room)
    if len(load) > room or not _distinct(load, ~table.resident):
        raise _broken(
            policy, "recall", f"{len(load)} blocks, of which at most {room} distinct absent ones fit"
        )
    evict = _evict(policy, table, len(load) + reserve_blocks - table.free)
    knit = _knit(policy, table, knittable, knit_tokens)
    return Plan(tuple(evict), tuple(load), tuple(knit), reason=f"turn {table.turn}: recall")


def plan_fault(policy: Policy, table: BlockTable, fault: int, reserve_blocks: int = 0) -> Plan:
    """What to do when the running answer needs the absent block `fault`; an empty plan if it is resident.

    `reserve_blocks` slots stay out of reach, as in `plan_turn`. What does not fit beside the fault is cut
    from the policy's list. Raises BudgetError if not even the fault fits.
    """
    if table.resident[fault]:
        return Plan(reason=f"block {fault} is resident")
    _prepare(policy, table, "fault")
    room = room_beside(table, reserve_blocks)
    if room < 1:
        raise _too_small(table, f"block {fault}, which the answer needs")
    load = policy.expand(table, fault)
    if not load or load[0] != fault or not _distinct(load, ~table.resident):
        raise _broken(
            policy, "expand", f"{load[:8]} for a fault of block {fault}; it must start with the fault"
        )
    load = load[:room]
    evict = _evict(policy, table, len(load) + reserve_blocks - table.free)
    return Plan(tuple(evict), tuple(load), reason=f"fault of block {fault}")


def plan_pinned(policy: Policy, table: BlockTable, blocks: Sequence[int], reserve_blocks: int = 0) -> Plan:
    """Loads of pinned blocks that are away, and what leaves for them; an empty plan where none is.

    Raises BudgetError if they do not fit beside the reserve.
    """
    if not blocks:
        return Plan(reason="all pinned blocks are resident")
    if len(blocks) > room_beside(table, reserve_blocks):
        raise _too_small(table, f"{len(blocks)} more pinned blocks")
    evict = _evict(policy, table, len(blocks) + reserve_blocks - table.free)
    return Plan(tuple(evict), tuple(blocks), reason=f"{len(blocks)} pinned blocks")


def plan_room(policy: Policy, table: BlockTable, count: int) -> Plan:
    """Evictions that free `count` slots for blocks about to be computed. Raises BudgetError if impossible."""
    if room_beside(table, count) < 0:
        raise _too_small(table, f"{count} new blocks")
    return Plan(tuple(_evict(policy, table, count - table.free)), reason=f"room for {count} blocks")


def plan_warm(policy: Policy, table: BlockTable, reserve_blocks: int = 0) -> Plan:
    """What to load ahead of the next question; `table.forecast` holds what it is likely to need.

    Takes free slots only, beside `reserve_blocks` for the question and its answer: nothing leaves for a forecast.
    What a policy warms without regard to the forecast is left out.
    """
    room = table.free - reserve_blocks
    if room < 1:
        return Plan(reason="no free slot for a forecast")
    load = policy.warm(table, room)
    if len(load) > room or not _distinct(load, ~table.resident):
        raise _broken(policy, "warm", f"{len(load)} blocks, of which at most {room} distinct absent ones fit")
    wanted = tuple(block for block in load if table.forecast[block] > 0)
    return Plan(load=wanted, reason=f"forecast for turn {table.turn}")


def end_turn(policy: Policy, table: BlockTable, used: Sequence[int], mass: FloatArray) -> None:
    """Close a turn: count its use in the table, let the policy learn, forget match and forecast, advance the turn.

    `used` are the blocks that carried the answer, `mass` [n] the attention mass of every block in this turn.
    """
    index = np.asarray(used, dtype=np.int64)
    table.use_count[index] += 1
    table.last_used_turn[index] = table.turn
    table.attention[:] = ATTENTION_DECAY * table.attention + mass
    policy.end_turn(table, used, mass)
    table.match[:] = 0.0
    table.forecast[:] = 0.0
    table.turn += 1


def room_beside(table: BlockTable, reserve_blocks: int) -> int:
    """Blocks that could be loaded if everything evictable left and the reserve stayed free."""
    return table.free + int(evictable(table).sum()) - reserve_blocks


def _prepare(policy: Policy, table: BlockTable, event: str) -> None:
    """Let a policy decide how before it is asked what: it may grade again, which changes what can leave."""
    if isinstance(policy, SteeringPolicy):
        policy.prepare(table, event)


def _distinct(indices: Sequence[int], allowed: np.typing.NDArray[np.bool_]) -> bool:
    index = np.asarray(indices, dtype=np.int64)
    if len(index) and (index.min() < 0 or index.max() >= len(allowed)):
        return False
    return len(np.unique(index)) == len(index) and bool(allowed[index].all())


def _evict(policy: Policy, table: BlockTable, count: int) -> list[int]:
    if count <= 0:
        return []
    victims = policy.victims(table, count, np.zeros(len(table), dtype=np.bool_))
    if len(victims) != count or not _distinct(victims, evictable(table)):
        raise _broken(
            policy, "victims", f"{victims[:8]} where {count} distinct evictable blocks were asked for"
        )
    return victims


def _knit(policy: Policy, table: BlockTable, candidates: Sequence[int], knit_tokens: int) -> list[int]:
    """The policy's choice, cut where its tokens exceed `knit_tokens`."""
    if not candidates or knit_tokens <= 0:
        return []
    # The last block of a document may be short, so at most this many blocks can fit.
    limit = min(len(candidates), knit_tokens // max(1, int(table.tokens[list(candidates)].min())))
    chosen = policy.knit(table, candidates, limit)
    if not set(chosen) <= set(candidates) or len(set(chosen)) != len(chosen):
        raise _broken(policy, "knit", f"{chosen[:8]}, which are not distinct blocks among those that may be")
    fits = np.cumsum(table.tokens[np.asarray(chosen, dtype=np.int64)]) <= knit_tokens
    return [block for block, fit in zip(chosen, fits, strict=True) if fit]


def _too_small(table: BlockTable, wanted: str) -> BudgetError:
    locked = table.resident_count - int(evictable(table).sum())
    return BudgetError(
        f"a device budget of {table.capacity} blocks of {table.block_tokens} tokens has no room for "
        f"{wanted}: {locked} resident blocks are pinned or P0; raise the device budget or pin less"
    )


def _broken(policy: Policy, method: str, got: str) -> SettingError:
    return SettingError(f"policy {policy.name!r} breaks its contract: {method} gave {got}")
