"""Policies for request streams by name: one file in `request_policies/` and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from zerolayer.decision.request_model import RequestModel
from zerolayer.decision.request_policies.arc import ArcRequestPolicy
from zerolayer.decision.request_policies.imitation import ImitationPolicy
from zerolayer.decision.request_policies.lecar import LecarRequestPolicy
from zerolayer.decision.request_policies.lfu import FrequencyBonusPolicy, LfuRequestPolicy
from zerolayer.decision.request_policies.lru import LruRequestPolicy
from zerolayer.decision.request_policies.mixing import EXPERTS, ExpertMixingPolicy
from zerolayer.decision.request_policies.s3_fifo import S3FifoRequestPolicy
from zerolayer.decision.request_policy import RequestPolicy
from zerolayer.errors import SettingError, UnknownNameError

REQUEST_POLICIES: dict[str, Callable[[int], RequestPolicy]] = {
    "lru": LruRequestPolicy,
    "lfu": LfuRequestPolicy,
    "frequency-bonus": FrequencyBonusPolicy,
    "arc": ArcRequestPolicy,
    "s3-fifo": S3FifoRequestPolicy,
    "lecar": LecarRequestPolicy,
    "imitation": ImitationPolicy,
    "expert-mixing": ExpertMixingPolicy,
}

SIMPLE_POLICIES = ("lru", "lfu", "frequency-bonus", "arc", "s3-fifo")
"""Those that learn nothing."""

DEFAULT_REQUEST_POLICY = "expert-mixing"
"""Follows the best expert. Of the traces tried, a simple policy has more hits in one case: conversations at 10 %."""


def create_request_policy(spec: str, capacity: int) -> RequestPolicy:
    """A new policy for one cache of `capacity` blocks, from a registered name or `module:Class`.

    Raises UnknownNameError for an unknown name, SettingError for a class that cannot be used or a capacity below 1.
    """
    if capacity < 1:
        raise SettingError(f"capacity {capacity} is out of range; a cache holds at least 1 block")
    if spec in REQUEST_POLICIES:
        return REQUEST_POLICIES[spec](capacity)
    module_name, colon, class_name = spec.partition(":")
    if not colon:
        raise UnknownNameError("request policy", spec, [*REQUEST_POLICIES, "module:Class"])
    try:
        factory = getattr(importlib.import_module(module_name), class_name)
        policy = factory(capacity)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise SettingError(
            f"request policy {spec!r} cannot be created with a capacity: {error}; give module:Class"
        ) from error
    if not isinstance(policy, RequestPolicy):
        raise SettingError(f"request policy {spec!r} lacks one of name, begin, hit, miss")
    return policy


def imitating(spec: str, capacity: int, model: RequestModel) -> RequestPolicy:
    """As `create_request_policy`, with this model in place of the shipped one wherever a policy imitates."""

    def learned(size: int) -> RequestPolicy:
        return ImitationPolicy(size, model)

    if spec == "imitation":
        return learned(capacity)
    if spec == "expert-mixing":
        experts = [learned if expert is ImitationPolicy else expert for expert in EXPERTS]
        return ExpertMixingPolicy(capacity, experts)
    return create_request_policy(spec, capacity)
