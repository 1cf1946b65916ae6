"""Clean text without losing any of it: line ends, NULs, hyphens at line ends."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufeff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# U+FFFE and U+0002 are how PDF libraries mark a hyphen that ended a line; U+00AD is the soft hyphen.
_MARKED_HYPHEN = re.compile(r"(\w{1,40})[\ufffe\x02]\n?(\w{1,40})")
_LINE_HYPHEN = re.compile(r"([A-Za-z]{2,40})-\n([a-z]{2,40})")
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")


def normalise(text: str) -> str:
    """Text with `\\n` line ends, no control characters, and words cut at a line end put together again.

    A hyphen at a line end may belong to the word (`non-competition`) or to the line break
    (`confiden-tial`). It goes only if the joined word occurs elsewhere in the text, or if neither form does
    and both halves are lower case.
    Form feeds stay: they are page breaks.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0b", "\n").replace("\x85", "\n")
    text = text.replace("\u2028", "\n").replace("\u2029", "\n")
    if "\ufffe" in text or "\x02" in text or "-\n" in text:
        text = _dehyphenate(text)
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", text.replace("\xad", "").replace("\ufffe", "-")))


def _dehyphenate(text: str) -> str:
    words = set(_WORD.findall(text.lower()))

    def join(match: re.Match[str]) -> str:
        left, right = match[1], match[2]
        joined, hyphenated = (left + right).lower(), f"{left}-{right}".lower()
        if joined in words and hyphenated not in words:
            return left + right
        plain = left.isalpha() and right.isalpha() and left[1:].islower() and right.islower()
        if hyphenated in words or not plain or len(left) < 2:
            return f"{left}-{right}"
        return left + right

    return _LINE_HYPHEN.sub(join, _MARKED_HYPHEN.sub(join, text))
