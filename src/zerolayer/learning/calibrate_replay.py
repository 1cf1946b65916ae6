"""Whether calibration schedules better: the graded policy with a fit and with the hand-set noisy-or, replayed."""

from __future__ import annotations

from collections.abc import Sequence

from zerolayer.decision.persistence import PersistenceModel
from zerolayer.decision.policies.graded import GradedPolicy
from zerolayer.learning.calibrate_sessions import Recorded
from zerolayer.learning.replay import RESERVE_BLOCKS, ReplayResult, replay

_LEAST_BLOCKS = 10
"""The smallest device that is replayed: sinks, the reserve, and a few blocks to choose among."""


def grading(
    sessions: Sequence[Recorded], model: PersistenceModel, share: float
) -> dict[str, dict[str, float | int]]:
    """Sums over sessions on a device of `share` of the blocks, by what persistence comes from.

    Sessions that fit into the smallest device are left out. The numbers are simulated.
    """
    chosen = [s for s in sessions if _capacity(s, share) < len(s.trace.block_lengths)]
    return {
        name: _sums(
            [
                replay(s.trace, GradedPolicy(model=fit), _capacity(s, share), RESERVE_BLOCKS, s.features)
                for s in chosen
            ]
        )
        for name, fit in (("calibrated", model), ("hand_set", None))
    }


def _capacity(session: Recorded, share: float) -> int:
    return max(int(share * len(session.trace.block_lengths)), _LEAST_BLOCKS)


def _sums(results: Sequence[ReplayResult]) -> dict[str, float | int]:
    used = sum(result.used_block_turns for result in results)
    loads = sum(result.loads for result in results)
    covered = sum(result.coverage * result.used_block_turns for result in results)
    evictions = sum(result.evictions for result in results)
    return {
        "sessions": len(results),
        "coverage": round(covered / max(used, 1), 4),
        "wasted_loads": round(sum(result.wasted_load_count for result in results) / max(loads, 1), 4),
        "loads": loads,
        "faults": sum(result.faults for result in results),
        "wrong_eviction_share": round(sum(r.wrong_evictions for r in results) / max(evictions, 1), 4),
    }
