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
    """All of a document's KV, exact. `room` is the most tokens that a question and its answer take.

    Behind the document there is room for `places` answers side by side, none in sight of another.
    """

    def __init__(
        self,
        engine: HFEngine,
        token_ids: Sequence[int],
        block_tokens: int,
        room: int,
        places: int = 1,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        from zerolayer.engines.hf.attention import OBSERVED_QUERIES

        self.engine, self.tokens, self.block_tokens = engine, len(token_ids), block_tokens
        self.blocks, self.room = self.tokens // block_tokens, room
        self.arena = engine.make_arena(self.blocks + -(-room * places // block_tokens), block_tokens)
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

    def forced(self, reference: Reference, visible: BoolArray | None, place: int = 0) -> torch.Tensor:
        """Logits `[targets, vocabulary]` of the reference's answer, teacher-forced, in sight of `visible`.

        `visible` is `[document tokens]`, or `[layers, kv_heads, document tokens]`; None is all of them.
        """
        count = len(reference.targets)
        return self.logits([*reference.question_ids, *reference.targets[:-1]], visible, count, place)

    def logits(
        self, token_ids: Sequence[int], visible: BoolArray | None, last: int, place: int = 0
    ) -> torch.Tensor:
        """Logits `[last, vocabulary]` of the last tokens of `token_ids`, which stand right behind the document.

        `place` says where their rows lie; it changes no number.
        """
        import torch

        document = np.ones(self.tokens, dtype=np.bool_) if visible is None else visible
        leading, count, first = document.shape[:-1], len(token_ids), self._first_row(place)
        seen = torch.zeros(*leading, count, first + count, dtype=torch.bool)
        seen[..., : self.tokens] = torch.as_tensor(document).unsqueeze(-2)
        seen[..., first:] = torch.ones(count, count, dtype=torch.bool).tril()
        return self._run(token_ids, self.tokens + np.arange(count), first + np.arange(count), seen, last)

    def own_answers(
        self,
        reference: Reference,
        forced: Sequence[torch.Tensor],
        visible: Sequence[BoolArray],
        max_new_tokens: int,
    ) -> list[list[int]]:
        """The greedy answers in sight of each of `visible`; number i goes on from what `forced` left in place i.

        As long as every forced token was the likeliest one, an answer is the reference's; only the rest is decoded,
        a token of all answers in one pass.
        """
        answers = [self._until_parted(reference, logits) for logits in forced]
        for dimensions in {view.ndim for view in visible}:
            alike = [place for place, view in enumerate(visible) if view.ndim == dimensions]
            while running := [place for place in alike if self._runs(answers[place], max_new_tokens)]:
                following = self._decode(
                    reference, [answers[i] for i in running], [visible[i] for i in running], running
                )
                for place, token in zip(running, following, strict=True):
                    answers[place].append(token)
        stop = self.engine.stop_ids()
        return [[token for token in answer if token not in stop] for answer in answers]

    def _until_parted(self, reference: Reference, logits: torch.Tensor) -> list[int]:
        """The reference's tokens up to the first that was not the likeliest one, and that likeliest one."""
        likeliest = logits.argmax(dim=-1).tolist()
        pairs = enumerate(zip(likeliest, reference.targets, strict=True))
        parted = next((i for i, (own, target) in pairs if own != target), len(likeliest) - 1)
        return [*reference.targets[:parted], int(likeliest[parted])]

    def _runs(self, answer: Sequence[int], max_new_tokens: int) -> bool:
        return len(answer) < max_new_tokens and answer[-1] not in self.engine.stop_ids()

    def _decode(
        self,
        reference: Reference,
        answers: Sequence[Sequence[int]],
        visible: Sequence[BoolArray],
        places: Sequence[int],
    ) -> list[int]:
        """The next token of each answer."""
        import torch

        count = len(reference.question_ids) - 1
        firsts = [self._first_row(place) for place in places]
        rows = np.asarray([f + count + len(answer) for f, answer in zip(firsts, answers, strict=True)])
        seen = torch.zeros(*visible[0].shape[:-1], len(rows), int(rows.max()) + 1, dtype=torch.bool)
        for number, (first, row) in enumerate(zip(firsts, rows, strict=True)):
            seen[..., number, : self.tokens] = torch.as_tensor(visible[number])
            seen[..., number, first : row + 1] = True
        positions = rows - np.asarray(firsts) + self.tokens
        logits = self._run([answer[-1] for answer in answers], positions, rows, seen, len(rows))
        return [int(token) for token in logits.argmax(dim=-1)]

    def _first_row(self, place: int) -> int:
        return self.tokens + place * self.room

    def _run(
        self,
        token_ids: Sequence[int],
        positions: np.ndarray,
        rows: np.ndarray,
        seen: torch.Tensor,
        last: int,
    ) -> torch.Tensor:
        """Logits `[last, vocabulary]`; `seen` is `[tokens, rows]` or `[layers, kv_heads, tokens, rows]`."""
        import torch

        from zerolayer.engines.hf.attention import AttentionPass

        engine = self._attached()
        seen = seen.to(engine.device)
        shared = _additive(seen, engine.dtype) if seen.dim() == 2 else None
        index = torch.as_tensor(rows, device=engine.device)
        with hidden_states(engine) as states, _masks_of_layers(engine, seen):
            engine.forward(token_ids, positions, index, seen.shape[-1], AttentionPass(mask=shared))
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


def _additive(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where `seen`, minus infinity elsewhere."""
    import torch

    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))


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
def _masks_of_layers(engine: HFEngine, seen: torch.Tensor) -> Iterator[None]:
    """Gives each layer its own mask of `seen` `[layers, kv_heads, tokens, rows]`; does nothing for `[tokens, rows]`."""
    handles = []
    if seen.dim() == 4:
        for layer, block in enumerate(engine.model.model.layers):

            def set_mask(_module: Any, _arguments: Any, keywords: dict[str, Any], layer: int = layer) -> None:
                mask = _additive(seen[layer], engine.dtype)
                keywords["arena_pass"].mask = mask.unsqueeze(1)  # one for all query heads of a group

            handles.append(block.self_attn.register_forward_pre_hook(set_mask, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
