"""How each kind of anchor looks, and what its normalised value is.

Every repetition is bounded and no two alternatives of one repetition can match the same text, so that
matching is linear in the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

from zerolayer.documents.numerals import MONTHS, chinese_number, english_number, iso_date, plain_number


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
    IDENTIFIER = "identifier"  # a registration, order, patent or account number


Rule = tuple[AnchorKind, re.Pattern[str], Callable[[re.Match[str]], str | None]]

_MONTH = (
    r"(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_WORDS = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten"
    r"|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    r"|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred)"
)
_NUMBER = r"\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,4})?|\d{1,12}(?:\.\d{1,4})?"
_CJK = r"[零〇一二三四五六七八九十百千万亿两\d]{1,14}"
_SCALES = {
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "m": 10**6,
    "k": 10**3,
    "bn": 10**9,
    "万": 10**4,
    "亿": 10**8,
}
_CURRENCIES = {
    "$": "USD",
    "us$": "USD",
    "usd": "USD",
    "dollars": "USD",
    "€": "EUR",
    "eur": "EUR",
    "euros": "EUR",
    "£": "GBP",
    "gbp": "GBP",
    "pounds": "GBP",
    "¥": "CNY",
    "￥": "CNY",
    "rmb": "CNY",
    "cny": "CNY",
    "元": "CNY",
    "人民币": "CNY",
    "美元": "USD",
    "欧元": "EUR",
    "jpy": "JPY",
    "chf": "CHF",
    "cad": "CAD",
    "c$": "CAD",
    "a$": "AUD",
    "aud": "AUD",
    "hk$": "HKD",
    "hkd": "HKD",
}
_UNITS = {"d": "D", "w": "W", "m": "M", "y": "Y", "h": "H", "q": "Q"}


def _money(currency: str, number: str, scale: str | None) -> str:
    value = float(number.replace(",", "")) * _SCALES.get((scale or "").lower(), 1)
    return f"{_CURRENCIES[currency.lower()]} {plain_number(str(value))}"


def _chinese_money(match: re.Match[str]) -> str | None:
    digits, scale = match[1].replace(",", ""), match[2]
    number = float(digits) if digits[0].isascii() else chinese_number(digits)
    return None if number is None else _money(match[3], str(number), scale)


def _duration(match: re.Match[str]) -> str | None:
    number = plain_number(match[2]) if match[2] else english_number(match[1])
    unit = match["unit"].lower()
    return None if number is None else f"P{number}{_UNITS[unit[0]]}"


def _chinese_duration(match: re.Match[str]) -> str | None:
    number = chinese_number(match[1])
    unit = {"日": "D", "天": "D", "周": "W", "月": "M", "年": "Y", "时": "H"}[match[2][-1]]
    # 2020年 is a year of the calendar, 20年 a duration.
    return None if number is None or (unit == "Y" and number >= 1000) else f"P{number}{unit}"


def _chinese_date(match: re.Match[str]) -> str | None:
    year, month, day = (chinese_number(part) for part in match.groups())
    return None if year is None or not month or not day else iso_date(str(year), month, day)


def _numeric_date(match: re.Match[str]) -> str | None:
    # Month first, as in the contracts this was tried on; day first where the first number is no month.
    first, second = int(match[1]), int(match[2])
    month, day = (first, second) if first <= 12 else (second, first)
    return iso_date(match[3], month, day) if 1 <= month <= 12 and 1 <= day <= 31 else None


def _reference(match: re.Match[str]) -> str:
    word = match[1].lower().rstrip("s")
    return (
        match[2].rstrip(".")
        if word in {"section", "clause", "paragraph"}
        else f"{word} {match[2].rstrip('.').lower()}"
    )


def _month_date(month: int, day: int, year: int) -> Callable[[re.Match[str]], str]:
    return lambda m: iso_date(m[year], MONTHS[m[month][:3].lower()], m[day])


def _lower(match: re.Match[str]) -> str:
    return " ".join(match[1].lower().split())


_I = re.IGNORECASE
RULES: tuple[Rule, ...] = (
    (
        AnchorKind.EMAIL,
        re.compile(
            r"(?<![\w.+-])([\w.+-]{1,64}@[A-Za-z0-9-]{1,63}"
            r"(?:\.[A-Za-z0-9-]{1,63}){1,4})"
        ),
        _lower,
    ),
    (
        AnchorKind.DATE,
        re.compile(
            rf"\b{_MONTH}[ \n]{{1,2}}(\d{{1,2}})(?:st"
            rf"|nd|rd|th)?,?[ \n]{{1,2}}(\d{{4}})\b",
            _I,
        ),
        _month_date(1, 2, 3),
    ),
    (
        AnchorKind.DATE,
        re.compile(
            rf"\b(\d{{1,2}})(?:st|nd|rd"
            rf"|th)?(?:[ \n]day)?(?:[ \n]of)?[ \n]{_MONTH},?[ \n](\d{{4}})\b",
            _I,
        ),
        _month_date(2, 1, 3),
    ),
    (AnchorKind.DATE, re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b"), lambda m: iso_date(m[1], m[2], m[3])),
    (AnchorKind.DATE, re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\d/])"), _numeric_date),
    (
        AnchorKind.DATE,
        re.compile(
            r"([\d〇零一二三四五六七八九]{4}) ?年 ?"
            r"([\d一二三四五六七八九十]{1,3}) ?月 ?"
            r"([\d一二三四五六七八九十]{1,3}) ?日"
        ),
        _chinese_date,
    ),
    (
        AnchorKind.PERCENT,
        re.compile(
            r"(?<![\d.])(\d{1,3}(?:\.\d{1,4})?) ?(?:%"
            r"|％|percent\b|per cent\b)",
            _I,
        ),
        lambda m: plain_number(m[1]),
    ),
    (
        AnchorKind.PERCENT,
        re.compile(r"百分之([零一二三四五六七八九十百\d]{1,8})"),
        lambda m: None if chinese_number(m[1]) is None else str(chinese_number(m[1])),
    ),
    (
        AnchorKind.AMOUNT,
        re.compile(
            rf"(US\$|C\$|A\$|HK\$|[$€£¥￥]|\b(?:USD|EUR|GBP|RMB"
            rf"|CNY|JPY|CHF|CAD|AUD|HKD))[ \n]?({_NUMBER})(?![\d])"
            r"(?:[ \n]?(thousand|million|billion|bn|m|k|万|亿)\b)?",
            _I,
        ),
        lambda m: _money(m[1], m[2], m[3]),
    ),
    (
        AnchorKind.AMOUNT,
        re.compile(
            rf"(?<![\d.,$€£])({_NUMBER})(?:[ \n](thousand|million|billion))?[ \n]"
            r"(dollars|euros|pounds|USD|EUR|GBP|RMB|CNY)\b",
            _I,
        ),
        lambda m: _money(m[3], m[1], m[2]),
    ),
    (
        AnchorKind.AMOUNT,
        re.compile(
            r"(?<![\d.,])(\d{1,3}(?:,\d{3}){1,4}|\d{1,12}(?:\.\d{1,4})?"
            r"|[一二三四五六七八九十百千两]{1,12})"
            r" ?(万|亿)?(元|美元|欧元)"
        ),
        _chinese_money,
    ),
    (
        AnchorKind.DURATION,
        re.compile(
            rf"\b(?:({_WORDS}(?:[- ]{_WORDS}){{0,2}})[ \n]?(?:\((\d{{1,4}})\)[ \n]?)?"
            rf"|(?<![\d.,/])(\d{{1,4}})[- \n]?)"
            r"(?:(?:full|calendar|business|working|consecutive|contract|successive|additional)[ \n])?"
            r"-?(?P<unit>day|week|month|year|hour|quarter)s?\b",
            _I,
        ),
        lambda m: f"P{m[3]}{_UNITS[m['unit'][0].lower()]}" if m[3] else _duration(m),
    ),
    (
        AnchorKind.DURATION,
        re.compile(
            r"(?<![年月\d第])([零一二三四五六七八九十百两\d]{1,6}) ?"
            r"(个工作日|工作日|个月|个小时|小时|周|年|日|天)(?![月日])"
        ),
        _chinese_duration,
    ),
    (
        AnchorKind.REFERENCE,
        re.compile(
            r"(?<!\w)(Sections?|Articles?|Clauses?|Paragraphs?"
            r"|Schedules?|Exhibits?|Annex|Appendix|Attachments?)[ \n]"
            r"(\d{1,3}(?:\.\d{1,3}){0,5}|[IVXLC]{1,7}|[A-Z]\d{0,2})\b"
        ),
        _reference,
    ),
    (AnchorKind.REFERENCE, re.compile(rf"(第{_CJK}条|附件{_CJK})"), lambda m: m[1]),
    (
        AnchorKind.TERM,
        re.compile(
            r"[\"“]([A-Z][\w&'’./-]{0,40}(?:[ \n]"
            r"[\w&'’./-]{1,40}){0,6})[,.]?[\"”]"
        ),
        _lower,
    ),
    (
        AnchorKind.TERM,
        re.compile(
            r"[（(](?:以下)?(?:简称"
            r"|统称)[为：:]?[“\"「]?([^”\"」）)\n]{1,30})"
        ),
        _lower,
    ),
    (
        AnchorKind.PARTY,
        re.compile(
            r"\b((?:[A-Z][\w&'’.-]{0,30}(?:[ \n,]{1,2}| & )){1,6}(?:Inc|Ltd"
            r"|LLC|L\.L\.C|Corp|Corporation|Limited|LLP|L\.P|GmbH|AG"
            r"|S\.A|N\.V|B\.V|PLC|plc|Company|Co)\b\.?)"
        ),
        _lower,
    ),
    (
        AnchorKind.PARTY,
        re.compile(
            r"([\u4e00-\u9fff（）()]{2,24}(?:有限公司"
            r"|股份公司|集团|银行|合伙企业))"
        ),
        _lower,
    ),
    (AnchorKind.PARTY, re.compile(r"(甲方|乙方|丙方)(?=[：:（(])"), _lower),
    (
        AnchorKind.IDENTIFIER,
        re.compile(
            r"(?:\bNo\.?|\bnumber|\bNr\.?|编号|号码"
            r"|账号)[ \n]?[:：#]?[ \n]?([A-Z0-9](?=[A-Z0-9/-]{0,30}\d)[A-Z0-9/-]{3,30})"
        ),
        lambda m: m[1],
    ),
    (
        AnchorKind.IDENTIFIER,
        re.compile(
            r"(?<![\w-])([A-Z]{2,6}-\d{2,10}"
            r"(?:-[A-Z0-9]{1,10}){0,3})(?![\w-])"
        ),
        lambda m: m[1],
    ),
)
"""Tried in this order; where two anchors of different kinds overlap both are kept."""

# What a document's own kind of number answers: question words to the kinds of anchor in their answers.
ASKED: Mapping[AnchorKind, re.Pattern[str]] = {
    AnchorKind.DATE: re.compile(
        r"\bwhen\b|\b(?:which|what|the) (?:\w{1,12} ){0,2}(?:date|day)\b|\bdated?\b"
        r"|\bdeadlines?\b|何时|什么时候|哪天|日期|哪一年|截止",
        _I,
    ),
    AnchorKind.DURATION: re.compile(
        r"\bhow (?:long|soon|quickly|often|fast"
        r"|many (?:days|weeks|months|years|hours))\b"
        r"|\bperiod\b|\bduration\b|\bwhen\b|\bdeadlines?\b"
        r"|\bhow much (?:notice|warning|time)\b"
        r"|\bin advance\b|多久|多长|期限|几天"
        r"|几年|几个月|多少[天日年月]|有效期",
        _I,
    ),
    AnchorKind.AMOUNT: re.compile(
        r"\bhow much\b|\b(?:amounts?|sums?|costs?"
        r"|prices?|fees?|money|pay|charged?|cap|ceiling"
        r"|floor|rent|budget|fines?|spend)\b"
        r"|多少[钱元]?|金额|价格|费用|价款|租金|违约金",
        _I,
    ),
    AnchorKind.PERCENT: re.compile(
        r"\b(?:percent(?:age)?|share|rate|interest"
        r"|royalt\w{1,3}|commissions?|proportion"
        r"|discounts?)\b|比例|利率|百分",
        _I,
    ),
    AnchorKind.PARTY: re.compile(
        r"\bwho(?:m|se)?\b|\b(?:parties|compan(?:y|ies)"
        r"|persons?|names?)\b|谁|哪[个家]公司|当事人|双方",
        _I,
    ),
    AnchorKind.EMAIL: re.compile(r"\b(?:e-?mail|contact|write to|reach)\b|邮箱|邮件|联系", _I),
    AnchorKind.IDENTIFIER: re.compile(
        r"\b(?:registration|serial|account|order|policy"
        r"|patent|reference) (?:number|no)\b|编号|号码|账号",
        _I,
    ),
}
