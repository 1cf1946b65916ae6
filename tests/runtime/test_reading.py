"""Answers before a document is read, on a tiny model: exact on what was read for them, and without a trace after."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from tiny_models import make_engine, plain_answer
from zerolayer.config import load_settings
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.errors import QuestionTooLongError
from zerolayer.runtime import early
from zerolayer.runtime.early import EARLY_BLOCKS, ShortlistVectors, select_blocks
from zerolayer.session import session_of

WIDTH = 8
CLAUSES = [f"{n}. Notice number {n} goes to office {n * 7} of the Supplier." for n in range(1, 61)]
CLAUSES[44] = "45. The deposit is nine thousand crowns, payable in Tartu."
TEXT = "\n\n".join(CLAUSES)
PAGE = 400  # characters
QUESTION = "How much is the deposit in crowns?"
OTHER = "Who receives notice number 12?"
TIMES = ("ttft_s", "recall_s", "knit_s", "decode_s_per_token")


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Opens a session as a new process would; `home` tells apart what is stored."""

    def open_(home: str = "home", text: str = TEXT, **settings):
        monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path / home))
        starts = range(0, len(text), PAGE)
        pages = tuple(Page(n, a, min(a + PAGE, len(text))) for n, a in enumerate(starts, start=1))
        defaults = {"block_tokens": WIDTH, "max_new_tokens": 8, "encoder": "none", "chunk_tokens": 24}
        document = Document("d", text, pages, "")
        return session_of([document], make_engine("llama")[0], load_settings(**{**defaults, **settings}))

    return open_


def payloads(session) -> dict[str, bytes]:
    tiers = session.scheduler.executor.tiers
    return {block.id: tiers.read(block.id).payload for block in session.stream.blocks}


def chosen(session, question: str) -> list[int]:
    """Blocks that the words of a question point at, with the sinks."""
    words = session.signals(question).words
    return [0, *select_blocks(words, EARLY_BLOCKS)]


def test_an_early_answer_is_the_plain_models_on_what_the_question_points_at(opened):
    with opened() as session:
        answer, result = session.answer(QUESTION)
        seen = result.attended.blocks
        ids = [
            int(t) for block in seen for t in session.stream.token_ids[block * WIDTH : (block + 1) * WIDTH]
        ]
        plain = plain_answer(make_engine("llama")[1], np.asarray([*ids, *session.question_ids(QUESTION)]), 8)
    assert answer.early and result.token_ids == plain
    assert seen == sorted(seen) and seen == chosen(session, QUESTION)
    text = [session.stream.text[b.char_start : b.char_end] for b in session.stream.blocks]
    assert "nine thousand crowns" in "".join(text[block] for block in seen)
    assert answer.citations[0].page in {1 + TEXT.index("deposit") // PAGE, 1 + TEXT.index("Tartu") // PAGE}
    metrics = answer.metrics
    assert metrics.prefilled_document_tokens == len(seen) * WIDTH
    assert metrics.recomputed_tokens == metrics.discarded_tokens == metrics.corrupt_blocks == 0
    assert 0 < metrics.recall_s < metrics.ttft_s


def test_reading_on_leaves_what_a_plain_read_would_have_left(opened):
    with opened("early") as session:
        first = session.ask(QUESTION)
        forms = list(session._reader.early.forms)
        tiers = session.scheduler.executor.tiers
        assert forms and all(form in tiers for form in forms)
        report = session.read()
        assert not any(form in tiers for form in forms)
        assert not session._store.info(session._info.id).early_forms
        stored, after = payloads(session), session.ask(QUESTION)
    with opened("plain") as session:
        plain = session.read()
        assert payloads(session) == stored
        again = session.ask(QUESTION)
    total = len(session.stream.token_ids)
    assert (report.tokens_total, report.tokens_prefilled, report.tokens_from_storage) == (total, total, 0)
    assert report.tokens_early == report.recomputed_tokens == (EARLY_BLOCKS + 1) * WIDTH
    assert (plain.tokens_early, plain.recomputed_tokens) == (0, 0)
    assert first.early and not after.early
    assert (after.text, after.citations) == (again.text, again.citations)


def test_an_answer_does_not_depend_on_the_questions_before_it(opened):
    with opened("one") as session:
        session.ask(OTHER)
        second = session.ask(QUESTION)
    with opened("two") as session:
        only = session.ask(QUESTION)
    assert (second.text, second.citations) == (only.text, only.citations)
    assert (
        second.metrics.recomputed_tokens >= WIDTH
    )  # the sinks at least were computed for the other question


def test_two_runs_are_identical(opened):
    def run(home: str):
        with opened(home) as session:
            answers = [session.ask(question) for question in (QUESTION, OTHER)]
            report = session.read()
            answers += [session.ask(question) for question in (QUESTION, OTHER)]
        metrics = [{k: v for k, v in asdict(a.metrics).items() if k not in TIMES} for a in answers]
        return [(a.text, a.citations) for a in answers], metrics, report.recomputed_tokens

    assert run("one") == run("two")


def test_a_killed_process_has_lost_nothing(opened):
    killed = opened()  # never closed: all that the next one has is what lies on disk
    first = killed.ask(QUESTION)
    killed.read(until=iter([False] * 4 + [True]).__next__)
    done = killed.read_report.tokens_read
    with opened() as session:
        again = session.ask(QUESTION)
        assert again.early and again.metrics.prefilled_document_tokens == 0
        assert (again.text, again.citations) == (first.text, first.citations)
        report = session.read()
        assert 0 < done == report.tokens_from_storage
        assert report.tokens_prefilled == report.tokens_total - done
        assert report.tokens_early == 0
        inside = sum(block * WIDTH >= done for block in chosen(session, QUESTION))
        assert report.recomputed_tokens == inside * WIDTH
    with opened() as session:
        third = session.read()
    assert (third.tokens_prefilled, third.tokens_early) == (0, 0)


def test_a_selection_interrupted_in_the_middle_goes_on(opened):
    killed = opened()
    first = killed.ask(QUESTION)
    reader = killed._reader.early
    tiers = killed.scheduler.executor.tiers
    lost = list(reader.forms)[10:]
    for form in lost:
        tiers.delete(form)
    with opened() as session:
        again = session.ask(QUESTION)
    assert again.metrics.prefilled_document_tokens == len(lost) * WIDTH
    assert again.citations[0].page == first.citations[0].page and again.metrics.discarded_tokens == 0


def test_early_answers_stay_within_the_budget_and_read_it_all_once_they_cost_too_much(opened):
    questions = [f"Who receives notice number {n}?" for n in range(1, 12)]
    with opened(device_budget="15%") as session:
        answers = []
        while session.answers_early:
            answers.append(session.ask(questions[len(answers)]))
            assert session.engine.arena.nbytes <= 0.15 * session.full_kv_bytes
        total = session.read_report.tokens_total
        assert len(answers) > 1 and session.read_report.tokens_early <= session.settings.early_share * total
        last = session.ask(QUESTION)
        assert not last.early and session.read_report.tokens_read == total
        assert session.engine.arena.nbytes <= 0.15 * session.full_kv_bytes


def test_a_short_document_is_read_first(opened):
    with opened(text=TEXT[:600]) as session:
        assert not session.answers_early
        answer = session.ask("Who receives notice number 3?")
    assert not answer.early and session.read_report.tokens_read == session.read_report.tokens_total


def test_a_conversation_that_began_early_goes_on_after_reading(opened):
    with opened() as session:
        for question in (QUESTION, "And where is it payable?", OTHER):
            assert session.ask(question, keep=True).early
        assert session.read(until=lambda: True).tokens_prefilled == 0
        assert session.ask("And to which office?", keep=True).early
        session.read()
        table, size = session.scheduler.table, len(session.stream.blocks)
        said = session.scheduler.working_set.tokens[size * WIDTH :].tolist()
        assert len(table) > size
        text = session.engine.tokenizer.decode(said)
        assert text.index(QUESTION) < text.index("where is it payable") < text.index("which office")
        kept = session.ask("Is that all?", keep=True)
        assert not kept.early and kept.metrics.discarded_tokens == 0
        tiers, ids = session.scheduler.executor.tiers, session.scheduler.executor.ids[size:]
        assert all(block_id in tiers for block_id in ids)
    assert not any(block_id in tiers for block_id in ids)


def test_what_was_said_early_is_not_kept_when_the_session_ends(opened):
    with opened() as session:
        session.ask(QUESTION, keep=True)
        session.ask(OTHER, keep=True)
        size = len(session.stream.blocks)
        said = [form for form, block in session._reader.early.forms.items() if block >= size]
        tiers = session._reader.early._tiers
        assert said and all(form in tiers for form in said)
    assert not any(form in tiers for form in said)


def test_a_question_too_long_is_refused_and_another_one_answered(opened):
    with opened() as session:
        with pytest.raises(QuestionTooLongError):
            session.ask("why " * 200)
        assert session.ask(QUESTION).early


@pytest.mark.parametrize("question", ["", "?!", "the of a", "第四十二条", "مرحبا"])
def test_a_question_that_matches_nothing_is_answered(opened, question):
    with opened() as session:
        answer = session.ask(question)
    assert answer.early and answer.metrics.discarded_tokens == 0


def test_selected_blocks_are_the_best_in_document_order_without_sinks():
    match = np.asarray([9.0, 0.1, 0.5, 0.4, 0.0, 0.5], np.float32)
    assert select_blocks(match, 3) == [2, 3, 5]
    assert select_blocks(match, 99) == [1, 2, 3, 4, 5]


@pytest.mark.model
def test_vectors_of_a_shortlist_are_those_of_the_document(monkeypatch):
    from zerolayer.engines.hf.loading import load_encoder
    from zerolayer.perception.dense import encode_blocks

    encoder = load_encoder(load_settings())
    if encoder is None:
        pytest.skip("the sentence encoder cannot be had")
    monkeypatch.setattr(early, "SHORTLIST", 5)
    spans = [(0, 0), *[(start, start + 50) for start in range(0, 1000, 50)]]
    words = np.linspace(1, 0, len(spans), dtype=np.float32)  # the empty block matches best: it has no vector
    cosines = ShortlistVectors(encoder, TEXT, spans).cosines(QUESTION, words)
    whole = encode_blocks(encoder, TEXT, spans) @ encoder.encode([QUESTION])[0]
    np.testing.assert_allclose(cosines[1:6], whole[1:6], atol=1e-4)
    assert len(set(cosines[[0, *range(6, len(spans))]].tolist())) == 1
    assert cosines[6] < cosines[1:6].mean()
