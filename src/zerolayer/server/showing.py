"""Live and stored sessions as views. Only the engine thread calls it: it reads what turns change."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from zerolayer.core import Grade, Tier
from zerolayer.decision.policy import GradingPolicy
from zerolayer.decision.presets import PRESETS
from zerolayer.decision.registry import POLICIES
from zerolayer.execution.layout import FREE
from zerolayer.execution.tiers.sessions import StoredSession
from zerolayer.perception.intent import NextNeed
from zerolayer.scheduler import Scheduler
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


def scheduler_of(session: Session) -> Scheduler | None:
    """The document's scheduler where there is one already; asking for it never takes memory."""
    return session.scheduler if session.has_scheduler else None


def session_view(live: Live, model: str) -> SessionView:
    """A live session."""
    session, info = live.session, live.session.info
    scheduler, width = scheduler_of(session), session.settings.block_tokens
    tiers: dict[str, int] = {}
    grades: dict[str, int] = {}
    sizes: dict[Tier, int] = {Tier.HOST: 0, Tier.DISK: 0}
    if scheduler is not None:
        counts = np.bincount(scheduler.table.grade, minlength=len(Grade))
        grades = {grade.name: int(counts[grade]) for grade in Grade}
        tiers = {Tier.DEVICE.value: scheduler.table.resident_count * width}
        for tier, store in ((Tier.HOST, session.tiers.host), (Tier.DISK, session.tiers.disk)):
            held = [block_id for block_id in scheduler.executor.ids if block_id in store]
            tiers[tier.value] = len(held) * width
            sizes[tier] = sum(store.size_of(block_id) for block_id in held)
    said = len(session.kept_turns()[0])
    policy = session.policy
    cuts = getattr(getattr(policy, "settings", None), "thresholds", None)
    pins = [
        PinView(
            pin.hint.text or f"characters {pin.hint.start} to {pin.hint.end}",
            pin.hint.grade,
            pin.blocks,
            pin.expires_at,
            len(pin.blocks) * width,
        )
        for pin in live.pins.live.values()
    ]
    return SessionView(
        live.id,
        live.conversation.title,
        model,
        live.tenant,
        live.state if live.holds or live.busy or not live.turns else "parked",
        live.policy,
        len(session.stream.token_ids),
        said,
        session.read_report.tokens_read,
        len(session.stream.blocks) if scheduler is None else len(scheduler.table),
        width,
        tiers,
        grades,
        live.turns,
        session.device_bytes,
        sizes[Tier.HOST],
        sizes[Tier.DISK],
        tuple(pins),
        len(live.pins.blocks),
        live.pins.limit,
        live.busy,
        live.created,
        live.last_used,
        live.pins.until(),
        policy.drift if isinstance(policy, GradingPolicy) else None,
        None if cuts is None else {"p0_min": cuts.p0_min, "p1_min": cuts.p1_min, "p2_min": cuts.p2_min},
        info.id,
    )


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
    stream = session.stream
    if index < len(stream.blocks):
        block = stream.blocks[index]
        inside = block.char_end > block.char_start
        document = stream.locate(block.char_start)[0].name if inside else ""
        part, text = ("document" if inside else "frame"), stream.text[block.char_start : block.char_end]
        place = (
            block.id,
            part,
            document,
            block.page_first,
            block.page_last,
            block.char_start,
            block.char_end,
        )
        if not inside:
            text = _decoded(session, stream.token_ids[block.token_start :][: block.token_count])
    else:
        assert scheduler is not None
        place = (scheduler.executor.ids[index], "conversation", "", 0, 0, 0, 0)
        text = _decoded(session, scheduler.working_set.tokens_of(index).tolist())
    width = session.settings.block_tokens
    if scheduler is None:
        stored = place[0] in session.tiers.disk
        tier = Tier.DISK.value if stored else "none"
        return BlockView(
            index,
            *place,
            text,
            width,
            "P2",
            tier,
            None,
            False,
            False,
            None,
            0.0,
            0,
            -1,
            "not asked about yet",
        )
    table, block_id, slot = scheduler.table, scheduler.executor.ids[index], slots.get(index)
    grading = getattr(scheduler.policy, "grading", None)
    graded = grading is not None and index < len(grading.persistence)
    explain = getattr(scheduler.policy, "explain", None)
    why = explain(index) if explain is not None and graded else "not graded yet"
    if index in scheduler.working_set.hinted:
        why += "; pinned by a hint"
    elif table.pinned[index]:
        why += "; always in sight: " + (
            "the prompt's frame" if index < len(stream.blocks) else "the latest turns"
        )
    history = [
        BlockHistory(note.time, note.turn, note.text, note.outcome, note.nbytes, note.ns, note.reason)
        for note in scheduler.working_set.history.of(index)
    ]
    return BlockView(
        index,
        *place,
        text,
        width,
        Grade(int(table.grade[index])).name,
        _tier(session, block_id, slot),
        slot,
        slot is not None and slot < scheduler.arena.in_sight,
        bool(table.pinned[index]),
        float(grading.persistence[index]) if grading is not None and graded else None,
        float(table.attention[index]),
        int(table.use_count[index]),
        int(table.last_used_turn[index]),
        why,
        tuple(history),
    )


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
