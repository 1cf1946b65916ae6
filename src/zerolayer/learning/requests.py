"""Request traces: which blocks the requests of many sessions referenced, in order of time.

A request references the blocks of its prompt, a chain in which every block stands for the whole prompt up to its
end (vLLM's and Mooncake's prefix hashing): equal block numbers mean equal KV. Nothing of the text is kept.
`learning.request_files` holds the format on disk, `learning.converters` other sources, `learning.traces` the demand
of one document's questions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from zerolayer.core import IntArray, Tier
from zerolayer.errors import SettingError, TraceError

TimeArray = npt.NDArray[np.float64]

TIERS = tuple(Tier)
"""`RequestTrace.tiers` holds positions in this tuple."""

UNKNOWN = -1
"""A session, turn, tier, parent or number of tokens that is not known (or, of a parent: there is none)."""


@dataclass(frozen=True, eq=False)
class RequestTrace:
    """Requests in order of time. Raises TraceError for arrays that contradict each other.

    `build` fills in what is not known. Arrays are not to be written to.
    """

    blocks: IntArray  # [references] 0 to num_blocks - 1, in order of reference
    starts: IntArray  # [requests + 1] request r references blocks[starts[r] : starts[r + 1]], a prefix chain
    times_s: TimeArray  # [requests] seconds of arrival since any origin, never falling
    sessions: IntArray  # [requests] 0 and up, -1 unknown
    turns: IntArray  # [requests] place within the session, from 0; -1 unknown
    input_tokens: IntArray  # [requests] of the prompt, -1 unknown
    output_tokens: IntArray  # [requests] of the answer, -1 unknown
    tiers: IntArray  # [references] where the block was found, a position in TIERS; -1 nowhere or unknown
    block_tokens: int
    num_blocks: int  # a part of a trace keeps the numbers, and the number, of the whole
    source: str  # for people

    def __post_init__(self) -> None:
        self._check_shapes()
        if len(self.blocks) and not 0 <= self.blocks.min() <= self.blocks.max() < self.num_blocks:
            worst = self.blocks.min() if self.blocks.min() < 0 else self.blocks.max()
            raise TraceError(f"block {worst} is out of range 0 to {self.num_blocks - 1}")
        if not np.isfinite(self.times_s).all() or np.any(np.diff(self.times_s) < 0):
            raise TraceError("times_s must be finite and must not fall; sort the requests by time")
        for name in ("sessions", "turns", "input_tokens", "output_tokens", "tiers"):
            values = getattr(self, name)
            if len(values) and values.min() < UNKNOWN:
                raise TraceError(f"{name} has {values.min()}; allowed are numbers from 0, and -1 for unknown")
        if len(self.tiers) and self.tiers.max() >= len(TIERS):
            raise TraceError(f"tiers has {self.tiers.max()}; allowed are -1 to {len(TIERS) - 1}, {TIERS}")

    def _check_shapes(self) -> None:
        if self.block_tokens < 1 or self.num_blocks < 0:
            raise TraceError(
                f"block_tokens {self.block_tokens} must be positive, num_blocks {self.num_blocks} not negative"
            )
        if len(self.starts) == 0 or self.starts[0] != 0 or self.starts[-1] != len(self.blocks):
            raise TraceError(f"starts must lead from 0 to the number of references, {len(self.blocks)}")
        if np.any(np.diff(self.starts) < 0):
            raise TraceError("starts must not fall")
        for name in ("times_s", "sessions", "turns", "input_tokens", "output_tokens"):
            if len(getattr(self, name)) != len(self):
                raise TraceError(f"{name} has {len(getattr(self, name))} elements for {len(self)} requests")
        if len(self.tiers) != len(self.blocks):
            raise TraceError(f"tiers has {len(self.tiers)} elements for {len(self.blocks)} references")

    @classmethod
    def build(
        cls,
        blocks: npt.ArrayLike,
        starts: npt.ArrayLike,
        times_s: npt.ArrayLike,
        *,
        block_tokens: int,
        source: str,
        sessions: npt.ArrayLike | None = None,
        turns: npt.ArrayLike | None = None,
        input_tokens: npt.ArrayLike | None = None,
        output_tokens: npt.ArrayLike | None = None,
        tiers: npt.ArrayLike | None = None,
        num_blocks: int | None = None,
    ) -> RequestTrace:
        """A trace from arrays or lists; what is left out is unknown, turns are counted within each session."""
        chain, when = _integers(blocks), np.asarray(times_s, dtype=np.float64)
        owners = _integers(sessions, len(when))
        return cls(
            blocks=chain,
            starts=_integers(starts),
            times_s=when,
            sessions=owners,
            turns=_count_turns(owners) if turns is None else _integers(turns),
            input_tokens=_integers(input_tokens, len(when)),
            output_tokens=_integers(output_tokens, len(when)),
            tiers=_integers(tiers, len(chain)),
            block_tokens=block_tokens,
            num_blocks=(int(chain.max()) + 1 if len(chain) else 0) if num_blocks is None else num_blocks,
            source=source,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def references(self) -> int:
        """Number of block references."""
        return len(self.blocks)

    def chain(self, request: int) -> IntArray:
        """The blocks of one request, a view."""
        return self.blocks[self.starts[request] : self.starts[request + 1]]

    @cached_property
    def parents(self) -> IntArray:
        """[num_blocks] the block before it in the chain of its first reference; -1 first in a chain or not referenced.

        The block before came earlier in the trace, so that parents never form a circle.
        """
        before = np.concatenate([np.full(1, UNKNOWN, dtype=np.int64), self.blocks[:-1]])[: len(self.blocks)]
        heads = self.starts[:-1][np.diff(self.starts) > 0]
        before[heads] = UNKNOWN
        parents = np.full(self.num_blocks, UNKNOWN, dtype=np.int64)
        referenced, first = np.unique(self.blocks, return_index=True)
        parents[referenced] = before[first]
        return parents

    def part(self, first: int, last: int) -> RequestTrace:
        """Requests `first` to `last` - 1, with the block numbers of the whole."""
        low, high = int(self.starts[first]), int(self.starts[last])
        return replace(
            self,
            blocks=self.blocks[low:high],
            starts=self.starts[first : last + 1] - low,
            tiers=self.tiers[low:high],
            **{
                name: getattr(self, name)[first:last]
                for name in ("times_s", "sessions", "turns", "input_tokens", "output_tokens")
            },
        )

    def split(self, fraction: float) -> tuple[RequestTrace, RequestTrace]:
        """The first `fraction` of the requests in order of time, and the rest. Block numbers are kept.

        Counted in requests, not seconds: a trace with a quiet night is not cut into everything and nothing.
        Raises SettingError unless `fraction` lies within 0 to 1.
        """
        if not 0.0 <= fraction <= 1.0:
            raise SettingError(f"fraction {fraction} is out of range; it lies within 0 to 1")
        cut = round(fraction * len(self))
        return self.part(0, cut), self.part(cut, len(self))


def _integers(values: npt.ArrayLike | None, length: int = 0) -> IntArray:
    if values is None:
        return np.full(length, UNKNOWN, dtype=np.int64)
    return np.asarray(values, dtype=np.int64)


def _count_turns(sessions: IntArray) -> IntArray:
    """[requests] how many earlier requests have the same session; -1 where that is not known."""
    order = np.argsort(sessions, kind="stable")
    in_order = sessions[order]
    begins = np.flatnonzero(np.diff(in_order, prepend=in_order[:1] - 1))
    turns = np.empty(len(sessions), dtype=np.int64)
    turns[order] = np.arange(len(sessions)) - np.repeat(begins, np.diff(begins, append=len(sessions)))
    turns[sessions == UNKNOWN] = UNKNOWN
    return turns
