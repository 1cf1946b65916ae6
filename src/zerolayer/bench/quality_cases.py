"""The conversations of the quality bench: contracts that fit the window, their questions, and what is known of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from zerolayer.bench.quality_cache import FullCache, Reference
from zerolayer.bench.quality_engine import key_bounds
from zerolayer.bench.quality_selection import DocumentView, QuestionView
from zerolayer.core import FloatArray
from zerolayer.documents import read_document
from zerolayer.documents.stream import DocumentStream, build_stream, prompt_frame
from zerolayer.errors import UsageError
from zerolayer.learning.labelled import LabelledContract, LabelledQuestion
from zerolayer.perception.dense import SentenceEncoder, encode_blocks
from zerolayer.perception.lexical import LexicalIndex
from zerolayer.perception.recall import Signals, fuse
from zerolayer.perception.words import tokenize

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine

Asked = Literal["mixed", "question", "paraphrase"]
ASKED: tuple[Asked, ...] = get_args(Asked)


@dataclass(frozen=True)
class Case:
    """One contract as a stream of blocks, and the conversation about it: (text of the question, its labels)."""

    name: str
    stream: DocumentStream
    questions: list[tuple[str, LabelledQuestion]]


@dataclass(frozen=True)
class Prepared:
    """A case with its full cache, its references and all that a method may look at."""

    case: Case
    cache: FullCache
    references: list[Reference]
    signals: list[Signals]
    view: DocumentView


def choose_cases(
    contracts: Sequence[LabelledContract],
    tokenizer: Any,
    block_tokens: int,
    count: int,
    turns: int,
    tokens: tuple[int, int],
    wording: Asked,
    seed: int,
) -> list[Case]:
    """`count` contracts of `tokens` (least, most) with `turns` answered questions, by `seed`. Raises UsageError."""
    order = list(contracts)
    random.Random(seed).shuffle(order)
    cases = []
    for contract in order:
        answered = [question for question in contract.questions if question.evidence]
        # The tokenizer is slow on long contracts, and no vocabulary has more than some characters a token.
        if len(answered) < turns or contract.path.stat().st_size > 12 * tokens[1]:
            continue
        document = read_document(contract.path)
        stream = build_stream([document], tokenizer, prompt_frame(tokenizer), block_tokens, "quality")
        if tokens[0] <= len(stream.token_ids) <= tokens[1]:
            cases.append(Case(contract.name, stream, _conversation(answered, turns, wording, seed)))
            if len(cases) == count:
                return cases
    raise UsageError(
        f"--contracts {count}: only {len(cases)} contracts have {tokens[0]} to {tokens[1]} tokens and at least "
        f"{turns} answered questions; ask for fewer, widen --tokens or lower --turns"
    )


def _conversation(
    answered: Sequence[LabelledQuestion], turns: int, wording: Asked, seed: int
) -> list[tuple[str, LabelledQuestion]]:
    """The first `turns` questions in an order drawn by `seed`; of mixed wordings every second one is a paraphrase."""
    order = list(answered)
    random.Random(seed).shuffle(order)
    asked = []
    for number, question in enumerate(order[:turns]):
        words = ("question", "paraphrase")[number % 2] if wording == "mixed" else wording
        asked.append((question.wording("paraphrase" if words == "paraphrase" else "question"), question))
    return asked


def prepare(
    case: Case,
    engine: HFEngine,
    encoder: SentenceEncoder | None,
    max_new_tokens: int,
    seed: int,
    places: int = 1,
    on_progress: Any = None,
) -> Prepared:
    """Read a case in full sight, answer its questions from the full cache, and gather what methods look at.

    `places` is how many answers the cache can hold side by side.
    """
    stream, frame = case.stream, prompt_frame(engine.tokenizer)
    asked = [
        engine.tokenizer(frame.question(text), add_special_tokens=False)["input_ids"]
        for text, _ in case.questions
    ]
    width = stream.blocks[0].token_count
    room = max(map(len, asked)) + max_new_tokens
    cache = FullCache(engine, stream.token_ids, width, room, places, on_progress)
    references = [cache.reference(ids, max_new_tokens) for ids in asked]
    signals = signals_of(stream, [text for text, _ in case.questions], encoder)
    bounds, plain = key_bounds(cache), PlainBM25(stream)
    views = []
    for (text, labels), reference, known in zip(case.questions, references, signals, strict=True):
        queries = engine.question_queries(stream.token_ids[:width], reference.question_ids)
        evidence = [labels.evidence_in(block.char_start, block.char_end) for block in stream.blocks]
        views.append(
            QuestionView(
                reference.question_mass,
                reference.answer_mass,
                plain.scores(text),
                fuse(known, bounds.score(queries)),
                np.asarray(evidence, dtype=np.float32),
            )
        )
    view = DocumentView(cache.blocks, width, cache.accumulated, cache.key_norms(), views, seed)
    return Prepared(case, cache, references, signals, view)


def signals_of(
    stream: DocumentStream, questions: Sequence[str], encoder: SentenceEncoder | None
) -> list[Signals]:
    """What each question's words and meaning point at, as a session has it."""
    spans = [(block.char_start, block.char_end) for block in stream.blocks]
    index = LexicalIndex(stream.text, spans)
    if encoder is None:
        return [index.signals(text) for text in questions]
    vectors, asked = encode_blocks(encoder, stream.text, spans), encoder.encode(list(questions))
    return [index.signals(text, vectors @ vector) for text, vector in zip(questions, asked, strict=True)]


class PlainBM25:
    """BM25 over blocks and nothing else: no synonyms, anchors, links or neighbours."""

    def __init__(self, stream: DocumentStream) -> None:
        from bm25s import BM25

        self._vocabulary: dict[str, int] = {}
        passages = [
            [
                self._vocabulary.setdefault(word, len(self._vocabulary))
                for word, _ in tokenize(stream.text[block.char_start : block.char_end])
            ]
            for block in stream.blocks
        ]
        self._index, self._blocks = BM25(k1=1.5, b=0.75), len(passages)
        self._index.index((passages, self._vocabulary), show_progress=False)

    def scores(self, question: str) -> FloatArray:
        """[blocks] BM25 of the question's words."""
        total = np.zeros(self._blocks, dtype=np.float32)
        for word in sorted({word for word, _ in tokenize(question)} & self._vocabulary.keys()):
            total += self._index.get_scores_from_ids([self._vocabulary[word]])
        return total
