"""Clean text without losing any of it: line ends, NULs, hyphens at line ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufeff\xad]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LETTER = r"[^\W\d_\u3400-\u4dbf\u4e00-\u9fff]"
_CLOSING = r"([.,;:!?)\]”\"’']{0,4})"
# U+FFFE and U+0002 are how PDF libraries mark a hyphen that ended a line; U+00AD is the soft hyphen.
_MARKED_HYPHEN = re.compile(rf"\b(\w{{1,40}})[\ufffe\x02]\n?(\w{{1,40}}){_CLOSING}")
_LINE_HYPHEN = re.compile(rf"\b({_LETTER}{{2,40}})-\n({_LETTER}{{2,40}}){_CLOSING}")
_SOFT_HYPHEN = re.compile(rf"\b(\w{{1,40}})\xad\n?(\w{{1,40}}){_CLOSING}")
_CUT_WORD = re.compile(rf"\b{_LETTER}{{1,40}}-[ \t]{{0,20}}(?:\n{_LETTER}{{0,40}}|\Z)")
_PAGE_END = re.compile(rf"\b({_LETTER}{{2,40}})-\s{{0,20}}\Z")
_PAGE_START = re.compile(rf"\s{{0,20}}({_LETTER}{{2,40}}){_CLOSING}")
_WORD = re.compile(rf"{_LETTER}+(?:-{_LETTER}+)*")
# What hyphenation never leaves at a line end but as a part of a compound.
_ALWAYS_HYPHENATED = frozenset({"non", "self", "cross", "quasi", "third"})


def normalise(text: str, words: frozenset[str] | None = None, keep_length: bool = False) -> str:
    """Text with `\\n` line ends, no control characters, and words cut at a line end put together again.

    A hyphen at a line end may belong to the word (`non-competition`) or to the line break (`confiden-tial`). It
    stays if the hyphenated word occurs elsewhere and the joined one does not, after `non-` and the like, and
    between two halves that both occur as words; else it goes if both halves are lower case. `words` are those
    of the whole document (`vocabulary`), by default of the text. Form feeds stay: they are page breaks.

    With `keep_length` every character but those of a mended word keeps its offset after line ends became `\\n`:
    spaces stand for what goes.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0b", "\n").replace("\x85", "\n")
    text = text.replace("\u2028", "\n").replace("\u2029", "\n")
    if any(mark in text for mark in ("\ufffe", "\x02", "-\n", "\xad")):
        text = _dehyphenate(text, vocabulary([text]) if words is None else words, keep_length)
    text = _CONTROL.sub(" " if keep_length else "", text.replace("\ufffe", "-"))
    return _SURROGATE.sub("\ufffd", text)


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """Words of the texts in lower case, without the halves of those that a line end cut."""
    words: set[str] = set()
    for text in texts:
        plain = text.replace("\r\n", "\n")
        if "\ufffe" in plain or "\x02" in plain:
            plain = _MARKED_HYPHEN.sub(" ", plain)
        words.update(_WORD.findall(_CUT_WORD.sub(" ", plain).lower()))
    return frozenset(words)


def join_pages(pages: list[str], words: frozenset[str]) -> list[str]:
    """The pages with words that a page end cut whole on the page where they begin."""
    joined = list(pages)
    for index in range(len(joined) - 1):
        end, start = _PAGE_END.search(joined[index][-64:]), _PAGE_START.match(joined[index + 1])
        if end and start and start[1].islower():
            at = max(0, len(joined[index]) - 64) + end.start()
            joined[index] = joined[index][:at] + join_word(end[1], start[1], words) + start[2]
            joined[index + 1] = joined[index + 1][start.end() :].lstrip(" ")
    return joined


def join_word(left: str, right: str, words: frozenset[str]) -> str:
    """One word from the halves on both sides of a hyphen at a line end, with the hyphen if it is the word's."""
    whole, hyphenated = f"{left}{right}".lower(), f"{left}-{right}".lower()
    if whole in words and hyphenated not in words:
        return left + right
    plain = left.isalpha() and right.isalpha() and left[1:].islower() and right.islower() and len(left) > 1
    low = left.lower()
    compound = low in _ALWAYS_HYPHENATED or (len(left) > 2 < len(right) and low in words and right in words)
    return f"{left}-{right}" if hyphenated in words or compound or not plain else left + right


def _dehyphenate(text: str, words: frozenset[str], keep_length: bool) -> str:
    def mended(join: Callable[[str, str], str]) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            word = join(match[1], match[2]) + match[3]
            return word.ljust(len(match[0])) if keep_length else word

        return replace

    text = _SOFT_HYPHEN.sub(mended(lambda left, right: left + right), text)
    by_words = mended(lambda left, right: join_word(left, right, words))
    return _LINE_HYPHEN.sub(by_words, _MARKED_HYPHEN.sub(by_words, text))
