"""What a request's messages say: documents, turns, and the question, the same for the same messages."""

from __future__ import annotations

import pytest
from asking import TEXT, document, request

from zerolayer.errors import EmptyDocumentError, UsageError
from zerolayer.server.conversation import (
    QUESTION_BYTES,
    SYSTEM_BYTES,
    DocumentReader,
    read_conversation,
    split_question,
)
from zerolayer.server.turns import DocumentPart, Message, Sampling, TextPart, TurnRequest

READER = DocumentReader()


def said(*messages, **more):
    return read_conversation(request(*messages, **more), READER)


def test_documents_turns_and_the_question_are_told_apart():
    found = said([document(), "What is the fee?"], "100 euro.", "And the term?")
    assert [source.document.name for source in found.sources] == ["deal.txt"]
    assert [(turn.question, turn.answer) for turn in found.turns] == [("What is the fee?", "100 euro.")]
    assert found.question == "And the term?" and not found.sources[0].titled


def test_white_space_at_the_ends_of_a_turn_does_not_count():
    one = said([document(), "What is the fee?"], "100 euro.", "And the term?").turns[0]
    two = said([document(), "What is the fee?\n"], "  100 euro. ", "And?").turns[0]
    assert one.key == two.key
    assert one.key != said([document(), "What is the fee?"], "200 euro.", "And?").turns[0].key


def test_the_same_documents_have_the_same_key_whatever_is_asked():
    first = said([document(), "What is the fee?"])
    later = said([document(), "What is the fee?"], "100 euro.", "And the term?")
    assert first.key("") == later.key("")
    assert first.key("") != first.key("tenant")
    assert first.key("") != said([document(TEXT + "."), "What is the fee?"]).key("")
    system = (TextPart("Be brief."),)
    assert first.key("") != said([document(), "What is the fee?"], system=system).key("")


def test_a_long_text_is_a_document_and_its_last_paragraph_the_question():
    long = "The fee is five euro.\n" * 120
    found = said(f"{long}\n\nHow much is the fee?")
    assert found.question == "How much is the fee?"
    assert found.sources[0].document.text.strip() == long.strip() and found.sources[0].part is None


def test_an_instruction_above_a_text_is_asked_as_well():
    body, question = split_question("Summarise this:\n\n" + "The fee is five euro. " * 90 + "\n\nThe end.")
    assert question == "Summarise this:\n\nThe end." and "five euro" in body


def test_a_last_paragraph_that_is_long_is_cut_at_a_line_or_a_sentence():
    text = "The fee is five euro. " * 200
    body, question = split_question(text)
    assert body + question == text.rstrip() and len(question.encode()) <= QUESTION_BYTES
    assert question.startswith("The fee")
    body, question = split_question("x" * 5000)
    assert body + question == "x" * 5000 and 0 < len(question) <= QUESTION_BYTES


def test_short_texts_are_one_question_and_a_text_beside_a_document_is_not_read():
    found = said([document(), "Context: May.", "What is the fee?"])
    assert found.question == "Context: May.\n\nWhat is the fee?" and len(found.sources) == 1


def test_documents_that_come_later_stand_behind_the_first_under_names_of_their_own():
    found = said([document(), "Fee?"], "100.", [document("Another deal. " * 9), "And here?"])
    assert [source.document.name for source in found.sources] == ["deal.txt", "deal.txt (2)"]
    assert [source.titled for source in found.sources] == [False, True]
    assert [source.part for source in found.sources] == [0, 1] and found.since == (0, 1)


def test_a_long_system_text_stands_in_the_frame_as_far_as_it_goes():
    rule = "Rule: answer in English. "
    assert said("Hello?", system=(TextPart(rule),)).system == rule.strip()
    long = said("Hello?", system=(TextPart(rule * 200),))
    assert 0 < len(long.system) <= SYSTEM_BYTES
    assert (long.system + " " + long.sources[0].document.text).strip() == (rule * 200).strip()


def test_neighbouring_messages_of_one_role_are_one():
    asked = TurnRequest(
        (Message("user", (document(),)), Message("user", (TextPart("Fee?"),))), Sampling(max_tokens=4)
    )
    found = read_conversation(asked, READER)
    assert found.question == "Fee?" and len(found.sources) == 1 and not found.turns


def test_a_last_message_of_the_assistant_is_how_the_answer_begins():
    found = said([document(), "What is the fee?"], "The fee is ")
    assert (found.question, found.begun, found.turns) == ("What is the fee?", "The fee is", ())


def test_messages_that_make_no_turn_are_refused():
    for messages in (
        (),
        (Message("assistant", (TextPart("Hello."),)),),
        (Message("user", (TextPart(" "),)),),
    ):
        with pytest.raises(UsageError, match="messages"):
            read_conversation(TurnRequest(messages, Sampling(max_tokens=1)), READER)
    with pytest.raises(EmptyDocumentError, match=r"deal\.txt"):
        said([DocumentPart(b"  ", "text/plain", "deal.txt"), "Fee?"])
