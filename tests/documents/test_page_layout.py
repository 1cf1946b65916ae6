"""Running headers and footers, words cut by lines and pages, and Chinese lines."""

import pytest

from zerolayer.documents.layout import normalise_pages, unwrap, without_running_lines
from zerolayer.documents.normalise import normalise

BODY = [
    f"Topic {word} is dealt with on this page alone."
    for word in ["apples", "bricks", "copper", "drills", "eggs", "flax"]
]


def pages(top: str, bottom: str) -> list[str]:
    return [f"{top.format(n=n)}\n{body}\n{bottom.format(n=n)}\n" for n, body in enumerate(BODY, start=7)]


def test_headers_and_footers_stay_once():
    result = without_running_lines(pages("Acme Corporation – Confidential", "Page {n} of 90"))
    text = "".join(result)
    assert text.count("Confidential") == 1 and "Confidential" in result[0]
    assert text.count("Page") == 1
    assert all(body in page for body, page in zip(BODY, result, strict=True))


def test_page_numbers_alone_and_in_roman_go():
    assert "".join(without_running_lines(pages("", "{n}"))).split("\n")[-2].startswith("Topic flax")
    roman = [
        f"{body}\n{number}" for body, number in zip(BODY, ["i", "ii", "iii", "iv", "v", "vi"], strict=True)
    ]
    assert [page.strip() for page in without_running_lines(roman)[1:]] == BODY[1:]


def test_left_and_right_pages_have_headers_of_their_own():
    mixed = [f"{'Acme' if n % 2 else 'Franchise Agreement'}\n{body}" for n, body in enumerate(BODY)]
    assert "".join(without_running_lines(mixed)).count("Acme") == 1


@pytest.mark.parametrize("top", ["Article {n}", "第{n}条", "Exhibit {n} Prices"])
def test_a_heading_that_counts_with_the_pages_stays(top):
    assert "".join(without_running_lines(pages(top, ""))).count(top.split("{")[0]) == len(BODY)


def test_numbers_that_do_not_count_with_the_pages_stay():
    totals = [
        f"{body}\nTotal {amount}" for body, amount in zip(BODY, [512, 40, 7_000, 66, 81, 9], strict=True)
    ]
    assert without_running_lines(totals) == totals


def test_short_documents_and_blank_pages_stay_as_they_are():
    for texts in (["Same\n", "Same\n"], ["", "", ""], [], ["Only line", "Only line"]):
        assert without_running_lines(texts) == texts


def test_lengths_are_kept_on_request():
    before = pages("Acme", "- {n} -")
    after = without_running_lines(before, keep_length=True)
    assert [len(page) for page in after] == [len(page) for page in before]
    assert "".join(after).count("Acme") == 1


def test_a_word_that_a_page_end_cuts_is_whole_on_its_first_page():
    result = normalise_pages(
        ["Acme\nEither side may ask for termi-\n1", "Acme\nnation, in writing.\n2", "Acme\nEnd.\n3"]
    )
    assert "termination," in result[0] and result[1].lstrip().startswith("in writing")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a non-\ncompete duty", "a non-compete duty"),
        ("the termi-\nnation of it", "the termination of it"),
        ("long and term. A long-\nterm plan", "long and term. A long-term plan"),
        ("a long-term plan, a long-\nterm plan", "a long-term plan, a long-term plan"),
        ("in Zürich-\nSüd", "in Zürich-Süd"),
        ("die Kündi-\ngung", "die Kündigung"),
        ("ter\xadmination", "termination"),
        ("pay-\nment and payment", "payment and payment"),
        ("items 4-\n6", "items 4-\n6"),
    ],
)
def test_hyphens_at_line_ends(text, result):
    assert normalise(text) == result
    kept = normalise(text, keep_length=True)
    assert len(kept) == len(text) and kept.split() == result.split()


def test_offsets_after_a_mended_word_stay():
    text = "The confi-\ndential part, and the termi-\nnation; then the evidence.\x00 End"
    kept = normalise(text, keep_length=True)
    assert kept.index("evidence") == text.index("evidence") and kept.index("End") == text.index("End")
    assert "confidential" in kept and "termination;" in kept


def test_chinese_lines_are_joined_inside_sentences_only():
    page = (
        "第三条 建设用地使用权人依法对国家所有的土地享有占有、使用\n和收益的权利，应当支付人民币五百\n万元。\n"
        "第四条 依照本法第三百\n四十五条的规定办理登记手续的，自登记时起设立权利义务\n第五条 没有约定的依照法律的规定\n"
    )
    result = unwrap(page)
    assert "使用和收益" in result and "五百\n万元" in result  # a short line ends where its author wanted
    assert "\n第四条" in result and "\n第五条" in result
    english = "one line\nand another\n"
    assert unwrap(english) == english
