"""The stream of blocks: every character belongs to a block, pages are right, ids are those of the whole past."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_models import byte_tokenizer
from zerolayer.documents.document import Document, Page
from zerolayer.documents.stream import build_stream, prompt_frame

WIDTH = 16
fast = settings(max_examples=60, deadline=None)


def document(pages: list[str], name: str = "a.txt") -> Document:
    starts = [sum(map(len, pages[:i])) for i in range(len(pages) + 1)]
    tiled = tuple(Page(i + 1, starts[i], starts[i + 1]) for i in range(len(pages)))
    return Document(name, "".join(pages), tiled, "0" * 64)


def stream_of(*documents: Document, chat: bool = False, provenance: str = "model", width: int = WIDTH):
    tokenizer = byte_tokenizer(chat)
    return build_stream(documents, tokenizer, prompt_frame(tokenizer), width, provenance)


pages = st.lists(st.text(min_size=1, max_size=60).filter(str.strip), min_size=1, max_size=5)


@fast
@given(pages=pages, width=st.sampled_from([8, 16, 64]))
def test_blocks_cover_the_text_and_know_their_pages(pages, width):
    doc = document(pages)
    stream = stream_of(doc, width=width)
    assert stream.text == doc.text
    assert len(stream.token_ids) == len(stream.spans) == len(stream.blocks) * width
    covered = set()
    for index, block in enumerate(stream.blocks):
        assert (block.index, block.token_start, block.token_count) == (index, index * width, width)
        covered |= set(range(block.char_start, block.char_end))
        if block.char_end > block.char_start:
            assert block.page_first == doc.page_at(block.char_start)
            assert block.page_last == doc.page_at(block.char_end - 1)
            assert block.page_first <= block.page_last
        else:
            assert block.page_first == 0
    assert covered == set(range(len(doc.text)))
    assert stream.document_tokens == len(doc.text.encode())


@fast
@given(pages=pages)
def test_spans_of_tokens_are_the_characters_they_write(pages):
    stream = stream_of(document(pages))
    written = byte_tokenizer()
    for token, (start, end) in zip(stream.token_ids, stream.spans, strict=True):
        if end > start and stream.text[start:end].isascii():
            assert written.decode([token]) == stream.text[start:end]


def test_frame_and_filler_have_empty_spans():
    stream = stream_of(document(["x" * 21]))
    frame = prompt_frame(byte_tokenizer()).before
    assert all(a == b for a, b in stream.spans[: len(frame)])
    assert stream.spans[len(frame)] == (0, 1)
    filler = len(stream.token_ids) - len(frame) - 21
    assert 0 < filler < WIDTH
    assert set(stream.spans[-filler:]) == {(21, 21)}
    assert byte_tokenizer().decode(stream.token_ids[-filler:]) == "\n" * filler


@fast
@given(text=st.text("abc", min_size=100, max_size=200), other=st.text("xyz", min_size=0, max_size=100))
def test_the_same_beginning_has_the_same_ids(text, other):
    one, two = stream_of(document([text])), stream_of(document([text + other]))
    shared = (len(prompt_frame(byte_tokenizer()).before) + len(text)) // WIDTH
    assert [b.id for b in one.blocks[:shared]] == [b.id for b in two.blocks[:shared]]
    assert len({b.id for b in two.blocks}) == len(two.blocks)
    assert all(len(b.id) == 32 and int(b.id, 16) >= 0 for b in two.blocks)


@fast
@given(text=st.text("abc", min_size=80, max_size=160), data=st.data())
def test_a_changed_token_changes_all_later_ids_and_no_earlier(text, data):
    at = data.draw(st.integers(0, len(text) - 1))
    one, two = stream_of(document([text])), stream_of(document([text[:at] + "Z" + text[at + 1 :]]))
    first = (len(prompt_frame(byte_tokenizer()).before) + at) // WIDTH
    same = [a.id == b.id for a, b in zip(one.blocks, two.blocks, strict=True)]
    assert same == [index < first for index in range(len(one.blocks))]


def test_how_kv_is_computed_is_part_of_every_id():
    doc = document(["x" * 100])
    one, two = stream_of(doc, provenance="model-a"), stream_of(doc, provenance="model-b")
    assert not {b.id for b in one.blocks} & {b.id for b in two.blocks}


def test_several_documents_are_told_apart():
    docs = [document(["one " * 20, "more " * 9], "a.txt"), document(["zwei " * 30], "b.txt")]
    stream = stream_of(*docs)
    for doc, start in zip(docs, stream.char_starts, strict=True):
        assert stream.text[start : start + len(doc.text)] == doc.text
        assert f"# {doc.name}\n\n" == stream.text[start - len(doc.name) - 4 : start]
        for offset in (0, 7, len(doc.text) - 1):
            assert stream.locate(start + offset) == (doc, offset)
    assert stream.locate(0) == (docs[0], 0)  # its title
    assert stream.locate(stream.char_starts[1] - 2) == (docs[1], 0)
    assert stream.locate(stream.char_starts[0] + len(docs[0].text)) == (docs[0], len(docs[0].text))
    assert stream.locate(len(stream.text) + 9) == (docs[1], len(docs[1].text))
    inside = [b for b in stream.blocks if stream.char_starts[1] <= b.char_start < b.char_end]
    assert inside and all(b.page_first == b.page_last == 1 for b in inside)
    assert any(b.page_first == 2 for b in stream.blocks)


def test_one_document_has_no_title():
    doc = document(["text"], "a.txt")
    assert stream_of(doc).text == "text" and stream_of(doc).char_starts == (0,)


def test_frame_without_a_chat_template():
    frame = prompt_frame(byte_tokenizer())
    assert frame.before.startswith("Read the document")
    assert frame.question("Why?") == "\n\nQuestion: Why?\nAnswer:"
    assert frame.follow_up("And when?") == "\n\nQuestion: And when?\nAnswer:"


def test_frame_of_a_chat_template():
    frame = prompt_frame(byte_tokenizer(chat=True))
    assert frame.before.startswith("[user]Read the document")
    assert frame.question("Why?") == "\n\nQuestion: Why?[/][assistant]"
    assert frame.follow_up("And when?") == "[/][user]And when?[/][assistant]"
    stream = stream_of(document(["text"]), chat=True)
    assert byte_tokenizer(True).decode(stream.token_ids).startswith(frame.before + "text")


@pytest.mark.parametrize("length", [1, 15, 16, 17])
def test_short_documents_fill_whole_blocks(length):
    stream = stream_of(document(["y" * length]))
    assert len(stream.token_ids) % WIDTH == 0 and stream.document_tokens == length
