"""Rotary positions of keys (RoPE, arXiv:2104.09864): rotate once, take back, shift.

The layout is the half-split one of Llama, Qwen2 and Qwen3: `k·cos + rotate_half(k)·sin`, where a scaled variant
(YaRN, arXiv:2309.00071) multiplies cosine and sine by its attention factor. A shift composes two rotations and
therefore never sees that factor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PART_BYTES = 512 * 1024
"""Bytes of keys that one thread rotates at a time: with their result half of a usual second-level cache."""


class RotaryTable:
    """Cosines and sines of every position of the window, `[positions, head_dim / 2]`, without scaling."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor, scaling: float = 1.0) -> None:
        import torch

        self.cos, self.sin, self.scaling = cos.contiguous(), sin.contiguous(), scaling
        # Both halves share their cosines: with these a whole row is one contiguous run, which is twice as fast.
        self._wide_cos = torch.cat([self.cos, self.cos], dim=-1)

    @property
    def positions(self) -> int:
        """Number of positions in the window."""
        return int(self.cos.shape[0])

    def rotate(self, keys: torch.Tensor, position: int, out: torch.Tensor) -> None:
        """Rotate `[..., tokens, head_dim]` to `position, position + 1, …` and write into `out`, no view of `keys`."""
        import torch

        tokens, half = keys.shape[-2], keys.shape[-1] // 2
        cos = self._wide_cos[position : position + tokens]
        sin = self.sin[position : position + tokens]
        if self.scaling != 1.0:
            cos, sin = cos * self.scaling, sin * self.scaling
        # A part at a time on the CPU, so that the second and third pass find it in the core's cache.
        part = keys.shape[0] if keys.is_cuda else _layers_in_cache(keys, torch.get_num_threads())
        for source, target in zip(torch.split(keys, part), torch.split(out, part), strict=True):
            torch.mul(source, cos, out=target)
            target[..., :half].addcmul_(source[..., half:], sin, value=-1)
            target[..., half:].addcmul_(source[..., :half], sin)

    def unrotate(self, keys: torch.Tensor, position: int) -> torch.Tensor:
        """The inverse of `rotate`, as a new tensor."""
        tokens = keys.shape[-2]
        cos = self.cos[position : position + tokens]
        sin = self.sin[position : position + tokens]
        result = _turn(keys, cos, -sin)
        return result if self.scaling == 1.0 else result.div_(self.scaling)

    def shift(self, keys: torch.Tensor, offset: int) -> None:
        """Turn keys that are already rotated by `offset` positions more (or fewer), in place."""
        cos = self.cos[abs(offset)]
        sin = self.sin[abs(offset)] if offset >= 0 else -self.sin[abs(offset)]
        keys.copy_(_turn(keys, cos, sin))


def _layers_in_cache(keys: torch.Tensor, threads: int) -> int:
    """How much of the first dimension, read and written, stays within the second-level caches of the threads."""
    each = keys[0].numel() * keys.element_size()
    return max(1, _PART_BYTES * threads // each)


def _turn(keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    half = keys.shape[-1] // 2
    first, second = keys[..., :half], keys[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
