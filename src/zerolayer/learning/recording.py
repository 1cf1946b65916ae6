"""Records the demand of a session: for every turn, what a reference run of its answer used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zerolayer.learning.reference import ReferencePolicy, demand_turn
from zerolayer.learning.traces import DemandTrace
from zerolayer.perception.recall import Signals

if TYPE_CHECKING:
    from zerolayer.scheduler import TurnResult
    from zerolayer.session import Session


def record_demand(
    session: Session,
    turns: Sequence[TurnResult],
    questions: Sequence[str],
    gold: Sequence[Sequence[int]] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> DemandTrace:
    """Label the turns of a session, which must have read its documents and answered them without `keep`.

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
            labelled.append(demand_turn(number, question, turn.match, result, gold[number] if gold else None))
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
