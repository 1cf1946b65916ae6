"""Sentence vectors of the real encoder: unit length, meaning, and no dependence on the batch."""

from __future__ import annotations

import numpy as np
import pytest

from zerolayer.perception.dense import BATCH, LONGEST_TOKENS, SentenceEncoder

TEXTS = [
    "The Franchisee shall indemnify the Franchisor against all claims.",
    "Rent.",
    "This Agreement ends five years after the Effective Date unless renewed under section 3.2. " * 3,
    "甲方应当在三十日内付款。",
    "",
    "Notices are sent by registered mail to the address in Schedule A.",
]


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("transformers")
    from zerolayer.engines.hf.conversion import quiet_transformers
    from zerolayer.engines.hf.models import encoder_path

    path = encoder_path()
    if path is None:
        pytest.skip("needs the sentence encoder; run: zerolayer model add minilm")
    with quiet_transformers():
        return SentenceEncoder(path)


def test_vectors_have_unit_length(encoder):
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_similar_sentences_are_closer(encoder):
    """A paraphrase that shares no word of content is nearer than an unrelated sentence of like form."""
    clause, paraphrase, unrelated = encoder.encode(
        [
            "The tenant shall pay rent on the first day of each month.",
            "Whoever occupies the flat owes money to its owner monthly.",
            "The kettle shall boil water on the gas stove of each kitchen.",
        ]
    )
    assert float(clause @ paraphrase) > float(clause @ unrelated) + 0.1


def test_question_finds_its_clause(encoder):
    questions = ["Who pays if somebody sues?", "When is it over?", "Where do letters go?"]
    found = (encoder.encode(questions) @ encoder.encode(TEXTS).T).argmax(axis=1)
    assert found.tolist() == [0, 2, 5]


def test_vector_does_not_depend_on_its_batch(encoder):
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), alone, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS[::-1])[::-1], alone, atol=1e-5)


def test_order_and_progress_over_several_batches(encoder):
    done: list[int] = []
    texts = [TEXTS[n % 2] for n in range(BATCH + 3)]
    vectors = encoder.encode(texts, done.append)
    assert done == [BATCH, BATCH + 3]
    np.testing.assert_allclose(vectors, np.resize(encoder.encode(TEXTS[:2]), vectors.shape), atol=1e-5)


def test_long_text_is_cut(encoder):
    words = "tenant " * LONGEST_TOKENS
    long, cut = encoder.encode([words + "volcano " * 50, words])
    np.testing.assert_allclose(long, cut, atol=1e-5)


def test_no_texts_give_no_vectors(encoder):
    assert encoder.encode([]).shape == (0, 384)
