"""How names look (parties, defined terms, addresses, identifiers), and what kind of anchor a question asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from zerolayer.documents.patterns import AnchorKind, Rule


def _lower(match: re.Match[str]) -> str:
    return " ".join(match[1].lower().split())


_KIND_OF_COMPANY = re.compile(
    r"(?:股份|责任|有限|商业|公司|[一各该本]?家?){0,3}(?:公司|集团|银行|合伙企业|事务所)|.{0,3}"
)
_BEFORE_NAME = re.compile(r"^.{0,22}(?:由|与|及|向|[甲乙丙丁]方|即|系|委托|授权)(?=.{2})|^[（()）]+")


def _chinese_party(match: re.Match[str]) -> str | None:
    """The name without the words that lead up to it: 本合同由北京某某有限公司 names 北京某某有限公司."""
    name = _BEFORE_NAME.sub("", match[1]).replace("（", "(").replace("）", ")")
    return None if _KIND_OF_COMPANY.fullmatch(name) else name


def _party(match: re.Match[str]) -> str | None:
    """A company's name without its article; "The Company" alone is a defined term and names nobody."""
    words = match[1].lower().replace(",", " ").split()
    words = words[1:] if words[0] in {"the", "this", "such", "each", "any", "our", "your"} else words
    return " ".join(words) if len(words) > 1 else None


def _identifier(match: re.Match[str]) -> str | None:
    before = match.string[match.start() - 1 : match.start()]
    return (
        None if match[0][0].isascii() and before.isascii() and before.isalpha() else match[1].replace(" ", "")
    )


def _iban(match: re.Match[str]) -> str | None:
    """An account number whose check digits are right (ISO 13616: the number modulo 97 is 1)."""
    code = match[0].replace(" ", "")
    digits = "".join(str(int(c, 36)) for c in code[4:] + code[:4])
    return code if int(digits) % 97 == 1 else None


def _phone(match: re.Match[str]) -> str | None:
    digits = "".join(c for c in match[0] if c.isdigit())
    return ("+" if match[0][0] == "+" else "") + digits if 8 <= len(digits) <= 15 else None


_QUOTED = r"[A-Z][\w&'’./-]{0,40}(?:[ \n][\w&'’./-]{1,40}){0,6}"
_PHONE = (
    r"[+(0-9](?<![\w+.-].)(?:(?<=\+)\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){1,4}"
    r"|(?<=\()\d{3}\)[ .-]?\d{3}[ .-]\d{4}|(?<=\d)\d\d(?:-\d{3}-|\.\d{3}\.)\d{4}"
    r"|(?<=1)[3-9]\d{9}|(?<=0)\d{2,3}-?\d{7,8}|(?<=4)00-?\d{3,4}-?\d{3,4})(?![\w-])"
)
_CREDIT_CODE = r"[0-9](?<!\w.)[0-9A-HJ-NPQRTUWXY]\d{6}[0-9A-HJ-NPQRTUWXY]{10}(?!\w)"

NAME_RULES: tuple[Rule, ...] = (
    Rule(
        AnchorKind.EMAIL,
        re.compile(
            r"([\w.+-](?<![\w.+-].)[\w.+-]{0,63}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4})", re.ASCII
        ),
        _lower,
        ("@",),
    ),
    Rule(
        AnchorKind.URL,
        re.compile(r"(?:https?://|www\.)[^\s<>\"'“”（）()，。；]{3,200}(?<![.,;:])"),
        lambda m: m[0].lower().rstrip("/"),
        ("://", "www."),
    ),
    Rule(AnchorKind.PHONE, re.compile(_PHONE), _phone),
    Rule(AnchorKind.TERM, re.compile(rf"[\"“]({_QUOTED})[,.]?[\"”]"), _lower, ('"', "“")),
    # Single quotes are apostrophes too, so only what stands in brackets or is said to mean something counts.
    Rule(
        AnchorKind.TERM, re.compile(rf"\((?:the |each,? an? |an? )?['‘]({_QUOTED})['’]\)"), _lower, ("'", "‘")
    ),
    Rule(
        AnchorKind.TERM,
        re.compile(r"(?:简称|统称|称)(?:为|作)?[:：]?\s?[“\"「『‘']([^”\"」』’'\n]{1,30})[”\"」』’']"),
        _lower,
        ("称",),
    ),
    Rule(
        AnchorKind.TERM,
        re.compile(r"[（(](?:以下)?(?:简称|统称)为?[:：]?([^“”\"「」‘’』）)\n]{1,30})[）)]"),
        _lower,
        ("称",),
    ),
    Rule(
        AnchorKind.PARTY,
        re.compile(
            r"([A-Z](?<!\w.)[\w&'’.-]{0,30}(?:[ \n,]{1,2}| & )(?:[A-Z][\w&'’.-]{0,30}(?:[ \n,]{1,2}| & )){0,5}"
            r"(?:Inc|Ltd|LLC|L\.L\.C|Corp|Corporation|Limited|LLP|L\.P|GmbH|AG|S\.A|N\.V|B\.V|PLC|plc|Company|Co"
            r"|INC|LTD|CORP|CORPORATION|LIMITED|COMPANY|CO|LP|Bank|Trust|Pte|Pty|S\.p\.A|SE)\b\.?)"
        ),
        _party,
    ),
    Rule(
        AnchorKind.PARTY,
        re.compile(
            r"([\u4e00-\u9fff（）()]{2,24}(?:有限公司|有限责任公司|股份公司|集团|银行|合伙企业|事务所))"
        ),
        _chinese_party,
        ("公司", "集团", "银行", "合伙企业", "事务所"),
    ),
    Rule(AnchorKind.PARTY, re.compile(r"([甲乙丙丁]方)(?=[：:（(])"), _lower, ("方",)),
    Rule(
        AnchorKind.IDENTIFIER,
        re.compile(
            r"(?:No|NO|Nr|number|Number|NUMBER|编号|号码|账号|帐号|账户|注册号|代码|文号)\.?[ \n]?[:：#]?[ \n]?"
            r"([A-Z0-9](?=[A-Z0-9/,-]{0,30}\d)[A-Z0-9/,-]{3,30}(?<=[A-Z0-9]))"
        ),
        _identifier,
    ),
    Rule(
        AnchorKind.IDENTIFIER,
        re.compile(r"([A-Z](?<![\w-].)[A-Z]{1,5}-\d{2,10}(?:-[A-Z0-9]{1,10}){0,3})(?![\w-])"),
        lambda m: m[1],
    ),
    Rule(AnchorKind.IDENTIFIER, re.compile(r"([0-9](?<![\w-].)\d-\d{7})(?![\w-])"), lambda m: m[1]),
    Rule(
        AnchorKind.IDENTIFIER,
        re.compile(r"[A-Z](?<!\w.)[A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)"),
        _iban,
    ),
    # The unified social credit code of a Chinese organisation (GB 32100-2015): 18 characters.
    Rule(AnchorKind.IDENTIFIER, re.compile(_CREDIT_CODE), lambda m: m[0]),
)

_I = re.IGNORECASE
# What a document's own kind of anchor answers: question words to the kinds of anchor in their answers.
ASKED: Mapping[AnchorKind, re.Pattern[str]] = {
    AnchorKind.DATE: re.compile(
        r"\bwhen\b|\b(?:which|what|the) (?:\w{1,12} ){0,2}(?:date|day)\b|\bdated?\b"
        r"|\bdeadlines?\b|何时|什么时候|哪天|日期|哪一年|截止",
        _I,
    ),
    AnchorKind.DURATION: re.compile(
        r"\bhow (?:long|soon|quickly|often|fast|many (?:days|weeks|months|years|hours))\b"
        r"|\bperiod\b|\bduration\b|\bwhen\b|\bdeadlines?\b|\bhow much (?:notice|warning|time)\b"
        r"|\bin advance\b|多久|多长|期限|几天|几年|几个月|多少[天日年月]|有效期",
        _I,
    ),
    AnchorKind.AMOUNT: re.compile(
        r"\bhow much\b|\b(?:amounts?|sums?|costs?|prices?|fees?|money|pay|charged?|cap|ceiling"
        r"|floor|rent|budget|fines?|spend)\b|多少[钱元]?|金额|价格|费用|价款|租金|违约金",
        _I,
    ),
    AnchorKind.PERCENT: re.compile(
        r"\b(?:percent(?:age)?|share|rate|interest|royalt\w{1,3}|commissions?|proportion|discounts?)\b"
        r"|比例|利率|百分",
        _I,
    ),
    AnchorKind.PARTY: re.compile(
        r"\bwho(?:m|se)?\b|\b(?:parties|compan(?:y|ies)|persons?|names?)\b|谁|哪[个家]公司|当事人|双方", _I
    ),
    AnchorKind.EMAIL: re.compile(r"\b(?:e-?mail|contact|write to|reach)\b|邮箱|邮件|联系", _I),
    AnchorKind.PHONE: re.compile(r"\b(?:tele)?phone\b|\bfax\b|\bcall\b|电话|手机|传真|联系方式", _I),
    AnchorKind.URL: re.compile(r"\bweb ?sites?\b|\burl\b|\bonline\b|网址|网站", _I),
    AnchorKind.IDENTIFIER: re.compile(
        r"\b(?:registration|serial|account|order|policy|patent|reference|bank|tax|company) (?:number|no)\b"
        r"|\bIBAN\b|编号|号码|账号|帐号|信用代码",
        _I,
    ),
}
