"""Documents as one stream of tokens, cut into blocks that know their characters and pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_128_hexdigest

from zerolayer.core import Block
from zerolayer.documents.document import Document

_MARK = "\u0001DOCUMENT\u0001"
_JOINT = "\n\n"
_INSTRUCTION = "Read the document and answer the question about it.\n\n"


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """The chat template around a document, a question and the questions that follow."""

    before: str
    after: str
    between: str  # from the end of an answer to the next question
    asking: str = "\n\nQuestion: "  # between the document and the first question

    def question(self, text: str) -> str:
        """What follows the document: the question, up to where the answer begins."""
        return f"{self.asking}{text}{self.after}"

    def follow_up(self, text: str) -> str:
        """What follows an answer: the next question, up to where its answer begins."""
        return f"{self.between}{text}{self.after}"


def prompt_frame(tokenizer: Any, system: str = "", documents: bool = True) -> PromptFrame:
    """Cut the tokenizer's chat template around the document; a plain frame where it has none.

    `system` are a user's own instructions, in the template's place for them, or before all else where it has none.
    Without `documents` the frame is that of a plain conversation.
    """
    instruction, asking = (_INSTRUCTION, "\n\nQuestion: ") if documents else ("", "")
    system = system.replace(_MARK[0], "")
    if not getattr(tokenizer, "chat_template", None):
        head = f"{system}\n\n" if system else ""
        return PromptFrame(head + instruction, "\nAnswer:", "\n\nQuestion: ", "\n\nQuestion: ")
    turns = [{"role": role, "content": _MARK} for role in ("user", "assistant", "user")]
    text = _templated(tokenizer, turns, system)
    before, _, between, after = text.split(_MARK)
    return PromptFrame(before + instruction, after, between, asking)


def _templated(tokenizer: Any, turns: list[dict[str, str]], system: str) -> str:
    """The turns in the tokenizer's template, `system` in front."""
    from jinja2.exceptions import TemplateError

    def render(messages: list[dict[str, str]]) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    if not system:
        return render(turns)
    try:
        text = render([{"role": "system", "content": system}, *turns])
        if system.strip() in text:
            return text
    except TemplateError:  # a template that refuses the role
        pass
    return render([{"role": "user", "content": f"{system}\n\n{turns[0]['content']}"}, *turns[1:]])


@dataclass(frozen=True)
class DocumentStream:
    """Tokens of the frame's beginning and of all documents, a whole number of blocks.

    `spans` are the characters of each token in the joined text, empty for tokens that are not the document's:
    the frame, and the line ends that fill the last block.
    """

    documents: tuple[Document, ...]
    text: str
    char_starts: tuple[int, ...]  # of each document in `text`
    token_ids: list[int]
    spans: list[tuple[int, int]]
    blocks: tuple[Block, ...]
    document_tokens: int

    def locate(self, char: int) -> tuple[Document, int]:
        """The document that holds a character of the joined text, and the character's offset in it.

        A document's title belongs to its first character, what joins it to the next one to its end.
        """
        ends = [
            start + len(document.text) + len(_JOINT)
            for start, document in zip(self.char_starts, self.documents, strict=True)
        ]
        index = min(bisect_right(ends, char), len(ends) - 1)
        document = self.documents[index]
        return document, min(max(0, char - self.char_starts[index]), len(document.text))


def build_stream(
    documents: Sequence[Document],
    tokenizer: Any,
    frame: PromptFrame,
    block_tokens: int,
    provenance: str,
    titled: Sequence[bool] | None = None,
) -> DocumentStream:
    """Tokenise and cut. `provenance` goes into every block's id: the model, its dtype, how KV is computed.

    `titled` says which documents are headed by their names; None: all of several, and not a single one.
    """
    text, starts = _join(documents, titled or [len(documents) > 1] * len(documents))
    head = tokenizer(frame.before, add_special_tokens=False)["input_ids"]
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    token_ids = [*head, *encoded["input_ids"]]
    end = len(text)
    spans = [(0, 0)] * len(head) + [(int(a), int(b)) for a, b in encoded["offset_mapping"]]
    filler = tokenizer("\n", add_special_tokens=False)["input_ids"][-1]
    missing = -len(token_ids) % block_tokens or (0 if token_ids else block_tokens)
    token_ids += [filler] * missing
    spans += [(end, end)] * missing
    stream = DocumentStream(tuple(documents), text, starts, token_ids, spans, (), len(encoded["input_ids"]))
    return DocumentStream(
        stream.documents,
        text,
        starts,
        token_ids,
        spans,
        _cut(stream, block_tokens, provenance),
        stream.document_tokens,
    )


def _join(documents: Sequence[Document], titled: Sequence[bool]) -> tuple[str, tuple[int, ...]]:
    starts, pieces, length = [], [], 0
    for document, named in zip(documents, titled, strict=True):
        title = f"# {document.name}\n\n" if named else ""
        starts.append(length + len(title))
        pieces.append(title + document.text + _JOINT)
        length += len(pieces[-1])
    if len(documents) == 1:
        pieces = [pieces[0].removesuffix(_JOINT)]
    return "".join(pieces), tuple(starts)


def chained_id(parent: str, token_ids: Sequence[int]) -> str:
    """Id of a block: a hash of its parent's id and its tokens, so that equal ids mean equal streams up to here."""
    return xxh3_128_hexdigest(f"{parent}:{','.join(map(str, token_ids))}".encode())


def _cut(stream: DocumentStream, width: int, provenance: str) -> tuple[Block, ...]:
    blocks, parent = [], provenance
    for index, first in enumerate(range(0, len(stream.token_ids), width)):
        ids = stream.token_ids[first : first + width]
        parent = chained_id(parent, ids)
        spans = [span for span in stream.spans[first : first + width] if span[1] > span[0]]
        start, end = (spans[0][0], spans[-1][1]) if spans else (0, 0)
        page_first, page_last = 0, 0
        if spans:
            document, offset = stream.locate(start)
            page_first = document.page_at(offset)
            last_document, last_offset = stream.locate(end - 1)
            page_last = last_document.page_at(last_offset)
        blocks.append(Block(parent, index, first, len(ids), start, end, page_first, page_last))
    return tuple(blocks)
