"""A document's exact cache on the device, and what an answer becomes when only a part of it may be seen.

Keys keep the positions at which they were prefilled; what a method leaves out is masked. So one prefill serves every
method and every budget, and whoever drops and whoever recalls are compared on the same cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zerolayer.core import BoolArray, FloatArray

if TYPE_CHECKING:
    import torch

    from zerolayer.engines.hf.engine import HFEngine


@dataclass(frozen=True)
class Reference:
    """What the full cache answers, and what it looked at."""

    question_ids: list[int]
    targets: list[int]  # its greedy answer, with the end token where it came to its end
    answer_ids: list[int]  # the same without the end token
    log_probs: torch.Tensor  # [targets, vocabulary]
    question_mass: FloatArray  # [layers, heads, document tokens], summed over the question's tokens
    answer_mass: FloatArray  # the same of the answer's tokens


class FullCache:
    """All of a document's KV, exact. `room` is the most tokens that a question and its answer take."""

    def __init__(
        self,
        engine: HFEngine,
        token_ids: Sequence[int],
        block_tokens: int,
        room: int,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        from zerolayer.engines.hf.attention import OBSERVED_QUERIES

        self.engine, self.tokens, self.block_tokens = engine, len(token_ids), block_tokens
        self.blocks = self.tokens // block_tokens
        self.arena = engine.make_arena(self.blocks + -(-room // block_tokens), block_tokens)
        # In chunks whose attention can be observed: what H2O accumulates comes with the prefill.
        for first in range(0, self.tokens, OBSERVED_QUERIES):
            engine.append(token_ids[first : first + OBSERVED_QUERIES], first, observe=True)
            if on_progress is not None:
                on_progress(min(self.tokens, first + OBSERVED_QUERIES), self.tokens)
        self.accumulated = self._mass()
        for block in range(self.blocks):
            self.arena.claim(block, block * block_tokens)

    def key_norms(self) -> FloatArray:
        """[layers, kv_heads, document tokens] length of each key; rotation does not change it."""
        rows = [keys[:, : self.tokens].norm(dim=-1).cpu().numpy() for keys in self.arena.keys]
        norms: FloatArray = np.stack(rows)
        return norms

    def reference(self, question_ids: Sequence[int], max_new_tokens: int) -> Reference:
        """The full cache's greedy answer of at most `max_new_tokens`, and its distributions along it."""
        from zerolayer.engines.hf.attention import OBSERVED_QUERIES

        engine, count = self._attached(), len(question_ids)
        engine.mass.zero_()
        unseen = max(0, count - OBSERVED_QUERIES)
        if unseen:
            engine.append(question_ids[:unseen], self.tokens)
        logits, _ = engine.append(question_ids[unseen:], self.tokens + unseen, observe=True, logits=True)
        assert logits is not None
        question_mass = self._mass()
        engine.mass.zero_()
        answer = list(engine.generate(logits, self.tokens + count, max_new_tokens))
        answer_mass = self._mass()
        scored = self.logits([*question_ids, *answer], None, len(answer) + 1)
        targets = list(answer)
        if len(answer) < max_new_tokens:
            targets.append(int(scored[-1].argmax()))
        return Reference(
            list(question_ids),
            targets,
            answer,
            scored[: len(targets)].log_softmax(dim=-1),
            question_mass,
            answer_mass,
        )

    def forced(self, reference: Reference, visible: BoolArray | None) -> torch.Tensor:
        """Logits `[targets, vocabulary]` of the reference's answer, teacher-forced, in sight of `visible`.

        `visible` is `[document tokens]`, or `[layers, kv_heads, document tokens]`; None is all of them.
        """
        count = len(reference.targets)
        return self.logits([*reference.question_ids, *reference.targets[:-1]], visible, count)

    def logits(self, token_ids: Sequence[int], visible: BoolArray | None, last: int) -> torch.Tensor:
        """Logits `[last, vocabulary]` of the last tokens of `token_ids`, which stand right behind the document."""
        return self._pass(token_ids, self.tokens, visible, last)

    def own_answer(
        self, reference: Reference, logits: torch.Tensor, visible: BoolArray, max_new_tokens: int
    ) -> list[int]:
        """The greedy answer in sight of `visible`; call right after `forced`, whose logits it goes on from.

        As long as every forced token was the likeliest one, both answers are the same; only the rest is decoded.
        """
        stop = self.engine.stop_ids()
        likeliest = logits.argmax(dim=-1).tolist()
        pairs = zip(likeliest, reference.targets, strict=True)
        parted = next((i for i, (own, target) in enumerate(pairs) if own != target), None)
        if parted is None:
            return list(reference.answer_ids)
        answer = [*reference.targets[:parted], int(likeliest[parted])]
        row = self.tokens + len(reference.question_ids) + parted
        while answer[-1] not in stop and len(answer) < max_new_tokens:
            following = self._pass(answer[-1:], row, visible, 1)
            answer.append(int(following[-1].argmax()))
            row += 1
        return answer[:-1] if answer[-1] in stop else answer

    def _pass(self, token_ids: Sequence[int], row: int, visible: BoolArray | None, last: int) -> torch.Tensor:
        import torch

        from zerolayer.engines.hf.attention import AttentionPass

        engine, count = self._attached(), len(token_ids)
        seen = torch.ones(self.tokens, dtype=torch.bool) if visible is None else torch.as_tensor(visible)
        seen = seen.to(engine.device)
        rows, end = slice(row, row + count), row + count
        shared = attention_mask(seen, count, end, engine.dtype) if seen.dim() == 1 else None
        with hidden_states(engine) as states, _masks_of_layers(engine, seen, count, end):
            engine.forward(token_ids, row + np.arange(count), rows, end, AttentionPass(mask=shared))
        with torch.inference_mode():
            result: torch.Tensor = engine.model.lm_head(states[-1][0, -last:]).float()
        return result

    def _attached(self) -> HFEngine:
        """The engine, over this arena, with nothing behind the document."""
        if self.engine.arena is not self.arena:
            self.engine.attach(self.arena)
        self.arena.drop_tail()
        return self.engine

    def _mass(self) -> FloatArray:
        mass: FloatArray = self.engine.mass[:, :, : self.tokens].cpu().numpy().copy()
        return mass


def attention_mask(visible: torch.Tensor, queries: int, rows: int, dtype: torch.dtype) -> torch.Tensor:
    """Additive `[…, queries, rows]` of `visible` `[…, document tokens]`: causal among the rows behind the document.

    The queries are the last rows.
    """
    import torch

    leading, tail = visible.shape[:-1], rows - visible.shape[-1]
    own = torch.ones(queries, tail, dtype=torch.bool, device=visible.device).tril(tail - queries)
    seen = visible.unsqueeze(-2).expand(*leading, queries, -1)
    both = torch.cat([seen, own.expand(*leading, queries, tail)], dim=-1)
    return torch.zeros(both.shape, dtype=dtype, device=visible.device).masked_fill_(~both, float("-inf"))


@contextmanager
def hidden_states(engine: HFEngine) -> Iterator[list[torch.Tensor]]:
    """Collects the last hidden states `[1, tokens, width]` of every pass, also of those that ask for no logits."""
    states: list[torch.Tensor] = []

    def keep(_module: Any, _arguments: Any, output: Any) -> None:
        states.append(output.last_hidden_state)

    handle = engine.model.model.register_forward_hook(keep)
    try:
        yield states
    finally:
        handle.remove()


@contextmanager
def _masks_of_layers(engine: HFEngine, visible: torch.Tensor, queries: int, rows: int) -> Iterator[None]:
    """Gives each layer a mask of its own for `visible` `[layers, kv_heads, document tokens]`; else does nothing."""
    handles = []
    if visible.dim() == 3:
        for layer, block in enumerate(engine.model.model.layers):

            def set_mask(_module: Any, _arguments: Any, keywords: dict[str, Any], layer: int = layer) -> None:
                mask = attention_mask(visible[layer], queries, rows, engine.dtype)
                keywords["arena_pass"].mask = mask.unsqueeze(1)  # one for all query heads of a group

            handles.append(block.self_attn.register_forward_pre_hook(set_mask, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
