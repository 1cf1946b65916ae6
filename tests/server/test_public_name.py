"""What clients learn of a model that was given as a path."""

from __future__ import annotations

import pytest

from zerolayer.server.service import public_name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("smollm2", "smollm2"),
        ("org/name", "org/name"),
        ("/data/models/my-model", "my-model"),
        ("/data/tiny.gguf", "tiny"),
        ("~/models/mine", "mine"),
    ],
)
def test_no_path(given, name):
    assert public_name(given) == name
