"""Hypothesis strategies for block tables that obey the laws a session obeys."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from zerolayer.core import BlockTable, Grade


@st.composite
def tables(draw, max_blocks=40):
    """A table in the middle of a session: residents within capacity, pinned blocks resident."""
    n = draw(st.integers(1, max_blocks))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    resident_count = draw(st.integers(0, n))
    table = BlockTable.create([64] * n, resident_count + draw(st.integers(0, 8)))
    order = rng.permutation(n)
    table.resident[order[:resident_count]] = True
    table.pinned[order[: draw(st.integers(0, resident_count))]] = True
    table.turn = draw(st.integers(0, 30))
    table.grade[:] = rng.choice([int(grade) for grade in Grade], size=n, p=[0.1, 0.3, 0.3, 0.3])
    # P0 means on the device; only few absent blocks ask for it (a hint).
    table.grade[~table.resident & (rng.random(n) < 0.9)] = int(Grade.P3)
    table.touch(rng.permutation(n)[: draw(st.integers(0, n))])
    seen = rng.random(n) < 0.5
    table.last_used_turn[seen] = rng.integers(0, table.turn + 1, size=int(seen.sum()))
    table.use_count[seen] = rng.integers(1, table.turn + 2, size=int(seen.sum()))
    table.attention[:] = rng.random(n).astype(np.float32) * 0.1
    table.match[:] = np.where(rng.random(n) < 0.7, rng.random(n), 0).astype(np.float32)
    return table
