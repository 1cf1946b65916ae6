"""Typed anchors."""

import re
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
        (AnchorKind.CLAUSE, "ARTICLE IV. Duties", "article 4"),
        (AnchorKind.CLAUSE, "第４２条 通知", "第42条"),
        (AnchorKind.REFERENCE, "依照本法第四十二条第二款第三项", "第42条第2款第3项"),
        (AnchorKind.REFERENCE, "under Section 12.3(b)(ii) hereof", "12.3(b)(ii)"),
        (AnchorKind.REFERENCE, "pursuant to Article IV and", "article 4"),
        (AnchorKind.REFERENCE, "IN SECTION 8.1 BELOW", "8.1"),
        (AnchorKind.REFERENCE, "see § 12.4", "12.4"),
        (AnchorKind.REFERENCE, "按照附件二", "附件2"),
        (AnchorKind.REFERENCE, "Section 3, 30 days after", "3"),
        (AnchorKind.DATE, "２０２５年３月１５日", "2025-03-15"),
        (AnchorKind.DATE, "二〇二五年三月", "2025-03"),
        (AnchorKind.DATE, "by 15.03.2025 at", "2025-03-15"),
        (AnchorKind.DATE, "in March 2025", "2025-03"),
        (AnchorKind.DATE, "2025/3/5", "2025-03-05"),
        (AnchorKind.AMOUNT, "人民币伍拾万元整", "CNY 500000"),
        (AnchorKind.AMOUNT, "共５０万元", "CNY 500000"),
        (AnchorKind.AMOUNT, "１，２００，０００元", "CNY 1200000"),
        (AnchorKind.AMOUNT, "壹佰元伍角", "CNY 100.5"),
        (AnchorKind.AMOUNT, "100万美元", "USD 1000000"),
        (AnchorKind.AMOUNT, "two hundred and fifty thousand dollars", "USD 250000"),
        (AnchorKind.AMOUNT, "what is usd 500k for", "USD 500000"),
        (AnchorKind.DURATION, "三十日内", "P30D"),
        (AnchorKind.DURATION, "六十个工作日", "P60D"),
        (AnchorKind.DURATION, "one hundred and twenty (120) days", "P120D"),
        (AnchorKind.PERCENT, "百分之三十", "30"),
        (AnchorKind.PERCENT, "每日万分之五", "0.05"),
        (AnchorKind.PERCENT, "50 basis points", "0.5"),
        (AnchorKind.PERCENT, "３０％", "30"),
        (AnchorKind.PARTY, "甲方：王某", "甲方"),
        (AnchorKind.PARTY, "由北京汇通科技有限公司承担", "北京汇通科技有限公司"),
        (AnchorKind.TERM, "（以下简称‘本公司’）", "本公司"),
        (AnchorKind.TERM, "以下简称“本公司”", "本公司"),
        (AnchorKind.TERM, "（以下简称本公司）", "本公司"),
        (AnchorKind.PHONE, "call (555) 123-4567 now", "5551234567"),
        (AnchorKind.PHONE, "+49 89 1234 5678", "+498912345678"),
        (AnchorKind.URL, "at https://www.a.com/b?x=1.", "https://www.a.com/b?x=1"),
        (AnchorKind.IDENTIFIER, "GB82 WEST 1234 5698 7654 32", "GB82WEST12345698765432"),
        (AnchorKind.IDENTIFIER, "统一社会信用代码：91110108MA01ABCD2X", "91110108MA01ABCD2X"),
        (AnchorKind.IDENTIFIER, "U.S. Patent No. 5,123,456, filed", "5,123,456"),
    ],
)
def test_kinds_and_values(kind, text, value):
    found = [anchor for anchor in find_anchors(text) if anchor.kind is kind]
    assert [anchor.value for anchor in found] == [value]
    assert text[found[0].start : found[0].end] == found[0].text


def test_a_calendar_year_is_no_duration():
    assert not [a for a in find_anchors("2020年施行") if a.kind is AnchorKind.DURATION]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (AnchorKind.DURATION, "年满十八周岁"), (AnchorKind.DURATION, "三月三十日前"), (AnchorKind.DATE, "13/13/2025"),
        (AnchorKind.PARTY, "The Company pays."), (AnchorKind.PARTY, "一家有限责任公司"), (AnchorKind.AMOUNT, "数万元"),
        (AnchorKind.REFERENCE, "以上目前条件"), (AnchorKind.REFERENCE, "in this section I agree"),
        (AnchorKind.IDENTIFIER, "GB82 WEST 1234 5698 7654 33"), (AnchorKind.PHONE, "2025-03-15 to 2025-04-15"),
    ],
)  # fmt: skip
def test_what_only_looks_like_an_anchor(kind, text):
    assert not [anchor for anchor in find_anchors(text) if anchor.kind is kind]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Sections 2.1(e), 2.4(b) and 2.5", ["2.1(e)", "2.4(b)", "2.5"]),
        ("Sections 3 through 6", ["3", "4", "5", "6"]),
        ("Exhibits B to D", ["exhibit b", "exhibit c", "exhibit d"]),
        ("本法第三条至第五条、第七条第二款", ["第3条", "第4条", "第5条", "第7条第2款"]),
        ("第一条 甲\n第二条 乙\n第三条 前两条和前条第二款不适用", ["第1条", "第2条", "第2条第2款"]),
        ("12.1 One.\n12.2 As in the preceding Section.", ["12.1"]),
    ],
)
def test_lists_and_ranges_of_references(text, values):
    assert sorted(a.value for a in find_anchors(text) if a.kind is AnchorKind.REFERENCE) == values


def test_spans_and_anchors_both_ways():
    text = "On March 1, 2024 the sum of EUR 500 falls due. No more than 5% is kept."
    index = AnchorIndex.of(text)
    tokens = [(match.start(), match.end()) for match in re.finditer(r"\S+", text)]
    over = index.over([(0, 0), *tokens, (len(text), len(text))])
    date = next(i for i, anchor in enumerate(index.anchors) if anchor.kind is AnchorKind.DATE)
    assert [text[slice(*tokens[span - 1])] for span in over.of_anchor(date)] == ["March", "1,", "2024"]
    for span, (start, end) in enumerate(tokens, start=1):
        assert [index.anchors[i] for i in over.of_span(span)] == index.in_span(start, end)
    assert over.counts(AnchorKind.AMOUNT).sum() == 2 and over.counts(AnchorKind.EMAIL).sum() == 0
    assert len(over.of_span(0)) == len(over.of_span(len(tokens) + 1)) == 0
    assert len(AnchorIndex.of("").over([]).anchors) == 0


def test_a_paragraph_of_a_clause_finds_its_heading():
    index = AnchorIndex.of(
        "12.3 Fees. (a) One. (b) Two.\n第四十二条 通知。\n13.1 As in Section 12.3(b) and 第四十二条第二款."
    )
    assert [a.kind for a in index.of_value("12.3(a)")] == [AnchorKind.CLAUSE]
    assert [a.kind for a in index.of_value("第42条第3款")] == [AnchorKind.CLAUSE]
    assert len(index.references_to("12.3")) == len(index.references_to("第42条")) == 1


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
    "unit",
    [
        "A ",
        "1,",
        "one ",
        '"A',
        "No. A",
        "Section ",
        "第一",
        "\n \n ",
        "a@",
        "AB-12-",
        "第1条至",
        "百分之",
        "甲（",
        "+1 (1) ",
        "Sections 1, 2 to 3, ",
        "一",
        "(a)",
        "Sec. 1.1.1",
        "A1,'\"“§.- 1.1 one 第一",
    ],
)
def test_adversarial_text_takes_linear_time(unit):
    # A quadratic pattern needs minutes for a megabyte; four times the text must not take 16 times as long.
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.perf_counter()
        headings = find_headings(text)
        find_anchors(text, headings)
        sentence_starts(text, headings)
        return time.perf_counter() - start

    seconds(1000)
    small, large = seconds(30_000), seconds(120_000)
    assert large < 8 * small + 0.5
