"""Coordinators with a ledger: what callers and handlers see, whatever happens in between."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from contextvars import ContextVar
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.agents.errors import AgentCycleError, AgentNotFoundError
from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.errors import (
    OutcomeUnknownError,
    RequestConflictError,
    RequestFailedError,
)
from foundation_rt.agents.ledger.retransmitter import RetransmissionPolicy
from foundation_rt.agents.ledger.types import Claiming, Envelope, MessageType, Outcome, RequestState
from foundation_rt.agents.local import AgentCoordinator
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.transports import TransportError
from foundation_rt.base.abort import AbortSignal
from foundation_rt.errors import AbortError, ErrorCode, StructuredError, ToolError, UsageError
from tests.lab.agents.coordinators import CoordinatorHarness, record_of, run, status_of
from tests.lab.agents.faulty_store import FaultyStore
from tests.lab.agents.loopback import LoopbackNetwork, LoopbackTransport
from tests.lab.sizes import examples
from tests.lab.waiting import until


async def echo(message: AgentMessage, context: AgentContext) -> Any:
    """Says what it was told, and by whom."""
    return {"type": message.type, "payload": message.payload, "from": message.source_agent_id}


class Gate:
    """A handler that waits until it is let go, and notes what it was given.

    Attributes:
        seen: payloads, in the order in which they were begun.
        reasons: why abort signals fired.
    """

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.reasons: list[str] = []
        self.begun = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, message: AgentMessage, context: AgentContext) -> Any:
        self.seen.append(message.payload)
        self.begun.set()
        try:
            await self.opened.wait()
        finally:
            if context.abort_signal.reason is not None:
                self.reasons.append(context.abort_signal.reason)
        return message.payload


async def unknown(coordinator: AgentCoordinatorV2, agent_id: str, payload: Any, **more: Any) -> str:
    """Send a request whose outcome is not waited for; return its id."""
    with pytest.raises(OutcomeUnknownError) as caught:
        await coordinator.send_request(agent_id, payload, timeout_ms=1, **more)
    return caught.value.request_id


async def outcome_of(coordinator: AgentCoordinatorV2, key: str) -> Outcome:
    return (await status_of(coordinator, key)).outcome


async def until_finished(coordinator: AgentCoordinatorV2, *keys: str) -> None:
    """Let time pass until these have an outcome."""
    for key in keys:
        await until(
            lambda key=key: outcome_of(coordinator, key),
            f"{key} is finished",
            lambda outcome: outcome is not Outcome.UNKNOWN,
        )


# -- results and errors ---------------------------------------------------------------------------


@pytest.mark.rule("AACP-06", "AACP-20", "AACP-26", "AACP-44")
async def test_request_returns_result_and_status_agrees(harness: CoordinatorHarness) -> None:
    async with harness.coordinator() as agents:
        agents.register_agent("a", echo)
        message = AgentMessage("greet", {"to": ["world", None]})
        result = await agents.send_request("a", message, request_id="r1")
        assert result == {"type": "greet", "payload": {"to": ["world", None]}, "from": "host"}
        assert (await agents.send_request("a", 5))["type"] == "message"
        status = await status_of(agents, "r1")
        assert (status.request_id, status.message_id) == ("r1", None)
        assert (status.outcome, status.result, status.error) == (
            Outcome.COMPLETED,
            result,
            None,
        )
        record = await record_of(agents, "r1")
        assert record.payload == b'{"payload":{"to":["world",null]},"type":"greet"}'
        assert await agents.status("r2") is None


class Odd(BaseException):
    """Neither an Exception nor one that asyncio knows."""


FAILURES = {
    "tool error": (
        ToolError(ErrorCode.NOT_FOUND, "No such city.", {"city": "Atlantis"}),
        StructuredError(ErrorCode.NOT_FOUND, "No such city.", {"city": "Atlantis"}),
    ),
    "exception": (RuntimeError("secret"), None),
    "exit": (SystemExit(3), None),
    "interrupt": (KeyboardInterrupt(), None),
    "odd": (Odd("secret"), None),
    "cancelled by itself": (asyncio.CancelledError(), None),
    "abort of something else": (AbortError("deadline"), None),
}


@pytest.mark.rule("AACP-26")
@pytest.mark.parametrize("name", FAILURES)
async def test_every_exception_of_handler_is_an_outcome(
    name: str, harness: CoordinatorHarness
) -> None:
    raised, expected = FAILURES[name]
    expected = expected or StructuredError(ErrorCode.INTERNAL, "The agent failed.")

    async def fail(message: AgentMessage, context: AgentContext) -> None:
        raise raised

    async with harness.coordinator() as agents:
        agents.register_agent("a", fail)
        agents.register_agent("b", echo)
        for _ in range(2):  # the second time it is the recorded one
            with pytest.raises(RequestFailedError) as caught:
                await agents.send_request("a", 1, request_id="r1")
            assert caught.value.to_structured() == expected
            assert caught.value.request_id == "r1"
        assert await outcome_of(agents, "r1") is Outcome.FAILED
        assert (await record_of(agents, "r1")).epoch == 1
        assert (await agents.send_request("b", 1))["payload"] == 1


def details_that_json_cannot_say() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["me"] = circle
    return circle


@pytest.mark.rule("AACP-26", "AACP-80")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ToolError(ErrorCode.NOT_FOUND, "x" * 9000), "error_too_large"),
        (ToolError(ErrorCode.NOT_FOUND, "x", {"much": "x" * 9000}), "error_too_large"),
        (ToolError(ErrorCode.NOT_FOUND, "x", {"who": object()}), "details_not_serializable"),
        (ToolError(ErrorCode.NOT_FOUND, "x\ud800"), "details_not_serializable"),
        (
            ToolError(ErrorCode.NOT_FOUND, "x", details_that_json_cannot_say()),
            "details_not_serializable",
        ),
    ],
    ids=["message", "details", "object", "surrogate", "circle"],
)
async def test_error_that_ledger_cannot_keep_keeps_its_code(
    error: ToolError, reason: str, harness: CoordinatorHarness
) -> None:
    async def fail(message: AgentMessage, context: AgentContext) -> None:
        raise error

    async with harness.coordinator() as agents:
        agents.register_agent("a", fail)
        with pytest.raises(RequestFailedError) as caught:
            await agents.send_request("a", 1)
        assert caught.value.code is ErrorCode.NOT_FOUND
        assert caught.value.details == {"reason": reason}
        assert caught.value.message.startswith("x")
        assert len(caught.value.message) <= 1024


@pytest.mark.rule("AACP-165")
@pytest.mark.parametrize(("number", "name"), [(math.nan, "NaN"), (-math.inf, "infinite")])
async def test_nan_is_refused_with_its_place(
    number: float, name: str, harness: CoordinatorHarness
) -> None:
    async def answer(message: AgentMessage, context: AgentContext) -> Any:
        return {"none": None, "readings": [1.5, {"x": number}]}

    async with harness.coordinator() as agents:
        agents.register_agent("a", answer)
        with pytest.raises(RequestFailedError) as failed:
            await agents.send_request("a", None)
        assert f": $.readings[1].x is {name}." in failed.value.message
        assert (failed.value.details or {})["reason"] == "result_not_serializable"
        for send in (agents.send_request, agents.send_reliable_message):
            with pytest.raises(ToolError) as refused:
                await send("a", {"a": number})
            assert f": $.a is {name}." in refused.value.message
            assert (refused.value.details or {})["reason"] == "payload_not_serializable"


@pytest.mark.rule("AACP-80")
async def test_result_too_large_fails_and_message_too_large_is_refused(
    harness: CoordinatorHarness,
) -> None:
    async def answer(message: AgentMessage, context: AgentContext) -> Any:
        return object() if message.payload == "odd" else "x" * 150

    async with harness.coordinator(aacp={"max_payload_bytes": 150}) as agents:
        agents.register_agent("a", answer)
        for payload, reason in (("odd", "result_not_serializable"), (1, "result_too_large")):
            with pytest.raises(RequestFailedError) as failed:
                await agents.send_request("a", payload)
            assert failed.value.code is ErrorCode.INTERNAL
            assert failed.value.details is not None
            assert failed.value.details["reason"] == reason
        for send in (agents.send_request, agents.send_reliable_message):
            for payload, code in (
                (object(), ErrorCode.INVALID_ARGUMENT),
                ({1: 2}, ErrorCode.INVALID_ARGUMENT),
                ("x" * 150, ErrorCode.RESOURCE_EXHAUSTED),
            ):
                with pytest.raises(ToolError) as refused:
                    await send("a", payload)
                assert refused.value.code is code
        assert store_of(agents).calls["append"] == 2


@pytest.mark.rule("AACP-80")
async def test_message_too_large_for_transport_is_refused(harness: CoordinatorHarness) -> None:
    async def repeat(message: AgentMessage, context: AgentContext) -> str:
        return "x" * int(message.payload)

    network = LoopbackNetwork()
    narrow = LoopbackTransport(network, max_envelope_bytes=9_000)
    network.ends.append(narrow)
    async with (
        harness.coordinator("one", transport=network.end()) as one,
        harness.coordinator("two", transport=narrow) as two,
    ):
        two.register_agent("b", repeat)
        assert await one.send_request("b", 3) == "xxx"
        with pytest.raises(RequestFailedError) as failed:
            await one.send_request("b", 1_000)
        assert failed.value.details is not None
        assert failed.value.details["reason"] == "result_too_large"
        with pytest.raises(ToolError) as refused:
            await two.send_request("host", "x" * 1_000)
        assert refused.value.code is ErrorCode.RESOURCE_EXHAUSTED


def store_of(coordinator: AgentCoordinatorV2) -> FaultyStore:
    assert isinstance(coordinator.store, FaultyStore)
    return coordinator.store


@pytest.mark.rule("AACP-62", "AACP-42")
@pytest.mark.parametrize(
    ("target", "options", "code"),
    [
        ("nobody", {}, ErrorCode.NOT_FOUND),
        ("", {}, ErrorCode.INVALID_ARGUMENT),
        (" a", {}, ErrorCode.INVALID_ARGUMENT),
        (5, {}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"request_id": ""}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"request_id": "-"}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"request_id": "r1@" + "0" * 32}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"request_id": "r1\n"}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"request_id": "x" * 129}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"request_id": 5}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"timeout_ms": 0}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"timeout_ms": 2**39}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"ttl_ms": 0}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"ttl_ms": 2**70}, ErrorCode.INVALID_ARGUMENT),
        ("a", {"ttl_ms": 1.5}, ErrorCode.INVALID_ARGUMENT),
    ],
)
async def test_invalid_message_is_refused_before_it_is_entered(
    target: Any, options: dict[str, Any], code: ErrorCode, harness: CoordinatorHarness
) -> None:
    async with harness.coordinator() as agents:
        agents.register_agent("a", echo)
        with pytest.raises(ToolError) as refused:
            await agents.send_request(target, 1, **options)
        assert refused.value.code is code
        assert store_of(agents).calls["append"] == 0


# -- one id, one request --------------------------------------------------------------------------


@pytest.mark.rule("AACP-01", "AACP-12", "AACP-21")
async def test_repeated_request_is_executed_once_and_answered_alike(
    harness: CoordinatorHarness,
) -> None:
    gate = Gate()
    async with harness.coordinator() as agents:
        agents.register_agent("a", gate)
        tasks = [
            asyncio.ensure_future(agents.send_request("a", {"n": 1}, request_id="r1"))
            for _ in range(3)
        ]
        await gate.begun.wait()
        tasks.append(asyncio.ensure_future(agents.send_request("a", {"n": 1}, request_id="r1")))
        await asyncio.sleep(0.1)
        assert await outcome_of(agents, "r1") is Outcome.UNKNOWN
        gate.opened.set()
        assert await asyncio.gather(*tasks) == [{"n": 1}] * 4
        assert await agents.send_request("a", {"n": 1}, request_id="r1") == {"n": 1}
        assert gate.seen == [{"n": 1}]


@pytest.mark.rule("AACP-60")
async def test_other_request_of_same_id_is_refused(harness: CoordinatorHarness) -> None:
    gate = Gate()
    async with harness.coordinator() as agents:
        agents.register_agent("a", gate)
        agents.register_agent("b", echo)
        first = asyncio.ensure_future(agents.send_request("a", 1, request_id="r1"))
        await gate.begun.wait()
        for target, payload in (("a", 2), ("b", 1)):
            with pytest.raises(RequestConflictError) as caught:
                await agents.send_request(target, payload, request_id="r1")
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
            assert caught.value.details is not None
            assert caught.value.details["reason"] == "request_id_conflict"
        gate.opened.set()
        assert await first == 1
        with pytest.raises(RequestConflictError):
            await agents.send_request("a", 2, request_id="r1")
        assert gate.seen == [1]


@pytest.mark.rule("AACP-60")
async def test_refused_request_never_gets_result_of_other(harness: CoordinatorHarness) -> None:
    gate = Gate()
    async with harness.coordinator() as agents:
        agents.register_agent("a", gate)
        first = asyncio.ensure_future(agents.send_request("a", 1, request_id="r1"))
        await gate.begun.wait()
        entering = store_of(agents).gates["append"] = asyncio.Event()
        second = asyncio.ensure_future(agents.send_request("a", 2, request_id="r1"))
        await asyncio.sleep(0.01)
        gate.opened.set()
        assert await first == 1
        await asyncio.sleep(0.01)
        entering.set()
        with pytest.raises(RequestConflictError):
            await second


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-06", "AACP-26")
async def test_timed_out_request_is_unknown_and_known_later(harness: CoordinatorHarness) -> None:
    gate = Gate()
    async with harness.coordinator(aacp={"request_timeout_ms": 500}) as agents:
        agents.register_agent("a", gate)
        before = harness.clock.monotonic()
        with pytest.raises(OutcomeUnknownError) as caught:
            await agents.send_request("a", 1)
        assert harness.clock.monotonic() - before == pytest.approx(0.5, abs=0.01)
        request_id = caught.value.request_id
        assert caught.value.code is ErrorCode.TIMEOUT
        assert caught.value.details == {
            "reason": "outcome_unknown",
            "outcome": "UNKNOWN",
            "requestId": request_id,
        }
        status = await status_of(agents, request_id)
        assert (status.outcome, status.result) == (Outcome.UNKNOWN, None)
        gate.opened.set()
        await until_finished(agents, request_id)
        status = await status_of(agents, request_id)
        assert (status.outcome, status.result) == (Outcome.COMPLETED, 1)
        assert await agents.send_request("a", 1, request_id=request_id) == 1
        assert gate.seen == [1]


@pytest.mark.rule("AACP-26")
async def test_abort_signal_ends_waiting_and_not_request(harness: CoordinatorHarness) -> None:
    gate, signal = Gate(), AbortSignal()
    async with harness.coordinator() as agents:
        agents.register_agent("a", gate)
        sent = asyncio.ensure_future(
            agents.send_request("a", 1, request_id="r1", abort_signal=signal)
        )
        await gate.begun.wait()
        signal.fire("cancelled")
        with pytest.raises(AbortError):
            await sent
        gate.opened.set()
        await until_finished(agents, "r1")
        assert gate.reasons == []
        with pytest.raises(AbortError):
            await agents.send_request("a", 1, request_id="r2", abort_signal=signal)
        await asyncio.sleep(0.1)
        assert await agents.status("r2") is None


@pytest.mark.rule("AACP-26")
async def test_cancelled_callers_leave_nothing_behind(harness: CoordinatorHarness) -> None:
    gate = Gate()
    async with harness.coordinator() as agents:
        agents.register_agent("a", gate)
        assert agents._running is not None
        runner = agents._running.runner
        for _ in range(3):
            sent = asyncio.ensure_future(agents.send_request("a", 1, request_id="r1"))
            await asyncio.sleep(0.01)
            sent.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sent
            await unknown(agents, "a", 1, request_id="r1")
        entering = store_of(agents).gates["append"] = asyncio.Event()
        event = asyncio.ensure_future(agents.send_reliable_message("a", 2))
        request = asyncio.ensure_future(agents.send_request("a", 3, request_id="r3"))
        await asyncio.sleep(0.01)
        event.cancel()
        request.cancel()
        await asyncio.wait([event, request])
        assert runner.node.outcomes.waiting == {}
        assert len(runner.waiters) == 0
        entering.set()
        gate.opened.set()
        await asyncio.sleep(0.1)
        await until_finished(agents, "r1", "r3")
        assert gate.seen == [1, 2, 3]


@pytest.mark.rule("AACP-15", "AACP-98")
async def test_expired_records_are_purged_by_timer_and_on_demand(
    harness: CoordinatorHarness,
) -> None:
    async with harness.coordinator() as agents:
        agents.register_agent("a", echo)
        await agents.send_request("a", 1, request_id="r1", ttl_ms=1000)
        await agents.send_request("a", 1, request_id="r2", ttl_ms=90_000)
        await agents.send_request("a", 1, request_id="r3", ttl_ms=91_000)
        await asyncio.sleep(1.001)
        assert await agents.status("r1") is None
        await asyncio.sleep(89)
        assert await agents.status("r2") is not None
        assert await agents.purge_expired() == 1
        assert await agents.purge_expired() == 0
        assert await agents.status("r2") is None
        await asyncio.sleep(60)
        assert await agents.status("r3") is None


# -- events and hooks -----------------------------------------------------------------------------


class RecordingHooks:
    """Notes what it is told, and fails if it is to."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.received: list[Envelope] = []
        self.completed: list[str] = []
        self.failed: list[tuple[str, StructuredError]] = []

    def options(self) -> dict[str, Any]:
        return {
            "on_message_received": self.on_received,
            "on_message_completed": self.on_completed,
            "on_message_failed": self.on_failed,
        }

    async def on_received(self, envelope: Envelope) -> None:
        self.received.append(envelope)
        self._fail()

    async def on_completed(self, message_id: str) -> None:
        self.completed.append(message_id)
        self._fail()

    async def on_failed(self, message_id: str, error: StructuredError) -> None:
        self.failed.append((message_id, error))
        self._fail()

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


async def ten(message: AgentMessage, context: AgentContext) -> float:
    """Divides ten."""
    return 10 / message.payload  # type: ignore[no-any-return]


@pytest.mark.rule("AACP-29")
@pytest.mark.parametrize(
    "error",
    [None, RuntimeError("hook"), asyncio.CancelledError(), SystemExit(3)],
    ids=["none", "exception", "cancelled", "exit"],
)
async def test_hooks_are_called_for_every_message_and_may_fail(
    error: BaseException | None, harness: CoordinatorHarness
) -> None:
    hooks = RecordingHooks(error)
    async with harness.coordinator(**hooks.options()) as agents:
        agents.register_agent("a", ten)
        assert await agents.send_request("a", 2, request_id="r1") == 5
        with pytest.raises(RequestFailedError):
            await agents.send_request("a", 0, request_id="r2")
        event_id = await agents.send_reliable_message("a", 4)
        await until_finished(agents, event_id)
        await asyncio.sleep(0.1)
        kinds = [each.message_type for each in hooks.received]
        assert kinds == [MessageType.REQUEST, MessageType.REQUEST, MessageType.EVENT]
        assert [each.seq for each in hooks.received] == [1, 2, 3]
        first, second, third = (each.message_id for each in hooks.received)
        assert third == event_id
        assert hooks.completed == [first, third]
        assert [key for key, _ in hooks.failed] == [second]
        assert hooks.failed[0][1].code is ErrorCode.INTERNAL
        assert len(harness.logged("hook failed")) == (6 if error else 0)


@pytest.mark.rule("AACP-29")
async def test_a_coordinator_may_have_only_some_of_the_hooks(harness: CoordinatorHarness) -> None:
    for name in ("on_message_received", "on_message_completed", "on_message_failed"):
        hooks = RecordingHooks()
        async with harness.coordinator(**{name: hooks.options()[name]}) as agents:
            agents.register_agent("a", ten)
            await agents.send_request("a", 1)
            with pytest.raises(RequestFailedError):
                await agents.send_request("a", 0)
        told = [len(hooks.received), len(hooks.completed), len(hooks.failed)]
        assert told == [2 * (name == "on_message_received"), 1 * (name[11:] == "completed"),
                        1 * (name[11:] == "failed")]  # fmt: skip


@pytest.mark.rule("AACP-29")
async def test_a_hook_that_is_not_slow_gets_what_is_larger_than_may_wait(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foundation_rt.agents.ledger.hooks.MAX_WAITING_BYTES", 1)
    hooks = RecordingHooks()
    async with harness.coordinator(**hooks.options()) as agents:
        agents.register_agent("a", ten)
        await agents.send_request("a", 1)
    assert len(hooks.received) == 1


@pytest.mark.rule("AACP-29")
@pytest.mark.parametrize(("limit", "value"), [("MAX_WAITING", 4), ("MAX_WAITING_BYTES", 70)])
async def test_calls_of_a_slow_hook_beyond_those_that_may_wait_are_dropped(
    limit: str, value: int, harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"foundation_rt.agents.ledger.hooks.{limit}", value)
    is_open, seen = asyncio.Event(), list[int]()

    async def slow(envelope: Envelope) -> None:
        await is_open.wait()
        seen.append(envelope.seq)

    async with harness.coordinator(on_message_received=slow) as agents:
        agents.register_agent("a", ten)
        for _ in range(2):
            is_open.clear()
            for _ in range(5):
                await agents.send_request("a", 5)
            is_open.set()
            await asyncio.sleep(0.1)
        assert seen == [1, 2, 3, 6, 7, 8]
        assert len(harness.logged("hooks are too slow: calls of them are dropped")) == 2


@pytest.mark.rule("AACP-61", "AACP-26")
async def test_event_is_known_by_message_id_and_executed_once(harness: CoordinatorHarness) -> None:
    gate = Gate()
    async with harness.coordinator() as agents:
        agents.register_agent("a", gate)
        ids = [await agents.send_reliable_message("a", n) for n in range(3)]
        assert len(set(ids)) == 3
        assert await outcome_of(agents, ids[2]) is Outcome.UNKNOWN
        gate.opened.set()
        await until_finished(agents, *ids)
        status = await status_of(agents, ids[1])
        assert (status.message_id, status.request_id, status.result) == (ids[1], None, 1)
        assert gate.seen == [0, 1, 2]


# -- handlers -------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-04", "AACP-26")
async def test_messages_and_requests_share_mailbox_of_agent(harness: CoordinatorHarness) -> None:
    gate = Gate()
    async with harness.coordinator() as agents:
        agents.register_agent("a", gate)
        message = asyncio.ensure_future(agents.send_message("a", AgentMessage("x", 1)))
        await gate.begun.wait()
        request_id = await unknown(agents, "a", 2)
        assert gate.seen == [1]
        gate.opened.set()
        assert await message == 1
        await until_finished(agents, request_id)
        assert gate.seen == [1, 2]


VARIABLE = ContextVar("VARIABLE", default="unset")


@pytest.mark.rule("AACP-26")
async def test_handler_gets_ids_of_request_and_no_context_of_caller(
    harness: CoordinatorHarness,
) -> None:
    async def note(message: AgentMessage, context: AgentContext) -> Any:
        context.logger.warn("hello")
        seen = VARIABLE.get()
        VARIABLE.set("of a handler")
        return [context.correlation_id, context.agent_id, seen]

    VARIABLE.set("of the caller")
    async with harness.coordinator() as agents:
        agents.register_agent("a", note)
        for request_id in ("r1", "r2"):
            result = await agents.send_request("a", 1, request_id=request_id)
            assert result == [request_id, "a", "unset"]
        first, second = harness.logged("hello")
        assert (first["correlationId"], first["agentId"]) == ("r1", "a")
        assert second["correlationId"] == "r2"


@pytest.mark.rule("AACP-26")
async def test_request_that_would_wait_for_itself_is_refused_with_cycle(
    harness: CoordinatorHarness,
) -> None:
    async with harness.coordinator() as agents:

        async def forward(message: AgentMessage, context: AgentContext) -> Any:
            target, *rest = message.payload
            return await agents.send_request(target, rest)

        async def hand_on(message: AgentMessage, context: AgentContext) -> Any:
            target, *rest = message.payload
            return await agents.send_message(target, AgentMessage("x", rest))

        agents.register_agent("a", forward)
        agents.register_agent("b", forward)
        agents.register_agent("memory", hand_on)
        agents.register_agent("end", echo)
        assert (await agents.send_request("a", ["b", "end"]))["from"] == "b"
        for path in (["a"], ["b", "a"], ["memory", "a"], ["memory", "b", "memory"]):
            with pytest.raises(RequestFailedError) as caught:
                await agents.send_request("a", path)
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
            assert caught.value.details is not None
            assert caught.value.details["reason"] == "agent_cycle"
        with pytest.raises(AgentCycleError):
            await agents.send_message("memory", AgentMessage("x", ["a", "memory"]))


@pytest.mark.rule("AACP-26")
async def test_request_of_handler_has_its_agent_as_source_and_its_signal(
    harness: CoordinatorHarness,
) -> None:
    gate, signal = Gate(), AbortSignal()
    async with harness.coordinator() as agents:

        async def ask(message: AgentMessage, context: AgentContext) -> Any:
            return await agents.send_request("gate", message.payload, request_id="inner")

        agents.register_agent("asker", ask)
        agents.register_agent("gate", gate)
        sent = asyncio.ensure_future(
            agents.send_message("asker", AgentMessage("x", 1), abort_signal=signal)
        )
        await gate.begun.wait()
        signal.fire("deadline")
        with pytest.raises(AbortError):
            await sent
        assert (await record_of(agents, "inner")).source_agent_id == "asker"
        gate.opened.set()
        await until_finished(agents, "inner")


# -- trying again ---------------------------------------------------------------------------------


def busy_is_temporary(**more: Any) -> RetransmissionPolicy:
    return RetransmissionPolicy(
        should_retry_error=lambda error: error.code is ErrorCode.RESOURCE_EXHAUSTED,
        jitter=0,
        **more,
    )


@pytest.mark.rule("AACP-04", "AACP-63")
async def test_temporary_error_is_retried_before_requests_behind_it(
    harness: CoordinatorHarness,
) -> None:
    seen: list[tuple[Any, float]] = []

    async def moody(message: AgentMessage, context: AgentContext) -> Any:
        seen.append((message.payload, round(harness.clock.monotonic() - begin, 2)))
        if message.payload == 1 and len(seen) < 4:
            raise ToolError(ErrorCode.RESOURCE_EXHAUSTED, "busy")
        return message.payload

    async with harness.coordinator(policy=busy_is_temporary(base_delay_ms=100)) as agents:
        agents.register_agent("a", moody)
        begin = harness.clock.monotonic()
        sent = [agents.send_request("a", n, request_id=f"r{n}") for n in (1, 2, 3)]
        assert await asyncio.gather(*sent) == [1, 2, 3]
        payloads = [payload for payload, _ in seen]
        assert payloads == [1, 1, 1, 1, 2, 3]
        times = [time for _, time in seen]
        assert times[:4] == pytest.approx([0, 0.1, 0.3, 0.7], abs=0.02)
        assert (await record_of(agents, "r1")).epoch == 4


@pytest.mark.rule("AACP-25")
async def test_handler_that_cancels_its_task_is_retried_with_delay(
    harness: CoordinatorHarness,
) -> None:
    seen = []

    async def suicidal(message: AgentMessage, context: AgentContext) -> Any:
        seen.append(message.payload)
        task = asyncio.current_task()
        assert task is not None
        if len(seen) < 4:
            task.cancel()
        await asyncio.sleep(0)
        return message.payload

    async with harness.coordinator(policy=RetransmissionPolicy(jitter=0)) as agents:
        agents.register_agent("a", suicidal)
        begin = harness.clock.monotonic()
        assert await asyncio.gather(*(agents.send_request("a", n) for n in (1, 2))) == [1, 2]
        assert seen == [1, 1, 1, 1, 2]
        assert harness.clock.monotonic() - begin == pytest.approx(1.4, abs=0.1)


@pytest.mark.rule("AACP-96")
async def test_execution_that_takes_too_long_is_cancelled_and_times_out(
    harness: CoordinatorHarness,
) -> None:
    gate = Gate()

    async def slow_library(message: AgentMessage, context: AgentContext) -> Any:
        if message.payload == "late":
            raise TimeoutError  # of its own
        return await gate(message, context)

    async with harness.coordinator() as agents:
        agents.register_agent("a", slow_library, timeout_ms=1_000)
        with pytest.raises(RequestFailedError) as caught:
            await agents.send_request("a", "slow")
        assert caught.value.code is ErrorCode.TIMEOUT
        assert caught.value.details == {"reason": "execution_timeout"}
        assert "longer than 1000 ms" in caught.value.message
        with pytest.raises(RequestFailedError) as caught:
            await agents.send_request("a", "late")
        assert caught.value.code is ErrorCode.INTERNAL
        gate.opened.set()
        assert await agents.send_request("a", "quick") == "quick"
        with pytest.raises(ToolError, match="ms"):
            agents.register_agent("b", gate, timeout_ms=-1)


@pytest.mark.rule("AACP-46")
async def test_request_begun_too_often_fails(harness: CoordinatorHarness) -> None:
    store = FaultyStore(shared=True)
    policy = RetransmissionPolicy(max_executions=1, max_starts=2)
    options: dict[str, Any] = {"store": store, "policy": policy, "aacp": {"lease_ms": 3000}}
    async with harness.coordinator("sender", **options) as sender:
        sent = asyncio.ensure_future(sender.send_request("a", 1, request_id="r1"))
        await asyncio.sleep(1)
        for life in range(2):  # which end without a word
            now_ms = int(harness.clock.now().timestamp() * 1000)
            claimed = await store.claim(
                Claiming({"a": 1}, f"life {life}", now_ms + 10, idle=["a"]), now_ms
            )
            assert [claim.executions for claim in claimed.claims] == [life + 1]
            await asyncio.sleep(0.1)
        seen = []

        async def note(message: AgentMessage, context: AgentContext) -> None:
            seen.append(message.payload)

        sender.register_agent("a", note)
        with pytest.raises(RequestFailedError, match="begun 2 times") as caught:
            await sent
        assert caught.value.code is ErrorCode.INTERNAL
        assert (caught.value.details or {})["reason"] == "abandoned"
        await sender.send_request("a", 2)
        assert seen == [2]
        [heard] = harness.logged("request abandoned: its execution never ends")
        assert (heard["requestId"], heard["executions"]) == ("r1", 2)


# -- agents come and go ---------------------------------------------------------------------------


@pytest.mark.rule("AACP-25", "AACP-27")
async def test_requests_for_unregistered_agent_wait_for_its_return(
    harness: CoordinatorHarness,
) -> None:
    gate, second = Gate(), Gate()
    second.opened.set()
    async with harness.coordinator() as agents:
        agents.register_agent("a", gate)
        ids = [await unknown(agents, "a", n) for n in range(4)]
        await gate.begun.wait()
        assert agents.unregister_agent("a")
        assert not agents.unregister_agent("a")
        with pytest.raises(AgentNotFoundError):
            await agents.send_request("a", 9)
        await asyncio.sleep(60)
        states = [(await record_of(agents, each)).state for each in ids]
        assert states == [RequestState.CLAIMED] + [RequestState.RECEIVED] * 3
        agents.register_agent("a", second)
        await asyncio.sleep(60)
        assert second.seen == []  # the one that the old handler has comes first
        gate.opened.set()
        await until_finished(agents, *ids)
        assert (gate.seen, second.seen) == ([0], [1, 2, 3])
        assert [(await record_of(agents, each)).epoch for each in ids[:2]] == [1, 1]


# -- a life, and the next -------------------------------------------------------------------------


@pytest.mark.rule("AACP-25", "AACP-27")
async def test_unfinished_requests_are_resumed_after_restart(harness: CoordinatorHarness) -> None:
    store, gate = FaultyStore(), Gate()
    async with harness.coordinator(store=store) as agents:
        agents.register_agent("a", gate)
        ids = [await unknown(agents, "a", n) for n in range(3)]
        await gate.begun.wait()
        await agents.stop(0)
    assert gate.reasons == ["shutdown"]
    assert (store.opened, store.closed) == (1, 1)
    async with harness.coordinator(store=store) as agents:
        states = [(await record_of(agents, each)).state for each in ids]
        assert states == [RequestState.RECEIVED] * 3
        second = Gate()
        second.opened.set()
        before = harness.clock.monotonic()
        agents.register_agent("a", second)
        await until_finished(agents, *ids)
        assert second.seen == [0, 1, 2]
        assert harness.clock.monotonic() - before < 1
    assert harness.logged("claim not executed; it is tried again") == []


@pytest.mark.rule("AACP-25")
async def test_handlers_may_end_and_send_during_grace(harness: CoordinatorHarness) -> None:
    store = FaultyStore()
    agents = harness.coordinator(store=store)

    async def slow(message: AgentMessage, context: AgentContext) -> Any:
        await asyncio.sleep(1)
        await agents.send_reliable_message("later", "from the grace")
        return "in time"

    agents.register_agent("slow", slow)
    agents.register_agent("later", echo)
    request_id = await unknown(agents, "slow", 1)
    await agents.stop(grace=2)
    assert (store.opened, store.closed) == (1, 1)
    record = await record_of(agents, request_id)
    assert (record.state, record.result) == (RequestState.COMPLETED, b'"in time"')
    [left] = await store.list_pending_requests()
    assert left.payload == b'{"payload":"from the grace","type":"message"}'
    assert left.state is RequestState.RECEIVED


@pytest.mark.rule("AACP-25")
async def test_handler_that_ignores_cancellation_does_not_block_stop(
    harness: CoordinatorHarness,
) -> None:
    store = FaultyStore()
    agents = harness.coordinator(store=store)

    async def stubborn(message: AgentMessage, context: AgentContext) -> Any:
        for _ in range(30):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
        return 1

    agents.register_agent("a", stubborn)
    request_id = await unknown(agents, "a", 1)
    begin = harness.clock.monotonic()
    await agents.stop(0)
    assert harness.clock.monotonic() - begin < 5
    assert store.closed == 1
    assert harness.logged("tasks did not end when they were cancelled")
    await asyncio.sleep(40)
    assert (await record_of(agents, request_id)).state is RequestState.CLAIMED


@pytest.mark.rule("AACP-06", "AACP-26")
async def test_callers_are_failed_at_once_by_stop(harness: CoordinatorHarness) -> None:
    store = FaultyStore()
    agents = harness.coordinator(store=store)
    agents.register_agent("a", Gate())
    request = asyncio.ensure_future(agents.send_request("a", 1, request_id="r1"))
    await asyncio.sleep(0.01)
    store.gates["append"] = asyncio.Event()
    entering = asyncio.ensure_future(agents.send_request("a", 2, request_id="r2"))
    event = asyncio.ensure_future(agents.send_reliable_message("a", 2))
    await asyncio.sleep(0.01)
    await agents.stop(0)
    done, _ = await asyncio.wait([request, entering, event], timeout=0.01)
    assert len(done) == 3
    assert isinstance(request.exception(), OutcomeUnknownError)
    assert isinstance(entering.exception(), OutcomeUnknownError)
    assert isinstance(event.exception(), StoreError)


@pytest.mark.rule("AACP-27")
async def test_coordinator_starts_with_first_use_and_again_after_stop(
    harness: CoordinatorHarness,
) -> None:
    store = FaultyStore()
    agents = harness.coordinator(store=store)
    agents.register_agent("a", echo)
    sent = [agents.send_request("a", n) for n in range(3)]
    assert [each["payload"] for each in await asyncio.gather(*sent)] == [0, 1, 2]
    assert store.opened == 1
    await asyncio.gather(agents.stop(), agents.stop())
    await agents.stop()
    assert store.closed == 1
    agents.process_retries_once()
    assert await agents.status("r") is None
    assert (store.opened, store.closed) == (2, 1)


@pytest.mark.rule("AACP-27")
async def test_failed_open_of_ledger_fails_first_use_only(harness: CoordinatorHarness) -> None:
    store, network = FaultyStore(), LoopbackNetwork(is_down=True)
    agents = harness.coordinator(store=store, transport=network.end())
    agents.register_agent("a", echo)
    store.is_down = True
    for _ in range(2):
        with pytest.raises(StoreError):
            await agents.send_request("a", 1)
    store.is_down = False
    with pytest.raises(TransportError):
        await agents.start()
    assert store.opened == 1
    network.is_down = False
    assert (await agents.send_request("a", 1))["payload"] == 1


@pytest.mark.rule("AACP-27")
async def test_stop_during_start_leaves_nothing_open(harness: CoordinatorHarness) -> None:
    class Slow(FaultyStore):
        async def open(self) -> None:
            await super().open()
            await asyncio.sleep(1)

    store = Slow()
    agents = harness.coordinator(store=store)
    agents.register_agent("a", echo)
    sent = asyncio.ensure_future(agents.send_request("a", 1))
    served = asyncio.ensure_future(agents.background())
    await asyncio.sleep(0.5)
    served.cancel()
    await asyncio.wait([served])
    with pytest.raises(UsageError, match="stopped while"):
        await sent
    assert (store.opened, store.closed) == (1, 1)
    assert (await agents.send_request("a", 1))["payload"] == 1
    await agents.stop()
    agents.clock.now()
    immediately = asyncio.ensure_future(agents.start())
    await asyncio.sleep(0)
    await agents.stop()
    await asyncio.wait([immediately])
    assert isinstance(immediately.exception(), UsageError)
    assert store.opened == store.closed


@pytest.mark.rule("AACP-27")
async def test_background_retries_start_until_ledger_is_there(harness: CoordinatorHarness) -> None:
    store = FaultyStore()
    store.is_down = True
    agents = harness.coordinator(store=store)
    served = asyncio.ensure_future(agents.background())
    await asyncio.sleep(12)
    assert len(harness.logged("agents not started; it is tried again")) == 3
    store.is_down = False
    await asyncio.sleep(5)
    assert store.is_open
    served.cancel()
    await asyncio.wait([served])
    assert not store.is_open


@pytest.mark.rule("AACP-27")
def test_coordinator_starts_again_on_new_loop_after_first_closed() -> None:
    store = FaultyStore()
    agents = AgentCoordinatorV2(store=store)
    agents.register_agent("a", echo)

    async def use() -> Any:
        return await agents.send_request("a", 1, request_id="r1")

    async def use_and_stop() -> Any:
        async with agents:
            return await use()

    assert asyncio.run(use()) == asyncio.run(use_and_stop())
    assert store.opened == 2

    async def use_elsewhere() -> None:
        await agents.start()
        with pytest.raises(UsageError, match="belongs to the event loop"):
            await asyncio.to_thread(lambda: asyncio.run(use()))
        await agents.stop()

    asyncio.run(use_elsewhere())


def test_coordinator_name_must_be_valid_agent_id() -> None:
    for name in ("", " x", "x\n", "x" * 257):
        with pytest.raises(UsageError, match="form of an agent's id"):
            AgentCoordinatorV2(name=name)
    assert isinstance(AgentCoordinatorV2(name="x"), AgentCoordinator)


# -- ledgers that fail ----------------------------------------------------------------------------

OPERATIONS = ("append", "claim", "complete", "renew", "release", "purge_expired")


@pytest.mark.rule("AACP-01", "AACP-17")
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_failed_operation_is_repeated_and_happens_once(
    operation: str, after: bool, harness: CoordinatorHarness
) -> None:
    seen: list[int] = []

    async def moody(message: AgentMessage, context: AgentContext) -> Any:
        seen.append(message.payload)
        await asyncio.sleep(1)
        if len(seen) == 1:
            raise ToolError(ErrorCode.RESOURCE_EXHAUSTED, "busy")
        return message.payload

    store = FaultyStore()
    store.fail(operation, after=after, times=3)
    aacp = {"lease_ms": 1500, "request_timeout_ms": 60_000}
    policy = busy_is_temporary()
    async with harness.coordinator(store=store, aacp=aacp, policy=policy) as agents:
        agents.register_agent("a", moody)
        sent = [agents.send_request("a", n, request_id=f"r{n}") for n in range(3)]
        assert await asyncio.gather(*sent) == [0, 1, 2]
        assert seen == [0, 0, 1, 2]
        await asyncio.sleep(70)
        assert len(harness.logged("ledger operation failed; it is repeated")) == 3
        assert not store.before[operation]
        assert not store.after[operation]


@pytest.mark.rule("AACP-17", "AACP-26")
async def test_outcome_is_unknown_while_ledger_is_down(harness: CoordinatorHarness) -> None:
    store = FaultyStore()
    async with harness.coordinator(store=store) as agents:
        agents.register_agent("a", echo)
        await agents.send_request("a", 1)
        store.is_down = True
        calls = sum(store.calls.values())
        request_id = await unknown(agents, "a", 2)
        await asyncio.sleep(30)
        assert sum(store.calls.values()) - calls < 200  # it is not hammered
        store.is_down = False
        await asyncio.sleep(1)
        assert await outcome_of(agents, request_id) is Outcome.COMPLETED


@pytest.mark.rule("AACP-17")
async def test_full_backlog_refuses_messages(harness: CoordinatorHarness) -> None:
    store = FaultyStore()
    async with harness.coordinator(store=store) as agents:
        agents.register_agent("a", echo)
        await agents.start()
        entering = store.gates["append"] = asyncio.Event()
        tasks = [asyncio.ensure_future(agents.send_reliable_message("a", 1)) for _ in range(10_000)]
        await asyncio.sleep(0.01)
        with pytest.raises(ToolError) as refused:
            await agents.send_request("a", 1)
        assert refused.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert refused.value.details == {"reason": "ledger_backlog"}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        entering.set()


# -- one ledger, several coordinators -------------------------------------------------------------


@pytest.mark.rule("AACP-22")
async def test_change_hint_of_ledger_is_followed_at_once(harness: CoordinatorHarness) -> None:
    store = FaultyStore(shared=True)
    async with (
        harness.coordinator("one", store=store) as one,
        harness.coordinator("two", store=store) as two,
    ):
        two.register_agent("b", echo)
        await asyncio.sleep(0.5)
        begin = harness.clock.monotonic()
        sent = asyncio.ensure_future(one.send_request("b", 5))
        for _ in range(3):
            await asyncio.sleep(0.001)
            for listener in store.listeners:
                listener(None)
        await sent
        assert harness.clock.monotonic() - begin < 0.1


# -- several ledgers ------------------------------------------------------------------------------


@pytest.mark.rule("AACP-16", "AACP-17", "AACP-42")
async def test_request_to_other_ledger_is_executed_and_answered(
    harness: CoordinatorHarness,
) -> None:
    network, hooks, far_hooks = LoopbackNetwork(), RecordingHooks(), RecordingHooks()
    async with (
        harness.coordinator("one", transport=network.end(), **hooks.options()) as one,
        harness.coordinator("two", transport=network.end(), **far_hooks.options()) as two,
    ):
        two.register_agent("b", ten)
        assert await one.send_request("b", 5, request_id="r1") == 2
        with pytest.raises(RequestFailedError) as caught:
            await one.send_request("b", 0, request_id="r2")
        assert caught.value.code is ErrorCode.INTERNAL
        event_id = await one.send_reliable_message("b", 1)
        await asyncio.sleep(1)
        assert await outcome_of(one, event_id) is Outcome.COMPLETED
        mine, theirs = await record_of(one, "r1"), await record_of(two, "r1")
        assert (mine.state, theirs.state) == (RequestState.COMPLETED, RequestState.COMPLETED)
        assert (mine.result, theirs.result) == (b"2.0", b"2.0")
        sent = [each for each in network.sent if each.seq > 0]
        assert [(each.message_type, each.seq) for each in sent] == [
            (MessageType.REQUEST, 1),
            (MessageType.RESPONSE, 1),
            (MessageType.REQUEST, 2),
            (MessageType.RESPONSE, 2),
            (MessageType.EVENT, 3),
        ]
        assert hooks.completed == [sent[0].message_id, event_id]
        assert [key for key, _ in hooks.failed] == [sent[2].message_id]
        assert [each.seq for each in far_hooks.received] == [1, 2, 3]
        calls = sum(store_of(one).calls.values())
        await asyncio.sleep(30)
        assert len([each for each in network.sent if each.seq > 0]) == 5
        assert sum(store_of(one).calls.values()) - calls < 20


@pytest.mark.rule("AACP-13", "AACP-14", "AACP-29")
async def test_message_without_receiver_is_given_up_and_reported(
    harness: CoordinatorHarness,
) -> None:
    hooks, network = RecordingHooks(), LoopbackNetwork()
    policy = RetransmissionPolicy(max_attempts=3, jitter=0)
    async with harness.coordinator(
        "one", transport=network.end(), policy=policy, **hooks.options()
    ) as one:
        event_id = await one.send_reliable_message("nobody", 1)
        await asyncio.sleep(5)
        assert [(key, error.code) for key, error in hooks.failed] == [(event_id, ErrorCode.TIMEOUT)]
        assert await outcome_of(one, event_id) is Outcome.FAILED
        attempts = [each for each in network.sent if each.seq == 1]
        assert [each.tombstone for each in attempts[:4]] == [False, False, False, True]
        assert len({each.message_id for each in attempts}) == len(attempts)


@pytest.mark.rule("AACP-17", "AACP-27")
async def test_a_network_that_is_down_delays_and_loses_nothing(harness: CoordinatorHarness) -> None:
    network = LoopbackNetwork()
    near, far = FaultyStore(), FaultyStore()
    async with harness.coordinator("one", store=near, transport=network.end()) as one:
        network.is_down = True
        request_id = await unknown(one, "b", 7)
        await asyncio.sleep(1)
        assert harness.logged("envelopes not sent; they are sent again")
    network.is_down = False
    async with (
        harness.coordinator("one", store=near, transport=network.end()) as one,
        harness.coordinator("two", store=far, transport=network.end()) as two,
    ):
        two.register_agent("b", echo)
        await until_finished(one, request_id)
        assert (await record_of(two, request_id)).epoch == 1
        network.is_down = True
        two.register_agent("c", echo)  # which cannot be listened for yet
        await asyncio.sleep(3)
        assert harness.logged("cannot listen; it is tried again")
        network.is_down = False
        assert (await one.send_request("c", 8))["payload"] == 8
        network.is_down = True
        two.register_agent("d", echo)
        begin = harness.clock.monotonic()
        await two.stop()
        assert harness.clock.monotonic() - begin < 0.5


@pytest.mark.rule("AACP-01", "AACP-65", "AACP-69")
@pytest.mark.parametrize("lost", ["one", "two"])
async def test_recreated_ledger_is_not_taken_for_its_predecessor(
    lost: str, harness: CoordinatorHarness
) -> None:
    network, seen = LoopbackNetwork(), []
    ledgers = {
        "one": [FaultyStore(incarnation=1), FaultyStore(incarnation=3)],
        "two": [FaultyStore(incarnation=2), FaultyStore(incarnation=4)],
    }

    async def note(message: AgentMessage, context: AgentContext) -> Any:
        seen.append(message.payload)
        return message.payload

    for life in (0, 1):
        stores = {name: ledgers[name][life if name == lost else 0] for name in ledgers}
        async with (
            harness.coordinator("one", store=stores["one"], transport=network.end()) as one,
            harness.coordinator("two", store=stores["two"], transport=network.end()) as two,
        ):
            two.register_agent("b", note)
            sent = [one.send_request("b", 3 * life + n) for n in range(3)]
            assert await asyncio.gather(*sent) == [3 * life + n for n in range(3)]
            await asyncio.sleep(60)
            assert seen == list(range(3 * life + 3))
            for store in stores.values():
                assert not any(store.ledger.outbox.values())


@pytest.mark.rule("AACP-41")
async def test_stopping_coordinator_takes_no_envelopes(harness: CoordinatorHarness) -> None:
    network, gate = LoopbackNetwork(), Gate()
    async with harness.coordinator("one", transport=network.end()) as one:
        two = harness.coordinator("two", transport=network.end())
        two.register_agent("b", gate)
        await two.start()
        first = await unknown(one, "b", 1)
        await gate.begun.wait()
        stopping = asyncio.ensure_future(two.stop(grace=10))
        await asyncio.sleep(0.1)
        second = await unknown(one, "b", 2)
        await asyncio.sleep(2)
        gate.opened.set()
        await stopping
        await asyncio.sleep(0.1)
        assert await outcome_of(one, first) is Outcome.COMPLETED  # answered in the grace
        assert await store_of(two).get_request_record(second) is None
        await two.start()
        await until_finished(one, second)


@pytest.mark.rule("AACP-01", "AACP-03", "AACP-04", "AACP-11", "AACP-16")
@settings(deadline=None, max_examples=examples(25))
@given(
    seed=st.integers(0, 2**32),
    lost=st.floats(0, 0.6),
    doubled=st.floats(0, 0.6),
    max_delay_ms=st.integers(0, 2000),
    shared=st.booleans(),
    payloads=st.lists(st.integers(-5, 5), max_size=25),
)
def test_every_request_is_answered_once_over_any_network(
    seed: int, lost: float, doubled: float, max_delay_ms: int, shared: bool, payloads: list[int]
) -> None:
    async def scenario(harness: CoordinatorHarness) -> None:
        network = LoopbackNetwork(Random(seed), lost, doubled, max_delay_ms)
        seen: dict[str, list[int]] = {"b": [], "c": []}

        async def divide(message: AgentMessage, context: AgentContext) -> Any:
            number, payload = message.payload
            seen[context.agent_id].append(number)
            await asyncio.sleep(0.01)
            if payload == 0:
                raise ToolError(ErrorCode.INVALID_ARGUMENT, "zero")
            return [number, 1000 // payload]

        aacp = {"request_timeout_ms": 600_000}
        policy = RetransmissionPolicy(max_delay_ms=2000)
        one, two = (
            harness.coordinator(name, transport=network.end(), aacp=aacp, policy=policy)
            for name in ("one", "two")
        )
        async with one, two:
            two.register_agent("b", divide)
            (one if shared else two).register_agent("c", divide)
            sent = [
                one.send_request("bc"[number % 2], [number, payload])
                for number, payload in enumerate(payloads)
            ]
            answers = await asyncio.gather(*sent, return_exceptions=True)
            for number, (payload, answer) in enumerate(zip(payloads, answers, strict=True)):
                if payload == 0:
                    assert isinstance(answer, RequestFailedError)
                    assert answer.message == "zero"
                else:
                    assert answer == [number, 1000 // payload]
            assert seen["b"] == list(range(0, len(payloads), 2))
            assert seen["c"] == list(range(1, len(payloads), 2))

    run(scenario)


@pytest.mark.rule("AACP-01", "AACP-03", "AACP-04", "AACP-22", "AACP-23", "AACP-30")
@settings(deadline=None, max_examples=examples(25))
@given(seed=st.integers(0, 2**32), count=st.integers(0, 30), troubles=st.integers(0, 12))
def test_every_request_is_answered_once_on_failing_shared_ledger(
    seed: int, count: int, troubles: int
) -> None:
    async def scenario(harness: CoordinatorHarness) -> None:
        rng, store = Random(seed), FaultyStore(shared=True)
        finished: list[int] = []
        running: set[int] = set()

        async def work(message: AgentMessage, context: AgentContext) -> Any:
            number = message.payload
            running.add(number)
            assert len(running) == 1  # no lease is lost here
            await asyncio.sleep(number % 3 / 100)
            running.discard(number)
            if not finished or number > finished[-1]:
                finished.append(number)
            if number % 5 == 0:
                raise ToolError(ErrorCode.INVALID_ARGUMENT, str(number))
            return number

        async def make_trouble() -> None:
            for _ in range(troubles):
                await asyncio.sleep(rng.random() / 10)
                operation = rng.choice(("append", "claim", "complete", "renew", "release"))
                store.fail(operation, after=rng.random() < 0.5)
                if rng.random() < 0.3:
                    coordinator = rng.choice((one, two))
                    coordinator.unregister_agent("a")
                    await asyncio.sleep(rng.random() / 20)
                    coordinator.register_agent("a", work)

        aacp = {"lease_ms": 20_000, "request_timeout_ms": 600_000}
        one, two = (
            harness.coordinator(
                name, store=store, aacp=aacp, policy=RetransmissionPolicy(jitter=0.5)
            )
            for name in ("one", "two")
        )
        async with one, two:
            one.register_agent("a", work)
            two.register_agent("a", work)
            sent = []
            trouble = asyncio.ensure_future(make_trouble())
            for number in range(count):
                await asyncio.sleep(rng.random() / 20)
                sent.append(asyncio.ensure_future(one.send_request("a", number)))
            await trouble
            for number, answer in enumerate(await asyncio.gather(*sent, return_exceptions=True)):
                if number % 5 == 0:
                    assert isinstance(answer, RequestFailedError)
                    assert answer.message == str(number)
                else:
                    assert answer == number
            assert finished == list(range(count))

    run(scenario)


@pytest.mark.rule("AACP-14", "AACP-50")
async def test_host_can_reschedule_and_give_up_one_message(harness: CoordinatorHarness) -> None:
    network, hooks, gate = LoopbackNetwork(cut_off={"b"}), RecordingHooks(), Gate()
    policy = RetransmissionPolicy(base_delay_ms=60_000, max_delay_ms=60_000)
    async with (
        harness.coordinator(
            "one", transport=network.end(), policy=policy, **hooks.options()
        ) as one,
        harness.coordinator("two", transport=network.end()) as two,
    ):
        two.register_agent("b", gate)
        ids = [await one.send_reliable_message("b", n) for n in range(3)]
        await asyncio.sleep(1)
        assert len([each for each in network.sent if each.seq]) == 3

        assert await one.schedule_retry(ids[0], 500)
        await asyncio.sleep(0.4)
        network.cut_off.clear()
        await asyncio.sleep(0.2)
        again = [each for each in network.sent if each.seq][3:]
        assert [(each.seq, each.tombstone) for each in again] == [(1, False)]
        assert await outcome_of(one, ids[0]) is Outcome.COMPLETED
        assert not await one.schedule_retry(ids[0], 1)

        assert await one.cancel_retry(ids[1])
        await asyncio.sleep(0.1)
        again = [each for each in network.sent if each.seq][4:]
        assert [(each.seq, each.tombstone) for each in again] == [(2, True)]
        assert [key for key, _ in hooks.failed] == [ids[1]]
        assert not await one.cancel_retry(ids[1])  # its number has arrived
        assert await one.schedule_retry(ids[2], 1)
        await asyncio.sleep(0.1)
        gate.opened.set()
        await asyncio.sleep(1)
        assert gate.seen == [0, 2]
        assert not await one.cancel_retry("nothing")
        with pytest.raises(ToolError):
            await one.schedule_retry(ids[2], -1)
