"""The synthetic contract: the same bytes, the right pages, answers where the key says."""

import itertools
import re

import pytest

from zerolayer.bench.contract import LEAST_PAGES, write_contract
from zerolayer.documents import read_document
from zerolayer.errors import UsageError
from zerolayer.perception.lexical import LexicalIndex


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def contract(tmp_path_factory):
    path = tmp_path_factory.mktemp("contract") / "contract.pdf"
    return path, write_contract(path)


@pytest.fixture(scope="module")
def document(contract):
    return read_document(contract[0])


@pytest.fixture(scope="module")
def page_texts(document):
    return {page.number: flat(document.text[page.char_start : page.char_end]) for page in document.pages}


def test_the_bytes_depend_on_the_arguments_alone(contract, tmp_path):
    path, key = contract
    assert write_contract(tmp_path / "again.pdf") == key
    assert (tmp_path / "again.pdf").read_bytes() == path.read_bytes()
    write_contract(tmp_path / "other.pdf", seed=1)
    assert (tmp_path / "other.pdf").read_bytes() != path.read_bytes()


def test_size(contract, document, page_texts):
    assert contract[1].pages == len(document.pages) == 127
    words = [len(text.split()) for text in page_texts.values()]
    assert 200_000 < len(document.text) < 250_000
    assert 300 <= sum(words) / 127 <= 380 and min(words) > 200
    running = [number for number, text in page_texts.items() if f"Page {number} of 127" in text]
    assert len(running) <= 1  # running lines stay once, so that no page is found by its own number


@pytest.mark.parametrize("pages", [LEAST_PAGES, 90, 200])
def test_other_lengths_are_exact_too(tmp_path, pages):
    key = write_contract(tmp_path / "c.pdf", pages=pages, seed=3)
    assert key.pages == len(read_document(tmp_path / "c.pdf").pages) == pages
    assert len(key.questions) == 19


def test_too_few_pages_are_refused(tmp_path):
    with pytest.raises(UsageError, match="at least"):
        write_contract(tmp_path / "c.pdf", pages=5)


def test_questions(contract):
    questions = contract[1].questions
    assert len(questions) == 19 == len({q.question for q in questions})
    assert sum(q.lay for q in questions) >= 11
    assert sum(len(q.pages) == 2 for q in questions) >= 4
    firsts = [q.pages[0] for q in questions]
    assert firsts == sorted(firsts)
    assert all(b - a <= 14 for a, b in itertools.pairwise(firsts))


def test_answers_stand_on_their_pages_and_nowhere_else(contract, page_texts):
    for q in contract[1].questions:
        holders = [number for number, text in page_texts.items() if q.answer in text]
        assert holders == [q.pages[-1]], q.question
        if len(q.pages) == 2:  # the clause that refers to the schedule
            assert re.search(r"Schedule \d", page_texts[q.pages[0]])


def test_the_reader_finds_the_clause_of_every_fact(contract, document):
    labels = [heading.label for heading in document.headings]
    for q in contract[1].questions:
        assert not q.clause or labels.count(q.clause) == 1, q.clause


def test_paragraphs_are_not_repeated(document):
    bodies = re.split(r"\n\d{1,2}\.\d{1,2} ", document.text)
    assert len({flat(body) for body in bodies}) > 0.99 * len(bodies)


def test_lexical_index_ranks_a_right_page_high_for_most_questions(contract, document):
    spans = [(start, min(len(document.text), start + 280)) for start in range(0, len(document.text), 280)]
    index = LexicalIndex(document.text, spans)
    hits = 0
    for q in contract[1].questions:
        best = (-index.scores(q.question)).argsort(kind="stable")[: len(spans) // 20]
        hits += any(set(document.pages_of(*spans[block])) & set(q.pages) for block in best)
    assert hits >= 13
