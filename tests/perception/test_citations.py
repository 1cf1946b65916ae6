"""A citation is a place that the turn attended to: right page, right sentence, never off its page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tiny_models import byte_tokenizer
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.documents.stream import build_stream, prompt_frame
from zerolayer.perception.citations import MOST_CITATIONS, cite

WIDTH = 16
SENTENCES = [f"Sentence number {i} speaks of subject {chr(97 + i)} alone. " for i in range(12)]
PAGE_SENTENCES = 3


@dataclass
class Attention:
    blocks: list[int]
    mass: np.ndarray
    question_mass: np.ndarray


@pytest.fixture(scope="module")
def stream():
    pages, text = [], ""
    for number in range(0, len(SENTENCES), PAGE_SENTENCES):
        start = len(text)
        text += "".join(SENTENCES[number : number + PAGE_SENTENCES])
        pages.append(Page(len(pages) + 1, start, len(text)))
    tokenizer = byte_tokenizer()
    document = Document("d", text, tuple(pages), "")
    return build_stream([document], tokenizer, prompt_frame(tokenizer), WIDTH, "x")


def attention(stream, chars, layers=2, heads=2):
    """All attention of every head on the tokens of `chars`, a trace of it everywhere."""
    blocks = list(range(len(stream.blocks)))
    mass = np.full((layers, heads, len(blocks), WIDTH), 1e-6, dtype=np.float32)
    for i, (a, b) in enumerate(stream.spans):
        if b > a and chars[0] <= a < chars[1]:
            mass[:, :, i // WIDTH, i % WIDTH] = 1.0
    return Attention(blocks, mass, mass.copy())


def even(stream):
    return np.ones(len(stream.blocks), dtype=np.float32)


@pytest.mark.parametrize("sentence", range(len(SENTENCES)))
def test_the_attended_sentence_is_cited_with_its_page(stream, sentence):
    start = stream.text.index(SENTENCES[sentence])
    first, *_ = cite(stream, attention(stream, (start, start + len(SENTENCES[sentence]) - 1)), even(stream))
    assert first.page == sentence // PAGE_SENTENCES + 1
    assert first.quote == SENTENCES[sentence].strip()
    assert stream.text[first.char_start : first.char_end].strip() == first.quote


def test_a_quote_lies_on_the_page_that_is_cited(stream):
    for citation in cite(stream, attention(stream, (0, len(stream.text))), even(stream)):
        document = stream.documents[0]
        assert document.page_at(citation.char_start) == citation.page
        assert document.page_at(citation.char_end - 1) == citation.page


def test_at_most_three_pages_best_first_and_shares_add_up(stream):
    found = cite(stream, attention(stream, (0, len(stream.text))), even(stream))
    assert 1 <= len(found) <= MOST_CITATIONS
    assert [c.weight for c in found] == sorted((c.weight for c in found), reverse=True)
    assert sum(c.weight for c in found) == pytest.approx(1)


def test_attention_on_the_frame_is_no_evidence(stream):
    seen = attention(stream, (40, 60))
    for i, (a, b) in enumerate(stream.spans):
        if b <= a:
            seen.mass[:, :, i // WIDTH, i % WIDTH] = seen.question_mass[:, :, i // WIDTH, i % WIDTH] = 1e6
    assert cite(stream, seen, even(stream))[0].page == 1


def test_heads_decide_whose_attention_counts(stream):
    near, far = attention(stream, (0, 40)), attention(stream, (len(stream.text) - 40, len(stream.text)))
    near.question_mass[0] = far.question_mass[0]
    near.mass[0] = far.mass[0]
    heads = np.zeros((2, 2), dtype=np.float32)
    heads[0, 1] = 1.0
    assert cite(stream, near, even(stream), heads)[0].page == 4
    assert cite(stream, near, even(stream), 1 - heads)[0].page == 1


def test_nothing_in_sight_cites_nothing(stream):
    empty = np.zeros((2, 2, 0, WIDTH), dtype=np.float32)
    assert cite(stream, Attention([], empty, empty), even(stream)) == []
