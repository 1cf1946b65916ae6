"""Policies for request streams: the contract, the textbook cases, the optimum, and what the learned ones bring."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from itertools import product

import numpy as np
import pytest

from zerolayer.decision.request_oracle import NEVER, next_uses, optimal_hits
from zerolayer.decision.request_policies.ranked import Ranking
from zerolayer.decision.request_queues import ClassQueues
from zerolayer.decision.request_registry import (
    REQUEST_POLICIES,
    SIMPLE_POLICIES,
    create_request_policy,
)
from zerolayer.errors import BudgetError, SettingError, UnknownNameError
from zerolayer.learning.requests import RequestTrace
from zerolayer.learning.simulate import simulate


def trace_of(chains: list[list[int]], seconds: float = 1.0) -> RequestTrace:
    starts = np.cumsum([0, *map(len, chains)])
    return RequestTrace.build(
        np.concatenate([np.asarray(chain, dtype=np.int64) for chain in chains]),
        starts,
        np.arange(len(chains)) * seconds,
        block_tokens=64,
        source="test",
    )


def zipf(requests: int = 300, seed: int = 0) -> RequestTrace:
    rng = np.random.default_rng(seed)
    roots = rng.zipf(1.3, requests) % 400
    return trace_of([[int(root) * 4 + depth for depth in range(4)] for root in roots])


def loop(rounds: int = 6, length: int = 60) -> RequestTrace:
    return trace_of([[block] for _ in range(rounds) for block in range(length)])


def scans(requests: int = 300) -> RequestTrace:
    """A hot set of 20 blocks, and blocks that are referenced once."""
    return trace_of([[request % 20, 20 + 2 * request, 21 + 2 * request] for request in range(requests)])


def drift(requests: int = 300) -> RequestTrace:
    """Conversations of eight turns, a new one every request or so."""
    rng = np.random.default_rng(1)
    open_chains: list[list[int]] = []
    chains, fresh = [], 0
    for _ in range(requests):
        if open_chains and rng.random() < 0.7:
            chain = open_chains[rng.integers(len(open_chains))]
        else:
            chain = []
            open_chains.append(chain)
        chain.extend(range(fresh, fresh + 2))
        fresh += 2
        chains.append(list(chain))
        if len(chain) >= 16:
            open_chains.remove(chain)
    return trace_of(chains)


TRACES = {"zipf": zipf, "loop": loop, "scans": scans, "drift": drift}


@pytest.mark.parametrize("name", REQUEST_POLICIES)
@pytest.mark.parametrize("trace", TRACES)
def test_a_policy_keeps_the_contract_and_stays_below_the_optimum(name: str, trace: str) -> None:
    requests = TRACES[trace]()
    for capacity in (1, 40):
        result = simulate(requests, name, capacity)  # raises TraceError where the contract is broken
        assert result.hits <= optimal_hits(requests.blocks, capacity).sum()
        assert result.hits + result.misses == requests.references
        assert result.usable_hits <= result.hits
        assert result.wrong_evictions <= result.regretted_evictions <= result.evictions


@pytest.mark.parametrize("name", REQUEST_POLICIES)
def test_two_runs_are_identical(name: str) -> None:
    first, second = (simulate(zipf(400), name, 40) for _ in range(2))
    assert np.array_equal(first.hit, second.hit)


@pytest.mark.parametrize(("trace", "length"), [("zipf", 800), ("loop", 30), ("scans", 600), ("drift", 800)])
def test_expert_mixing_loses_little_to_the_best_simple_policy(trace: str, length: int) -> None:
    requests = TRACES[trace](length)
    best = max(simulate(requests, name, 40).hits for name in SIMPLE_POLICIES)
    assert simulate(requests, "expert-mixing", 40).hits >= 0.9 * best


def test_lru_is_the_textbook_lru_on_single_blocks() -> None:
    blocks = np.random.default_rng(0).integers(0, 50, 2000)
    found = simulate(trace_of([[int(block)] for block in blocks]), "lru", 20).hit
    order: OrderedDict[int, None] = OrderedDict()
    for block, hit in zip(blocks.tolist(), found, strict=True):
        assert hit == (block in order)
        order[block] = None
        order.move_to_end(block)
        if len(order) > 20:
            order.popitem(last=False)


@pytest.mark.parametrize("name", ["lru", "lfu", "frequency-bonus"])
def test_of_one_chain_the_deepest_block_leaves_first(name: str) -> None:
    result = simulate(trace_of([[0, 1, 2, 3], [10], [0, 1, 2, 3]]), name, 4)
    assert result.hit[-4:].tolist() == [True, True, True, False]


def test_a_scan_does_not_flush_what_is_used_often() -> None:
    requests = scans()
    assert simulate(requests, "lru", 30).hits == 0
    for name in ("lfu", "imitation", "expert-mixing"):
        assert simulate(requests, name, 30).hits > 0, name


def test_next_uses() -> None:
    assert next_uses(np.array([3, 1, 3, 3])).tolist() == [2, NEVER, 3, NEVER]


def test_the_optimum_is_the_best_of_all_choices() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        blocks = rng.integers(0, 4, 9).tolist()
        assert optimal_hits(np.array(blocks), 2).sum() == exhaustive(tuple(blocks), 2)


def exhaustive(blocks: tuple[int, ...], capacity: int) -> int:
    @cache
    def best(position: int, held: frozenset[int]) -> int:
        if position == len(blocks):
            return 0
        block = blocks[position]
        if block in held:
            return 1 + best(position + 1, held)
        after = [held]
        if len(held) < capacity:
            after.append(held | {block})
        after += [held - {victim} | {block} for victim in held]
        return max(best(position + 1, choice) for choice in after)

    return best(0, frozenset())


def test_the_optimum_keeps_pins_and_prefixes() -> None:
    requests = drift()
    hits = optimal_hits(requests.blocks, 30, pinned=(0, 1))
    first = [int(np.flatnonzero(requests.blocks == block)[0]) for block in (0, 1)]
    for block, position in zip((0, 1), first, strict=True):
        later = np.flatnonzero(requests.blocks == block)
        assert hits[later].tolist() == [place > position for place in later]
    free = optimal_hits(requests.blocks, 30)
    for low, high in zip(requests.starts[:-1], requests.starts[1:], strict=True):
        assert not np.any(np.diff(free[low:high].astype(int)) > 0)  # a hit below a miss would be of no use
    with pytest.raises(BudgetError, match="too small"):
        optimal_hits(requests.blocks, 1, pinned=(0, 1))


def test_pinned_blocks_never_leave() -> None:
    requests = scans(200)
    result = simulate(requests, "lru", 6, pinned=(0, 1, 2))
    hot = np.isin(requests.blocks, (0, 1, 2))
    assert result.hit[hot].sum() == hot.sum() - 3


def test_ranking_forgets_old_scores() -> None:
    ranking = Ranking()
    for round_, block in product(range(50), range(10)):
        ranking.put(block, (round_ * 10 + block,))
    assert [ranking.pop() for _ in range(len(ranking))] == list(range(10))


def test_queues_yield_the_least_worthy_head_of_all_classes() -> None:
    queues = ClassQueues(3)
    worth = {block: float((7 * block) % 10) for block in range(30)}
    for block in range(30):
        queues.put(block, block % 3)
    queues.put(0, 1)  # 0 leaves class 0 for the end of class 1
    queues.compare(lambda kind, block: (worth[block], block))
    orders = ([*range(3, 30, 3)], [*range(1, 30, 3), 0], [*range(2, 30, 3)])
    for _ in range(30):
        value, block = queues.lowest(lambda kind, block: (worth[block], block))
        heads = [left[0] for order in orders if (left := [one for one in order if one in queues])]
        assert value == worth[block] == min(worth[head] for head in heads)
        queues.remove(block)
    assert queues.lowest(lambda kind, block: (0.0, 0.0)) == (float("inf"), -1)


def test_names_and_classes() -> None:
    with pytest.raises(UnknownNameError, match="lecar"):
        create_request_policy("clock", 4)
    with pytest.raises(SettingError, match="at least 1"):
        create_request_policy("lru", 0)
    with pytest.raises(SettingError, match="module:Class"):
        create_request_policy("zerolayer.core:Nothing", 4)
    with pytest.raises(SettingError, match="lacks"):
        create_request_policy("builtins:range", 4)
    outside = create_request_policy("zerolayer.decision.request_policies.lru:LruRequestPolicy", 4)
    assert outside.name == "lru"
