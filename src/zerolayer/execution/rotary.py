"""Rotary positions of keys (RoPE, arXiv:2104.09864): rotate once, take back, shift.

Models of the Llama, Qwen2 and Qwen3 families pair channel i with channel i + head_dim / 2:
`k·cos + rotate_half(k)·sin`. Here the two channels of a pair lie side by side, as the real and the imaginary part of
one complex number, so that a rotation is one complex product: one pass over memory, nearly as fast as a copy. A dot
product of queries and keys does not mind the order of channels, as long as both have the same. A scaled variant
(YaRN, arXiv:2309.00071) multiplies cosine and sine by its attention factor; a shift composes two rotations and never
sees that factor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def interleaved(heads: torch.Tensor) -> torch.Tensor:
    """A view of `[..., head_dim]` in the model's order of channels as `[..., head_dim / 2, 2]`, pairs side by side."""
    import torch

    return torch.unflatten(heads, -1, (2, heads.shape[-1] // 2)).transpose(-1, -2)


def separated(heads: torch.Tensor) -> torch.Tensor:
    """The inverse of `interleaved`, as a new tensor `[..., head_dim]`."""
    import torch

    return torch.unflatten(heads, -1, (heads.shape[-1] // 2, 2)).transpose(-1, -2).flatten(-2)


class RotaryTable:
    """Rotations to every position of the window. Keys are `[..., tokens, head_dim]`, interleaved, float32.

    `cos` and `sin` are `[positions, head_dim / 2]`, without scaling.
    """

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor, scaling: float = 1.0) -> None:
        import torch

        self.scaling = scaling
        self._unit = torch.complex(cos.float(), sin.float())
        self._rotation = self._unit * scaling
        # Values are turned by one: so a block's keys and values go to their slot in a single product.
        self._block = torch.stack([self._rotation, torch.ones_like(self._rotation)])[:, None, None]
        self._inverse = self._unit.conj().resolve_conj() / scaling

    @property
    def positions(self) -> int:
        """Number of positions in the window."""
        return int(self._unit.shape[0])

    def rotate(self, keys: torch.Tensor, position: int, out: torch.Tensor) -> None:
        """Rotate keys to `position, position + 1, …` and write into `out`."""
        _product(keys, self._rotation[position : position + keys.shape[-2]], out)

    def rotate_block(self, kv: torch.Tensor, position: int, out: torch.Tensor) -> None:
        """Write keys `kv[0]`, rotated, and values `kv[1]`, as they are, into `out`; both `[2, …, tokens, head_dim]`."""
        _product(kv, self._block[..., position : position + kv.shape[-2], :], out)

    def unrotate(self, keys: torch.Tensor, position: int) -> torch.Tensor:
        """The inverse of `rotate`, as a new tensor."""
        import torch

        turn = self._inverse[position : position + keys.shape[-2]]
        result: torch.Tensor = torch.view_as_real(_complex(keys.float()) * turn).flatten(-2)
        return result.to(keys.dtype)

    def shift(self, keys: torch.Tensor, offset: int) -> None:
        """Turn keys that are already rotated by `offset` positions more (or fewer), in place."""
        turn = self._unit[abs(offset)] if offset >= 0 else self._unit[abs(offset)].conj().resolve_conj()
        _product(keys, turn, keys)


def _complex(keys: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.view_as_complex(torch.unflatten(keys, -1, (keys.shape[-1] // 2, 2)))


def _product(keys: torch.Tensor, turn: torch.Tensor, out: torch.Tensor) -> None:
    import torch

    if out.dtype == keys.dtype == torch.float32:
        torch.mul(_complex(keys), turn, out=_complex(out))
    else:  # complex products exist in float32 only
        out.copy_(torch.view_as_real(_complex(keys.float()) * turn).flatten(-2))
