"""Live conversations, matched by content, within one device budget: who holds an arena, and who gives it up."""

from __future__ import annotations

import copy
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from zerolayer.config import Settings, cache_dir, parse_size
from zerolayer.decision.policy import Policy
from zerolayer.documents.stream import prompt_frame
from zerolayer.errors import BudgetError, StoreFullError
from zerolayer.execution.tiers import SessionStore
from zerolayer.runtime.sizes import scheduler_settings
from zerolayer.server.conversation import Conversation
from zerolayer.server.counters import WindowShadow
from zerolayer.server.hints import Pins
from zerolayer.server.kept import KeptConversation, delete_kept, read_kept, save_kept
from zerolayer.server.options import ServiceOptions
from zerolayer.server.sharing import SharedHost
from zerolayer.server.storing import Storing
from zerolayer.session import OpenDocuments, Session, open_documents

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder

MOST_SINK_SHARE = 8
"""At most one slot in this many is for the prompt's frame, which is always in sight."""

STORED_SHARE = 0.42
"""About what a block takes on disk of what it takes on the device in fp32, by the default codec and with its bounds."""

_KEPT_DOCUMENTS = 32


@dataclass(eq=False, slots=True)
class Live:
    """One conversation and its session."""

    key: str  # of its documents
    tenant: str
    conversation: Conversation  # as last asked
    session: Session
    policy: str
    kept: KeptConversation
    pins: Pins
    busy: bool = False
    state: str = "idle"
    used: int = 0  # value of the pool's clock when it last answered
    created: float = field(default_factory=time.time)
    last_used: float = field(default_factory=time.time)
    policies: dict[str, Policy] = field(default_factory=dict)
    holds: bool = True  # an arena, or the right to one
    turns: int = 0
    shadow: WindowShadow | None = None  # what the static window would have done

    @property
    def id(self) -> str:
        """Names the conversation, also after a restart."""
        return self.kept.id

    @property
    def arena_bytes(self) -> int:
        """Device memory that it needs to answer."""
        sizes, engine = self.session.sizes, self.session.engine
        return sizes.slots * sizes.block_tokens * engine.geometry.token_bytes


class Pool:
    """All live conversations. Only the engine thread calls it."""

    def __init__(
        self,
        engine: HFEngine,
        encoder: SentenceEncoder | None,
        settings: Settings,
        options: ServiceOptions,
        on_indexed: Callable[[], None],
    ) -> None:
        self.engine, self.settings, self.options = engine, settings, options
        self._encoder = encoder
        self.store = SessionStore(cache_dir() / "sessions", parse_size(settings.disk_budget, "disk budget"))
        self.host = SharedHost(parse_size(settings.host_budget, "host budget"))
        self.budget = parse_size(options.device_budget, "device budget")
        tenant_budget = options.tenant_disk_budget
        self.storing = Storing(
            self.store, None if tenant_budget is None else parse_size(tenant_budget, "tenant disk budget")
        )
        self.live: dict[str, Live] = {}
        self._documents: OrderedDict[str, OpenDocuments] = OrderedDict()
        self._indexing: dict[str, Future[OpenDocuments]] = {}
        self._indexer = ThreadPoolExecutor(1, "zerolayer-index")
        self._tokenizer = copy.deepcopy(engine.tokenizer)  # that thread's own
        self._on_indexed = on_indexed
        self._clock = 0
        self.parks = self.resumes = 0
        self._parked: list[Live] = []  # since someone last looked

    # Matching

    def salt(self, tenant: str) -> str:
        """What keeps a tenant's KV apart."""
        return "" if self.options.share_tenants else tenant

    def match(self, conversation: Conversation, tenant: str) -> Live | None:
        """The idle conversation that goes on with this question: its kept turns are the first of those given."""
        key, turns = conversation.key(self.salt(tenant)), [turn.key for turn in conversation.turns]
        fits = [
            live
            for live in self.live.values()
            if live.key == key
            and live.tenant == tenant
            and not live.busy
            and live.kept.shared_turns(turns) == len(live.kept.turns)
        ]
        return max(fits, key=lambda live: (len(live.kept.turns), live.used), default=None)

    def open(self, conversation: Conversation, tenant: str, documents: OpenDocuments) -> Live:
        """A new session for a conversation; what is stored of its documents and turns is taken over later.

        Raises BudgetError where not even the whole device budget would do, StoreError.
        """
        key = conversation.key(self.salt(tenant))
        sinks, sizes = 1, None
        stream, width = documents.stream, self.settings.block_tokens
        head = sum(1 for start, end in stream.spans if end == start)
        tokens, room = len(stream.token_ids), self.options.conversation_tokens
        while sizes is None:
            sizes = scheduler_settings(self.settings, self.engine, tokens, sinks, self.budget, room)
            wanted = min(-(-head // width), len(stream.blocks), sizes.slots // MOST_SINK_SHARE)
            if conversation.system and wanted > sinks:
                sinks, sizes = wanted, None
        first = not any(live.session.id == documents.info.id for live in self.live.values())
        if first:
            turns = [turn.key for turn in conversation.turns]
            stored_bytes = int(width * self.engine.geometry.token_bytes * STORED_SHARE)
            self.storing.prepare(documents.info, turns, stored_bytes)
        share = self.host.share(documents.info.id)
        session = Session(self.engine, documents, self.store, self.settings, sizes, share)
        session.tiers.make_room = self.host.open(session.id, session.tiers.disk)
        session.tiers.reserve = lambda nbytes: self._reserve(nbytes, session.id)
        if first:
            self.storing.sweep(documents.info, session.tiers)
        now = time.time()
        kept = KeptConversation(uuid.uuid4().hex[:16], conversation.title, tenant, last_used=now)
        live = Live(
            key, tenant, conversation, session, self.settings.policy, kept, Pins(session, self.options)
        )
        live.policies[self.settings.policy] = session.policy
        live.holds = False
        self.live[live.id] = live
        return live

    def documents(self, conversation: Conversation, tenant: str) -> OpenDocuments | None:
        """The conversation's documents, cut and indexed; None while another thread is at it.

        Raises what that failed with.
        """
        key = conversation.key(self.salt(tenant))
        found = self._documents.get(key)
        if found is None:
            future = self._indexing.get(key)
            if future is None:
                future = self._indexer.submit(self._index, conversation, tenant)
                future.add_done_callback(lambda _: self._on_indexed())
                self._indexing[key] = future
            if not future.done():
                return None
            del self._indexing[key]
            found = self._documents[key] = future.result()
            if len(self._documents) > _KEPT_DOCUMENTS:
                self._documents.popitem(last=False)
        self._documents.move_to_end(key)
        return found

    def _index(self, conversation: Conversation, tenant: str) -> OpenDocuments:
        """On the indexing thread: the engine goes on meanwhile."""
        sources = conversation.sources
        opened = open_documents(
            [source.document for source in sources],
            self.engine,
            self.settings,
            self._encoder,
            frame=prompt_frame(self._tokenizer, conversation.system, bool(sources)),
            salt=self.salt(tenant),
            titled=[source.titled for source in sources],
            tokenizer=self._tokenizer,
        )
        return replace(opened, info=replace(opened.info, tenant=tenant, title=conversation.title))

    def stored_turns(self, live: Live) -> KeptConversation | None:
        """The first turns of the conversation as another one keeps them behind the same documents, or None."""
        turns = [turn.key for turn in live.conversation.turns]
        directory = self.store.directory(live.session.id)
        best: KeptConversation | None = None
        for kept in read_kept(directory):
            shared = kept.shared_turns(turns) if kept.tenant == live.tenant else 0
            if shared > (best.shared_turns(turns) if best is not None else 0):
                best = kept
        if best is None and len(set(live.conversation.since)) > 1:  # documents came in the midst of it
            best = self.storing.origin(live.session.info, turns)
        if best is None:
            return None
        return best.first_turns(best.shared_turns(turns), self.settings.block_tokens)

    # Memory

    @property
    def held_bytes(self) -> int:
        """Device memory that sessions hold or have been granted."""
        return sum(live.arena_bytes for live in self.live.values() if live.holds)

    def grant(self, live: Live) -> bool:
        """Device memory for a session, taken from those that are idle if need be: the least recently used first.

        Sessions with pins give theirs up last. False when those that are answering hold too much.
        """
        if live.holds:
            return True
        need = live.arena_bytes
        if need > self.budget:
            raise BudgetError(
                f"the session needs {need:,} bytes of device memory, the service has {self.budget:,}; raise the "
                "service's device budget, or lower the session's"
            )
        idle = [other for other in self.live.values() if other.holds and not other.busy and other is not live]
        free = self.budget - self.held_bytes
        if free + sum(other.arena_bytes for other in idle) < need:
            return False
        for other in sorted(idle, key=lambda other: (bool(other.pins.blocks), other.used)):
            if free >= need:
                break
            free += other.arena_bytes
            self.park(other)
        live.holds = True
        if live.turns:
            self.resumes += 1
        return True

    def park(self, live: Live) -> None:
        """Take a session's device memory; every block of it is in the tiers."""
        live.session.park()
        live.holds, live.state = False, "parked"
        self.parks += 1
        self._parked.append(live)

    def take_parked(self) -> list[Live]:
        """Sessions parked since this was last asked."""
        parked, self._parked = self._parked, []
        return parked

    # Life

    def touch(self, live: Live) -> None:
        """A conversation has been asked."""
        self._clock += 1
        live.used, live.last_used = self._clock, time.time()

    def note(self, live: Live) -> None:
        """Write down what a conversation keeps, and make room where there are too many."""
        if live.kept.block_ids or live.kept.turns:
            save_kept(self.store.directory(live.session.id), live.kept)
            if len(live.kept.turns) == 1:  # a new conversation
                self.storing.prune(live.session.id, live.session.tiers, self.live)
        idle = sorted((one for one in self.live.values() if not one.busy), key=lambda one: one.used)
        for old in idle[: max(0, len(self.live) - self.options.max_sessions)]:
            self.close(old)

    def refresh(self, live: Live) -> None:
        """The documents have been read behind early turns: these have blocks now, which are noted."""
        tokens, blocks = live.session.kept_turns()
        live.kept = replace(live.kept, token_ids=tuple(tokens), block_ids=tuple(blocks))
        self.note(live)

    def drop(self, live: Live) -> None:
        """Forget a conversation whose session cannot be trusted any more: its turns are computed again."""
        delete_kept(self.store.directory(live.session.id), live.id)
        self.close(live)

    def close(self, live: Live) -> None:
        """Close a session; documents and kept turns stay stored."""
        del self.live[live.id]
        live.session.park()
        live.session.close(forget=False)
        if not any(other.session.id == live.session.id for other in self.live.values()):
            self.host.close(live.session.id)

    def _reserve(self, nbytes: int, session_id: str) -> None:
        """Room on disk for a session: documents that nobody has open go, then those of idle conversations.

        Raises StoreFullError.
        """
        while True:
            try:
                self.store.reserve(nbytes, keep={session_id})
                return
            except StoreFullError:
                idle = [one for one in self.live.values() if not one.busy and one.session.id != session_id]
                if not idle:
                    raise
                self.close(min(idle, key=lambda one: one.used))

    def close_all(self) -> None:
        """Close every session."""
        self._indexer.shutdown(cancel_futures=True)
        for live in list(self.live.values()):
            self.close(live)

    def readers(self, key: str) -> Iterator[Live]:
        """Conversations that are reading these documents now."""
        return (live for live in self.live.values() if live.key == key and live.state == "reading")
