"""The reward: every unit and weight by hand, and BLEU-4 against its definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.decision.reward import LATENCY_FLOOR_MS, RewardWeights, TurnOutcome, bleu4, reward
from zerolayer.errors import SettingError

NOTHING = TurnOutcome(0.0, 0.0, math.inf, 0, 0)


@pytest.mark.parametrize(
    ("change", "worth"),
    [
        ({"device_mb": 10.0}, -3.0),
        ({"answer_bleu4": 1.0}, 0.5),
        ({"p0_latency_ms": 4.0}, 0.05),
        ({"wrong_eviction_tokens": 64}, -128.0),
        ({"over_prefetched_tokens": 64}, -6.4),
    ],
)
def test_each_term_has_its_documented_worth(change, worth):
    fields = {name: getattr(NOTHING, name) for name in TurnOutcome.__dataclass_fields__}
    assert reward(TurnOutcome(**{**fields, **change})).total == pytest.approx(worth)


def test_no_latency_earns_more_than_the_floor_allows():
    fast = TurnOutcome(0.0, 0.0, 0.0, 0, 0)
    assert reward(fast).latency == pytest.approx(0.2 / LATENCY_FLOOR_MS)


def test_a_weight_that_rewards_harm_is_refused():
    with pytest.raises(SettingError, match=r"wrong_eviction_token is 2\.0; it is a cost"):
        RewardWeights(wrong_eviction_token=2.0)
    with pytest.raises(SettingError, match="answer_bleu4 is nan"):
        RewardWeights(answer_bleu4=math.nan)


def test_bleu_of_an_answer_that_shares_a_beginning():
    # Unigrams 4/5, bigrams (3+1)/(4+1), trigrams (2+1)/(3+1), 4-grams (1+1)/(2+1); equal lengths.
    expected = (4 / 5 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert bleu4(["a", "b", "c", "d", "x"], ["a", "b", "c", "d", "e"]) == pytest.approx(expected)


def test_a_cut_answer_pays_for_its_brevity():
    whole = ["the", "term", "ends", "on", "1", "May", "2030"]
    assert bleu4(whole[:5], whole) == pytest.approx(math.exp(1 - 7 / 5))
    assert bleu4([], whole) == 0.0
    assert bleu4([], []) == 1.0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_bleu_lies_within_its_bounds_and_is_one_for_the_same(answer, other):
    assert bleu4(answer, answer) == pytest.approx(1.0)
    assert 0.0 <= bleu4(answer, other) <= 1.0 + 1e-9
