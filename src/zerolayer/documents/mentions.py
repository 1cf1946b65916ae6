"""Every place where one of many names stands, in one pass over the words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

_WORD = re.compile(r"[^\W_\u3400-\u4dbf\u4e00-\u9fff][\w&’'./-]{0,40}")
_CJK = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_END = re.compile(r"(?:[’']s|[.,’'/-])+$")


def _plain(word: str) -> str:
    """One form for Franchisee, Franchisees, Franchisee's and FRANCHISEES."""
    word = _END.sub("", word.lower())
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def find_names(text: str, names: Iterable[str]) -> list[tuple[str, int]]:
    """(name, character) of every occurrence of `names` in `text`.

    A name in Latin letters counts where it is written with a capital, in the singular or plural; the longest of
    the names that begin at a word counts. A name with ideographs counts wherever its characters stand.
    """
    found: list[tuple[str, int]] = []
    by_first: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
    for name in dict.fromkeys(names):
        if _CJK.search(name):
            at = text.find(name)
            while at >= 0:
                found.append((name, at))
                at = text.find(name, at + len(name))
        elif words := tuple(_plain(word) for word in name.split()):
            by_first[words[0]].append((words, name))
    if not by_first:
        return found
    for known in by_first.values():
        known.sort(key=lambda entry: -len(entry[0]))
    places = [(match.start(), match[0]) for match in _WORD.finditer(text)]
    forms = {word: _plain(word) for word in {word for _, word in places}}
    plain = [forms[word] for _, word in places]
    for index, (at, word) in enumerate(places):
        if word[0].isupper() and (known := by_first.get(plain[index], [])):
            for words, name in known:
                if tuple(plain[index : index + len(words)]) == words:
                    found.append((name, at))
                    break
    return found
