"""Policies by name: one file in `policies/` and one line here. `module:Class` names one elsewhere."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from zerolayer.decision.policies.graded import GradedPolicy
from zerolayer.decision.policies.lru import LruPolicy
from zerolayer.decision.policies.ppo import PpoPolicy
from zerolayer.decision.policies.sparing import SparingPolicy
from zerolayer.decision.policies.static_window import StaticWindowPolicy
from zerolayer.decision.policy import Policy
from zerolayer.errors import SettingError, UnknownNameError

POLICIES: dict[str, Callable[[], Policy]] = {
    "graded": GradedPolicy,
    "lru": LruPolicy,
    "ppo": PpoPolicy,
    "sparing": SparingPolicy,
    "static-window": StaticWindowPolicy,
}

DEFAULT_POLICY = "graded"
"""For documents with questions: the highest coverage."""

_METHODS = ("victims", "recall", "expand", "knit", "end_turn")


def create_policy(spec: str) -> Policy:
    """A new policy for one session, from a registered name or `module:Class` (created without arguments).

    Raises UnknownNameError for a name that is not registered, SettingError for a `module:Class` that cannot
    be imported, created, or used as a policy.
    """
    if spec in POLICIES:
        return POLICIES[spec]()
    if ":" in spec:
        return _load(spec)
    raise UnknownNameError("policy", spec, [*POLICIES, "module:Class"])


def _load(spec: str) -> Policy:
    module_name, _, class_name = spec.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), class_name]):
        raise SettingError(
            f"policy {spec!r} is not of the form module:Class, such as my_package.policy:MyPolicy"
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SettingError(
            f"policy {spec!r}: module {module_name!r} cannot be imported ({error}); "
            "install it or put it on PYTHONPATH"
        ) from error
    cls = getattr(module, class_name, None)
    if not isinstance(cls, type):
        names = sorted(name for name, value in vars(module).items() if isinstance(value, type))
        raise SettingError(
            f"policy {spec!r}: {module_name} has no class {class_name!r}; it has {', '.join(names)}"
        )
    missing = [name for name in _METHODS if not callable(getattr(cls, name, None))]
    if missing:
        raise SettingError(
            f"policy {spec!r} lacks {', '.join(missing)}; a policy has {', '.join(_METHODS)} and a name"
        )
    try:
        policy = cls()
    except TypeError as error:
        raise SettingError(f"policy {spec!r} cannot be created without arguments: {error}") from error
    if not isinstance(policy, Policy):
        raise SettingError(f"policy {spec!r} lacks the attribute name, the text that reports show")
    return policy
