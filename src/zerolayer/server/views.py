"""What the service shows of itself: frozen records of plain numbers and texts, which JSON holds as they are.

Times are seconds; a moment is seconds since the epoch, for people; nothing is scheduled by it. Bytes are bytes.
A number that is not known is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether turns are answered without delay, and everything that stands against it."""

    ok: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelView:
    """A model that answers."""

    id: str
    display_name: str
    created: float
    context_window: int  # tokens that it was trained for; documents may be longer
    max_output_tokens: int
    fingerprint: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class PinView:
    """Text or characters that a hint holds on the device."""

    text: str
    grade: str
    blocks: tuple[int, ...]
    expires: float | None  # None: as long as the session
    tokens: int


@dataclass(frozen=True, slots=True)
class SessionView:
    """A conversation over its documents, live or stored."""

    id: str
    title: str
    model: str
    tenant: str
    state: str  # queued | reading | answering | idle | parked | stored
    policy: str
    document_tokens: int
    conversation_tokens: int  # of kept turns
    tokens_read: int  # of document_tokens, computed or read back
    blocks: int
    block_tokens: int
    tier_tokens: dict[str, int] = field(default_factory=dict)  # device | host | disk
    grade_blocks: dict[str, int] = field(default_factory=dict)  # P0 … P3
    turns: int = 0
    device_bytes: int = 0
    host_bytes: int = 0
    disk_bytes: int = 0
    pins: tuple[PinView, ...] = ()
    pin_blocks: int = 0
    pin_blocks_most: int = 0
    in_use: bool = False  # a turn runs or waits, or another process has it open
    created: float = 0.0
    last_used: float = 0.0
    expires: float | None = None  # the latest of its pins and cache_control's ttl
    calibration_drift: float | None = None
    thresholds: dict[str, float] | None = None  # p0_min, p1_min, p2_min where the policy grades
    stored_id: str = ""  # of its documents in the store


@dataclass(frozen=True, slots=True)
class BlockHistory:
    """One thing that happened to a block."""

    time: float
    turn: int
    text: str  # the instruction, as assembled
    outcome: str  # done | deferred | refused
    nbytes: int
    ns: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of a session, for the token strip."""

    index: int
    id: str
    part: str  # frame | document | conversation
    document: str
    page: int  # 1-based; 0 where there is none
    page_last: int
    char_start: int  # of the documents' joined text
    char_end: int
    text: str
    tokens: int
    grade: str  # P0 … P3
    tier: str  # the fastest that holds it: device | host | disk; none: not computed yet
    slot: int | None  # of the device's arena
    in_sight: bool
    pinned: bool
    persistence: float | None
    attention: float
    use_count: int
    last_used_turn: int  # -1: never
    why: str
    history: tuple[BlockHistory, ...] = ()  # the last instructions, oldest first


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """One line of what happened. `id` counts from 1 and never repeats while the server runs."""

    id: int
    time: float
    session: str  # "" for the whole service
    tenant: str
    kind: str  # turn | instruction | read | eviction | fallback | park | resume | pin | error | start
    text: str
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeatView:
    """The heat map of a session's arena. Rows of `cells` rise with the address; heat is decayed accesses."""

    session: str
    side: int
    cells: tuple[tuple[float, ...], ...]
    nbytes: int  # of the mapped address space
    turn: int
    hottest: float


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of a time in microseconds."""

    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters since the service started, over all sessions. They never fall, except those under "now"."""

    started: float = 0.0
    uptime_s: float = 0.0
    # Requests
    turns: int = 0
    requests: dict[str, int] = field(
        default_factory=dict
    )  # by outcome: finished | failed | cancelled | refused
    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    # Scheduling
    loads: int = 0  # blocks moved to the device
    loads_used: int = 0
    wasted_loads: int = 0  # left the device, or their session ended, and no turn had used them
    loads_waiting: int = 0  # now: loaded, neither used nor gone
    evictions: int = 0
    faults: int = 0
    used_block_turns: int = 0
    covered_block_turns: int = 0  # of these, on the device when the answer began
    wasted_share: float = 0.0  # wasted_loads / (loads_used + wasted_loads)
    coverage: float = 1.0  # covered_block_turns / used_block_turns
    discarded_tokens: int = 0
    recomputed_tokens: int = 0
    recalled_tokens: int = 0
    prefilled_tokens: int = 0
    corrupt_blocks: int = 0
    evicted_p3_tokens: int = 0
    # The static window, replayed over the same demand (simulated)
    window_loads: int = 0
    window_wasted_loads: int = 0
    window_wasted_share: float = 0.0
    window_coverage: float = 1.0
    window_cut_tokens: int = 0  # used tokens that the window had cut: what poor scheduling discards
    # Latency
    p0_access_latency_us: Percentiles = Percentiles()
    ttft_s: Percentiles = Percentiles()  # seconds, of the last turns
    decode_s_per_token: float = 0.0  # mean of the last turns
    # Now
    queue_length: int = 0
    running: int = 0
    sessions_live: int = 0
    sessions_parked: int = 0
    device_bytes: int = 0
    device_budget_bytes: int = 0
    tier_bytes: dict[str, int] = field(default_factory=dict)  # device | host | disk
    tier_capacity_bytes: dict[str, int] = field(default_factory=dict)
    tier_tokens: dict[str, int] = field(default_factory=dict)
    grade_blocks: dict[str, int] = field(default_factory=dict)
    grade_tokens: dict[str, int] = field(default_factory=dict)
    pinned_blocks: int = 0
    parks: int = 0  # arenas given up for other sessions
    resumes: int = 0
    host_available_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TotalsSample:
    """What the dashboard draws over time, at one moment. Each number has the name and meaning that it has in Totals."""

    time: float = 0.0
    tier_bytes: dict[str, int] = field(default_factory=dict)
    grade_tokens: dict[str, int] = field(default_factory=dict)
    discarded_tokens: int = 0
    window_cut_tokens: int = 0
    loads_used: int = 0
    wasted_loads: int = 0
    wasted_share: float = 0.0
    used_block_turns: int = 0
    coverage: float = 1.0
    window_loads: int = 0
    window_wasted_share: float = 0.0
    window_coverage: float = 1.0
    p0_access_latency_us: Percentiles = Percentiles()


@dataclass(frozen=True, slots=True)
class TotalsHistory:
    """Samples since the service started, oldest first, thinned evenly. The newest is up to `interval_s` old."""

    started: float  # as in Totals
    now: float  # when this was told
    interval_s: float  # between two samples, at least
    samples: tuple[TotalsSample, ...] = ()


@dataclass(frozen=True, slots=True)
class NeedView:
    """One likely need of the next question."""

    label: str  # the section
    probability: float
    blocks: tuple[int, ...]
    pages: tuple[int, ...]
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class IntentView:
    """Where the next question is likely to go."""

    session: str
    needs: tuple[NeedView, ...]  # best first; their probabilities and `other` add up to 1
    other: float
    entropy_bits: float
    entropy: float  # of the largest possible one: 0 certain, 1 no idea
    acts: dict[str, float] = field(default_factory=dict)  # kind of turn → probability
    ways: dict[str, float] = field(default_factory=dict)  # way of asking → weight


@dataclass(frozen=True, slots=True)
class PrefetchView:
    """What a forecast moved."""

    session: str
    needs: tuple[NeedView, ...]
    wanted: tuple[int, ...]
    resident: tuple[int, ...]
    to_host: tuple[int, ...]
    to_device: tuple[int, ...]
    host_bytes: int
    device_bytes: int


@dataclass(frozen=True, slots=True)
class PolicyView:
    """A policy that may be asked for by name."""

    name: str
    kind: str  # policy | preset
    default: bool
    grades: bool  # has thresholds
    about: str
    sessions: int = 0  # live ones that use it
