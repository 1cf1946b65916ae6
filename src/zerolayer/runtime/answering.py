"""One answer in the making: the question's pass, then token by token, attention observed, faults served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from zerolayer.core import FloatArray, TurnMetrics
from zerolayer.runtime.steering import between_tokens

if TYPE_CHECKING:
    import torch

    from zerolayer.scheduler import Scheduler

FAULT_TOKENS = 16
"""Answer tokens between two looks at whether the answer wants a block that is out of sight."""

FAULT_ROOM = 1
"""Blocks that may be brought in sight while an answer runs; their slots are reserved with the tail's."""


@dataclass(slots=True)
class Attended:
    """What an answer attended to, for citations and for the demand record."""

    blocks: list[int]  # in sight, by slot
    mass: FloatArray  # [layers, heads, blocks, block_tokens]: weights of the answer's tokens, summed
    question_mass: FloatArray  # the same of the question's tokens


@dataclass(slots=True)
class Decoding:
    """How an answer's tokens are chosen and when it ends.

    Whoever hears the tokens may set `ended` between two of them, and `kept_ids`: what of the answer a conversation
    keeps, where that is not all of it. The first `kept_rows` of these are tokens as they were generated.
    """

    limit: int  # tokens
    reserve: int | None = None  # tokens that have a place from the start; None: all
    choose: Callable[[torch.Tensor], int] | None = None  # from the logits [vocabulary]; None: the likeliest
    forced: Sequence[int] | None = None  # the answer is given and only observed
    keep: bool = False  # question and answer become blocks of the stream
    ended: bool = False
    kept_ids: Sequence[int] | None = None
    kept_rows: int = 0
    cut_short: bool = False  # set here: the device budget had no room for more of the answer

    @property
    def reserved(self) -> int:
        """Tokens that have a place before the answer starts."""
        return self.limit if self.reserve is None else min(self.limit, self.reserve)


class Answering:
    """One answer in the making."""

    def __init__(
        self, scheduler: Scheduler, tail_ids: Sequence[int], started: float, metrics: TurnMetrics
    ) -> None:
        """`tail_ids` are the pending tokens and the question's."""
        self._scheduler, self._started, self._metrics = scheduler, started, metrics
        self._tail_ids = tail_ids
        self.token_ids: list[int] = []
        self._faults = 0

    def steps(self, decoding: Decoding) -> Iterator[int]:
        """Compute the question, then the answer token by token, observing attention; yields each token.

        Between two tokens the engine may serve other arenas.
        """
        engine, metrics = self._scheduler.engine, self._metrics
        engine.mass.zero_()
        ws = self._scheduler.working_set
        ws.put_tail()
        held, position = ws.held_tokens, ws.next_position
        logits, _ = engine.append(self._tail_ids[held:], position + held, observe=True, logits=True)
        assert logits is not None
        question_mass = self._mass()
        engine.mass.zero_()
        position += len(self._tail_ids)
        if decoding.forced is None:
            yield from self._generate(logits, position, decoding)
        elif decoding.forced:
            self.token_ids = list(decoding.forced)
            engine.append(self.token_ids, position, observe=True)
        mass = self._mass()
        if question_mass.shape != mass.shape:  # a block came in sight during the answer
            grown = np.zeros_like(mass)
            grown[:, :, : question_mass.shape[2]] = question_mass
            question_mass = grown
        arena = self._scheduler.arena
        self.attended = Attended(arena.occupant[: arena.in_sight].tolist(), mass, question_mass)
        total = time.perf_counter() - self._started
        metrics.answer_tokens = len(self.token_ids)
        metrics.decode_s_per_token = (total - metrics.ttft_s) / max(1, len(self.token_ids) - 1)

    def _generate(self, logits: torch.Tensor, position: int, decoding: Decoding) -> Iterator[int]:
        scheduler = self._scheduler
        engine, stop = scheduler.engine, scheduler.engine.stop_ids()
        for step in range(1, decoding.limit + 1):
            token = int(logits.argmax()) if decoding.choose is None else decoding.choose(logits)
            if step == 1:
                self._metrics.ttft_s = time.perf_counter() - self._started
            if token in stop:
                return
            self.token_ids.append(token)
            yield token
            engine.attach(scheduler.arena)
            between_tokens(scheduler)
            if step == decoding.limit or decoding.ended:
                return
            if not scheduler.recaller.room_for_token(self._metrics):
                decoding.cut_short = True
                return
            look = step % FAULT_TOKENS == 0 and self._faults < FAULT_ROOM
            following, queries = engine.append([token], position, observe=True, collect=look, logits=True)
            assert following is not None
            logits, position = following, position + 1
            if look:
                position += self._serve_fault(queries, position - 1)

    def _serve_fault(self, queries: list[torch.Tensor], position: int) -> int:
        moved = self._scheduler.recaller.serve_fault(queries, position)
        self._faults += moved > 0
        self._metrics.fault_blocks += moved > 0
        return moved

    def _mass(self) -> FloatArray:
        """[layers, heads, blocks in sight, block_tokens] of the attention observed since it was last zeroed.

        The heat map hears of it, and of the tail's.
        """
        arena, mass = self._scheduler.arena, self._scheduler.engine.mass
        rows = arena.in_sight * arena.block_tokens
        self._scheduler.heat.observe(mass[:, :, : arena.rows].mean(dim=(0, 1)).cpu().numpy(), rows)
        seen = mass[:, :, :rows].reshape(*mass.shape[:2], arena.in_sight, arena.block_tokens)
        result: FloatArray = seen.cpu().numpy().copy()
        return result
