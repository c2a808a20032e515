"""Tool calls that nobody waited for to the end: what the ledger says of them, through a server."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.types import Outcome, RequestState
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AacpSection
from foundation_rt.base.config.settings import ServerConfig, ToolsSection
from foundation_rt.errors import ErrorCode, StructuredError, ToolError
from foundation_rt.features.context import ToolContext
from foundation_rt.kernel.registry.tools import ToolDefinition
from tests.lab.agents.coordinators import record_of, status_of
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.servers.fixture import ServerFixture, ServerPeer
from tests.lab.waiting import until

Tool = Callable[[dict[str, Any], ToolContext], Any]


@pytest.fixture
def store() -> FaultyStore:
    """Return the ledger of the server."""
    return FaultyStore()


@pytest.fixture
@asynccontextmanager
async def rig(
    clock: ManualClock, store: FaultyStore, options: dict[str, Any]
) -> AsyncIterator[ServerFixture]:
    """Yield a server that has a ledger; calls are given a second."""
    config = ServerConfig(
        tools=ToolsSection(default_timeout_ms=1000, cancel_grace_ms=500),
        aacp=AacpSection(**options),
    )
    coordinator = AgentCoordinatorV2(store=store, clock=clock)
    rig = ServerFixture(config, clock, agent_coordinator=coordinator)
    yield rig
    await rig.stop()
    assert not store.is_open


def add(rig: ServerFixture, handler: Tool, **options: Any) -> None:
    rig.server.register(ToolDefinition("work", "", {"type": "object"}), handler, **options)


async def run_id_of(peer: ServerPeer, request_id: int | str) -> str:
    """Return the run id in the answer to a call: TIMEOUT."""
    await until(lambda: peer.answers(request_id), "the call is answered")
    error = peer.outcome(request_id)
    assert error["code"] == "TIMEOUT"
    return str(error["runId"])


async def until_known(
    rig: ServerFixture, run_id: str
) -> tuple[Outcome, Any, StructuredError | None]:
    """Return the status of a call once it is not UNKNOWN."""
    status = await until(
        lambda: status_of(rig.server.agents, run_id),
        "it is known",
        lambda found: found.outcome is not Outcome.UNKNOWN,
    )
    return status.outcome, status.result, status.error


async def assert_unknown(rig: ServerFixture, run_id: str) -> None:
    status = await status_of(rig.server.agents, run_id)
    assert (status.outcome, status.request_id, status.message_id) == (
        Outcome.UNKNOWN,
        run_id,
        None,
    )


@pytest.mark.rule("AACP-28")
async def test_a_call_that_was_answered_in_time_is_not_in_the_ledger(
    rig: ServerFixture, store: FaultyStore
) -> None:
    add(rig, lambda arguments, context: context.run_id, inline=True)
    peer = rig.connect()
    run_id = peer.outcome(peer.start("work"))
    await asyncio.sleep(1)
    assert await rig.server.agents.status(run_id) is None
    assert store.calls["put_request_record"] == 0


@pytest.mark.rule("AACP-28")
@pytest.mark.parametrize("in_thread", [False, True], ids=["coroutine", "thread"])
@pytest.mark.parametrize("end", ["result", "tool error", "exception", "odd"])
async def test_timed_out_call_is_unknown_until_it_ends(
    in_thread: bool, end: str, rig: ServerFixture, store: FaultyStore
) -> None:
    free = threading.Event()

    def finish() -> Any:
        if end == "tool error":
            raise ToolError(ErrorCode.NOT_FOUND, "No city.", {"secret": 1})
        if end == "exception":
            raise RuntimeError("secret")
        return {"late": True} if end == "result" else object()

    def in_a_thread(arguments: dict[str, Any], context: ToolContext) -> Any:
        assert free.wait(20)
        return finish()

    async def coroutine(arguments: dict[str, Any], context: ToolContext) -> Any:
        await asyncio.sleep(1.2)
        return finish()

    add(rig, in_a_thread if in_thread else coroutine)
    peer = rig.connect()
    run_id = await run_id_of(peer, peer.start("work", {"password": "x"}))
    await assert_unknown(rig, run_id)
    free.set()
    if in_thread:
        assert await asyncio.to_thread(rig.server.runtime.engine.wait_idle, 20)
    else:
        await asyncio.sleep(1)
    assert (
        await until_known(rig, run_id)
        == {
            "result": (Outcome.COMPLETED, {"late": True}, None),
            "tool error": (
                Outcome.FAILED,
                None,
                StructuredError(ErrorCode.NOT_FOUND, "No city."),
            ),
            "exception": (
                Outcome.FAILED,
                None,
                StructuredError(ErrorCode.INTERNAL, "The tool failed."),
            ),
            "odd": (Outcome.COMPLETED, None, None),
        }[end]
    )
    record = await record_of(rig.server.agents, run_id)
    assert (record.target_agent_id, record.payload) == ("tool:work", b"null")


@pytest.mark.rule("AACP-28")
async def test_call_that_obeys_its_signal_is_failed(rig: ServerFixture, store: FaultyStore) -> None:
    async def heed(arguments: dict[str, Any], context: ToolContext) -> None:
        await context.abort_signal.wait()
        await asyncio.sleep(arguments.get("after", 0))
        context.abort_signal.raise_if_aborted()

    add(rig, heed)
    peer = rig.connect()
    for after in (0, 60):  # within the grace; or cancelled
        run_id = await run_id_of(peer, peer.start("work", {"after": after}))
        outcome, result, error = await until_known(rig, run_id)
        assert (outcome, result) == (Outcome.FAILED, None)
        assert error is not None
        assert (error.code, error.details) == (ErrorCode.TIMEOUT, {"reason": "aborted"})


@pytest.mark.rule("AACP-28")
@pytest.mark.parametrize("how", ["cancelled", "disconnected", "disconnected, then timed out"])
async def test_cancelled_and_disconnected_calls_are_recorded(
    how: str, rig: ServerFixture, store: FaultyStore
) -> None:
    ids: list[str] = []

    async def slow(arguments: dict[str, Any], context: ToolContext) -> str:
        ids.append(context.run_id)
        await asyncio.sleep(0.4 if "timed" not in how else 1.3)
        return "done"

    engine = rig.server.runtime.engine
    limits = ToolsSection(default_timeout_ms=1000, cancel_grace_ms=10_000)
    engine.config = attrs.evolve(engine.config, tools=limits)
    add(rig, slow)
    peer = rig.connect()
    request_id = peer.start("work")
    await asyncio.sleep(0.1)
    if how == "cancelled":
        peer.notify("notifications/cancelled", {"requestId": request_id})
    else:
        peer.connection.close()
    [run_id] = ids
    await assert_unknown(rig, run_id)
    await asyncio.sleep(0.01)
    await assert_unknown(rig, run_id)
    assert await until_known(rig, run_id) == (Outcome.COMPLETED, "done", None)


@pytest.mark.rule("AACP-28")
@pytest.mark.options(max_payload_bytes=1024)
async def test_large_result_is_dropped_and_call_is_completed(
    rig: ServerFixture, store: FaultyStore
) -> None:
    async def large(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(1.1)
        return "x" * arguments["size"]

    add(rig, large)
    peer = rig.connect()
    for size, kept in ((1022, "x" * 1022), (1023, None)):
        run_id = await run_id_of(peer, peer.start("work", {"size": size}))
        assert await until_known(rig, run_id) == (Outcome.COMPLETED, kept, None)


async def too_late(arguments: dict[str, Any], context: ToolContext) -> str:
    """Return after a second and a bit."""
    await asyncio.sleep(1.1)
    return "late"


@pytest.mark.rule("LOG-30", "AACP-28")
async def test_call_is_known_while_ledger_fails_and_recorded_later(
    rig: ServerFixture, store: FaultyStore
) -> None:
    add(rig, too_late)
    peer = rig.connect()
    store.fail("put_request_record", times=2)
    store.fail("put_request_record", after=True)
    store.fail("mark_completed", after=True)
    run_id = await run_id_of(peer, peer.start("work"))
    await assert_unknown(rig, run_id)
    assert await until_known(rig, run_id) == (Outcome.COMPLETED, "late", None)
    lost = rig.logged("late tool call not recorded")
    assert len(lost) == 4
    assert {each["runId"] for each in lost} == {run_id}
    assert len({each["correlationId"] for each in lost}) == 1


@pytest.mark.rule("AACP-28")
async def test_unreachable_ledger_costs_record_and_no_memory(
    rig: ServerFixture, store: FaultyStore
) -> None:
    add(rig, too_late)
    peer = rig.connect()
    await asyncio.sleep(0.1)
    store.fail("put_request_record", times=1000)
    run_id = await run_id_of(peer, peer.start("work"))
    await asyncio.sleep(10)
    assert await rig.server.agents.status(run_id) is None  # given up
    for _ in range(10):
        peer.start("work")
    await asyncio.sleep(1.5)
    begin = rig.clock.monotonic()
    await rig.server.runtime.stop_background()
    assert rig.clock.monotonic() - begin < 5
    [lost] = rig.logged("late tool calls not recorded")
    assert lost["n"] == 10
    # Now there is no ledger at all.
    await run_id_of(peer, peer.start("work"))
    await asyncio.sleep(0.2)
    assert rig.logged("late tool call not recorded: no ledger is open")


@pytest.mark.rule("AACP-28")
async def test_calls_that_end_with_the_server_are_written_before_the_ledger_is_closed(
    rig: ServerFixture, store: FaultyStore
) -> None:
    add(rig, too_late)
    peer = rig.connect()
    run_id = await run_id_of(peer, peer.start("work"))
    await asyncio.sleep(0.2)
    store.gates["mark_completed"] = asyncio.Event()
    second = await run_id_of(peer, peer.start("work"))
    await asyncio.sleep(0.2)
    stopping = asyncio.ensure_future(rig.server.runtime.stop_background())
    await asyncio.sleep(0.1)
    store.gates.pop("mark_completed").set()
    await stopping
    for each in (run_id, second):
        record = await store.get_request_record(each)
        assert record is not None
        assert record.state is RequestState.COMPLETED


def returns_late(value: Callable[[dict[str, Any]], Any]) -> Tool:
    """Return a handler that returns `value(arguments)` after a second and a bit."""

    async def late(arguments: dict[str, Any], context: ToolContext) -> Any:
        await asyncio.sleep(1.1)
        return value(arguments)

    return late


@pytest.mark.rule("AACP-52")
async def test_outcomes_that_wait_for_a_stalled_ledger_are_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch, rig: ServerFixture, store: FaultyStore
) -> None:
    monkeypatch.setattr("foundation_rt.agents.ledger.coordinator._MAX_BACKLOG_BYTES", 100_000)

    add(rig, returns_late(lambda arguments: arguments["character"] * 30_000))
    peer = rig.connect()
    store.gates["put_request_record"] = asyncio.Event()
    ids = [await run_id_of(peer, peer.start("work", {"character": each})) for each in "abcdef"]
    await asyncio.sleep(0.2)
    store.gates.pop("put_request_record").set()
    kept = [await until_known(rig, each) for each in ids]
    assert {outcome for outcome, _, _ in kept} == {Outcome.COMPLETED}
    assert [result for _, result, _ in kept] == [
        *(character * 30_000 for character in "abc"),
        *(None, None, None),
    ]
    # What was written gives its room back.
    run_id = await run_id_of(peer, peer.start("work", {"character": "g"}))
    assert await until_known(rig, run_id) == (Outcome.COMPLETED, "g" * 30_000, None)


@pytest.mark.rule("AACP-52")
async def test_a_note_of_a_late_call_is_dropped_and_logged_where_too_many_wait(
    monkeypatch: pytest.MonkeyPatch, rig: ServerFixture, store: FaultyStore
) -> None:
    monkeypatch.setattr("foundation_rt.agents.ledger.coordinator._MAX_BACKLOG", 2)

    add(rig, too_late)
    peer = rig.connect()
    store.gates["put_request_record"] = asyncio.Event()
    first, second = [await run_id_of(peer, peer.start("work")) for _ in range(2)]
    await asyncio.sleep(0.2)
    assert len(rig.logged("late tool call not recorded: too many wait")) == 2
    store.gates.pop("put_request_record").set()
    assert await until_known(rig, first) == (Outcome.COMPLETED, "late", None)
    assert await rig.server.agents.status(second) is None


@pytest.mark.rule("AACP-52")
async def test_arguments_of_late_calls_do_not_wait_for_a_stalled_ledger(
    rig: ServerFixture, store: FaultyStore
) -> None:
    class Large(dict[str, Any]):
        """Arguments to which there can be weak references."""

    seen: list[weakref.ref[Any]] = []

    async def late(arguments: dict[str, Any], context: ToolContext) -> None:
        large = arguments["large"] = Large()
        seen.append(weakref.ref(large))
        del large
        await asyncio.sleep(1.1)

    add(rig, late)
    peer = rig.connect()
    store.gates["put_request_record"] = asyncio.Event()
    run_id = await run_id_of(peer, peer.start("work"))
    await asyncio.sleep(0.2)
    gc.collect()
    assert [each() for each in seen] == [None]
    await assert_unknown(rig, run_id)
    store.gates.pop("put_request_record").set()
    assert await until_known(rig, run_id) == (Outcome.COMPLETED, None, None)


@pytest.mark.rule("AACP-28")
async def test_late_result_whose_class_raises_is_dropped_and_call_completed(
    rig: ServerFixture, store: FaultyStore
) -> None:
    @attrs.frozen
    class Hostile:
        value: int = 1

        def __getattribute__(self, name: str) -> Any:
            raise SystemExit(3)

    add(rig, returns_late(lambda arguments: Hostile()))
    run_id = await run_id_of(peer := rig.connect(), peer.start("work"))
    assert await until_known(rig, run_id) == (Outcome.COMPLETED, None, None)
