"""Mooncake's request traces (Qin et al., FAST'25; github.com/kvcache-ai/Mooncake, FAST25-release/traces).

One line a request: `timestamp` in ms, `input_length` and `output_length` in tokens, `hash_ids`: one number for every
512 tokens of the prompt, its rest included, equal where everything up to the block's end is equal. Sessions are not
told. Other tools write the same lines (a `session_id` is taken where there is one).
"""

from __future__ import annotations

from pathlib import Path

from zerolayer.learning.converters.common import (
    RequestRows,
    check_order,
    hashes_of,
    number_of,
    read_rows,
    tokens_of,
)
from zerolayer.learning.requests import RequestTrace

KEYS = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
BLOCK_TOKENS = 512


def convert(path: Path) -> RequestTrace:
    """Convert one file. Raises TraceError for a damaged line or times that go backwards."""
    rows = read_rows(
        path,
        lambda record: (
            number_of(record, "timestamp") / 1000,
            hashes_of(record),
            record.get("session_id"),
            tokens_of(record, "input_length"),
            tokens_of(record, "output_length"),
        ),
    )
    check_order(path, (row[0] for row in rows))
    requests = RequestRows()
    for row in rows:
        requests.add(*row)
    return requests.trace(BLOCK_TOKENS, f"mooncake: {path.name}")
