"""Words of English and Chinese text as stems with offsets, for lexical matching."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_CJK = r"\u3400-\u4dbf\u4e00-\u9fff"
# Accents and vowel points are characters of their own in some texts: \u0300 Latin, \u0591 Hebrew, \u064b Arabic.
_MARK = r"[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670]"
_WORD = re.compile(
    rf"[^\W\d_{_CJK}]+(?:{_MARK}+[^\W\d_{_CJK}]*)*(?:['’][a-z]{{1,2}}\b)?|\d+(?:[.,]\d+)*|[{_CJK}]+"
)
# The article is written as part of the word: Arabic al- (light10, Larkey 2007) and Hebrew ha-.
_ARTICLE = re.compile(r"^(?:[وبكف]?ال|لل|ו?ה)(?=\w{3})")
_STOP_ENGLISH = """
a about after all also am an and any are as at be because been before being between both but by can
could did do does doing each either else ever few for from further get gets given had happen happens
has have having he her here hers him his how i if in into is it its itself just let made make makes
many may me more most much must my no nor not of off on one only or other our ours out over own same
shall she should so some such than that the their theirs them then there thereby therefor therein
thereof thereto these they this those through to too under until up upon us use very was we were
what when where whether which while who whom whose why will with within would you your yours hereof
herein hereby hereto hereunder hereinafter
"""
_STOP_CHINESE = """
的 了 是 在 和 与 或 及 对 于 由 被 将 把 向 为 以 其 该 此 这 那 有 无 不 吗 呢 吧 什么 怎么 怎样 如何 谁 哪
哪些 哪个 多少 何时 几 可以 应当 能 能否 是否 应 并 而 但 也 都 就
"""
_STOP = frozenset((_STOP_ENGLISH + _STOP_CHINESE).split())
_SUFFIXES = (
    "ifications", "ification", "izations", "isations", "ization", "isation", "ational", "fulness",
    "iveness", "ability", "ibility", "ements", "ations", "itions", "ivity", "ively", "ement",
    "ments", "ating", "ation", "ition", "ances", "ences", "ities", "ingly", "ated", "ates", "ment",
    "ance", "ence", "ions", "ings", "able", "ible", "ably", "ness", "ate", "ify", "ity", "ion",
    "ing", "ies", "ied", "ers", "ors", "ees", "als", "ive", "ory", "ic", "ed", "er", "or", "al",
    "ly", "es", "ee", "s", "e", "y",
)  # fmt: skip
_INFLECTIONS = frozenset({"ed", "ing", "es", "s", "er", "e", "ings", "ers"})
_VOWEL = re.compile(r"[aeiouy]")
_TAILS = (("enc", "en"), ("abil", "abl"), ("ibil", "ibl"))


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """`termin` for terminate, terminates, termination, terminating: suffixes go while four letters remain.

    Inflections (-s, -ed, -ing) may leave three. A compact stripper, rougher than Porter's: within one
    document a false merge costs less than a missed form.
    """
    word = word.lower().replace("’", "'").split("'")[0]
    while True:
        shorter = _strip_suffix(word)
        if shorter == word:
            break
        word = shorter
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "sl":
        word = word[:-1]
    for tail, instead in _TAILS:
        if word.endswith(tail):
            return word[: -len(tail)] + instead
    return word


def _strip_suffix(word: str) -> str:
    for suffix in _SUFFIXES:
        if not word.endswith(suffix) or (suffix == "s" and word.endswith(("ss", "us"))):
            continue
        rest = word[: -len(suffix)]
        if len(rest) >= (3 if suffix in _INFLECTIONS else 4) and _VOWEL.search(rest):
            return rest
    return word


def tokenize(text: str) -> list[tuple[str, int]]:
    """(stem, character offset) of every word that is no stop word. Chinese is cut by jieba's dictionary."""
    found: list[tuple[str, int]] = []
    for match in _WORD.finditer(text):
        word, at = match[0], match.start()
        if "\u3400" <= word[0] <= "\u9fff":
            found += _chinese(word, at)
        elif (lower := _plain(word)) not in _STOP and (len(word) > 1 or word.isdigit()):
            found.append((stem(lower), at))
    return found


def _plain(word: str) -> str:
    """Lower case; letters of full width, ligatures and presentation forms as plain ones, without accents."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word).casefold()
    return _ARTICLE.sub("", "".join(c for c in decomposed if not unicodedata.combining(c)))


def _chinese(run: str, at: int) -> list[tuple[str, int]]:
    import rjieba

    found: list[tuple[str, int]] = []
    for word in rjieba.cut(run):
        if word not in _STOP:
            found.append((word, at))
        at += len(word)
    return found
