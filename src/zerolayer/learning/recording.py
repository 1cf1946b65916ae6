"""Records a session: the demand of its turns, by a reference run of their answers, and where its blocks lay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerolayer.core import Tier
from zerolayer.learning.reference import ReferencePolicy, demand_turn
from zerolayer.learning.traces import DemandTrace, DemandTurn
from zerolayer.perception.recall import Signals

if TYPE_CHECKING:
    from zerolayer.scheduler import TurnResult
    from zerolayer.session import Session


@dataclass(frozen=True, slots=True)
class Arrival:
    """A question comes."""

    time_s: float  # since any origin
    tiers: tuple[Tier | None, ...]  # [blocks] the fastest tier that holds each block, None for none


def block_tiers(session: Session) -> tuple[Tier | None, ...]:
    """[blocks] the fastest tier that holds each block of a session's documents now; None for none."""
    scheduler = session.scheduler
    executor, resident = scheduler.executor, scheduler.table.resident
    order = (Tier.HOST, Tier.DISK, Tier.REMOTE)
    found: list[Tier | None] = []
    for block in range(len(session.stream.blocks)):
        held = frozenset() if resident[block] else executor.tiers.where(executor.ids[block])
        found.append(Tier.DEVICE if resident[block] else next((tier for tier in order if tier in held), None))
    return tuple(found)


def record_demand(
    session: Session,
    turns: Sequence[TurnResult],
    questions: Sequence[str],
    gold: Sequence[Sequence[int]] | None = None,
    on_progress: Callable[[int], None] | None = None,
    arrivals: Sequence[Arrival] | None = None,
) -> DemandTrace:
    """Label the turns of a session, which must have read its documents and answered them without `keep`.

    `gold` and `arrivals` are of each turn, where they are known.

    The answers are teacher-forced over the largest window that the model allows. Afterwards the session's engine is
    attached to its own arena again.
    """
    width, engine = session.settings.block_tokens, session.engine
    own = session.scheduler
    slots = min(engine.window // width, len(session.stream.blocks) + own.settings.slots)
    settings = replace(own.settings, slots=slots, attend_blocks=slots, knit_share=0.0)
    reference = own.sibling(ReferencePolicy(), settings)
    try:
        reference.restore()
        labelled = []
        for number, (turn, question) in enumerate(zip(turns, questions, strict=True)):
            result = reference.turn(
                session.question_ids(question),
                Signals(turn.match),
                forced=turn.token_ids,
                max_new_tokens=len(turn.token_ids) or 1,
            )
            demand = demand_turn(number, question, turn.match, result, gold[number] if gold else None)
            labelled.append(demand if arrivals is None else _with_arrival(demand, arrivals[number]))
            if on_progress is not None:
                on_progress(number + 1)
    finally:
        engine.attach(own.arena)
    return DemandTrace(
        engine.name,
        ", ".join(document.name for document in session.stream.documents),
        width,
        (width,) * len(session.stream.blocks),
        own.settings.sink_blocks,
        f"answer's attention over {slots * width} tokens, filled by recall",
        session.settings.seed,
        tuple(labelled),
    )


def _with_arrival(turn: DemandTurn, came: Arrival) -> DemandTurn:
    return replace(turn, time_s=came.time_s, tiers=tuple(came.tiers[block] for block in turn.blocks))
