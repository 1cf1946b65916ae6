"""How each kind of number looks (dates, amounts, durations, shares), and what its normalised value is.

Every repetition is bounded, so that matching is linear in the text's length. Most patterns begin with a set of
characters and look behind it only then: the search can skip to the next digit or capital, which makes it
several times faster than a boundary or a look-behind in front. Digits and Latin letters of full width are plain
ones by the time that a pattern sees them (`anchors.plain_width`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from zerolayer.documents.numerals import (
    CJK_NUMERALS,
    MONTHS,
    chinese_decimal,
    chinese_number,
    english_number,
    iso_date,
    plain_number,
)


class AnchorKind(StrEnum):
    """What an anchor is."""

    CLAUSE = "clause"  # the number of a clause where it begins
    REFERENCE = "reference"  # a mention of another clause, article or schedule
    AMOUNT = "amount"
    DATE = "date"
    DURATION = "duration"
    PERCENT = "percent"
    PARTY = "party"
    TERM = "term"  # a defined term where it is defined
    EMAIL = "email"
    PHONE = "phone"
    URL = "url"
    IDENTIFIER = "identifier"  # a registration, order, patent or account number


@dataclass(frozen=True, slots=True)
class Rule:
    """`value` gives a match's normalised value, None where the match is no anchor after all.

    Without any of the strings `needs` in the text there is no match, and the search is saved.
    """

    kind: AnchorKind
    pattern: re.Pattern[str]
    value: Callable[[re.Match[str]], str | None]
    needs: tuple[str, ...] = ()


# A month, or what looks like one: MONTHS decides.
_MONTH = (
    r"[JFMASONDjfmasond](?<![A-Za-z].)(?i:an(?:uary)?|eb(?:ruary)?|ar(?:ch)?|pr(?:il)?|ay|une?|uly?|ug(?:ust)?"
    r"|ept?(?:ember)?|ct(?:ober)?|ov(?:ember)?|ec(?:ember)?)\b\.?"
)
# A number in words, or what looks like one: english_number decides.
_WORD = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    r"|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand"
    r"|million|billion)"
)
_WORDS = (
    r"[OTFSENHotfsenh](?<![A-Za-z].)(?i:ne|wo|hree|our|ive|ix|even|ight|ine|en|leven|welve|hirteen|ourteen|ifteen"
    rf"|ixteen|eventeen|ighteen|ineteen|wenty|hirty|orty|ifty|ixty|eventy|ighty|inety|undred)\b"
    rf"(?i:(?:-|[ \n](?:and[ \n])?){_WORD}\b){{0,6}}+"
)
_NUMBER = r"\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,4})?|\d{1,12}(?:\.\d{1,4})?"
_ALONE = r"[0-9](?<![\d.,].)(?:\d{0,2}(?:,\d{3}){1,4}(?!\d)|\d{0,11})(?:\.\d{1,4})?"
_CJK_DIGIT = r"[\d〇○零一二三四五六七八九]"
_UNIT = (
    r"(?i:(?:full|calendar|business|working|banking|trading|consecutive|contract|successive|additional)[- \n])?"
    r"(?P<unit>(?i:day|week|month|year|hour|quarter|minute))(?i:s)?\b"
)
_SCALES = {
    "thousand": 10**3, "million": 10**6, "billion": 10**9, "m": 10**6, "k": 10**3, "bn": 10**9, "千": 10**3,
    "万": 10**4, "百万": 10**6, "千万": 10**7, "亿": 10**8,
}  # fmt: skip
_CURRENCIES = {
    "$": "USD", "us$": "USD", "u.s.$": "USD", "dollars": "USD", "美元": "USD", "美金": "USD",
    "€": "EUR", "euros": "EUR", "欧元": "EUR", "£": "GBP", "pounds": "GBP", "英镑": "GBP",
    "¥": "CNY", "￥": "CNY", "rmb": "CNY", "元": "CNY", "圆": "CNY", "人民币": "CNY", "renminbi": "CNY",
    "日元": "JPY", "c$": "CAD", "a$": "AUD", "hk$": "HKD", "港元": "HKD", "港币": "HKD", "₹": "INR",
}  # fmt: skip
_CODES = r"USD|EUR|GBP|RMB|CNY|JPY|CHF|CAD|AUD|HKD|INR|SGD"
_UNITS = {"day": "D", "week": "W", "month": "M", "year": "Y", "hour": "H", "quarter": "Q", "minute": "MIN"}
_CJK_UNITS = {
    "日": "D",
    "天": "D",
    "周": "W",
    "期": "W",
    "月": "M",
    "年": "Y",
    "时": "H",
    "度": "Q",
    "钟": "MIN",
}
_PARTS = {"百": 1.0, "千": 0.1, "万": 0.01}


def _money(currency: str, number: float, scale: str | None) -> str:
    name = currency.lower()
    return f"{_CURRENCIES.get(name, name.upper())} {plain_number(number * _SCALES.get((scale or '').lower(), 1))}"


def _prefixed_money(match: re.Match[str]) -> str | None:
    before = match.string[match.start() - 1 : match.start()]
    if match[1].isalpha() and before.isalnum() and before.isascii():
        return None
    return _money(match[1], float(match[2].replace(",", "")), match[3])


def _lower_case_money(match: re.Match[str]) -> str | None:
    code = match.string[match.start() - 4 : match.start() - 1]
    return _money(code, float(match[1].replace(",", "")), match[2])


def _suffixed_money(match: re.Match[str]) -> str | None:
    return _money(match[3], float(match[1].replace(",", "")), match[2])


def _money_in_words(match: re.Match[str]) -> str | None:
    number = english_number(match[1])
    return None if number is None else _money(match[2], number, None)


def _chinese_money(match: re.Match[str]) -> str | None:
    digits = match[1].replace(",", "")
    number = float(digits) if digits[0].isdecimal() else chinese_number(digits)
    cents = (chinese_number(match["jiao"] or "") or 0) * 0.1 + (
        chinese_number(match["fen"] or "") or 0
    ) * 0.01
    return _money(match[3], number * _SCALES.get(match[2] or "", 1) + cents, None) if number else None


def _duration(match: re.Match[str]) -> str | None:
    return f"P{plain_number(match[1])}{_UNITS[match['unit'].lower()]}"


def _duration_in_words(match: re.Match[str]) -> str | None:
    number = int(match[2]) if match[2] else english_number(match[1])
    return None if number is None else f"P{number}{_UNITS[match['unit'].lower()]}"


def _chinese_duration(match: re.Match[str]) -> str | None:
    number = chinese_number(match[1])
    unit = _CJK_UNITS[match[2][-1]]
    # 2020年 is a year of the calendar, 20年 a duration.
    return None if number is None or (unit == "Y" and number >= 1000) else f"P{number}{unit}"


def _chinese_date(match: re.Match[str]) -> str | None:
    year, month = chinese_number(match[1]), chinese_number(match[2])
    day = chinese_number(match[3]) if match[3] else None
    return iso_date(str(year), month, day) if year and month else None


def _numeric_date(match: re.Match[str]) -> str | None:
    # Month first, as in the contracts this was tried on; day first where the first number is no month.
    first, second = int(match[1]), int(match[2])
    month, day = (first, second) if first <= 12 else (second, first)
    return iso_date(match[3], month, day)


def _month_date(month: int, year: int, day: int | None = None) -> Callable[[re.Match[str]], str | None]:
    def value(match: re.Match[str]) -> str | None:
        number = MONTHS.get(match[month][:3].lower())
        return iso_date(match[year], number, match[day] if day else None) if number else None

    return value


def _percent_in_words(match: re.Match[str]) -> str | None:
    number = english_number(match[1])
    return None if number is None else str(number)


def _chinese_share(match: re.Match[str]) -> str | None:
    number = chinese_decimal(match[2])
    return None if number is None else plain_number(round(number * _PARTS[match[1]], 6))


_DATES = (
    (rf"({_MONTH})[ \n]{{1,2}}(\d{{1,2}})(?:st|nd|rd|th)?,?[ \n]{{1,2}}(\d{{4}})\b", _month_date(1, 3, 2)),
    (
        rf"([0-9](?<![\d.,/].)\d?)(?i:st|nd|rd|th)?(?i:[ \n]day)?(?i:[ \n]of)?[ \n]({_MONTH}),?[ \n](\d{{4}})\b",
        _month_date(2, 3, 1),
    ),
    (rf"({_MONTH}),?[ \n]{{1,2}}(\d{{4}})\b", _month_date(1, 2)),
    (
        r"([0-9](?<![\d-].)\d{3})([-/.])(\d{1,2})\2(\d{1,2})(?![\d.-]\d|\d)",
        lambda m: iso_date(m[1], m[3], m[4]),
    ),
    (r"([0-9](?<![\d/].)\d?)/(\d{1,2})/(\d{4}|\d{2})(?![\d/])", _numeric_date),
    (r"([0-9](?<![\d.].)\d?)\.(\d{1,2})\.(\d{4})(?![\d.]\d|\d)", lambda m: iso_date(m[3], m[2], m[1])),
)
_PERCENTS = (
    (rf"({_ALONE}) ?(?:%|％|(?i:percent(?:age points?)?|per cent)\b)", lambda m: plain_number(m[1])),
    (rf"({_ALONE})[ \n](?i:basis points?|bps)\b", lambda m: plain_number(float(m[1].replace(",", "")) / 100)),
    (rf"({_WORDS})[ \n](?i:percent|per cent)\b", _percent_in_words),
    (rf"({_ALONE}) ?‰", lambda m: plain_number(float(m[1].replace(",", "")) / 10)),
)
_AMOUNTS = (
    (
        rf"(US\$|U\.S\.\$|C\$|A\$|HK\$|\$|€|£|¥|￥|₹|{_CODES})[ \n]?({_NUMBER})(?!\d)"
        r"(?:[ \n]?((?i:thousand|million|billion|bn|m|k)\b|百万|千万|万|亿))?",
        _prefixed_money,
    ),
    # A question may say "usd 500". Lower-case letters in front would make every word a candidate.
    (
        r"([0-9](?<=\busd .|\beur .|\bgbp .|\brmb .|\bcny .)[\d,]{0,18}(?:\.\d{1,4})?)"
        r"(?:[ \n]?((?i:thousand|million|billion|bn|m|k)\b))?",
        _lower_case_money,
    ),
    (
        rf"({_ALONE})(?:[ \n]((?i:thousand|million|billion)))?[ \n](?:(?i:U\.?S\.?)[ \n])?"
        rf"((?i:dollars|euros|pounds|renminbi|{_CODES}))\b",
        _suffixed_money,
    ),
    (
        rf"({_WORDS})[ \n](?:(?i:U\.?S\.?)[ \n])?((?i:dollars|euros|pounds|renminbi|{_CODES}))\b",
        _money_in_words,
    ),
)
_CJK_DAY = r"[\d一二三四五六七八九十]{1,3}"
_CJK_DATE = rf"({_CJK_DIGIT}{{4}}) ?年 ?({_CJK_DAY}) ?月(?: ?({_CJK_DAY}) ?[日号])?"
_CJK_AMOUNT = (
    rf"(?:人民币)? ?(?<![\d.,])({_NUMBER}|[{CJK_NUMERALS[:-2]}][{CJK_NUMERALS}]{{0,24}}) ?(百万|千万|[千万亿])?"
    r"(元|圆|美元|美金|欧元|英镑|日元|港元|港币|人民币)(?:整|(?P<jiao>[零壹贰叁肆伍陆柒捌玖一二三四五六七八九])角)?"
    r"(?:(?P<fen>[零壹贰叁肆伍陆柒捌玖一二三四五六七八九])分)?"
)
_CJK_DURATION = (
    rf"(?<![年月\d第{CJK_NUMERALS}])([\d{CJK_NUMERALS[:-2]}]{{1,6}}) ?"
    r"(个工作日|工作日|个自然日|自然日|个日历日|个月|个小时|小时|分钟|个星期|星期|个季度|季度|周(?!岁)|年|日|天)(?![月日])"
)

NUMBER_RULES: tuple[Rule, ...] = (
    *(Rule(AnchorKind.DATE, re.compile(pattern), value) for pattern, value in _DATES),
    Rule(AnchorKind.DATE, re.compile(_CJK_DATE), _chinese_date, ("年",)),
    *(Rule(AnchorKind.PERCENT, re.compile(pattern), value) for pattern, value in _PERCENTS),
    Rule(
        AnchorKind.PERCENT,
        re.compile(rf"([百千万])分之([\d.点{CJK_NUMERALS[:-2]}]{{1,10}})"),
        _chinese_share,
        ("分之",),
    ),
    *(Rule(AnchorKind.AMOUNT, re.compile(pattern), value) for pattern, value in _AMOUNTS),
    Rule(
        AnchorKind.AMOUNT,
        re.compile(_CJK_AMOUNT),
        _chinese_money,
        ("元", "圆", "人民币", "英镑", "港币", "美金"),
    ),
    Rule(
        AnchorKind.DURATION,
        re.compile(rf"([0-9](?<![\d.,/$€£].)\d{{0,3}}(?:\.\d{{1,2}})?)[- \n]?{_UNIT}"),
        _duration,
    ),
    Rule(
        AnchorKind.DURATION,
        re.compile(rf"({_WORDS})[- \n]?(?:\((\d{{1,4}})\)[- \n]?)?{_UNIT}"),
        _duration_in_words,
    ),
    Rule(
        AnchorKind.DURATION,
        re.compile(_CJK_DURATION),
        _chinese_duration,
        ("年", "月", "日", "天", "周", "星期", "小时", "分钟"),
    ),
    Rule(AnchorKind.DURATION, re.compile(r"半年"), lambda m: "P6M", ("半年",)),
)
"""Tried in this order; where two anchors of different kinds overlap both are kept."""
