"""Questions that a document asks of itself: by clause numbers, definitions and cross-references.

For documents without labels, and for Chinese law. A question's evidence is what it names: the clause with that
number, the sentences that define a term, the clauses that a clause refers to.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from zerolayer.documents.anchors import Anchor, AnchorKind, find_anchors
from zerolayer.documents.structure import find_headings, sentence_starts
from zerolayer.learning.calibrate_sessions import Asked
from zerolayer.perception.block_features import language_of

_LONGEST_CLAUSE = 1200
"""Characters of a clause that count as evidence."""

_CHINESE_DEFINITION = re.compile(
    r"([\u4e00-\u9fff]{2,12})是(?:指)?[^。；？]{4,120}的(?:合同|行为|权利|人|制度|组织|财产)?。"
)
_LEADING = re.compile(r"^(?:本法所称|本编所称|本章所称|前款所称|所称)")

_WORDS = {
    "zh": {
        "clause": ("{0}规定了什么？", "请说明{0}的内容。"),
        "term": ("什么是{0}？", "{0}是什么意思？"),
        "reference": ("{0}所依据的条款是怎么规定的？", "{0}提到的其他条款说了什么？"),
    },
    "en": {
        "clause": ("What does {0} say?", "Summarise {0}."),
        "term": ("What does “{0}” mean?", "How is {0} defined?"),
        "reference": ("Which provisions does {0} refer to?", "What do the clauses that {0} relies on say?"),
    },
}


def anchor_questions(text: str) -> list[Asked]:
    """Every question in two wordings, in document order; empty for a text without numbered clauses or terms."""
    headings = find_headings(text)
    anchors = find_anchors(text, headings)
    words = _WORDS[language_of(text)]
    clauses = [anchor for anchor in anchors if anchor.kind is AnchorKind.CLAUSE]
    starts = [anchor.start for anchor in clauses]
    spans: dict[str, tuple[int, int]] = {}
    ends = [*starts[1:], len(text)] if clauses else []
    for clause, end in zip(clauses, ends, strict=True):
        spans.setdefault(clause.value, (clause.start, min(end, clause.start + _LONGEST_CLAUSE)))
    sentences = sentence_starts(text, headings)
    asked = []
    for clause in clauses:
        asked += _asked(words["clause"], _name(clause), (spans[clause.value],))
    for term, span in _definitions(text, anchors, sentences).items():
        asked += _asked(words["term"], term, (span,))
    for source, targets in _references(clauses, starts, anchors, spans).items():
        asked += _asked(words["reference"], source, targets)
    return asked


def _asked(wordings: tuple[str, ...], name: str, evidence: tuple[tuple[int, int], ...]) -> list[Asked]:
    return [Asked(wording.format(name), evidence) for wording in wordings]


def _name(clause: Anchor) -> str:
    return f"Section {clause.text}" if clause.text[:1].isdigit() else clause.text


def _definitions(text: str, anchors: list[Anchor], sentences: list[int]) -> dict[str, tuple[int, int]]:
    """The sentence in which a term stands in quotes first, or a Chinese sentence of the form "…是…的…。"."""
    found: dict[str, tuple[int, int]] = {}
    places = [
        (anchor.text.strip('"“”,.'), anchor.start) for anchor in anchors if anchor.kind is AnchorKind.TERM
    ]
    places += [(_LEADING.sub("", match[1]), match.start()) for match in _CHINESE_DEFINITION.finditer(text)]
    for term, at in places:
        index = max(0, bisect_right(sentences, at) - 1)
        end = sentences[index + 1] if index + 1 < len(sentences) else len(text)
        if len(term) > 1:
            found.setdefault(term, (sentences[index], end))
    return found


def _references(
    clauses: list[Anchor], starts: list[int], anchors: list[Anchor], spans: dict[str, tuple[int, int]]
) -> dict[str, tuple[tuple[int, int], ...]]:
    """For each clause that refers to others: where those stand, and the clause itself."""
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for anchor in anchors:
        index = bisect_right(starts, anchor.start) - 1
        if anchor.kind is not AnchorKind.REFERENCE or index < 0 or anchor.value not in spans:
            continue
        source, target = clauses[index], spans[anchor.value]
        if anchor.value != source.value:
            known = found.get(_name(source), (spans[source.value],))
            found[_name(source)] = known if target in known else (*known, target)
    return found
