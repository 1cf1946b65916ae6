"""Budgets of a session: what a user gives, and how many slots that makes."""

from __future__ import annotations

import pytest

from tiny_models import make_engine
from zerolayer.config import load_settings
from zerolayer.documents import Document
from zerolayer.documents.document import Page
from zerolayer.errors import BudgetError
from zerolayer.session import session_of

TEXT = "The fee is five euro. The term ends in May. " * 12


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))

    def open_(text: str, **settings):
        document = Document("d", text, (Page(1, 0, len(text)),), "")
        defaults = {"block_tokens": 8, "max_new_tokens": 8, "encoder": "none", "chunk_tokens": 16}
        return session_of([document], make_engine("llama")[0], load_settings(**{**defaults, **settings}))

    return open_


@pytest.mark.parametrize("text", ["x", "A line.\n", TEXT])
@pytest.mark.parametrize("budget", ["auto", "100%"])
def test_documents_of_any_length_can_be_asked(opened, text, budget):
    with opened(text, device_budget=budget) as session:
        report = session.read()
        answer = session.ask("How much is the fee?")
    assert report.tokens_prefilled == report.tokens_total == len(session.stream.token_ids)
    assert answer.metrics.discarded_tokens == 0
    assert answer.citations and answer.citations[0].page == 1


def test_a_budget_that_is_given_is_hard(opened):
    with opened(TEXT, device_budget="30%") as session:
        session.read()
        for question in ("What is the fee?", "When does the term end?"):
            session.ask(question)
            assert session.scheduler.arena.nbytes <= 0.3 * session.full_kv_bytes


def test_too_small_a_budget_says_how_much_is_needed(opened):
    with pytest.raises(BudgetError, match=r"use at least --device-budget \d+MiB"):
        opened(TEXT, device_budget="1KiB")


def test_the_second_session_prefills_nothing(opened):
    with opened(TEXT) as session:
        first = session.read()
        assert first.tokens_from_storage == 0
    with opened(TEXT) as session:
        second = session.read()
        session.ask("What is the fee?")
    assert (second.tokens_prefilled, second.tokens_from_storage) == (0, first.tokens_total)


def test_kept_turns_are_seen_and_forgotten_at_the_end(opened):
    with opened(TEXT) as session:
        session.read()
        before = len(session.scheduler.table)
        for question in ("What is the fee, please, in euro?", "And when does the term end, in which month?"):
            session.ask(question, keep=True)
        grown = len(session.scheduler.table)
        tiers, ids = session.scheduler.executor.tiers, session.scheduler.executor.ids[before:]
        assert grown > before and all(block_id in tiers for block_id in ids)
    assert not any(block_id in tiers for block_id in ids)


def test_an_answer_comes_in_pieces_that_make_it_up(opened):
    pieces: list[str] = []
    with opened(TEXT) as session:
        session.read()
        answer = session.ask("What is the fee?", on_text=pieces.append)
    assert "".join(pieces).strip() == answer.text
