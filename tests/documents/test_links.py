"""Links between blocks: shared entities, definitions and cross-references."""

import time

import numpy as np
import pytest

from zerolayer.documents.links import LinkGraph, LinkKind, LinkLimits
from zerolayer.documents.mentions import find_names
from zerolayer.documents.structure import find_headings

FILLER = [
    f"{n}.1 Matters of chapter {n}. The Company keeps records of subject {n} in good order."
    for n in range(20, 60)
]
CLAUSES = [
    '1.1 Parties. This contract binds Acme Widgets Inc. (the "Company") and the buyer.',
    '1.2 Words. "Reserve Fund" means the account that is kept under Section 12.3.',
    "7.1 Payment. The buyer pays USD 48,500 on signing, subject to Section 12.3(b).",
    "8.2 Deposit. The bank keeps the Reserve Fund apart from all other money.",
    "9.4 Return. The sum of $48,500 goes back if Article IV is broken.",
    *FILLER,
    "12.3 Reserve. (a) It is kept in trust. (b) It is paid out in spring.",
    "12.3.1 Trustees. Three persons look after it.",
    "12.4 Other. Nothing else.",
    "ARTICLE IV. DUTIES. Each side acts in good faith.",
    "Contact: legal@acme.example, registered under No. NF-4471823.",
    "Write to legal@acme.example about anything.",
]
TEXT = "\n".join(CLAUSES)


def spans_of(text: str) -> list[tuple[int, int]]:
    spans, at = [], 0
    for line in text.split("\n"):
        spans.append((at, at + len(line)))
        at += len(line) + 1
    return spans


def row(words: str) -> int:
    return next(i for i, clause in enumerate(CLAUSES) if clause.startswith(words))


def kinds(graph: LinkGraph, start: str, end: str) -> set[LinkKind]:
    return {kind for block, kind, _ in graph.of(row(start)) if block == row(end)}


@pytest.fixture(scope="module")
def graph() -> LinkGraph:
    return LinkGraph.build(TEXT, spans_of(TEXT))


def test_an_amount_links_both_ways_however_it_is_written(graph):
    assert LinkKind.AMOUNT in kinds(graph, "7.1", "9.4") and LinkKind.AMOUNT in kinds(graph, "9.4", "7.1")


def test_a_defined_term_links_its_uses_and_its_definition(graph):
    assert {LinkKind.TERM, LinkKind.DEFINITION} <= kinds(graph, "8.2", "1.2")
    assert LinkKind.DEFINITION not in kinds(graph, "1.2", "8.2")


def test_contacts_link(graph):
    assert LinkKind.CONTACT in kinds(graph, "Contact", "Write")


def test_a_word_that_is_everywhere_links_nothing_but_its_definition(graph):
    fillers = {row(clause) for clause in FILLER}
    linked = {(a, b) for a, b in zip(graph.rows.tolist(), graph.cols.tolist(), strict=True)}
    assert not {(a, b) for a, b in linked if a in fillers and b in fillers}
    company = [weight for block, kind, weight in graph.of(row("20.1")) if block == row("1.1")]
    reserve = [weight for block, kind, weight in graph.of(row("8.2")) if block == row("1.2")]
    assert max(company) < min(reserve)
    assert "company" not in {chunk.entity for chunk in graph.chunks()}


def test_a_reference_leads_to_the_clause_and_its_sub_clauses(graph):
    targets = {block: weight for block, kind, weight in graph.of(row("7.1")) if kind is LinkKind.REFERENCE}
    assert set(targets) == {row("12.3 "), row("12.3.1")}
    assert targets[row("12.3 ")] > targets[row("12.3.1")]
    assert kinds(graph, "12.3 ", "7.1") == {LinkKind.REFERRED}
    assert LinkKind.REFERENCE in kinds(graph, "9.4", "ARTICLE IV")


def test_spread_passes_scores_along_links(graph):
    scores = np.zeros(len(CLAUSES), dtype=np.float32)
    scores[row("7.1")] = 1
    received = graph.spread(scores)
    assert received[row("12.3 ")] > 0.5 and received[row("9.4")] > 0.5 and received[row("7.1")] == 0
    assert received[row("30.1")] == 0
    only = graph.spread(scores, {LinkKind.AMOUNT: 0.5})
    assert only[row("12.3 ")] == 0 and only[row("9.4")] == pytest.approx(0.5 * received[row("9.4")])
    assert received.dtype == np.float32 and received.max() <= 1


def test_chunks_hold_all_paragraphs_of_an_entity_the_rarest_first(graph):
    chunks = {(chunk.kind, chunk.entity): chunk for chunk in graph.chunks()}
    assert chunks[LinkKind.AMOUNT, "usd 48500"].blocks == (row("7.1"), row("9.4"))
    weights = [chunk.weight for chunk in graph.chunks()]
    assert weights == sorted(weights, reverse=True)
    assert all(len(chunk.blocks) <= LinkLimits().largest for chunk in graph.chunks())


def test_a_clause_of_another_text_is_no_link():
    text = "501 Taxes. We pay them.\nWe are exempt under Section 501(c)(3) of the Internal Revenue Code.\n501.1 End."
    graph = LinkGraph.build(text, spans_of(text))
    assert LinkKind.REFERENCE not in graph.kinds
    text = "第三条 出资。\n第九条 依照《公司法》第三条办理。\n第十条 依照本法第三条办理。"
    graph = LinkGraph.build(text, spans_of(text))
    assert [tuple(pair) for pair in zip(graph.rows, graph.cols, graph.kinds, strict=True)] == [
        (2, 0, LinkKind.REFERENCE),
        (0, 2, LinkKind.REFERRED),
    ]


def test_chinese_references_ranges_and_the_article_before():
    lines = [f"第{n}条 关于事项的规定。" for n in "一二三四五六七八"]
    lines[6] = "第七条 适用本法第二条至第四条的规定。"
    lines[7] = "第八条 前条第一款的规定不适用。"
    text = "\n".join(lines)
    graph = LinkGraph.build(text, spans_of(text))
    refers = graph.kinds == LinkKind.REFERENCE
    pairs = set(zip(graph.rows[refers].tolist(), graph.cols[refers].tolist(), strict=True))
    assert pairs == {(6, 1), (6, 2), (6, 3), (7, 6)}


def test_a_table_of_contents_is_not_the_clause():
    text = "1 Scope 2\n2 Fees 3\nExhibit A Prices 9\n1 Scope. Everything is in scope here, at length.\n"
    text += "2 Fees. See Section 1.\nExhibit A\nPrices are set out in this exhibit."
    graph = LinkGraph.build(text, spans_of(text))
    assert {block for block, kind, _ in graph.of(4) if kind is LinkKind.REFERENCE} == {3}


def test_names_are_found_in_singular_plural_and_possessive():
    text = "The Licensees pay. The Licensee's fee. A licensee waits. Reserve Fund Account, Reserve Funds. 本公司承诺"
    found = find_names(text, ["licensee", "reserve fund", "reserve fund account", "本公司"])
    assert [name for name, _ in found if name == "licensee"] == ["licensee"] * 2
    assert {(name, text[at:][:12]) for name, at in found if name.startswith("reserve")} == {
        ("reserve fund account", "Reserve Fund"),
        ("reserve fund", "Reserve Fund"),
    }
    assert ("本公司", text.index("本公司")) in found


def test_no_blocks_no_text_and_one_block():
    for text, spans in (
        ("", []),
        ("word", [(0, 0)]),
        ("See Section 1.", [(0, 14)]),
        (TEXT, [(0, len(TEXT))]),
    ):
        graph = LinkGraph.build(text, spans)
        assert len(graph.rows) == 0
        assert graph.spread(np.ones(len(spans), dtype=np.float32)).tolist() == [0.0] * len(spans)


def test_empty_spans_are_never_linked():
    graph = LinkGraph.build(TEXT, [(0, 0), *spans_of(TEXT), (len(TEXT), len(TEXT))])
    assert 0 not in graph.cols and len(CLAUSES) + 1 not in graph.cols


def test_the_graph_grows_in_proportion_to_the_text():
    def seconds(copies: int) -> float:
        text = "\n".join(CLAUSES * copies)
        spans, headings = spans_of(text), find_headings(text)
        start = time.perf_counter()
        LinkGraph.build(text, spans, headings=headings)
        return time.perf_counter() - start

    seconds(5)
    assert seconds(160) < 8 * seconds(40) + 0.5


@pytest.mark.data
def test_links_of_real_texts(shared_data):
    law = (shared_data / "cn_civil_code" / "合同编.md").read_text(encoding="utf-8")
    spans = spans_of(law)
    graph = LinkGraph.build(law, spans)
    source = next(i for i, (a, b) in enumerate(spans) if law[a:b].startswith("第五百一十一条"))
    target = next(i for i, (a, b) in enumerate(spans) if law[a:b].startswith("第五百一十条"))
    assert (target, LinkKind.REFERENCE) in {(block, kind) for block, kind, _ in graph.of(source)}
