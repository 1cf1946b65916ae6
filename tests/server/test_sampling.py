"""How tokens are drawn, and text is given out."""

from __future__ import annotations

import pytest
import torch

from tiny_models import byte_tokenizer
from zerolayer.runtime.answering import Decoding
from zerolayer.server.sampling import AnswerText, chooser
from zerolayer.server.turns import Sampling, TextDelta

LOGITS = torch.tensor([0.0, 3.0, 2.0, 1.0, -1.0])


def told(text: str, stops: tuple[str, ...] = ()) -> tuple[list[TextDelta], AnswerText, Decoding]:
    """A text given out byte by byte."""
    deltas: list[TextDelta] = []
    decoding = Decoding(1000)
    answer = AnswerText(byte_tokenizer(), decoding, stops, deltas.append)
    for token in byte_tokenizer()(text, add_special_tokens=False)["input_ids"]:
        if decoding.ended:
            break
        answer.add(token)
    answer.finish()
    return deltas, answer, decoding


def test_greedy_needs_no_chooser():
    assert chooser(Sampling(max_tokens=1)) is None


@pytest.mark.parametrize(
    ("options", "allowed"),
    [({}, {0, 1, 2, 3, 4}), ({"top_k": 2}, {1, 2}), ({"top_p": 0.6}, {1}), ({"top_p": 0.8}, {1, 2})],
)
def test_only_what_is_likely_enough_is_drawn(options, allowed):
    choose = chooser(Sampling(max_tokens=1, temperature=1.0, seed=3, **options))
    assert choose is not None
    drawn = {choose(LOGITS) for _ in range(400)}
    assert drawn <= allowed and len(drawn) >= min(2, len(allowed))


def test_one_seed_draws_the_same_tokens():
    def drawn(seed: int) -> list[int]:
        choose = chooser(Sampling(max_tokens=1, temperature=0.9, seed=seed))
        assert choose is not None
        return [choose(LOGITS) for _ in range(50)]

    assert drawn(5) == drawn(5) != drawn(6)


@pytest.mark.parametrize("text", ["The fee is five euro.", "合同期限为三年。", "naïve 🙂 café", ""])
def test_pieces_make_up_the_text_and_no_character_is_halved(text):
    deltas, answer, _ = told(text)
    assert "".join(delta.text for delta in deltas) == text == answer.whole
    assert all("\ufffd" not in delta.text for delta in deltas)
    ends = [0, *(delta.token_end for delta in deltas)]
    assert [delta.token_start for delta in deltas] == ends[:-1]
    assert ends[-1] == len(text.encode())


def test_half_a_character_at_the_end_of_a_cut_answer_is_not_told():
    deltas: list[TextDelta] = []
    answer = AnswerText(byte_tokenizer(), Decoding(1000), (), deltas.append)
    for token in byte_tokenizer()("年。", add_special_tokens=False)["input_ids"][:-1]:
        answer.add(token)
    assert answer.finish() == answer.whole == "".join(delta.text for delta in deltas) == "年"


@pytest.mark.parametrize(
    ("text", "stops", "left", "stop"),
    [
        ("one two three", ("two",), "one ", "two"),
        ("one two three", ("three", "two"), "one ", "two"),
        ("one two three", ("four",), "one two three", None),
        ("one twtwo", ("two",), "one tw", "two"),
        ("stop", ("stop",), "", "stop"),
        ("价格是五元。好", ("。",), "价格是五元", "。"),
        ("ends with tw", ("two",), "ends with tw", None),
    ],
)
def test_a_stop_sequence_cuts_and_is_never_streamed_past(text, stops, left, stop):
    deltas, answer, decoding = told(text, stops)
    assert "".join(delta.text for delta in deltas) == left
    assert answer.stop == stop and decoding.ended == (stop is not None)
    if stop is not None:
        assert byte_tokenizer().decode(decoding.kept_ids) == left
        assert decoding.kept_rows <= len(decoding.kept_ids)
