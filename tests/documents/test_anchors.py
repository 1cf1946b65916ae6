"""Typed anchors."""

import time

import pytest

from zerolayer.documents import AnchorIndex, AnchorKind, find_anchors
from zerolayer.documents.anchors import asked_kinds
from zerolayer.documents.structure import find_headings, sentence_starts


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (AnchorKind.DATE, "on March 1, 2024 at noon", "2024-03-01"),
        (AnchorKind.DATE, "the 28th day of February 2031", "2031-02-28"),
        (AnchorKind.DATE, "dated 6/21/99", "1999-06-21"),
        (AnchorKind.DATE, "二〇二〇年五月二十八日通过", "2020-05-28"),
        (AnchorKind.AMOUNT, "pays US$1,200,000.00 now", "USD 1200000"),
        (AnchorKind.AMOUNT, "EUR 1.5 million", "EUR 1500000"),
        (AnchorKind.AMOUNT, "支付人民币3万元", "CNY 30000"),
        (AnchorKind.DURATION, "within thirty (30) days", "P30D"),
        (AnchorKind.DURATION, "the 60-month note", "P60M"),
        (AnchorKind.DURATION, "twenty-one business days", "P21D"),
        (AnchorKind.DURATION, "期限为二十年", "P20Y"),
        (AnchorKind.PERCENT, "3.5 per cent", "3.5"),
        (AnchorKind.PERCENT, "百分之二十", "20"),
        (AnchorKind.PARTY, "by Calder & Finch Engineering Limited of", "calder & finch engineering limited"),
        (AnchorKind.TERM, "(the “Commencement Date”)", "commencement date"),
        (AnchorKind.EMAIL, "write to a.b@c-d.org.", "a.b@c-d.org"),
        (AnchorKind.IDENTIFIER, "registered under No. NF-4471823", "NF-4471823"),
        (AnchorKind.REFERENCE, "as in Section 12.3 and", "12.3"),
        (AnchorKind.REFERENCE, "see Schedule 2.", "schedule 2"),
        (AnchorKind.REFERENCE, "依据第四十二条处理", "第42条"),
        (AnchorKind.CLAUSE, "12.3 Notices. In writing", "12.3"),
    ],
)
def test_kinds_and_values(kind, text, value):
    found = [anchor for anchor in find_anchors(text) if anchor.kind is kind]
    assert [anchor.value for anchor in found] == [value]
    assert text[found[0].start : found[0].end] == found[0].text


def test_a_calendar_year_is_no_duration():
    assert not [a for a in find_anchors("2020年施行") if a.kind is AnchorKind.DURATION]


def test_index_both_ways():
    text = "12.3 Fees. The “Fee” is EUR 500.\n12.4 Term. Under Section 12.3 the Fee is due in ten days."
    index = AnchorIndex.of(text)
    (reference,) = index.references_to("12.3")
    assert text[reference.start : reference.end] == "Section 12.3"
    assert index.definition_of("Fee").value == "fee" and index.definition_of("Tax") is None
    assert [a.value for a in index.of_kind(AnchorKind.CLAUSE)] == ["12.3", "12.4"]
    assert {a.kind for a in index.in_span(reference.start, reference.end)} == {AnchorKind.REFERENCE}
    assert [a.value for a in index.of_value("eur 500")] == ["EUR 500"]


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When does it start?", AnchorKind.DATE), ("How long does it last?", AnchorKind.DURATION),
        ("How much is owed?", AnchorKind.AMOUNT), ("Who signs?", AnchorKind.PARTY),
        ("何时生效？", AnchorKind.DATE),
        ("违约金是多少？", AnchorKind.AMOUNT),
    ],
)  # fmt: skip
def test_asked_kinds(question, kind):
    assert kind in asked_kinds(question)


@pytest.mark.parametrize(
    "unit", ["A ", "1,", "one ", '"A', "No. A", "Section ", "第一", "\n \n ", "a@", "AB-12-"]
)
def test_adversarial_text_takes_linear_time(unit):
    # A quadratic pattern needs minutes for a megabyte; doubling the text must not quadruple the time.
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.perf_counter()
        headings = find_headings(text)
        find_anchors(text, headings)
        sentence_starts(text, headings)
        return time.perf_counter() - start

    small, large = seconds(125_000), seconds(250_000)
    assert large < 4 * small + 0.5
    assert large < 5


def test_a_megabyte_on_one_line_is_quick():
    start = time.perf_counter()
    find_anchors("A1,'\"“§.- 1.1 one 第一" * 50_000)
    assert time.perf_counter() - start < 15
