"""Features of a block's text: anchors, place, rarity, in English and Chinese."""

from __future__ import annotations

import numpy as np
import pytest

from zerolayer.core import DOCUMENT_FEATURES
from zerolayer.perception.block_features import document_features, language_of

CONTRACT = "\n\n".join(
    [
        "SUPPLY AGREEMENT between Acme Corp. and Bolt Ltd.",
        "1. Term. This Agreement begins on March 1, 2024 and lasts three years, as set out in Section 2.",
        "The parties shall act in good faith. The parties shall act in good faith at all times.",
        "2. Price. The Buyer pays USD 1,200,000, with 5% interest on late sums.",
    ]
)


def spans_of(text):
    """One block a paragraph, and an empty one of template tokens in front."""
    spans, at = [(0, 0)], 0
    for paragraph in text.split("\n\n"):
        spans.append((at, at + len(paragraph)))
        at += len(paragraph) + 2
    return spans


def value(features, block, name):
    return float(features[block, DOCUMENT_FEATURES.index(name)])


def test_anchors_place_and_rarity():
    features = document_features(CONTRACT, spans_of(CONTRACT))
    assert features.shape == (5, len(DOCUMENT_FEATURES))
    assert np.isnan(features[0]).all() and np.isfinite(features[1:]).all()
    for block, name in (
        (1, "party"),
        (2, "date"),
        (2, "duration"),
        (2, "reference"),
        (4, "amount"),
        (4, "percent"),
    ):
        assert value(features, block, name) == pytest.approx(np.log(2), abs=0.5), name
    assert value(features, 3, "amount") == value(features, 3, "date") == 0
    assert [value(features, b, "heading") for b in (1, 2, 3, 4)] == [0, 1, 0, 1]
    assert value(features, 3, "clause_age") == pytest.approx(np.log(2))
    position = features[1:, DOCUMENT_FEATURES.index("position")]
    assert (np.diff(position) > 0).all() and position[0] == 0


def test_words_of_every_block_are_not_rare():
    text = "\n\n".join(["The Supplier delivers goods to the Buyer."] * 6 + ["Zebras graze quietly."])
    features = document_features(text, spans_of(text))
    assert value(features, 7, "idf") > 1 > value(features, 1, "idf")


def test_chinese():
    text = "第一条 本合同自2025年3月15日起生效，有效期三年。\n\n第二条 违约金为人民币五十万元。"
    features = document_features(text, spans_of(text))
    assert value(features, 1, "date") > 0 and value(features, 1, "heading") == 1
    assert value(features, 2, "amount") > 0
    assert value(features, 1, "words") > 0


@pytest.mark.parametrize("text", ["", "   \n\n ", "... --- ...", "x" * 3000])
def test_texts_without_words_or_paragraphs(text):
    spans = [(i, min(len(text), i + 100)) for i in range(0, len(text), 100)] or [(0, 0)]
    features = document_features(text, spans)
    assert features.shape == (len(spans), len(DOCUMENT_FEATURES))
    assert np.isfinite(features).all() or not text


@pytest.mark.parametrize(
    ("text", "language"),
    [("", "en"), ("The term ends.", "en"), ("本合同自签订之日起生效。", "zh"), ("12.5 % —", "en"),
     ("甲方 means the Buyer under this Agreement, as defined in the annex.", "en")],
)  # fmt: skip
def test_language(text, language):
    assert language_of(text) == language
