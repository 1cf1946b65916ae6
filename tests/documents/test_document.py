"""Clauses and sentences of a text."""

import itertools

from zerolayer.documents import Document, Page

TEXT = """AGREEMENT
between A Inc. and B Ltd. and others.

Article IV Payment
12. Fees. The fee is EUR 1.5 million. It falls due as set out in
Schedule 2 and in no other way! Is that clear? Yes.
12.3 “Late” sums bear interest at
30 days after the date.
Schedule 2
Prices
第四十二条 甲方应当付款。乙方应当交货！
"""


def make(text: str) -> Document:
    return Document("t", text, (Page(1, 0, len(text)),), "0")


def test_clause_at():
    document = make(TEXT)
    for words, clause in [
        ("between", ""), ("Payment", "Article IV"), ("The fee", "12"),
        ("no other way", "12"), ("Late", "12.3"),
        ("after the date", "12.3"), ("Prices", "Schedule 2"), ("乙方", "第四十二条"),
    ]:  # fmt: skip
        assert document.clause_at(TEXT.index(words)) == clause, words


def test_sentence_at_crosses_hard_line_breaks_and_abbreviations():
    document = make(TEXT)

    def sentence(words: str) -> str:
        start, end = document.sentence_at(TEXT.index(words))
        return TEXT[start:end]

    assert sentence("and others") == "AGREEMENT\nbetween A Inc. and B Ltd. and others."
    assert sentence("Schedule 2 and") == "It falls due as set out in\nSchedule 2 and in no other way!"
    assert sentence("The fee") == "The fee is EUR 1.5 million."
    assert sentence("after the date") == "12.3 “Late” sums bear interest at\n30 days after the date."
    assert sentence("乙方") == "乙方应当交货！"


def test_sentences_of_a_span_cover_it_in_order():
    document = make(TEXT)
    spans = document.sentences(TEXT.index("The fee"), TEXT.index("Yes"))
    assert TEXT[slice(*spans[0])] == "The fee is EUR 1.5 million."
    assert TEXT[slice(*spans[-1])] == "Is that clear?"
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    everything = "".join(TEXT[a:b] for a, b in document.sentences(0, len(TEXT)))
    assert "".join(everything.split()) == "".join(TEXT.split())


def test_offsets_outside_the_text_have_a_page():
    document = make(TEXT)
    assert document.page_at(-5) == document.page_at(10**9) == 1
    assert make("").sentence_at(0) == (0, 0)
