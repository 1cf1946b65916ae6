"""Alibaba Bailian's chat traces (github.com/alibaba-edu/qwen-bailian-usagetraces-anon; Wang et al., ATC'25).

One line a request: `timestamp` in seconds, `input_length` and `output_length` in tokens, `chat_id`, `parent_chat_id`
(the turn before, -1 none), `hash_ids`: one hash for every 16 tokens of the prompt. A hash tells the block's own tokens
only, so that the same id may stand behind different prefixes; blocks are numbered by prefix here.
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

KEYS = frozenset({"chat_id", "timestamp", "hash_ids"})
BLOCK_TOKENS = 16


def convert(path: Path) -> RequestTrace:
    """Convert one file; a session is a chat and the chats that go on from it.

    Raises TraceError for a damaged line or times that go backwards.
    """
    rows = read_rows(
        path,
        lambda record: (
            number_of(record, "timestamp"),
            hashes_of(record),
            (int(number_of(record, "chat_id")), record.get("parent_chat_id")),
            tokens_of(record, "input_length"),
            tokens_of(record, "output_length"),
        ),
    )
    check_order(path, (row[0] for row in rows))
    requests, roots = RequestRows(), dict[int, int]()
    for time_s, hashes, (chat, parent), input_tokens, output_tokens in rows:
        # A parent from before the trace begins is not -1, yet unknown here: its children still share it.
        root = chat if parent in (None, -1) else roots.get(parent, parent)
        roots[chat] = root
        requests.add(time_s, hashes, root, input_tokens, output_tokens)
    return requests.trace(BLOCK_TOKENS, f"bailian: {path.name}")
