"""Documents and questions as they should not be: read, anchored, linked and searched all the same."""

import time

import numpy as np
import pytest
from reportlab.pdfgen.canvas import Canvas

from zerolayer.documents import read_document
from zerolayer.documents.anchors import AnchorIndex, AnchorKind
from zerolayer.documents.document import Document
from zerolayer.documents.links import LinkGraph
from zerolayer.perception.lexical import LexicalIndex

WORDS = [
    "supply", "yard", "week", "order", "goods", "crate", "lorry", "depot", "shift", "ledger", "plank", "timber",
    "pallet",
]  # fmt: skip
FILLER = " ".join(
    f"The {WORDS[n % 13]} of {WORDS[(n * 7 + 3) % 13]} number {n} stays as it was." for n in range(400)
)
NOTICE = "Either side may end this agreement by giving ninety (90) days written notice to the other."


def search(document: Document, question: str, width: int = 300) -> tuple[str, np.ndarray]:
    """The best block's text and all scores, through everything that a session builds."""
    text = document.text
    spans = [(at, min(len(text), at + width)) for at in range(0, len(text), width)]
    graph = LinkGraph.build(text, spans)
    assert graph.num_blocks == len(spans)
    scores = LexicalIndex(text, spans).scores(question)
    assert (
        scores.shape == (len(spans),)
        and np.isfinite(scores).all()
        and scores.min() >= 0
        and scores.max() <= 1
    )
    assert np.isfinite(graph.spread(scores)).all()
    start, end = spans[int(np.argmax(scores))]
    for at in (0, start, len(text)):
        document.clause_at(at), document.sentence_at(at), document.page_at(at)
    return text[max(0, start - width) : end + width], scores


def from_text(tmp_path, text: str) -> Document:
    path = tmp_path / "document.txt"
    path.write_text(text, encoding="utf-8")
    return read_document(path)


def test_a_document_without_paragraphs(tmp_path):
    document = from_text(tmp_path, "\n".join(f"{FILLER} {NOTICE} {FILLER}".split()))
    assert "written\nnotice" in search(document, "How may the agreement be ended by notice?")[0]


def test_a_document_without_a_sentence_end(tmp_path):
    document = from_text(tmp_path, f"{FILLER} {NOTICE} {FILLER}".replace(".", "").replace("\n", " "))
    assert "written notice" in search(document, "How may the agreement be ended by notice?")[0]


def test_one_paragraph_of_200_pages_takes_linear_time(tmp_path):
    filler = " ".join(
        f"The {WORDS[n % 13]} of {WORDS[(n * 7 + 3) % 13]} number {n} stays as it was." for n in range(7000)
    )

    def seconds(characters: int) -> float:
        text = f"{filler[: characters // 2]} {NOTICE} {filler[: characters // 2]}"
        start = time.perf_counter()
        document = from_text(tmp_path, text)
        assert document.text == text and len(document.pages) >= characters // 3000
        assert "written notice" in search(document, "How may the agreement be ended by notice?")[0]
        return time.perf_counter() - start

    small, large = seconds(150_000), seconds(600_000)
    assert large < 4 * 3 * small + 1  # four times the text; a quadratic step would take sixteen times as long


def test_a_table_of_numbers_and_a_table_with_bars(tmp_path):
    rows = [
        f"| Item {n} | {n * 37 % 101} pieces | EUR {n * 13},00{n % 10} | 2024-0{n % 9 + 1}-1{n % 9} |"
        for n in range(300)
    ]
    rows[180] = "| Winter surcharge | per tonne | EUR 4,750 | 2031-12-24 |"
    document = from_text(tmp_path, "\n".join(rows))
    best, _ = search(document, "How much is the winter surcharge?")
    assert "Winter surcharge" in best
    best, _ = search(document, "What happens on December 24, 2031?")
    assert "2031-12-24" in best


def test_headers_and_footers_of_a_pdf_do_not_crowd_out_the_text(tmp_path):
    path = tmp_path / "running.pdf"
    canvas = Canvas(str(path), invariant=1)
    for number in range(1, 13):
        canvas.drawString(72, 800, "Notice Period Agreement of Acme Corporation")
        for line in range(30):
            canvas.drawString(
                72,
                760 - 18 * line,
                f"The {WORDS[(number + line) % 13]} of page {number} and line {line} is kept.",
            )
        if number == 8:
            canvas.drawString(72, 200, "The notice period of this agreement is ninety days.")
        canvas.drawString(72, 40, f"Acme Corporation notice period, page {number} of 12")
        canvas.showPage()
    canvas.save()
    document = read_document(path)
    assert document.text.count("Notice Period Agreement of Acme") == 1
    assert len(document.pages) == 12
    at = document.text.index("The notice period of this")
    assert document.page_at(at) == 8
    _, scores = search(document, "How long is the notice period?")
    ranked = np.argsort(-scores, kind="stable")[:3] * 300
    assert any(start <= at < start + 300 for start in ranked)


def test_mixed_chinese_and_english(tmp_path):
    text = (
        f"{FILLER}\n第七条 违约责任 Liability. 乙方 shall pay 违约金 of 人民币５０万元 to 甲方 within 三十日."
    )
    document = from_text(tmp_path, f"{text}\n{FILLER}")
    assert "违约金" in search(document, "违约金是多少？")[0]
    assert "违约金" in search(document, "How much liability shall the party pay?")[0]
    index = AnchorIndex.of(document.text)
    assert [a.value for a in index.of_kind(AnchorKind.AMOUNT)] == ["CNY 500000"]
    assert "P30D" in {a.value for a in index.of_kind(AnchorKind.DURATION)}


def test_full_width_digits_are_digits(tmp_path):
    text = f"{FILLER}\n第４２条 本合同自２０２５年３月１５日起生效。\n{FILLER}\n依照第四十二条办理。"
    document = from_text(tmp_path, text)
    assert document.text == text
    assert "２０２５年" in search(document, "2025年3月15日发生什么？")[0]
    assert "２０２５年" in search(document, "第四十二条规定了什么？")[0]
    assert AnchorIndex.of(text).of_value("2025-03-15")[0].text == "２０２５年３月１５日"


def test_hyphenated_line_ends_in_a_pdf(tmp_path):
    path = tmp_path / "hyphens.pdf"
    canvas = Canvas(str(path), invariant=1)
    lines = [
        "The early termi-",
        "nation of this lease is",
        "governed by its own rule. A non-",
        "compete duty stays in force.",
    ]
    for page in range(3):
        for row in range(30):
            canvas.drawString(
                72, 780 - 18 * row, f"Line {row} of page {page} speaks of the {WORDS[(page + row) % 13]}."
            )
        for row, line in enumerate(lines if page == 1 else []):
            canvas.drawString(72, 180 - 18 * row, line)
        canvas.showPage()
    canvas.save()
    document = read_document(path)
    assert "termination" in document.text and "non-compete" in document.text
    assert "termination" in search(document, "termination?")[0]
    assert "non-compete" in search(document, "Is there a non-compete?")[0]


def test_hyphenated_line_ends_in_a_text_file_keep_offsets(tmp_path):
    text = f"{FILLER}\nThe early termi-\nnation of this lease has a rule.\n{FILLER} Evidence."
    document = from_text(tmp_path, text)
    assert len(document.text) == len(text) and document.text.index("Evidence") == text.index("Evidence")
    assert "termination" in search(document, "termination?")[0]


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("תקופת ההודעה המוקדמת היא 30 ימים לפני סיום החוזה.", "מהי תקופת הודעה מוקדמת?"),
        ("مدة الإشعار ثلاثون يوماً قبل إنهاء العقد.", "ما هي مدة إشعار الإنهاء؟"),
        ("مُدَّةُ الإشعارِ ثلاثون يومًا قبل إنهاء العقد.", "ما مدة الإشعار؟"),
    ],
)
def test_right_to_left_text(tmp_path, line, question):
    other = ["הצדדים מסכימים על כל האמור כאן.", "المحكمة تنظر في القضية غدا."]
    text = "\n".join([*(other * 100), line, *(other * 100)])
    document = from_text(tmp_path, text)
    assert document.text == text
    assert line in search(document, question, width=100)[0]


@pytest.mark.parametrize(
    "question", ["and the of?", "？？", "😀", "", "   ", "\n", "的了是", "\u200f\u202b", "!!!" * 1000]
)
def test_a_question_without_content_words_matches_nothing(tmp_path, question):
    """Zeros mean that the question says nothing of any block: what is resident stays, nothing is recalled."""
    document = from_text(tmp_path, f"{FILLER} {NOTICE}")
    assert not search(document, question)[1].any()


def test_text_of_marks_only(tmp_path):
    document = from_text(tmp_path, "—…—?!" * 2000)
    assert not search(document, "What is the term?")[1].any()


def test_labels_of_a_text_file_keep_their_offsets(tmp_path):
    text = "One\r\ntwo\x00\x0b\xad three\ffour five-\nsix \u2028 seven\r eight\n\fnine"
    path = tmp_path / "document.txt"
    path.write_bytes(text.encode())
    document, label = read_document(path), path.read_text(encoding="utf-8")
    assert len(document.text) == len(label)
    for word in ("One", "two", "three", "four", "seven", "eight", "nine"):
        assert document.text.index(word) == label.index(word)
    assert len(document.pages) == 3 and document.page_at(label.index("nine")) == 3
