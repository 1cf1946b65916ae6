"""Which heads look where the answer stands. Most do not; a few do, whatever is asked (arXiv:2404.15574).

Weights were measured once per model on questions with labelled evidence: the mean reciprocal rank of the evidence in
a head's attention, above 1.5 times the median head's, squared. data/retrieval_heads.json names the command.
"""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np

from zerolayer.core import FloatArray


def retrieval_heads(fingerprint: str, layers: int, heads: int) -> FloatArray | None:
    """Weights `[layers, heads]` of a model's heads, or None where they have not been measured."""
    text = files("zerolayer.perception").joinpath("data/retrieval_heads.json").read_text(encoding="utf-8")
    known = json.loads(text).get(fingerprint)
    if known is None or (known["layers"], known["heads"]) != (layers, heads):
        return None
    weights = np.zeros((layers, heads), dtype=np.float32)
    for layer, head, weight in known["weights"]:
        weights[layer, head] = weight
    return weights
