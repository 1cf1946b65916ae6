"""Records real attention demand of labelled contracts that fit a model's window, with the features of their blocks.

Everything is in the answer's sight, so the session itself is the reference run: no policy shapes the label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zerolayer.config import Settings, load_settings
from zerolayer.core import BLOCK_FEATURES, FloatArray
from zerolayer.documents import read_document
from zerolayer.learning import traces
from zerolayer.learning.calibrate_sessions import Asked, Recorded, shuffled
from zerolayer.learning.labelled import LabelledContract
from zerolayer.learning.reference import demand_turn
from zerolayer.learning.traces import DemandTrace

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder
    from zerolayer.session import Session

SHORT = (6_000, 14_000)
"""Characters of the contracts that are recorded: they fit the window of small models."""

_LEAST_QUESTIONS = 8
_ANSWER_TOKENS = 12


def recordable(contracts: Sequence[LabelledContract], count: int) -> list[LabelledContract]:
    """The first `count` contracts that are short and have enough labelled questions."""
    fit = [
        contract
        for contract in contracts
        if sum(bool(question.evidence) for question in contract.questions) >= _LEAST_QUESTIONS
        and SHORT[0] <= len(contract.text()) <= SHORT[1]
    ]
    return fit[:count]


def reference_settings(model: str) -> Settings:
    """Settings under which an answer sees the whole document."""
    return load_settings(
        model=model,
        policy="zerolayer.learning.reference:ReferencePolicy",
        device_budget="100%",
        attend_blocks=1024,
        knit_share=0.0,
        max_new_tokens=_ANSWER_TOKENS,
    )


def record_session(
    session: Session, asked: Sequence[Asked], seed: int, on_turn: Callable[[int], None] | None = None
) -> Recorded:
    """Read the session's document, ask everything, and label every turn by its own attention."""
    session.read()
    blocks, turns = session.stream.blocks, []
    for number, question in enumerate(asked):
        _, result = session.answer(question.text)
        gold = [b.index for b in blocks if question.evidence_in(b.char_start, b.char_end)]
        turns.append(demand_turn(number, question.text, result.match, result, gold))
        if on_turn is not None:
            on_turn(number + 1)
    width = session.settings.block_tokens
    trace = DemandTrace(
        session.engine.fingerprint,
        session.stream.documents[0].name,
        width,
        (width,) * len(blocks),
        session.scheduler.settings.sink_blocks,
        "answer's attention over the whole document",
        seed,
        tuple(turns),
    )
    return Recorded(trace, session.scheduler.table.features[: len(blocks)].copy())


def record_contract(
    contract: LabelledContract,
    engine: HFEngine,
    encoder: SentenceEncoder | None,
    cache: Path,
    seed: int,
    max_turns: int = 21,
) -> Recorded:
    """The recording of one contract, from `cache` where it has been made before."""
    from zerolayer.session import session_of

    path = cache / f"{engine.fingerprint[:8]}-{seed}-{contract.path.stem[:60]}.jsonl"
    if path.is_file():
        return recorded_in(path)
    asked = shuffled(contract.questions, seed)[:max_turns]
    settings = reference_settings(engine.name)
    with session_of([read_document(contract.path)], engine, settings, encoder) as session:
        recorded = record_session(session, asked, seed)
    cache.mkdir(parents=True, exist_ok=True)
    np.save(path.with_suffix(".npy"), recorded.features)
    traces.write(recorded.trace, path)
    return recorded


def recorded_in(path: Path) -> Recorded:
    """A recorded session from its demand trace, with the features in `<name>.npy`; unknown ones without that file."""
    trace = traces.read(path)
    if path.with_suffix(".npy").is_file():
        return Recorded(trace, _load(path))
    unknown = np.full((len(trace.block_lengths), len(BLOCK_FEATURES)), np.nan, dtype=np.float32)
    return Recorded(trace, unknown)


def _load(path: Path) -> FloatArray:
    features: FloatArray = np.load(path.with_suffix(".npy"))
    return features
