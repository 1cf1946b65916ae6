"""Affine quantisation to unsigned integers, shared by INT8 and K8V4.

A group of values is kept as `low + code · scale`, code in 0..levels. Keys are grouped per channel over the
tokens of the block, since a few channels carry large offsets; values per token (KIVI, arXiv:2402.02750).
`low` is rounded down and `scale` up to bfloat16 before the codes are computed, so no value leaves the range
and the error is at most `scale / 2`. bfloat16 keeps the range of float32, which fp16 would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zerolayer.core import FloatArray
from zerolayer.execution.codecs.base import Codec, Scratch, check_range

Bits16 = npt.NDArray[np.uint16]
Codes = npt.NDArray[np.uint8]

_SMALLEST_SCALE = np.float32(1e-30)  # its reciprocal is still finite


@dataclass(frozen=True, slots=True)
class Quantised:
    """Codes (scratch memory) and the bfloat16 bits of each group's `low` and `scale`."""

    codes: Codes
    low: Bits16
    scale: Bits16


def _floor_bf16(x: FloatArray) -> Bits16:
    bits = np.ascontiguousarray(x).view(np.uint32)
    down = (bits >> 31) * np.uint32(0xFFFF)  # dropping bits moves a negative number up: add first
    return ((bits + down) >> 16).astype(np.uint16)


def _ceil_positive_bf16(x: FloatArray) -> Bits16:
    return ((np.ascontiguousarray(x).view(np.uint32) + np.uint32(0xFFFF)) >> 16).astype(np.uint16)


def widen_bf16(bits: npt.NDArray[Any]) -> FloatArray:
    """float32 of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _bounds(x: FloatArray, axis: int, scratch: Scratch) -> tuple[FloatArray, FloatArray]:
    """Minimum and maximum along `axis`, that axis kept with length 1."""
    if axis != x.ndim - 1:
        return x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    # numpy reduces a short innermost axis one element at a time; transposed first it is three times as fast.
    group = x.shape[-1]
    columns = scratch.array("columns", (group, x.size // group), np.float32)
    np.copyto(columns, x.reshape(-1, group).T)
    shape = (*x.shape[:-1], 1)
    return columns.min(axis=0).reshape(shape), columns.max(axis=0).reshape(shape)


def quantise(codec: Codec, x: FloatArray, axis: int, levels: int, scratch: Scratch, name: str) -> Quantised:
    """Codes 0..`levels` of `x`, one group per line along `axis`.

    The codes live in `scratch` under `name`. Raises StoreError for values out of range.
    """
    low, high = _bounds(x, axis, scratch)
    check_range(codec, low, high)
    low_bits = _floor_bf16(low)
    low = widen_bf16(low_bits)
    scale_bits = _ceil_positive_bf16(np.maximum((high - low) / np.float32(levels), _SMALLEST_SCALE))
    work = scratch.array("work", x.shape, np.float32)
    np.subtract(x, low, out=work)
    np.multiply(work, np.float32(1) / widen_bf16(scale_bits), out=work)
    np.add(work, np.float32(0.5), out=work)  # never negative here: truncation after + 0.5 rounds to nearest
    codes = scratch.array(name, x.shape, np.uint8)
    np.copyto(codes, work, casting="unsafe")
    return Quantised(codes, low_bits, scale_bits)


def dequantise(codes: Codes, low: Bits16, scale: Bits16, out: FloatArray) -> None:
    """Writes `low + codes · scale` into `out`; `low` and `scale` broadcast against `codes`."""
    np.copyto(out, codes)
    np.multiply(out, widen_bf16(scale), out=out)
    np.add(out, widen_bf16(low), out=out)
