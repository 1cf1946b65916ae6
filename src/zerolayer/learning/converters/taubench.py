"""Agent sessions with their text (github.com/LMCache/lmcache-agent-trace: tau-bench, mini-swe-agent, …).

A directory of files, or one file; one line a call: `timestamp` in microseconds, `input` (the whole conversation so
far, resent by every call), `output`, `session_id`. Calls of one session are not sorted, and sessions run at the same
time: all calls are sorted by time here.

Prompts become blocks by content: equal pieces behind equal prefixes are one block, the last one may be short. Without
a tokenizer a token is taken as 4 bytes of UTF-8 (English: 4 characters; Chinese: 1 character and a third), hence a
block as 64 bytes. System prompts and tool definitions are not in these files: real prompts share longer prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zerolayer.learning.converters.common import RequestRows, number_of, read_rows, source_files
from zerolayer.learning.requests import RequestTrace

KEYS = frozenset({"timestamp", "input", "output", "session_id"})
BLOCK_TOKENS = 16
"""vLLM's default, since these prompts are short."""

TOKEN_BYTES = 4
"""Bytes of UTF-8 that are taken as a token where there is no tokenizer."""

Tokenize = Callable[[str], Sequence[int]]
"""Text → token ids."""


def convert(path: Path, tokenize: Tokenize | None = None) -> RequestTrace:
    """Convert a directory of .jsonl files, or one of them. Raises TraceError for a damaged line.

    With `tokenize` blocks hold tokens of that tokenizer, without it estimated ones.
    """
    calls = [call for file in source_files(path) for call in read_rows(file, _call)]
    requests = RequestRows()
    for timestamp, session, prompt, answer in sorted(calls, key=lambda call: call[0]):
        pieces, tokens = _pieces(prompt, tokenize)
        requests.add(timestamp / 1e6, pieces, session, tokens, _pieces(answer, tokenize)[1])
    unit = f"tokens of {TOKEN_BYTES} bytes" if tokenize is None else "tokens"
    return requests.trace(BLOCK_TOKENS, f"agent sessions: {path.name}, {unit}")


def _call(record: Mapping[str, Any]) -> tuple[float, str, str, str]:
    texts = [record[key] for key in ("session_id", "input", "output")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("session_id, input and output must be text")
    session, prompt, answer = texts
    return number_of(record, "timestamp"), session, prompt, answer


def _pieces(text: str, tokenize: Tokenize | None) -> tuple[list[bytes] | list[tuple[int, ...]], int]:
    """What the text's blocks hold, and its tokens."""
    if tokenize is not None:
        ids = tuple(tokenize(text))
        return [ids[start : start + BLOCK_TOKENS] for start in range(0, len(ids), BLOCK_TOKENS)], len(ids)
    data, width = text.encode("utf-8", "surrogatepass"), BLOCK_TOKENS * TOKEN_BYTES
    pieces = [data[start : start + width] for start in range(0, len(data), width)]
    return pieces, -(-len(data) // TOKEN_BYTES)
