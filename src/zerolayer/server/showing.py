"""Live and stored sessions as views. Only the engine thread calls it: it reads what turns change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import repeat

import numpy as np

from zerolayer.core import Grade, Tier
from zerolayer.decision.policy import GradingPolicy
from zerolayer.decision.presets import PRESETS
from zerolayer.decision.registry import POLICIES
from zerolayer.execution.layout import FREE
from zerolayer.execution.tiers.sessions import StoredSession
from zerolayer.perception.intent import NextNeed
from zerolayer.scheduler import Scheduler
from zerolayer.server.hints import Pin
from zerolayer.server.pool import Live
from zerolayer.server.views import (
    BlockHistory,
    BlockView,
    HeatView,
    NeedView,
    PinView,
    PolicyView,
    SessionView,
)
from zerolayer.session import Session

_CUTS = ("p0_min", "p1_min", "p2_min")


def scheduler_of(session: Session) -> Scheduler | None:
    """The document's scheduler where there is one already; asking for it never takes memory."""
    return session.scheduler if session.has_scheduler else None


def session_view(live: Live, model: str) -> SessionView:
    """A live session."""
    session = live.session
    scheduler, policy = scheduler_of(session), session.policy
    cuts = getattr(getattr(policy, "settings", None), "thresholds", None)
    view = SessionView(
        id=live.id,
        title=live.conversation.title,
        model=model,
        tenant=live.tenant,
        state=live.state if live.holds or live.busy or not live.turns else "parked",
        policy=live.policy,
        document_tokens=len(session.stream.token_ids),
        conversation_tokens=len(session.kept_turns()[0]),
        tokens_read=session.read_report.tokens_read,
        blocks=len(session.stream.blocks) if scheduler is None else len(scheduler.table),
        block_tokens=session.settings.block_tokens,
        turns=live.turns,
        device_bytes=session.device_bytes,
        pins=tuple(map(_pin_view, live.pins.live.values(), repeat(session.settings.block_tokens))),
        pin_blocks=len(live.pins.blocks),
        pin_blocks_most=live.pins.limit,
        in_use=live.busy,
        created=live.created,
        last_used=live.last_used,
        expires=live.pins.until(),
        calibration_drift=policy.drift if isinstance(policy, GradingPolicy) else None,
        thresholds=None if cuts is None else {name: getattr(cuts, name) for name in _CUTS},
        stored_id=session.id,
    )
    return view if scheduler is None else _with_tiers(view, session, scheduler)


def _with_tiers(view: SessionView, session: Session, scheduler: Scheduler) -> SessionView:
    """What of the session lies where, and its grades."""
    counts = np.bincount(scheduler.table.grade, minlength=len(Grade))
    tokens = {Tier.DEVICE.value: scheduler.table.resident_count * view.block_tokens}
    sizes: dict[Tier, int] = {}
    for tier, store in ((Tier.HOST, session.tiers.host), (Tier.DISK, session.tiers.disk)):
        held = [block_id for block_id in scheduler.executor.ids if block_id in store]
        tokens[tier.value] = len(held) * view.block_tokens
        sizes[tier] = sum(store.size_of(block_id) for block_id in held)
    return replace(
        view,
        tier_tokens=tokens,
        grade_blocks={grade.name: int(counts[grade]) for grade in Grade},
        host_bytes=sizes[Tier.HOST],
        disk_bytes=sizes[Tier.DISK],
    )


def _pin_view(pin: Pin, width: int) -> PinView:
    text = pin.hint.text or f"characters {pin.hint.start} to {pin.hint.end}"
    return PinView(text, pin.hint.grade, pin.blocks, pin.expires_at, len(pin.blocks) * width)


def stored_view(stored: StoredSession, model: str) -> SessionView:
    """Documents on disk that no live session has open."""
    info = stored.info
    return SessionView(
        info.id,
        info.title,
        model,
        info.tenant,
        "stored",
        "",
        info.tokens_total,
        0,
        info.tokens_total,
        len(info.block_ids),
        info.block_tokens,
        {Tier.DISK.value: info.tokens_total},
        disk_bytes=stored.nbytes,
        in_use=stored.in_use,
        created=info.created,
        last_used=info.last_used,
        stored_id=info.id,
    )


def block_views(live: Live) -> list[BlockView]:
    """The blocks of a live session, in order; those of the conversation last."""
    session, scheduler = live.session, scheduler_of(live.session)
    blocks = len(session.stream.blocks) if scheduler is None else len(scheduler.table)
    slots: Mapping[int, int] = {}
    if scheduler is not None:
        occupant = scheduler.arena.occupant
        slots = {int(block): slot for slot, block in enumerate(occupant) if block != FREE}
    return [_block_view(session, scheduler, index, slots) for index in range(blocks)]


def _block_view(
    session: Session, scheduler: Scheduler | None, index: int, slots: Mapping[int, int]
) -> BlockView:
    view = _placed(session, scheduler, index)
    if scheduler is None:
        return view
    table, slot, ws = scheduler.table, slots.get(index), scheduler.working_set
    grading = getattr(scheduler.policy, "grading", None)
    graded = grading is not None and index < len(grading.persistence)
    history = [
        BlockHistory(note.time, note.turn, note.text, note.outcome, note.nbytes, note.ns, note.reason)
        for note in ws.history.of(index)
    ]
    return replace(
        view,
        grade=Grade(int(table.grade[index])).name,
        tier=_tier(session, scheduler.executor.ids[index], slot),
        slot=slot,
        in_sight=slot is not None and slot < scheduler.arena.in_sight,
        pinned=bool(table.pinned[index]),
        persistence=float(grading.persistence[index]) if grading is not None and graded else None,
        attention=float(table.attention[index]),
        use_count=int(table.use_count[index]),
        last_used_turn=int(table.last_used_turn[index]),
        why=_why(scheduler, index, graded),
        history=tuple(history),
    )


def _placed(session: Session, scheduler: Scheduler | None, index: int) -> BlockView:
    """What a block is and where it stands; nothing of what a scheduler knows."""
    stream = session.stream
    if index < len(stream.blocks):
        block = stream.blocks[index]
        inside = block.char_end > block.char_start
        block_id, pages = block.id, (block.page_first, block.page_last)
        chars, part = (block.char_start, block.char_end), "document" if inside else "frame"
        text = stream.text[slice(*chars)]
        if not inside:
            text = _decoded(session, stream.token_ids[block.token_start :][: block.token_count])
        document = stream.locate(block.char_start)[0].name if inside else ""
    else:
        ids, tokens = ([], []) if scheduler is None else _of_conversation(scheduler, index)
        block_id, pages, chars = "".join(ids), (0, 0), (0, 0)
        part, document, text = "conversation", "", _decoded(session, tokens)
    return BlockView(
        index=index,
        id=block_id,
        part=part,
        document=document,
        page=pages[0],
        page_last=pages[1],
        char_start=chars[0],
        char_end=chars[1],
        text=text,
        tokens=session.settings.block_tokens,
        grade="P2",
        tier=_tier(session, block_id, None),
        slot=None,
        in_sight=False,
        pinned=False,
        persistence=None,
        attention=0.0,
        use_count=0,
        last_used_turn=-1,
        why="not asked about yet",
    )


def _of_conversation(scheduler: Scheduler, index: int) -> tuple[list[str], list[int]]:
    return [scheduler.executor.ids[index]], scheduler.working_set.tokens_of(index).tolist()


def _why(scheduler: Scheduler, index: int, graded: bool) -> str:
    """Why a block has its grade, and why it is pinned."""
    explain = getattr(scheduler.policy, "explain", None)
    why = str(explain(index)) if explain is not None and graded else "not graded yet"
    ws = scheduler.working_set
    if index in ws.hinted:
        return why + "; pinned by a hint"
    if scheduler.table.pinned[index]:
        frame = index < ws.document_blocks
        return why + "; always in sight: " + ("the prompt's frame" if frame else "the latest turns")
    return why


def _tier(session: Session, block_id: str, slot: int | None) -> str:
    if slot is not None:
        return Tier.DEVICE.value
    if block_id in session.tiers.host:
        return Tier.HOST.value
    return Tier.DISK.value if block_id in session.tiers.disk else "none"


def _decoded(session: Session, ids: list[int]) -> str:
    return str(session.engine.tokenizer.decode(ids))


def heat_view(live: Live) -> HeatView | None:
    """The heat map of a live session; None before its first turn."""
    scheduler = scheduler_of(live.session)
    if scheduler is None or scheduler.heat.turn == 0:
        return None
    heat = scheduler.heat
    cells = heat.heat
    rows = tuple(tuple(round(float(cell), 4) for cell in row) for row in cells)
    return HeatView(live.id, heat.side, rows, heat.nbytes, heat.turn, float(cells.max()))


def need_view(need: NextNeed) -> NeedView:
    """One likely need."""
    return NeedView(need.label, need.probability, need.blocks, need.pages, need.char_start, need.char_end)


def policy_views(default: str, used: Mapping[str, int]) -> list[PolicyView]:
    """Registered policies and presets; `used` are live sessions by policy."""
    views = []
    for name, build in POLICIES.items():
        about = (build.__doc__ or "").strip().split("\n")[0]
        grades = isinstance(build, type) and hasattr(build, "set_thresholds")
        views.append(PolicyView(name, "policy", name == default, grades, about, used.get(name, 0)))
    for name, preset in PRESETS.items():
        about = f"device budget {preset.device_budget}, window strategy {preset.action}"
        views.append(PolicyView(name, "preset", False, True, about, used.get(name, 0)))
    return views
