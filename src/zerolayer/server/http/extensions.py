"""What a request may ask of the scheduler: `context_hints` and `rtls`. Both APIs take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from zerolayer.decision.grading import Thresholds
from zerolayer.errors import RequestError
from zerolayer.server.turns import ContextHint, RtlsOptions

MOST_HINTS = 256
HINT_CHARACTERS = 20_000


class _Loose(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class HintObject(_Loose):
    """Either `text`, or `start` and `end`: characters of the documents' joined text."""

    text: Annotated[str, Field(min_length=1, max_length=HINT_CHARACTERS)] | None = None
    start: Annotated[int, Field(ge=0)] | None = None
    end: Annotated[int, Field(ge=1)] | None = None
    grade: Literal["P0", "P1"] | None = None
    ttl_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class ThresholdsObject(_Loose):
    """The least persistence of P0, P1 and P2: 1 ≥ p0_min > p1_min > p2_min ≥ 0."""

    p0_min: Annotated[float, Field(ge=0, le=1)] = 0.17
    p1_min: Annotated[float, Field(ge=0, le=1)] = 0.10
    p2_min: Annotated[float, Field(ge=0, le=1)] = 0.05

    def checked(self, field: str) -> Thresholds:
        """As the service takes them. Raises RequestError unless they fall."""
        if not self.p0_min > self.p1_min > self.p2_min:
            raise RequestError(
                field,
                f"p0_min {self.p0_min}, p1_min {self.p1_min}, p2_min {self.p2_min} must fall strictly: each is the "
                "least persistence of its grade",
            )
        return Thresholds(self.p0_min, self.p1_min, self.p2_min)


class RtlsObject(_Loose):
    """How this request is scheduled; what is left out is the server's."""

    enabled: bool | None = None
    policy: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    preset: Literal["low_latency", "balanced", "memory_efficient"] | None = None
    thresholds: ThresholdsObject | None = None


def _hint_kind(value: Any) -> str:
    return "string" if isinstance(value, str) else "object"


def _rtls_kind(value: Any) -> str:
    return "switch" if isinstance(value, bool) else "object"


HintItem = Annotated[
    Annotated[str, Field(min_length=1, max_length=HINT_CHARACTERS), Tag("string")]
    | Annotated[HintObject, Tag("object")],
    Discriminator(_hint_kind),
]
HintField = Annotated[list[HintItem], Field(max_length=MOST_HINTS)] | None
RtlsField = (
    Annotated[
        Annotated[bool, Tag("switch")] | Annotated[RtlsObject, Tag("object")], Discriminator(_rtls_kind)
    ]
    | None
)


def to_hints(items: Sequence[str | HintObject] | None) -> tuple[ContextHint, ...]:
    """Hints as the service takes them. Raises RequestError naming the hint."""
    return tuple(_to_hint(item, f"context_hints.{i}") for i, item in enumerate(items or ()))


def _to_hint(item: str | HintObject, field: str) -> ContextHint:
    if isinstance(item, str):
        return ContextHint(text=item)
    by_place = item.start is not None or item.end is not None
    if (item.text is not None) == by_place:
        raise RequestError(
            field, "give either text, or start and end (characters of the documents' joined text)"
        )
    if by_place and (item.start is None or item.end is None or item.start >= item.end):
        raise RequestError(field, f"start {item.start} must lie before end {item.end}; both are needed")
    return ContextHint(item.text or "", item.start, item.end, item.grade or "P0", item.ttl_s)


def to_rtls(value: bool | RtlsObject | None) -> RtlsOptions:
    """Options as the service takes them. Raises RequestError."""
    if value is None or isinstance(value, bool):
        return RtlsOptions(enabled=value is not False)
    if value.policy is not None and value.preset is not None:
        raise RequestError(
            "rtls", "policy and preset exclude each other; a preset is a policy with its weights"
        )
    if value.policy is not None and ":" in value.policy:
        # Whoever starts the server may name any class; whoever asks it may not: naming one imports and runs it.
        raise RequestError("rtls.policy", "name a registered policy; /v1/rtls/policies lists them")
    cuts = value.thresholds.checked("rtls.thresholds") if value.thresholds is not None else None
    return RtlsOptions(value.enabled is not False, value.policy, value.preset, cuts)
