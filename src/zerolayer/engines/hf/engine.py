"""A Hugging Face causal language model over an arena: chunks, knit passes and decode steps.

The engine computes and observes. It does not decide which blocks are resident, and it moves none of them.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zerolayer.errors import ModelError
from zerolayer.execution.arena import Arena, KVGeometry
from zerolayer.execution.rotary import RotaryTable

if TYPE_CHECKING:
    import torch

    from zerolayer.engines.hf.attention import AttentionPass
    from zerolayer.engines.hf.cache import ArenaCache

SUPPORTED_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary variants whose frequencies do not depend on the sequence length."""


HEADS_KEPT = 16
"""Beginnings of streams whose keys and values are kept for `question_queries`: a block each."""

KeysValues = list[tuple["torch.Tensor", "torch.Tensor"]]
"""Of each layer, `[kv_heads, tokens, head_dim]`, keys rotated and interleaved."""


def pick_device(name: str) -> str:
    """`auto` → cuda where it is, else cpu."""
    import torch

    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


_COMPUTED_FROM = (
    "model_type", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps",
    "rope_parameters", "max_position_embeddings", "tie_word_embeddings",
)  # fmt: skip
"""What of a configuration shapes KV, beside the weights. Where the model lies and who wrote the file do not."""


def weights_fingerprint(model: Any) -> str:
    """32 hex digits of how a model computes and of a sample of its weights: whose KV a store holds."""
    import torch
    from xxhash import xxh3_128

    shaping = {name: getattr(model.config, name, None) for name in _COMPUTED_FROM}
    digest = xxh3_128(json.dumps(shaping, sort_keys=True, default=str).encode())
    for name, weight in model.named_parameters():
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        digest.update(weight.detach().flatten()[:256].to(torch.float32).cpu().numpy().tobytes())
    return digest.hexdigest()


def geometry_of(config: Any, itemsize: int = 4) -> KVGeometry:
    """The shape of keys and values from a model's configuration; `itemsize` is the bytes of one element."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return KVGeometry(int(config.num_hidden_layers), int(config.num_key_value_heads), int(head_dim), itemsize)


@dataclass(slots=True)
class _Attached:
    """What passes over one arena need, beside what all arenas share."""

    cache: ArenaCache
    mass: torch.Tensor  # [layers, heads, rows]: attention observed


class HFEngine:
    """A loaded model. One engine serves one arena at a time, and any number of them in turn."""

    def __init__(self, model: Any, tokenizer: Any, name: str = "", fingerprint: str = "") -> None:

        from zerolayer.engines.hf.attention import ATTENTION_NAME, register

        register()
        model.eval()
        model.set_attn_implementation(ATTENTION_NAME)
        self.model, self.tokenizer, self.name = model, tokenizer, name or model.config.name_or_path
        config = model.config
        self.fingerprint = fingerprint or weights_fingerprint(model)
        rope = config.rope_parameters.get("rope_type", "default")
        if rope not in SUPPORTED_ROPE:
            raise ModelError(
                f"model {self.name!r} uses rotary positions of type {rope!r}; supported: {', '.join(SUPPORTED_ROPE)}"
            )
        kinds = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
        if kinds:
            raise ModelError(
                f"model {self.name!r} has layers of the type {', '.join(kinds)}; supported: full_attention. "
                "Set use_sliding_window to false in its config.json if it was trained for that, or choose another model"
            )
        self.heads = int(config.num_attention_heads)
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        self.window = int(config.max_position_embeddings)
        self.geometry = geometry_of(config, self.dtype.itemsize)
        self.rotary = self._rotary_table()
        self._heads_computed: dict[tuple[int, ...], KeysValues] = {}
        self._rows = 0  # of the largest arena so far, for which the buffers that arenas share are made
        known = inspect.signature(type(model.model).forward).parameters
        self._cache_argument = (
            "cache" if "cache" in known else "past_key_values"
        )  # renamed in transformers 5.24

    @classmethod
    def load(cls, path: Path, device: str = "auto", name: str = "") -> HFEngine:
        """Load a directory with a causal language model. Raises ModelError."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(path)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"model directory {str(path)!r} cannot be loaded: {error}") from error
        return cls(model.to(pick_device(device)), tokenizer, name or path.name)

    def _rotary_table(self) -> RotaryTable:
        """Cosines and sines from the model's own rotary embedding, its scaling taken out."""
        import torch

        embedding = self.model.model.rotary_emb
        positions = torch.arange(self.window, device=self.device)[None]
        with torch.no_grad():
            probe = torch.zeros(1, dtype=torch.float32, device=self.device)
            cos, sin = embedding(probe, positions)
        half, scaling = self.geometry.head_dim // 2, float(embedding.attention_scaling)
        return RotaryTable(cos[0, :, :half] / scaling, sin[0, :, :half] / scaling, scaling)

    def make_arena(self, slots: int, block_tokens: int) -> Arena:
        """Allocate an arena on the model's device."""
        arena = Arena(self.geometry, slots, block_tokens, self.rotary, self.device, self.dtype)
        self.attach(arena)
        return arena

    def attach(self, arena: Arena) -> None:
        """Use `arena` from now on. The buffers of its passes are made once: going back to it costs nothing."""
        import torch

        from zerolayer.engines.hf.attention import OBSERVED_QUERIES
        from zerolayer.engines.hf.cache import ArenaCache

        rows = arena.slots * arena.block_tokens
        own: _Attached | None = arena.attachment
        if own is None:
            shape = (self.geometry.layers, self.heads, rows)
            own = _Attached(ArenaCache(arena), torch.zeros(shape, dtype=torch.float32, device=self.device))
            arena.attachment = own
        self.arena, self.cache, self.mass = arena, own.cache, own.mass
        if rows > self._rows:
            self._rows = rows
            # Weights of one decode step in all layers, or of a question of moderate length in one.
            most = max(OBSERVED_QUERIES, self.geometry.layers)
            self._scratch = torch.empty(self.heads * most * rows, dtype=self.dtype, device=self.device)
            self._causal = torch.zeros(0, 0)

    def causal_mask(self, queries: int, prefix: int) -> torch.Tensor:
        """`[queries, prefix]`, the chunk being the last rows: a view of one mask that is built once."""
        import torch

        rows = self._rows
        if self._causal.shape[0] < queries:
            mask = torch.full((queries, rows + queries), float("-inf"), dtype=self.dtype, device=self.device)
            self._causal = torch.triu(mask, diagonal=rows + 1)
        built = self._causal.shape[0]
        first_row, first_column = built - queries, rows + built - prefix
        return self._causal[first_row:, first_column : first_column + prefix]

    def forward(
        self,
        token_ids: Sequence[int] | np.ndarray,
        positions: np.ndarray,
        rows: slice | torch.Tensor,
        prefix: int,
        arena_pass: AttentionPass,
        logits: bool = False,
    ) -> torch.Tensor | None:
        """One pass; writes KV into `rows`. Returns the last token's logits `[vocabulary]` where asked for."""
        import torch

        self.cache.rows, self.cache.prefix = rows, prefix
        ids = torch.as_tensor(np.asarray(token_ids, dtype=np.int64), device=self.device)[None]
        position_ids = torch.as_tensor(positions, device=self.device)[None]
        with torch.inference_mode():
            hidden = self.model.model(
                input_ids=ids,
                position_ids=position_ids,
                use_cache=True,
                arena_pass=arena_pass,
                **{self._cache_argument: self.cache},
            ).last_hidden_state
            return self.model.lm_head(hidden[0, -1]) if logits else None

    def append(
        self,
        token_ids: Sequence[int] | np.ndarray,
        position: int,
        *,
        observe: bool = False,
        collect: bool = False,
        logits: bool = False,
    ) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Compute tokens at the end of the prefix, in sight of it. Returns logits and collected queries."""
        from zerolayer.engines.hf.attention import OBSERVED_QUERIES, AttentionPass

        count, first = len(token_ids), self.arena.rows
        last = first + count
        explicit = count == 1 or (observe and count <= OBSERVED_QUERIES)
        split = not explicit and self.device.type == "cpu"
        arena_pass = AttentionPass(
            mask=None if count == 1 or split else self.causal_mask(count, last),
            causal=split,
            scratch=self._scratch if explicit else None,
            by_layer=count == 1,
            observe=observe and count > 1,
            mass=self.mass,
            collect=collect,
        )
        positions = position + np.arange(count)
        result = self.forward(token_ids, positions, slice(first, last), last, arena_pass, logits)
        if observe and count == 1:  # all layers in one sum: a sum a layer costs more than it adds
            shape = (self.geometry.layers, self.heads, last)
            self.mass[:, :, :last] += self._scratch[: math.prod(shape)].view(shape)
        self.arena.rows = last
        return result, arena_pass.queries

    def isolated(
        self, token_ids: Sequence[int] | np.ndarray, before: KeysValues | None = None
    ) -> AttentionPass:
        """Compute tokens in sight of each other only, from position 0 on; nothing resident is read or written.

        `before` are keys and values of tokens that stand in front of them, as an earlier pass returned them. The pass
        returned holds each layer's queries, keys and values of `token_ids`, all rotated.
        """
        import torch

        from zerolayer.engines.hf.attention import AttentionPass

        count, first = len(token_ids), before[0][0].shape[1] if before else 0
        causal = self.device.type == "cpu"
        mask = None
        if not causal:
            mask = torch.full((count, first + count), float("-inf"), dtype=self.dtype, device=self.device)
            mask.triu_(1 + first)
        arena_pass = AttentionPass(mask=mask, causal=causal, collect=True, before=before)
        ids = torch.as_tensor(np.asarray(token_ids, dtype=np.int64), device=self.device)[None]
        positions = torch.arange(first, first + count, device=self.device)[None]
        with torch.inference_mode():
            self.model.model(input_ids=ids, position_ids=positions, use_cache=False, arena_pass=arena_pass)
        return arena_pass

    def question_queries(self, head: Sequence[int], question: Sequence[int]) -> np.ndarray:
        """Queries of the question's tokens without rotation, scaled: `[layers, heads, tokens, head_dim]`.

        `head` are the first tokens of the stream (the sinks), which keep the question's attention in shape; they are
        computed once for the questions that follow each other.
        """
        key = tuple(head)
        before = self._heads_computed.get(key)
        if before is None and head:
            before = self.isolated(head).keys_values
            while len(self._heads_computed) >= HEADS_KEPT:
                del self._heads_computed[next(iter(self._heads_computed))]
            self._heads_computed[key] = before
        return self.unrotated(self.isolated(question, before).queries, len(head))

    def unrotated(self, queries: Sequence[torch.Tensor], position: int) -> np.ndarray:
        """Collected queries of each layer, rotated from `position` on, without rotation and scaled."""
        import torch

        scale = self.geometry.head_dim**-0.5
        with torch.inference_mode():
            layers = [self.rotary.unrotate(layer, position) * scale for layer in queries]
            return torch.stack(layers).cpu().numpy()

    def compute_block(
        self, context: Sequence[int], block: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (without rotation) and values of `block`, computed in sight of `context` alone.

        Both are `[layers, kv_heads, tokens, head_dim]`.
        """
        import torch

        arena_pass = self.isolated([*context, *block])
        first = len(context)
        with torch.inference_mode():
            keys = torch.stack([key[:, first:] for key, _ in arena_pass.keys_values])
            values = torch.stack([value[:, first:] for _, value in arena_pass.keys_values])
            return self.rotary.unrotate(keys, first), values

    def knit(self, token_ids: np.ndarray, rows: np.ndarray, row_positions: np.ndarray) -> None:
        """Recompute the tokens in `rows`, each in sight of every resident token at a lower position."""
        import torch

        from zerolayer.engines.hf.attention import AttentionPass

        order = np.argsort(row_positions[rows], kind="stable")
        rows, token_ids = rows[order], token_ids[order]
        positions = row_positions[rows]
        prefix = self.arena.rows
        visible = torch.as_tensor(row_positions[None, :prefix] <= positions[:, None], device=self.device)
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~visible, float("-inf"))
        index = torch.as_tensor(rows, device=self.device)
        self.forward(token_ids, positions, index, prefix, AttentionPass(mask=mask))

    def generate(
        self, logits: torch.Tensor, position: int, max_new_tokens: int, observe: bool = True
    ) -> Iterator[int]:
        """Greedy decoding from the given logits; yields token ids, the end token left out."""
        stop = self.stop_ids()
        for step in range(max_new_tokens):
            token = int(logits.argmax())
            if token in stop:
                return
            yield token
            if step + 1 < max_new_tokens:
                following, _ = self.append([token], position + step, observe=observe, logits=True)
                assert following is not None
                logits = following

    def stop_ids(self) -> set[int]:
        """Tokens that end an answer."""
        configured = self.model.generation_config.eos_token_id
        stop = set(configured if isinstance(configured, list) else [configured])
        stop.add(self.tokenizer.eos_token_id)
        return {int(token) for token in stop if token is not None}
