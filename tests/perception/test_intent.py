"""Forecasts of the next need: sections, kinds of turn, probabilities that are ones, and what the history changes."""

from itertools import pairwise

import numpy as np
import pytest

from zerolayer.documents.structure import find_headings
from zerolayer.perception.intent import AskedTurn, IntentModel, predict_next_intent
from zerolayer.perception.intent_acts import ACTS, Act, act_features, act_of
from zerolayer.perception.intent_model import IntentParameters, shipped_parameters
from zerolayer.perception.sections import LEAST_CHARS, find_sections

TOPICS = (
    ("Term", "The initial term is five years from the Effective Date and ends on 31 December 2029."),
    ("Fees", "Customer pays a fee of USD 12,000 a month within thirty days of the invoice."),
    ("Confidentiality", "Each party keeps the other's information secret and uses it for this deal only."),
    ("Liability", "Liability of either party is limited to the fees paid in the last twelve months."),
    ("Insurance", "The supplier keeps insurance of at least USD 2,000,000 for each occurrence."),
    ("Termination", "Either party may end this agreement on ninety days' written notice."),
    ("Assignment", "Neither party may assign this agreement without the other's consent."),
    ("Governing Law", "The laws of the State of New York govern this agreement."),
)
TEXT = "MASTER SERVICES AGREEMENT between Alpha Inc. and Beta LLC, dated 1 January 2025.\n\n" + "\n\n".join(
    f"{n}. {title}\n" + f"{sentence} " * 12 for n, (title, sentence) in enumerate(TOPICS, start=1)
)
WIDTH = 300


def spans_of(text, width=WIDTH):
    return [(at, min(len(text), at + width)) for at in range(0, len(text), width)]


@pytest.fixture(scope="module")
def model():
    return IntentModel(
        TEXT, spans_of(TEXT), pages=[(i // 8 + 1, i // 8 + 1) for i in range(len(spans_of(TEXT)))]
    )


def block_of(model, words):
    return TEXT.index(words) // WIDTH


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("Are you sure? I thought it was 1946.", Act.CORRECT),
        ("That doesn't sound right.", Act.CORRECT),
        ("你确定吗?", Act.CORRECT),
        ("Can you summarize that in one sentence?", Act.REFINE),
        ("请换一种说法。", Act.REFINE),
        ("Please elaborate on the second point.", Act.EXPAND),
        ("请详细说明。", Act.EXPAND),
        ("And what about the fees?", Act.FOLLOW_UP),
        ("它什么时候到期?", Act.FOLLOW_UP),
        ("Write a poem about autumn.", Act.REQUEST),
        ("Which law governs the agreement?", Act.ASK),
        ("合同何时到期?", Act.ASK),
        ("Elated.", Act.STATE),
        ("", Act.STATE),
    ],
)
def test_the_wording_tells_the_kind_of_turn(text, act):
    assert act_of(text) is act


def test_the_next_act_hangs_on_the_last_turn():
    parameters = shipped_parameters()
    asked = parameters.act_probabilities(["Can you recommend a phone?"], ["Sure. What is your budget?"])
    told = parameters.act_probabilities(["Can you recommend a phone?"], ["The A1 is good."])
    assert asked.sum() == pytest.approx(1, abs=1e-5)
    assert asked[ACTS.index(Act.STATE)] > told[ACTS.index(Act.STATE)]
    assert len(act_features([], [])) == len(act_features(["a", "b"], ["c"]))


def test_sections_tile_the_text_and_carry_the_headings_names():
    sections = find_sections(TEXT)
    assert sections[0].char_start == 0 and sections[-1].char_end == len(TEXT)
    assert all(a.char_end == b.char_start for a, b in pairwise(sections))
    titles = [section.title for section in sections]
    assert any("Governing Law" in title for title in titles) and any("Fees" in title for title in titles)


@pytest.mark.parametrize(
    "text", ["x" * 50_000, "word " * 10_000, "line\n" * 10_000, "第一条 " + "甲方。" * 9000]
)
def test_text_without_headings_is_cut_into_sections_of_like_size(text):
    sections = find_sections(text)
    sizes = [section.char_end - section.char_start for section in sections]
    assert sum(sizes) == len(text) and 8 <= len(sections) <= 32
    assert max(sizes) <= 5 * min(sizes)


def test_hundreds_of_short_clauses_become_few_sections():
    text = "".join(f"{n}. Clause\nShort text of clause {n}.\n" for n in range(1, 400))
    sections = find_sections(text)
    starts = {heading.start for heading in find_headings(text)}
    assert len(sections) <= 45 and all(s.char_start in starts for s in sections[1:])
    assert min(s.char_end - s.char_start for s in sections) >= LEAST_CHARS // 2


def test_a_forecast_is_a_distribution(model):
    for history in ([], ["Which law governs?"], ["Which law governs?", "How much is the fee?", "And when?"]):
        forecast = model.forecast([AskedTurn(question) for question in history])
        assert forecast.block_probability.sum() == pytest.approx(1, abs=1e-4)
        assert (forecast.block_probability >= 0).all()
        assert len(forecast.needs) == 3
        assert sum(n.probability for n in forecast.needs) + forecast.other == pytest.approx(1, abs=1e-4)
        assert [n.probability for n in forecast.needs] == sorted(
            (n.probability for n in forecast.needs), reverse=True
        )
        assert 0 < forecast.entropy < 1
        assert forecast.entropy_bits == pytest.approx(forecast.entropy * np.log2(len(model.sections)))
        assert sum(forecast.acts.values()) == pytest.approx(1, abs=1e-4)
        assert sum(forecast.ways.values()) == pytest.approx(1, abs=1e-4)


def test_needs_name_places_that_exist(model):
    for need in predict_next_intent(["How long is the term?"], model):
        section = TEXT[need.char_start : need.char_end]
        assert need.label.rstrip(" …")[:20] in " ".join(section.split())
        assert need.blocks and need.pages == tuple(sorted({b // 8 + 1 for b in need.blocks}))
        assert all(need.char_start <= b * WIDTH + WIDTH // 2 < need.char_end + WIDTH for b in need.blocks)


def test_two_forecasts_of_one_history_are_equal(model):
    history = [AskedTurn("How long is the term?", (1,)), AskedTurn("And the fee?", (4,))]
    first, second = model.forecast(history), model.forecast(history)
    assert first == second and np.array_equal(first.block_probability, second.block_probability)


def test_asking_in_reading_order_teaches_to_read_on(model):
    n = len(model.features.rows)
    reading = [AskedTurn("What does it say?", (b,)) for b in range(0, n - 8, 3)]
    leaping = [reading[i] for i in np.random.default_rng(3).permutation(len(reading))]
    assert model.forecast(reading).ways["reading"] > 0.6 > model.forecast(leaping).ways["reading"]
    last = reading[-1].blocks[0]
    ahead = model.forecast(reading).block_probability[last:].sum()
    assert ahead > IntentModel(TEXT, spans_of(TEXT)).forecast(reading[:1]).block_probability[last:].sum()


def test_who_corrects_stays_where_the_answer_was(model):
    """After a first answer that the user is likely to doubt, the place of that answer weighs more."""
    at = block_of(model, "Governing Law")
    calm = model.forecast([AskedTurn("What is the title?", (0,)), AskedTurn("Which law governs?", (at,))])
    doubted = model.forecast(
        [AskedTurn("Are you sure?", (at,)), AskedTurn("That doesn't sound right. Please verify it.", (at,))]
    )
    assert doubted.ways["stay"] > calm.ways["stay"]


def test_blocks_are_inferred_from_words_where_none_are_known(model):
    at = block_of(model, "Insurance")
    placed = model.place(AskedTurn("How much insurance must the supplier keep?"))
    assert abs(int(placed.rows[0]) - at) <= 2 and placed.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "text", ["", " \n ", "x", "。", "12", "مرحبا بالعالم " * 60, "１２．３　条件 " * 100]
)
@pytest.mark.parametrize("question", ["", "???", "what", "何时?"])
def test_bad_documents_and_questions_give_a_sensible_forecast(text, question):
    forecast = IntentModel(text, spans_of(text)).forecast(
        [AskedTurn(question), AskedTurn(question, (10_000,))]
    )
    assert len(forecast.block_probability) == len(spans_of(text))
    assert 0 <= forecast.entropy <= 1.0001 and 0 <= forecast.other <= 1
    assert np.isfinite(forecast.block_probability).all()


def test_template_blocks_are_never_forecast():
    spans = [(0, 0), *spans_of(TEXT), (len(TEXT), len(TEXT))]
    forecast = IntentModel(TEXT, spans).forecast([AskedTurn("Which law governs?", (0, len(spans) - 1))])
    assert forecast.block_probability[0] == forecast.block_probability[-1] == 0


def test_parameters_of_other_features_are_refused():
    data = shipped_parameters().to_json()
    assert IntentParameters.from_json(data).to_json() == data
    with pytest.raises(ValueError, match="fit them again"):
        IntentParameters.from_json({**data, "features": ["something else"]})
