"""Where blocks live away from the device: host memory and disk, bounded, checksummed, kept together."""

from __future__ import annotations

from zerolayer.execution.tiers.base import BlockRecord, TierStore
from zerolayer.execution.tiers.disk import DiskTier
from zerolayer.execution.tiers.hierarchy import TierCounters, TierHierarchy
from zerolayer.execution.tiers.host import HostTier
from zerolayer.execution.tiers.sessions import SessionInfo, SessionStore, StoredSession

__all__ = [
    "BlockRecord",
    "DiskTier",
    "HostTier",
    "SessionInfo",
    "SessionStore",
    "StoredSession",
    "TierCounters",
    "TierHierarchy",
    "TierStore",
]
