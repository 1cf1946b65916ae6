"""Ranking blocks by a question's words."""

import json
import time

import numpy as np
import pytest

from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.words import stem, tokenize

CLAUSES = [
    "1.1 Supply. The Seller delivers pumps to the yard of the Buyer in working order every week.",
    "2.1 Termination. Either Party may terminate this Agreement upon ninety (90) days written notice.",
    "3.1 Law. This Agreement is governed by the statutes of Norway and construed accordingly.",
    "4.1 Charges. The Buyer pays the Charges listed in Schedule 7 upon receipt of an invoice.",
    "5.1 Insurance. The Seller insures the pumps against fire and theft with a sound insurer.",
    "6.1 Secrets. Nothing said in confidence may be disclosed to any outsider for five years.",
    "Schedule 7\nPumps cost EUR 4,750 each and valves are given away with them at no extra sum.",
]
TEXT = "\n".join(CLAUSES)
SPANS = [(TEXT.index(clause), TEXT.index(clause) + len(clause)) for clause in CLAUSES]


@pytest.fixture(scope="module")
def index():
    return LexicalIndex(TEXT, SPANS)


def test_stems_of_one_word_agree():
    assert (
        len({stem(w) for w in ("terminate", "terminates", "terminated", "termination", "terminating")}) == 1
    )
    assert len({stem(w) for w in ("licence", "license", "licensed", "licensor", "licensee")}) == 1
    assert stem("fees") == stem("fee") and stem("ended") == stem("end") and stem("parties") == stem("party")


def test_chinese_is_cut_into_words():
    assert [word for word, _ in tokenize("甲方应当支付违约金")][-1] == "违约金"
    assert all("支付价款"[at:].startswith(word) for word, at in tokenize("支付价款"))


@pytest.mark.parametrize(
    ("question", "block"),
    [
        ("May a party terminate on notice?", 1),
        ("How do I quit early?", 1),
        ("Which country's law applies?", 2),
        ("What does clause 5.1 say?", 4),
        ("Are private matters kept secret?", 5),
        ("What is EUR 4,750 for?", 6),
    ],
)
def test_best_block(index, question, block):
    assert int(np.argmax(index.scores(question))) == block


def test_scores_are_between_zero_and_one(index):
    scores = index.scores("When must the invoice be paid?")
    assert scores.dtype == np.float32 and scores.shape == (7,)
    assert scores.min() >= 0 and scores.max() == 1


def test_a_reference_lifts_the_clause_it_names(index):
    scores = index.scores("What must the Buyer pay upon receipt of an invoice?")
    assert int(np.argmax(scores)) == 3
    assert scores[6] > scores[5]


def test_a_question_without_a_match_scores_nothing(index):
    assert not index.scores("zzz qqq").any()
    assert not index.scores("").any()


def test_further_signals_are_fused(index):
    signal = np.zeros(7, dtype=np.float32)
    signal[5] = 1
    assert int(np.argmax(index.scores("May a party terminate on notice?", [(5.0, signal)]))) == 5


def test_empty_spans_and_empty_text():
    scores = LexicalIndex(TEXT, [(0, 0), *SPANS, (0, 0)]).scores("Which law governs?")
    assert scores[0] == scores[-1] == 0 and int(np.argmax(scores)) == 3
    assert LexicalIndex("", []).scores("x").shape == (0,)
    assert not LexicalIndex("   ", [(0, 3)]).scores("law").any()


def test_same_scores_every_time(index):
    again = LexicalIndex(TEXT, SPANS)
    np.testing.assert_array_equal(index.scores("How do I quit?"), again.scores("How do I quit?"))


def test_speed_on_a_long_document():
    text = " ".join(f"{n}.1 Clause {n}. {CLAUSES[n % 7]}" for n in range(3000))[:300_000]
    spans = [(start, start + 300) for start in range(0, 300_000, 300)]
    start = time.perf_counter()
    index = LexicalIndex(text, spans)
    built = time.perf_counter()
    for _ in range(5):
        index.scores("When may the agreement be terminated and how much must be paid?")
    assert built - start < 6  # 1.5 s on an idle core
    assert (time.perf_counter() - built) / 5 < 0.2


def coverage(shared_data, wording: str, share: float) -> float:
    """Mean share of gold evidence in the best `share` of 300-character blocks of unseen contracts."""
    lines = (shared_data / "cuad" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["split"] == "test" and row["characters"] < 60_000][
        ::4
    ]
    found = []
    for row in rows:
        text = (shared_data / "cuad" / "contracts" / row["contract"]).read_text(encoding="utf-8")
        starts = np.arange(0, len(text), 300)
        index = LexicalIndex(text, [(int(a), min(len(text), int(a) + 300)) for a in starts])
        for item in row["questions"]:
            gold = np.zeros(len(starts))
            for a, b in item["evidence"]:
                gold += np.maximum(0, np.minimum(starts + 300, b) - np.maximum(starts, a))
            best = np.argsort(-index.scores(item[wording]), kind="stable")[
                : max(1, round(share * len(starts)))
            ]
            found.append(gold[best].sum() / gold.sum())
    return float(np.mean(found))


@pytest.mark.data
def test_evidence_of_unseen_contracts(shared_data):
    assert coverage(shared_data, "question", 0.10) > 0.72
    assert coverage(shared_data, "paraphrase", 0.25) > 0.82
