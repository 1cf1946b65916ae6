"""What kind of turn a message is, by its wording alone (English and Chinese), and which kind is likely to come next.

The kinds are dialogue acts in the sense of ISO 24617-2, coarse enough to be told by rules. They matter to memory:
who corrects, refines or expands stays where the last answer was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from zerolayer.core import FloatArray

_I = re.IGNORECASE


class Act(StrEnum):
    """The kinds of turn, in the order in which the rules are tried."""

    CORRECT = "correct"  # doubts or corrects the last answer
    REFINE = "refine"  # wants the last answer in another form
    EXPAND = "expand"  # wants more of the last answer
    FOLLOW_UP = "follow up"  # refers back, and asks on
    REQUEST = "request"  # wants something done
    ASK = "ask"  # a question that stands for itself
    STATE = "state"  # tells something


ACTS: tuple[Act, ...] = tuple(Act)
STAYING = (Act.CORRECT, Act.REFINE, Act.EXPAND)
"""Acts whose need is what the last answer rested on."""

_RULES: tuple[tuple[Act, re.Pattern[str]], ...] = (
    (
        Act.CORRECT,
        re.compile(
            r"\bare you (?:really |quite |absolutely )?(?:sure|certain)\b|^\W*(?:really|no|wrong|actually|hmm)\b[,.?!]"
            r"|\b(?:doesn't|does not|didn't|don't) (?:sound|seem|look|think|believe)\b"
            r"|\b(?:incorrect|mistaken?|not (?:right|correct|true|accurate)|double[- ]check|re-?check|verify|confirm)\b"
            r"|\bi (?:thought|heard|read|believe|was told|remember)\b|\b(?:is|was)n't it\b"
            r"|你确定|不对|错了|真的吗|我以为|再(?:检查|核对|确认)",
            _I,
        ),
    ),
    (
        Act.REFINE,
        re.compile(
            r"\b(?:re-?phrase|re-?word|re-?write|re-?formulate|re-?state|paraphrase|summari[sz]e|summary|condense|shorten"
            r"|simplify|translate|bullet[- ]?points?|reformat)\b"
            r"|\b(?:present|put|express|explain|describe|convert|turn|transform|change|make|adapt|frame|structure|write)\b"
            r".{0,40}\b(?:it|that|this|these|those|same|above)\b.{0,60}"
            r"\b(?:in|into|as|to|for|more|less|simpler|shorter)\b"
            r"|\bin (?:a|an|one|other|simpler|plain|more|the form)\b.{0,30}\b(?:words?|sentences?|terms|way|style"
            r"|format|tone|list|tweet|poem|manner)\b"
            r"|换(?:一种|个)(?:说法|方式)|改写|总结|概括|翻译|简(?:短|单|化)",
            _I,
        ),
    ),
    (
        Act.EXPAND,
        re.compile(
            r"\b(?:elaborate|expand on|more (?:details?|detailed|information|specific\w*|examples?)|tell me more|go on"
            r"|in (?:more|greater) (?:detail|depth)|(?:another|an) example|continue|anything else|what else|go deeper"
            r"|explain (?:further|why|how)|further explain)\b"
            r"|详细|继续|展开|还有(?:吗|什么)|举(?:个)?例",
            _I,
        ),
    ),
    (
        Act.FOLLOW_UP,
        re.compile(
            r"^\W*(?:and|but|so|then|also|or|what if|what about|how about|now|next|finally|in that case|if so|"
            r"regarding|besides|speaking of|suppose)\b"
            r"|\b(?:you (?:mentioned|said|told|suggested|listed|described)|mentioned (?:earlier|above)|earlier"
            r"|previous(?:ly)?|same|instead|as well)\b"
            r"|\b(?:it|its|that|this|these|those|they|them|their|he|him|his|she|her)\b"
            r"|^(?:那么?|还|另外|如果|而)|你(?:提到|说)|它|这|那",
            _I,
        ),
    ),
    (
        Act.REQUEST,
        re.compile(
            r"^\W*(?:please|kindly|help|give|write|list|provide|create|generate|suggest|recommend|find|compare|compute"
            r"|calculate|convert|translate|show|tell|make|draft|design|name|classify|identify|solve|let's|let us"
            r"|i (?:need|want|would like|'d like|am looking|'m looking|'m trying))\b"
            r"|\b(?:can|could|would|will) you\b|\bplease\b|\b(?:recommend|suggest)\w*\b|^(?:请|帮我|给我|写|列出|推荐)",
            _I,
        ),
    ),
    (
        Act.ASK,
        re.compile(
            r"[?？]|^\W*(?:what|which|who|whom|whose|when|where|why|how|is|are|was|were|do|does|did|can|could|should"
            r"|would|will|may|must|has|have)\b|(?:吗|呢|什么|谁|哪|何时|多少|如何|怎么|是否)",
            _I,
        ),
    ),
)

_CUES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, _I)
    for pattern in (
        r"[?？]",
        r"^\W*(?:what|which|who|when|where|why|how)\b|什么|谁|哪|多少|如何|怎么",
        r"^\W*(?:is|are|was|were|do|does|did|can|could|should|would|will)\b|吗",
        r"\b(?:it|that|this|these|those|they|them|he|she|his|her)\b|它|这|那",
        r"\b(?:i|my|me|mine|i'm|i've)\b|我",
        r"\byou(?:r)?\b|你",
        r"\b(?:please|can you|could you|help)\b|请|帮",
        r"\d",
        r"\b(?:best|recommend\w*|suggest\w*|tips?|advice)\b|推荐|建议",
        r"\b(?:thanks?|great|interesting|good|nice|yes|okay|ok)\b|谢|好的",
        r"\b(?:following|below)\b|[:：]|\n",
        r"\b(?:how many|how much|calculate|total|number|function|probability|equation)\b|计算|几",
        r"\b(?:explain|describe|define|characteristics|benefits|role|principles?)\b|解释|说明",
    )
)
_TURNS = 5  # turn numbers from here on are one


def act_of(text: str) -> Act:
    """The kind of one message; what no rule knows tells something."""
    for act, rule in _RULES:
        if rule.search(text):
            return act
    return Act.STATE


def act_features(questions: Sequence[str], answers: Sequence[str]) -> FloatArray:
    """[features] of a dialogue so far, for the act that comes next. `answers` may be shorter or hold empty texts.

    The last two acts, the share of each act, the turn number, cues of the last and the first message, and whether
    the last answer is known and asks back. All zeros but the bias before the first message.
    """
    size = len(ACTS)
    parts = [np.ones(1), *(np.zeros(size) for _ in range(3)), np.zeros(_TURNS)]
    acts = [ACTS.index(act_of(question)) for question in questions]
    if acts:
        parts[1][acts[-1]] = 1.0
        parts[3] = np.bincount(acts, minlength=size) / len(acts)
        parts[4][min(len(acts), _TURNS) - 1] = 1.0
    if len(acts) > 1:
        parts[2][acts[-2]] = 1.0
    last, first = (questions[-1], questions[0]) if questions else ("", "")
    answer = answers[len(questions) - 1].strip() if 0 < len(questions) <= len(answers) else ""
    asks_back = [
        float(answer.endswith(("?", "？"))),
        float("?" in answer or "？" in answer),
        float(answer != ""),
    ]
    lengths = [np.log1p(len(text)) / 5.0 for text in (last, first, answer)]
    return np.concatenate([*parts, _cues(last), _cues(first), asks_back, lengths]).astype(np.float32)


def _cues(text: str) -> FloatArray:
    return np.asarray([cue.search(text) is not None for cue in _CUES], dtype=np.float32)
