"""Scores of the quality bench, kept in a file as they come: an interrupted run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zerolayer.bench.quality_metrics import Score
from zerolayer.errors import UsageError

Key = tuple[str, str, int, str, int]
"""Model, contract, turn, method, share."""


class Records:
    """All scores of a run; with `path`, also a line each in a file whose first line says what they depend on.

    Raises UsageError for a file of other `conditions`, or of something else.
    """

    def __init__(self, path: Path | None, conditions: Mapping[str, Any]) -> None:
        self._path = path
        self.scores: list[Score] = []
        self._known: set[Key] = set()
        if path is None:
            return
        head = json.dumps(dict(conditions), sort_keys=True)
        if not path.is_file():
            path.write_text(head + "\n", encoding="utf-8")
            return
        first, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
        if first != head:
            raise UsageError(
                f"--records {path} begins with {first[:200]!r}, this run needs {head!r}; give another file"
            )
        try:
            self.scores = [Score(**json.loads(line)) for line in lines]
        except (TypeError, ValueError) as error:
            raise UsageError(f"--records {path} holds no scores: {error}; give another file") from error
        self._known = {_key(score) for score in self.scores}

    def has(self, model: str, contract: str, turn: int, method: str, share: int) -> bool:
        """Whether this was measured before; turns count from 1."""
        return (model, contract, turn, method, share) in self._known

    def add(self, score: Score) -> None:
        """Keep a score."""
        self.scores.append(score)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(score)) + "\n")


def _key(score: Score) -> Key:
    return score.model, score.contract, score.turn, score.method, score.share
