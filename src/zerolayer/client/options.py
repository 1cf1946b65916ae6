"""What a request to a zerolayer server may say beyond the Messages API, checked before it is sent.

A request carries two extension fields, each only where there is something to say:

    context_hints   [{"text": …} | {"start": …, "end": …}, with "grade" and "ttl_s" where given]
    rtls            {"enabled", "policy" or "preset", "thresholds"}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from zerolayer.errors import SettingError, UnknownNameError

PRESETS = ("low_latency", "balanced", "memory_efficient")
"""Those of `zerolayer.decision.presets`, which a client does without: it needs no numpy."""

THRESHOLDS = ("p0_min", "p1_min", "p2_min")
_HINT_FIELDS = ("text", "start", "end", "grade", "ttl_s")
_RTLS_FIELDS = ("enabled", "policy", "preset", "thresholds")
_GRADES = ("P0", "P1")


class ContextHint(TypedDict, total=False):
    """A place that stays on the device: `text`, wherever it occurs, or the characters from `start` to `end`."""

    text: str
    start: int
    end: int
    grade: Literal["P0", "P1"]
    ttl_s: float


class RtlsParam(TypedDict, total=False):
    """The extension field `rtls`."""

    enabled: bool
    policy: str
    preset: str
    thresholds: Mapping[str, float]


Hints = Iterable[str | ContextHint]
Rtls = RtlsParam | str | bool


def hints_field(hints: Hints) -> list[dict[str, Any]]:
    """`context_hints` as it is sent. Raises SettingError naming the hint that cannot be meant."""
    if isinstance(hints, (str, Mapping)):
        raise SettingError(
            f"context_hints is {hints!r}; it must be a list of texts, or of {{text | start, end, grade, ttl_s}}"
        )
    return [_hint(hint, f"context_hints[{place}]") for place, hint in enumerate(hints)]


def _hint(hint: str | ContextHint, name: str) -> dict[str, Any]:
    given: dict[str, Any] = {"text": hint} if isinstance(hint, str) else dict(_mapping(hint, name))
    _known(given, _HINT_FIELDS, name)
    text, start, end = given.get("text"), given.get("start"), given.get("end")
    if text is not None:
        if not isinstance(text, str) or not text.strip():
            raise SettingError(f"{name}.text is {text!r}; it must be a text that is not empty")
        if start is not None or end is not None:
            raise SettingError(f"{name} has both text and start or end; give either the text or its place")
    elif not (_whole(start) and _whole(end) and 0 <= int(start or 0) < int(end or 0)):
        raise SettingError(
            f"{name} is {dict(given)!r}; give text, or start and end, whole numbers with 0 <= start < end"
        )
    if given.get("grade", "P0") not in _GRADES:
        raise SettingError(f"{name}.grade is {given['grade']!r}; it must be one of {', '.join(_GRADES)}")
    ttl = given.get("ttl_s")
    if ttl is not None and not (_number(ttl) and ttl > 0):
        raise SettingError(f"{name}.ttl_s is {ttl!r}; it must be a number of seconds above 0, or left out")
    return {key: value for key, value in given.items() if value is not None}


def rtls_field(rtls: Rtls | None, policy: str | None) -> dict[str, Any] | None:
    """`rtls` as it is sent: the request's own over the client's `policy`; None where there is nothing to say.

    Raises SettingError, UnknownNameError.
    """
    if rtls is False:
        return {"enabled": False}
    chosen = policy_field(policy) if policy is not None else {}
    if rtls is None or rtls is True:
        return chosen or None
    if isinstance(rtls, str):
        return policy_field(rtls)
    given = dict(_mapping(rtls, "rtls"))
    _known(given, _RTLS_FIELDS, "rtls")
    if not isinstance(given.get("enabled", True), bool):
        raise SettingError(f"rtls.enabled is {given['enabled']!r}; it must be true or false")
    if given.get("policy") is not None and given.get("preset") is not None:
        raise SettingError("rtls has both policy and preset; give one of them")
    if given.get("preset") is not None and given["preset"] not in PRESETS:
        raise UnknownNameError("rtls.preset", str(given["preset"]), PRESETS)
    if given.get("policy") is not None:
        _policy_name(given["policy"], "rtls.policy")
        chosen = {}
    elif given.get("preset") is not None:
        chosen = {}
    if given.get("thresholds") is not None:
        given["thresholds"] = thresholds_field(**_mapping(given["thresholds"], "rtls.thresholds"))
    return {**chosen, **{key: value for key, value in given.items() if value is not None}}


def policy_field(name: object) -> dict[str, Any]:
    """A preset or a policy by its name, as `rtls` says it. Raises SettingError."""
    checked = _policy_name(name, "rtls_policy")
    return {"preset": checked} if checked in PRESETS else {"policy": checked}


def _policy_name(name: object, what: str) -> str:
    """Which policies there are is the server's to say; here only what cannot be a name is refused."""
    if not isinstance(name, str) or not name.strip() or any(c.isspace() for c in name):
        raise SettingError(
            f"{what} is {name!r}; it must be {', '.join(PRESETS)}, or the name of a policy of the server, "
            "such as graded or static-window"
        )
    if name.replace("-", "_") in PRESETS and name not in PRESETS:
        raise UnknownNameError(what, name, PRESETS)
    return name


def thresholds_field(**given: object) -> dict[str, float]:
    """The three cuts of persistence. Raises SettingError unless 1 >= p0_min > p1_min > p2_min >= 0."""
    _known(given, THRESHOLDS, "thresholds")
    cuts = {"p0_min": 0.17, "p1_min": 0.10, "p2_min": 0.05, **given}
    for name, value in cuts.items():
        if not _number(value):
            raise SettingError(f"{name} is {value!r}; it must be a number from 0 to 1")
    values = {name: float(cuts[name]) for name in THRESHOLDS}  # type: ignore[arg-type]  # checked above
    if not 1 >= values["p0_min"] > values["p1_min"] > values["p2_min"] >= 0:
        raise SettingError(
            f"thresholds are {values}; they must fall: 1 >= p0_min > p1_min > p2_min >= 0, such as 0.17, 0.10, 0.05"
        )
    return values


def questions_of(history: Iterable[str | Mapping[str, Any]] | None) -> list[str] | None:
    """The questions asked so far, oldest first, from texts or from a conversation's messages; None: the server's own.

    Raises SettingError.
    """
    if history is None:
        return None
    if isinstance(history, (str, Mapping)):
        raise SettingError(f"history is {history!r}; it must be a list of questions, or of messages")
    texts = [_text_of(turn, f"history[{place}]") for place, turn in enumerate(history)]
    return [text for text in texts if text]


def _text_of(turn: str | Mapping[str, Any], name: str) -> str:
    """What the user said in a turn: the last text of a message, which holds the question; "" of the assistant's."""
    if isinstance(turn, str):
        return turn
    content = _mapping(turn, name).get("content")
    if turn.get("role") != "user":
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        raise SettingError(f"{name}.content is {content!r}; it must be a text or a list of parts")
    texts = [
        part.get("text", "") for part in content if isinstance(part, Mapping) and part.get("type") == "text"
    ]
    return str(texts[-1]) if texts else ""


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{name} is {value!r}; it must be a mapping of names to values")
    return value


def _known(given: Mapping[str, Any], allowed: Iterable[str], name: str) -> None:
    for key in given:
        if key not in allowed:
            raise UnknownNameError(f"field of {name}", str(key), allowed)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
