"""The service, with tiny random models: conversations found again, memory shared, fair, and nothing lost."""

from __future__ import annotations

import asyncio
import itertools
import time

import numpy as np
import pytest
from asking import (
    TEXT,
    WIDTH,
    ask,
    ask_all,
    document,
    listen,
    request,
    start_service,
    tiny_engine,
    use_tiny_models,
    wait_until,
)

from tiny_models import plain_answer
from zerolayer.documents.reader import parse_document
from zerolayer.documents.stream import build_stream, prompt_frame
from zerolayer.errors import BudgetError, OverloadedError, UnknownNameError, UsageError
from zerolayer.server.options import ServiceOptions
from zerolayer.server.turns import (
    ContextHint,
    RtlsOptions,
    Sampling,
    TextDelta,
    TextPart,
    Thresholds,
)

SHORT = TEXT[:160]
FEE, TERM = "What is the fee?", "And what is the term?"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROLAYER_HOME", str(tmp_path))
    use_tiny_models(monkeypatch)
    return tmp_path


@pytest.fixture
def started(home):
    """Starts services, and closes them at the end."""
    services = []

    def start(options: ServiceOptions | None = None, **settings):
        services.append(start_service(options, **settings))
        return services[-1]

    yield start
    for service in services:
        service.close()


def plain_text(*said: str) -> str:
    """What transformers answers to the same prompt, greedily: the document, then questions and answers in turn."""
    engine, plain = tiny_engine()
    frame = prompt_frame(engine.tokenizer)
    stream = build_stream([parse_document(SHORT.encode(), "d")], engine.tokenizer, frame, WIDTH, "")
    prompt = frame.question(said[0])
    for answer, question in zip(said[1::2], said[2::2], strict=True):
        prompt += answer + frame.follow_up(question)
    ids = [*stream.token_ids, *engine.tokenizer(prompt, add_special_tokens=False)["input_ids"]]
    answer = plain_answer(plain, np.asarray(ids), 12)
    return str(engine.tokenizer.decode(answer, skip_special_tokens=True))


# Conversations


def test_the_answers_of_a_conversation_are_the_plain_models(started):
    service = started(policy="lru", device_budget="100%", attend_blocks=64)  # which has all of it in sight
    first = ask(service, request([document(SHORT), FEE]))
    second = ask(service, request([document(SHORT), FEE], first.text, TERM))
    assert first.text == plain_text(FEE)
    assert second.text == plain_text(FEE, first.text, TERM)


def test_a_follow_up_computes_only_what_is_new(started):
    service = started()
    first = ask(service, request([document(), FEE]))
    second = ask(service, request([document(), FEE], first.text, TERM))
    again = ask(service, request([document(), FEE], first.text, TERM, second.text, "Is that all?"))
    stored = first.usage.cache_creation_input_tokens // WIDTH * WIDTH
    assert first.usage.cache_read_input_tokens == 0 and stored > len(TEXT) // 2
    for turn, question in ((second, TERM), (again, "Is that all?")):
        computed = turn.usage.input_tokens + turn.usage.cache_creation_input_tokens
        assert turn.usage.cache_read_input_tokens >= stored - WIDTH
        assert computed <= len(question) + 40, "the question, its frame, and what filled no block"
        assert turn.metrics["discarded_tokens_count"] == 0
    assert first.metrics["session_id"] == second.metrics["session_id"] == again.metrics["session_id"]
    assert [turn.metrics["turn"] for turn in (first, second, again)] == [0, 1, 2]


def test_usage_adds_up_to_the_whole_prompt(started):
    service = started()
    asked = [request([document(), FEE])]
    first = ask(service, asked[0])
    asked.append(request([document(), FEE], first.text, TERM))
    second = ask(service, asked[1])
    for turn, one in ((first, asked[0]), (second, asked[1])):
        usage = turn.usage
        total = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        assert total == service.count_tokens(one)
        assert turn.started is not None and turn.started.usage.input_tokens == usage.input_tokens
        assert usage.output_tokens == 12


def test_a_new_conversation_over_known_documents_prefills_nothing_of_them(started):
    service = started()
    first = ask(service, request([document(), FEE]))
    other = ask(service, request([document(), TERM]))
    assert other.metrics["session_id"] != first.metrics["session_id"]
    assert other.usage.cache_creation_input_tokens < 64 < other.usage.cache_read_input_tokens
    assert service.totals().prefilled_tokens == service.sessions()[0].document_tokens


def test_a_regenerated_answer_reuses_the_turns_before_it(started):
    service = started()
    first = ask(service, request([document(), FEE]))
    asked = request([document(), FEE], first.text, TERM)
    second = ask(service, asked)
    ask(service, request([document(), FEE], first.text, TERM, second.text, "Is that all?"))
    again = ask(service, asked)
    edited = ask(service, request([document(), FEE], "Five.", TERM))
    assert again.finished is not None and second.finished is not None
    assert again.metrics["recomputed_tokens_count"] < WIDTH * 2
    assert edited.usage.cache_read_input_tokens > 300 and edited.finished is not None


def test_documents_that_come_later_extend_what_is_stored(started):
    service = started()
    first = ask(service, request([document(), FEE]))
    more = document("A side letter: the fee is waived in June. " * 4, "letter.txt")
    second = ask(service, request([document(), FEE], first.text, [more, "Is the fee waived?"]))
    assert second.finished is not None
    assert second.usage.cache_read_input_tokens >= len(TEXT) - 2 * WIDTH
    assert second.usage.cache_creation_input_tokens < 400


@pytest.mark.parametrize("system", ["", "Answer in one word. ", "Rule: be brief. " * 300])
def test_conversations_without_documents(started, system):
    service = started()
    system_parts = (TextPart(system),) if system else ()
    first = ask(service, request("Hello there, who are you?", system=system_parts))
    second = ask(service, request("Hello there, who are you?", first.text, "Really?", system=system_parts))
    assert second.finished is not None and second.metrics["session_id"] == first.metrics["session_id"]
    assert second.usage.cache_read_input_tokens > 0


def test_how_an_answer_begins_can_be_given(started):
    service = started()
    begun = ask(service, request([document(), FEE], "The fee is"))
    after = ask(service, request([document(), FEE], "The fee is" + begun.text, TERM))
    assert after.metrics["session_id"] == begun.metrics["session_id"]
    assert after.metrics["recomputed_tokens_count"] < WIDTH


@pytest.mark.parametrize("messages", [(), ("",), ("  ",)])
def test_messages_that_ask_nothing_are_refused(started, messages):
    with pytest.raises(UsageError, match="messages"):
        started().submit(request(*messages))


# Sharing one engine


def test_turns_at_once_get_the_answers_that_they_get_alone(home, started):
    asked = [request([document(TEXT + f"Copy {n}."), FEE], max_tokens=20) for n in range(4)]
    together = ask_all(started(), asked)
    alone = []
    for number, one in enumerate(asked):
        (home / str(number)).mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ZEROLAYER_HOME", str(home / str(number)))
            service = start_service()
            alone.append(ask(service, one))
            service.close()
    assert [turn.text for turn in together] == [turn.text for turn in alone]


def test_reading_a_long_document_does_not_starve_an_answer(started):
    service = started()
    ask(service, request([document(), FEE]))
    long = request([document(TEXT * 12, "long"), FEE])

    async def both():
        reading = asyncio.create_task(listen(service.submit(long)))
        await asyncio.sleep(0.05)
        answered = await listen(service.submit(request([document(), TERM])))
        done = reading.done()
        return answered, done, await reading

    answered, done, read = asyncio.run(both())
    assert answered.finished is not None and read.finished is not None
    assert not done, "the answer came while the document was being read"


def test_sessions_that_do_not_fit_give_their_memory_to_each_other(started):
    options = ServiceOptions(device_budget="80KiB", conversation_tokens=64, least_host_bytes=0)
    service = started(options, device_budget="40%")
    first = ask(service, request([document(), FEE]))
    others = [ask(service, request([document(TEXT + "x" * n), FEE])) for n in (8, 16, 24)]
    again = ask(service, request([document(), FEE], first.text, TERM))
    totals = service.totals()
    assert all(turn.finished for turn in others)
    assert totals.parks >= 1 and totals.device_bytes <= totals.device_budget_bytes
    assert again.usage.cache_read_input_tokens > len(TEXT) - 64
    assert totals.discarded_tokens == 0 and totals.corrupt_blocks == 0


def test_a_session_larger_than_the_whole_budget_says_so(started):
    service = started(ServiceOptions(device_budget="1KiB", least_host_bytes=0))
    told = ask(service, request([document(), FEE]))
    assert isinstance(told.error, BudgetError)
    assert ask(service, request("Hello?")).error is not None and service.ready().ok


def test_more_turns_than_may_wait_are_refused(started):
    service = started(ServiceOptions(device_budget="64MiB", max_waiting=2, max_running=1, least_host_bytes=0))
    long = request([document(TEXT * 6, "long"), FEE])
    turns = [service.submit(long)]
    wait_until(lambda: service.totals().running == 1)
    turns += [service.submit(long) for _ in range(2)]
    with pytest.raises(OverloadedError, match="at most 2 may wait"):
        service.submit(long)
    for turn in turns:
        turn.cancel()
    wait_until(lambda: service.totals().queue_length == service.totals().running == 0)
    assert service.totals().requests["refused"] == 1


# Answers


def test_pieces_carry_the_numbers_of_their_tokens(started):
    told = ask(started(), request([document(), FEE], max_tokens=24))
    spans = [(delta.token_start, delta.token_end) for delta in told.deltas]
    assert spans and all(start < end for start, end in spans)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(spans))
    assert spans[0][0] == 0 and spans[-1][1] == told.usage.output_tokens


def test_a_stop_sequence_cuts_exactly_and_the_conversation_goes_on(started):
    service = started(knit_share=0.0)
    ask(service, request([document(), FEE]))  # from now on the document is read back
    whole = ask(service, request([document(), FEE], max_tokens=24)).text
    at = next(
        n for n in range(3, len(whole) - 3) if whole.index(whole[n : n + 3]) == n and whole[n] != "\ufffd"
    )
    stop = whole[at : at + 3]
    sampling = Sampling(max_tokens=24, stop_sequences=("never this", stop))
    cut = ask(service, request([document(), FEE], sampling=sampling))
    assert cut.text == whole[:at]
    assert cut.finished.stop_reason == "stop_sequence" and cut.finished.stop_sequence == stop
    after = ask(service, request([document(), FEE], cut.text, TERM))
    assert after.metrics["session_id"] == cut.metrics["session_id"]


def test_sampling_is_drawn_by_its_seed(started):
    service = started(knit_share=0.0)

    def drawn(seed: int, **more) -> str:
        sampling = Sampling(max_tokens=16, temperature=1.0, seed=seed, **more)
        return ask(service, request([document(), FEE], sampling=sampling)).text

    drawn(0)  # from now on the document is read back
    assert drawn(1) == drawn(1)
    assert len({drawn(seed) for seed in range(4)}) > 1
    greedy = ask(service, request([document(), FEE], max_tokens=16)).text
    assert drawn(5, top_k=1) == drawn(6, top_p=1e-6) == greedy


def test_an_answer_may_be_longer_than_the_place_it_starts_with(started):
    told = ask(started(device_budget="80%"), request([document(), FEE], max_tokens=120))
    assert told.usage.output_tokens == 120 and told.finished.stop_reason == "max_tokens"
    assert told.metrics["status"] == "active" and told.metrics["discarded_tokens_count"] == 0


def test_a_client_that_leaves_stops_its_turn_and_no_other(started):
    service = started()

    async def leave():
        turn = service.submit(request([document(), FEE], max_tokens=400))
        events = turn.events()
        async for event in events:
            if isinstance(event, TextDelta):
                break
        left = time.perf_counter()
        await events.aclose()
        while service.totals().running:
            await asyncio.sleep(0.01)
        return time.perf_counter() - left

    assert asyncio.run(leave()) < 5.0
    assert service.totals().requests["cancelled"] == 1
    told = ask(service, request([document(), FEE]))
    assert told.finished is not None and told.metrics["discarded_tokens_count"] == 0
    view = service.sessions()[0]
    assert view.turns == 2 and view.conversation_tokens > 0, "only the second turn is kept"


def test_citations_name_document_and_characters(started):
    told = ask(started(), request([document(citations=True), document("Nothing here at all.", "b"), FEE]))
    assert told.cited and all(cited.document_index == 0 and cited.page == 0 for cited in told.cited)
    for cited in told.cited:
        assert cited.cited_text == TEXT[cited.char_start : cited.char_end]
    assert not ask(started(), request([document(), FEE])).cited


# Options of a request


def test_policies_are_switched_by_request(started):
    service = started(device_budget="40%")
    first = ask(service, request([document(), FEE], rtls=RtlsOptions(policy="static-window")))
    second = ask(
        service, request([document(), FEE], first.text, TERM, rtls=RtlsOptions(preset="low_latency"))
    )
    third = ask(service, request([document(), FEE], first.text, TERM, second.text, FEE))
    assert [turn.metrics["policy"] for turn in (first, second, third)] == [
        "static-window",
        "low_latency",
        "graded",
    ]
    with pytest.raises(UnknownNameError, match="static-window"):
        service.submit(request("Hello", rtls=RtlsOptions(policy="nope")))
    degraded = ask(service, request("Hi", rtls=RtlsOptions(policy="lru", thresholds=Thresholds())))
    assert degraded.metrics["status"] == "degraded" and "does not grade" in degraded.metrics["reason"]
    disabled = ask(service, request("Hi", rtls=RtlsOptions(enabled=False)))
    assert disabled.metrics["status"] == "disabled" and disabled.metrics["reason"]


def test_thresholds_move_the_grades_of_a_session(started):
    service = started()
    told = ask(service, request([document(), FEE]))
    session = told.metrics["session_id"]
    service.set_thresholds(Thresholds(0.9, 0.8, 0.7), session)
    strict = service.sessions()[0]
    service.set_thresholds(Thresholds(0.03, 0.02, 0.01), session)
    lax = service.sessions()[0]
    assert strict.thresholds == {"p0_min": 0.9, "p1_min": 0.8, "p2_min": 0.7}
    assert strict.grade_blocks["P3"] > lax.grade_blocks["P3"]
    with pytest.raises(UnknownNameError):
        service.set_thresholds(Thresholds(), session, tenant="somebody else")


def test_hints_pin_every_occurrence_while_they_live(started):
    service = started(device_budget="60%")
    hints = (ContextHint("The insurance"), ContextHint("zebra"), ContextHint(start=0, end=10_000_000))
    told = ask(service, request([document(), FEE], hints=hints))
    by_text = {report["text"]: report for report in told.metrics["hints"]}
    pinned = by_text["The insurance"]
    assert pinned["status"] == "pinned" and pinned["occurrences"] == TEXT.count("The insurance")
    assert by_text["zebra"]["status"] == "not_found" and "nowhere" in by_text["zebra"]["reason"]
    assert by_text[""]["status"] == "over_budget" and "blocks" in by_text[""]["reason"]
    session = told.metrics["session_id"]
    said = [told.text]
    for question in ("What is the audit?", "What is the warranty?", "What is the law?"):
        messages: list = [[document(), FEE]]
        for n, text in enumerate(said):
            messages += [text, ("What is the audit?", "What is the warranty?", "What is the law?")[n]]
        turn = ask(service, request(*messages))
        said.append(turn.text)
        blocks = service.blocks(session)
        assert all(blocks[b].grade == "P0" and blocks[b].tier == "device" for b in pinned["blocks"]), question
        assert all("hint" in blocks[b].why for b in pinned["blocks"])
    view = service.sessions()[0]
    assert 0 < view.pin_blocks <= view.pin_blocks_most and view.pins[0].text == "The insurance"


def test_a_hint_ends_with_its_time_to_live(started):
    service = started()
    first = ask(service, request([document(), FEE], hints=(ContextHint("The audit", ttl_s=0.2),)))
    assert first.metrics["hints"][0]["status"] == "pinned"
    time.sleep(0.3)
    second = ask(service, request([document(), FEE], first.text, TERM))
    assert [(report["text"], report["status"]) for report in second.metrics["hints"]] == [
        ("The audit", "expired")
    ]
    assert service.sessions()[0].pin_blocks == 0


def test_cache_control_is_a_floor_of_p1_until_it_ends(started):
    service = started()
    told = ask(service, request([document(cache_ttl_s=300.0), FEE]))
    blocks = service.blocks(told.metrics["session_id"])
    assert {block.grade for block in blocks if block.part == "document"} <= {"P0", "P1"}
    view = service.sessions()[0]
    assert view.expires is not None and 200 < view.expires - time.time() <= 300


# Tenants


def test_tenants_never_share_kv_unless_told_to(started):
    service = started()
    ask(service, request([document(), FEE], tenant="a"))
    other = ask(service, request([document(), FEE], tenant="b"))
    assert other.usage.cache_read_input_tokens == 0
    assert [view.tenant for view in service.sessions("a")] == ["a"]
    ids = [{block.id for block in service.blocks(view.id)} for view in service.sessions()]
    assert not ids[0] & ids[1]
    with pytest.raises(UnknownNameError) as caught:
        service.blocks(service.sessions("a")[0].id, tenant="b")
    assert service.sessions("a")[0].id not in str(caught.value).split("known:")[1]


def test_tenants_share_where_the_service_is_told_to(started):
    service = started(ServiceOptions(device_budget="64MiB", share_tenants=True, least_host_bytes=0))
    ask(service, request([document(), FEE], tenant="a"))
    other = ask(service, request([document(), FEE], tenant="b"))
    assert other.usage.cache_read_input_tokens > len(TEXT) - 64


def test_a_tenants_disk_budget_bounds_its_documents(started):
    options = ServiceOptions(device_budget="64MiB", tenant_disk_budget="200KiB", least_host_bytes=0)
    service = started(options)
    for number in range(4):
        told = ask(service, request([document(f"{number} " + TEXT), FEE], tenant="a"))
        assert told.finished is not None or isinstance(told.error, BudgetError)
    large = ask(service, request([document(TEXT * 20), FEE], tenant="a"))
    assert isinstance(large.error, BudgetError) and "tenant" in str(large.error)
    assert ask(service, request([document(), FEE], tenant="b")).finished is not None


# Restarts


def test_after_a_restart_documents_and_turns_come_from_disk(started):
    service = started()
    first = ask(service, request([document(), FEE], max_tokens=40))
    second = ask(service, request([document(), FEE], first.text, TERM, max_tokens=40))
    service.close()
    service = started()
    third = ask(service, request([document(), FEE], first.text, TERM, second.text, "Is that all?"))
    totals = service.totals()
    assert totals.prefilled_tokens == 0 and totals.corrupt_blocks == 0
    assert third.usage.cache_read_input_tokens >= first.usage.cache_creation_input_tokens
    assert third.metrics["recomputed_tokens_count"] < WIDTH


def test_views_show_what_is_there(started):
    service = started()
    told = ask(service, request([document(), FEE]))
    session = told.metrics["session_id"]
    blocks = service.blocks(session)
    assert "".join(b.text for b in blocks if b.part == "document").startswith(TEXT[:40])
    assert {b.tier for b in blocks} <= {"device", "host", "disk"} and any(b.history for b in blocks)
    heat = service.heat(session)
    assert heat is not None and len(heat.cells) == heat.side and heat.hottest > 0
    totals = service.totals()
    assert totals.turns == 1 and totals.requests["finished"] == 1
    assert totals.tier_bytes["device"] == totals.device_bytes > 0
    intent = service.predict_intent(session)
    assert 1 <= len(intent.needs) <= 3 and sum(
        need.probability for need in intent.needs
    ) + intent.other == pytest.approx(1)
    assert service.prefetch_intent(session).needs == intent.needs
    assert {view.name for view in service.policies()} >= {"graded", "static-window", "low_latency"}
    kinds = [event.kind for event in service.events()]
    assert kinds[0] == "start" and "turn" in kinds and "read" in kinds
    assert service.events(since=service.events()[-1].id) == []
    model = service.models()[0]
    assert model.context_window == 512 and model.id
