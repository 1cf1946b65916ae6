"""Bytes of a text file to text: UTF-8 (with or without BOM), UTF-16 with BOM, and GB18030 for Chinese."""

from __future__ import annotations

import codecs
import re

from zerolayer.errors import EncodingError

_CJK = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
# Everyday Chinese is written with these; Latin-1 text mis-read as GB18030 yields rare characters instead.
_COMMON_CJK = frozenset(
    "的一是不了在人有我他这为之大来以个中上们到说国和"
    "地也子时道出而要于就下得可你年生自会那后能对着事其"
    "里所去行过家十用发天如然作方成者多日都三小军二无同么经"
    "法当起与好看学进种将还分此心前面又定见只主没公从合约第条"
    "款本由应按双乙甲同期付金额方协议定规责任权利义务"
)
_FIX = "save it as UTF-8, for example with `iconv -f ORIGINAL -t UTF-8 {name}`"


def decode_text(data: bytes, name: str) -> str:
    """Text of `data`. Raises EncodingError naming the file, the first bad byte and the fix."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError as error:
            raise _error(name, "its byte-order mark says UTF-16", error) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        chinese = _decode_chinese(data)
        if chinese is None:
            raise _error(name, "it is not UTF-8, nor Chinese in GB18030", error) from error
        return chinese
    if text.count("\x00") > len(text) // 50:
        fix = _FIX.format(name=name)
        raise EncodingError(
            f"{name} is full of NUL bytes: it is binary, or UTF-16 without a byte-order mark; {fix}"
        )
    return text


def _decode_chinese(data: bytes) -> str | None:
    """GB18030 text, or None unless it decodes cleanly and its ideographs are mostly everyday ones."""
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        return None
    ideographs = _CJK.findall(text)
    common = sum(character in _COMMON_CJK for character in ideographs)
    other = sum(
        not (
            ord(c) < 128
            or _CJK.match(c)
            or "\u3000" <= c <= "\u303f"
            or "\uff00" <= c <= "\uffef"
            or c in "“”‘’—…·《》"
        )
        for c in text
    )
    return text if ideographs and common >= 0.1 * len(ideographs) and other <= 0.05 * len(text) else None


def _error(name: str, why: str, error: UnicodeDecodeError) -> EncodingError:
    byte = error.object[error.start]
    return EncodingError(
        f"{name} cannot be decoded: {why} (byte 0x{byte:02x} at {error.start}); {_FIX.format(name=name)}"
    )
