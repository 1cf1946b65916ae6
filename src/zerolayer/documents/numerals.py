"""Numbers in words and ideographs, and dates, to plain values."""

from __future__ import annotations

_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ENGLISH_NUMBERS = {word: n for n, word in enumerate(_SMALL)} | {
    word: 10 * n for n, word in enumerate(_TENS, start=2)
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
MONTHS = {name: number for number, name in enumerate(_MONTHS, start=1)}
_CJK_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {
    "〇": 0, "○": 0, "两": 2,
    "壹": 1, "贰": 2, "叁": 3, "肆": 4, "伍": 5, "陆": 6, "柒": 7, "捌": 8, "玖": 9,
}  # fmt: skip
_CJK_UNITS = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_ENGLISH_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
CJK_NUMERALS = "".join(_CJK_DIGITS) + "".join(_CJK_UNITS) + "万亿"
"""Every character of a number that is written in ideographs."""


def english_number(words: str) -> int | None:
    """42 from `forty-two`, 250000 from `two hundred and fifty thousand`; None if a word is no number."""
    total, group = 0, 0
    for word in words.lower().replace("-", " ").split():
        if word in ENGLISH_NUMBERS:
            group += ENGLISH_NUMBERS[word]
        elif word == "hundred":
            group = max(group, 1) * 100
        elif word in _ENGLISH_SCALES:
            total += max(group, 1) * _ENGLISH_SCALES[word]
            group = 0
        elif word != "and":
            return None
    return total + group if words.strip() else None


def chinese_number(text: str) -> int | None:
    """42 from `四十二`, 500000 from `伍拾万`, 2020 from `二〇二〇` or `2020`; None for anything else."""
    if text.isdecimal():
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


def chinese_decimal(text: str) -> float | None:
    """3.5 from `三点五`, else as chinese_number."""
    whole, point, fraction = text.partition("点")
    try:
        number = float(text) if text[:1].isdecimal() else chinese_number(whole)
    except ValueError:
        return None
    digits = [str(_CJK_DIGITS[c]) for c in fraction if c in _CJK_DIGITS]
    if number is None or not point:
        return None if number is None else float(number)
    return float(f"{int(number)}.{''.join(digits)}") if digits and len(digits) == len(fraction) else None


def roman_number(text: str) -> int | None:
    """4 from `IV`; None for anything that is no roman numeral below 400."""
    total = 0
    for c, following in zip(text, [*text[1:], ""], strict=True):
        if c not in _ROMAN:
            return None
        total += -_ROMAN[c] if _ROMAN.get(following, 0) > _ROMAN[c] else _ROMAN[c]
    return total if total > 0 else None


def iso_date(year: str, month: str | int, day: str | int | None = None) -> str | None:
    """`2024-03-01`, or `2024-03` without a day; a two-digit year below 70 is in this century.

    None where the month or the day is none of the calendar's.
    """
    number = int(year)
    if number < 100:
        number += 2000 if number < 70 else 1900
    if not 1 <= int(month) <= 12 or (day is not None and not 1 <= int(day) <= 31):
        return None
    return f"{number:04d}-{int(month):02d}" + ("" if day is None else f"-{int(day):02d}")


def plain_number(text: str | float) -> str:
    """`1200000` from `1,200,000.00`; at most four decimals, and only where they say something."""
    value = float(str(text).replace(",", "").replace("，", "").rstrip("."))
    return str(int(value)) if value == int(value) else f"{value:.4f}".rstrip("0")
