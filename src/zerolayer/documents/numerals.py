"""Numbers in words and ideographs, and dates, to plain values."""

from __future__ import annotations

_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ENGLISH_NUMBERS = {word: n for n, word in enumerate(_SMALL)} | {
    w: 10 * n for n, w in enumerate(_TENS, start=2)
}
MONTHS = {
    name[:3]: number
    for number, name in enumerate(
        [
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ],
        start=1,
    )
}
_CJK_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
    "壹": 1,
    "贰": 2,
    "叁": 3,
    "肆": 4,
    "伍": 5,
    "陆": 6,
    "柒": 7,
    "捌": 8,
    "玖": 9,
}
_CJK_UNITS = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}


def english_number(words: str) -> int | None:
    """42 from `forty-two` or `forty two`; None for anything else above 99 or not a number."""
    total = 0
    for word in words.lower().replace("-", " ").split():
        if word == "hundred":
            total = max(total, 1) * 100
        elif word in ENGLISH_NUMBERS:
            total += ENGLISH_NUMBERS[word]
        else:
            return None
    return total if words.strip() else None


def chinese_number(text: str) -> int | None:
    """42 from `四十二`, 1260 from `一千二百六十`, 2020 from `二〇二〇` or `2020`; None for anything else."""
    if text.isascii() and text.isdigit():
        return int(text)
    if text and all(c in _CJK_DIGITS for c in text):
        return int("".join(str(_CJK_DIGITS[c]) for c in text))
    total, section, digit = 0, 0, 0
    for c in text:
        if c in _CJK_DIGITS:
            digit = _CJK_DIGITS[c]
        elif c in _CJK_UNITS:
            section += max(digit, 1) * _CJK_UNITS[c]
            digit = 0
        elif c in "万亿":
            total = (total + section + digit) * (10**4 if c == "万" else 10**8)
            section, digit = 0, 0
        else:
            return None
    return total + section + digit if text else None


def iso_date(year: str, month: str | int, day: str | int) -> str:
    """`2024-03-01`; a two-digit year below 70 is in this century."""
    number = int(year)
    if number < 100:
        number += 2000 if number < 70 else 1900
    return f"{number:04d}-{int(month):02d}-{int(day):02d}"


def plain_number(text: str) -> str:
    """`1200000` from `1,200,000.00`; decimals only where they say something."""
    value = float(text.replace(",", "").replace("，", "").rstrip("."))
    return str(int(value)) if value == int(value) else f"{value:.4f}".rstrip("0")
