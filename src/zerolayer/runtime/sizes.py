"""How many slots a session gets, from settings, the model and the length of its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerolayer.config import Settings, parse_budget
from zerolayer.errors import BudgetError
from zerolayer.runtime.answering import FAULT_ROOM
from zerolayer.runtime.working_set import SchedulerSettings

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine

AUTO_SHARE = "10%"
AUTO_LEAST_TOKENS = 2048
"""A device budget of `auto` is this share of the document's full KV, and at least this many tokens."""

QUESTION_TOKENS = 64
"""Room for a question of ordinary length, when the smallest budget is worked out."""


def scheduler_settings(
    settings: Settings,
    engine: HFEngine,
    tokens: int,
    sink_blocks: int = 1,
    most_bytes: int | None = None,
    room_tokens: int = 0,
) -> SchedulerSettings:
    """Sizes for `tokens` tokens of documents, from settings and model; at most `most_bytes` of device memory.

    `room_tokens` are for a conversation's turns: a share of all KV counts them, and is never less than the smallest
    working set; a budget in bytes is hard. Raises BudgetError when the smallest working set does not fit.
    """
    width = settings.block_tokens
    slot_bytes = width * engine.geometry.token_bytes
    # The last question and its answer lie behind the document's blocks: a budget of 100 % includes them.
    tail = -(-(QUESTION_TOKENS + settings.max_new_tokens) // width) + FAULT_ROOM
    smallest = 2 + sink_blocks + tail
    budget = _budget(settings, engine.geometry.token_bytes, tokens, room_tokens, (tail, smallest))
    if most_bytes is not None:
        budget = min(budget, most_bytes)
    slots = min(budget // slot_bytes, engine.window // width)
    if slots < smallest:
        raise BudgetError(
            f"device budget {settings.device_budget} is {budget:,} bytes, room for {slots} blocks of {width} tokens; "
            f"sinks, one block, a window of one block and {tail} blocks for question and answer need {smallest}; "
            f"use at least --device-budget {-(-smallest * slot_bytes // 2**20)}MiB, or lower --max-new-tokens"
        )
    return SchedulerSettings(
        slots=slots,
        block_tokens=width,
        chunk_tokens=settings.chunk_tokens,
        codec=settings.codec,
        knit_share=settings.knit_share,
        knit_match=settings.knit_match,
        attend_blocks=settings.attend_blocks,
        max_new_tokens=settings.max_new_tokens,
        heatmap_side=settings.heatmap_side,
        pin_blocks=settings.pin_blocks,
        sink_blocks=sink_blocks,
    )


def _budget(
    settings: Settings, token_bytes: int, tokens: int, room_tokens: int, blocks: tuple[int, int]
) -> int:
    """Bytes of the device for one session. `blocks` are those of the tail and of the smallest working set."""
    full, room = tokens * token_bytes, room_tokens * token_bytes
    tail, smallest = (count * settings.block_tokens * token_bytes for count in blocks)
    if settings.device_budget == "auto":
        budget = max(parse_budget(AUTO_SHARE, full), AUTO_LEAST_TOKENS * token_bytes)
    else:
        budget = parse_budget(settings.device_budget, full + room)
        if room and settings.device_budget.rstrip().endswith("%"):  # a share of little is too little
            budget = max(budget, smallest)
    if budget >= full:
        return max(full + tail, smallest) + room
    return budget + room if settings.device_budget == "auto" else budget
