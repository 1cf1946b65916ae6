"""Attention over the arena's resident prefix, registered with transformers' `AttentionInterface`.

No mask is ever built by transformers (the mask function returns None): a decode step sees the whole prefix; a chunk
sees the prefix and, among its own rows at the end of it, the earlier ones; a knit pass sees by position.
Grouped queries are views with the group as a dimension of its own, so no key is ever repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from zerolayer.execution.rotary import interleaved

ATTENTION_NAME = "zerolayer"
OBSERVED_QUERIES = 128
"""Longest query whose attention weights can be observed: questions and decode steps, not document chunks."""


@dataclass(slots=True)
class AttentionPass:
    """What one forward pass wants of attention; travels to every layer as a keyword argument."""

    mask: torch.Tensor | None = None
    """Additive, `[queries, prefix]`; None for a single query that sees everything, and where `causal` says it all."""
    causal: bool = False
    """The queries are the last rows of the prefix, and each sees all rows up to its own."""
    scratch: torch.Tensor | None = None
    """Flat buffer for weights, at least `heads * queries * prefix`; with it, weights are computed and observable."""
    by_layer: bool = False
    """Each layer's weights stay in the scratch buffer, one layer after the other: `[layers, heads, prefix]`."""
    observe: bool = False
    mass: torch.Tensor | None = None
    """`[layers, heads, slots * block_tokens]`: accumulates weights, summed over queries, where observe is set."""
    collect: bool = False
    """Keep what each layer computed for the pass's own tokens: `queries`, and without an arena `keys_values`."""
    queries: list[torch.Tensor] = field(default_factory=list)
    """Rotated queries of each layer, `[heads, queries, head_dim]`, interleaved."""
    before: list[tuple[torch.Tensor, torch.Tensor]] | None = None
    """Keys and values of each layer that stand before a pass without an arena, as in `keys_values`."""
    keys_values: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """The same of its keys, and its values, `[kv_heads, queries, head_dim]`, of a pass without an arena."""


def register() -> None:
    """Make `attn_implementation="zerolayer"` known to transformers. Safe to call again."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ATTENTION_NAME, arena_attention)
    AttentionMaskInterface.register(ATTENTION_NAME, no_mask)


def no_mask(*_: Any, **__: Any) -> None:
    """The arena's attention needs no mask from transformers."""


def arena_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    arena_pass: AttentionPass,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of `query` `[1, heads, queries, head_dim]` over `key`, `value` `[kv_heads, prefix, head_dim]`.

    The arena's keys are interleaved (rotary.py). A pass without an arena brings its own keys and values as the model
    made them, with a batch dimension of 1 in front.
    Returns `[1, queries, heads, head_dim]`, as transformers expects.
    """
    assert attention_mask is None, "transformers built a mask although none was asked for"
    if key.dim() == 4:
        key, value = interleaved(key[0]).flatten(-2), value[0]
        if arena_pass.collect:
            arena_pass.keys_values.append((key, value))
        if arena_pass.before is not None:
            layer: Any = module.layer_idx
            first_keys, first_values = arena_pass.before[layer]
            key, value = torch.cat([first_keys, key], dim=1), torch.cat([first_values, value], dim=1)
    kv_heads, _prefix, head_dim = key.shape
    heads, queries = query.shape[1], query.shape[2]
    paired = interleaved(query[0]).flatten(-2)  # channels in the order of the arena's keys
    grouped = paired.view(kv_heads, heads // kv_heads, queries, head_dim)
    if arena_pass.collect:
        arena_pass.queries.append(paired)
    if arena_pass.scratch is not None:
        output = _weighted(module, grouped, key, value, scaling, arena_pass)
    elif arena_pass.causal and arena_pass.mask is None:
        output = _split(grouped, key, value, scaling)
    else:
        output = _fused(grouped, key, value, scaling, arena_pass.mask)
    return output.reshape(1, heads, queries, head_dim).transpose(1, 2), None


def _fused(
    grouped: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """Fused kernel; keys are broadcast over the group with stride 0."""
    group = grouped.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(
        grouped,
        key.unsqueeze(1).expand(-1, group, -1, -1),
        value.unsqueeze(1).expand(-1, group, -1, -1),
        attn_mask=mask,
        scale=scaling,
    )


def _split(grouped: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
    """A chunk in two calls without a mask: over what lies before it, and causally over itself.

    The parts are weighed by their log-sum-exp, as in FlashDecoding. Towards the prefix all queries of a group are
    one longer query, so that each key is read once. CPU only: the operator is that of PyTorch's CPU kernel.
    """
    kv_heads, group, queries, head_dim = grouped.shape
    before = key.shape[1] - queries
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    own_key = key[:, before:].unsqueeze(1).expand(-1, group, -1, -1)
    own_value = value[:, before:].unsqueeze(1).expand(-1, group, -1, -1)
    output: torch.Tensor
    output, own_lse = flash(grouped, own_key, own_value, 0.0, True, scale=scaling)
    if before == 0:
        return output
    flat = grouped.reshape(kv_heads, 1, group * queries, head_dim)
    prefix, prefix_lse = flash(
        flat, key[:, None, :before], value[:, None, :before], 0.0, False, scale=scaling
    )
    share = torch.sigmoid(prefix_lse.reshape(own_lse.shape) - own_lse).to(output.dtype)
    return torch.lerp(output, prefix.reshape(output.shape), share.unsqueeze(-1))


def _weighted(
    module: torch.nn.Module,
    grouped: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    arena_pass: AttentionPass,
) -> torch.Tensor:
    """Attention with explicit weights in the pass's scratch buffer: nothing that grows with context is allocated."""
    kv_heads, group, queries, head_dim = grouped.shape
    prefix = key.shape[1]
    assert arena_pass.scratch is not None
    layer: Any = module.layer_idx
    size = kv_heads * group * queries * prefix
    first = layer * size if arena_pass.by_layer else 0
    weights = arena_pass.scratch[first : first + size].view(kv_heads, group * queries, prefix)
    flat = grouped.reshape(kv_heads, group * queries, head_dim)
    torch.baddbmm(weights, flat, key.transpose(1, 2), beta=0, alpha=scaling, out=weights)
    if arena_pass.mask is not None:
        weights.view(kv_heads, group, queries, prefix).add_(arena_pass.mask)
    torch.softmax(weights, dim=-1, out=weights)
    if arena_pass.observe and arena_pass.mass is not None:
        arena_pass.mass[layer, :, :prefix] += weights.view(kv_heads * group, queries, prefix).sum(1)
    return torch.bmm(weights, value)
