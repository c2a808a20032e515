"""Effects performed: handlers that run, deadlines, signals, and what is left of a call: nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from foundation_rt import ErrorCode, ToolContext, ToolDefinition, ToolError
from foundation_rt.base.clock import ManualClock
from foundation_rt.features.embedding import HostLoop
from tests.lab.servers.engine import ANYTHING, EngineHarness, HeldHandler
from tests.lab.servers.fixture import ServerFixture, ServerPeer

PATIENCE = 60.0


# -- how a handler ends ----------------------------------------------------------------------------


@pytest.mark.rule("CALL-09", "CALL-12", "TIME-01")
def test_inline_function_is_over_when_feed_returns_and_arms_no_timer() -> None:
    with EngineHarness() as bench:
        seen: list[tuple[int, int, threading.Thread]] = []

        def inline(arguments: dict[str, Any], context: ToolContext) -> str:
            armed = len(bench.scheduler.timers)
            seen.append((bench.rig.slots_in_use, armed, threading.current_thread()))
            return "done"

        bench.tool(inline, inline=True)
        request_id = bench.peer.start("inline")
        assert bench.peer.outcome(request_id) == "done"
        assert seen == [(1, 0, threading.current_thread())]
        bench.assert_over()


@pytest.mark.rule("ERR-04", "CALL-13")
def test_tool_error_without_init_is_still_answered_and_recorded() -> None:
    class Careless(ToolError):
        def __init__(self, city: str) -> None:
            self.city = city  # and no super().__init__()

    with EngineHarness() as bench:

        def inline(arguments: dict[str, Any], context: ToolContext) -> None:
            raise Careless("Oslo")

        bench.tool(inline, inline=True)
        request_id = bench.peer.start("inline")
        assert bench.peer.outcome(request_id)["code"] == "INTERNAL"
        assert bench.record["outcome"] == "tool_error"
        assert bench.record["errorCode"] == "INTERNAL"
        bench.assert_over()


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.rule("TIME-01", "TIME-10")
def test_deadline_is_armed_with_what_the_first_step_left_of_it() -> None:
    with EngineHarness() as bench:

        async def slow(arguments: dict[str, Any], context: ToolContext) -> None:
            bench.clock.advance(0.25)
            await context.abort_signal.wait()
            context.abort_signal.raise_if_aborted()

        bench.tool(slow, timeout_ms=300)
        parts: list[int] = []
        host = HostLoop(bench.scheduler.loop)
        connection = bench.rig.server.runtime.connect(
            lambda message: parts.append(len(message.line)), "memory", host
        )
        peer = ServerPeer()
        peer.connection = connection
        peer.shake_hands_quietly()
        peer.start("slow")
        bench.scheduler.settle()
        answered = len(parts)
        bench.scheduler.advance(0.049)
        assert len(parts) == answered
        bench.scheduler.advance(0.002)
        assert len(parts) == answered + 1
        assert bench.record["outcome"] == "timeout"


@pytest.mark.rule("TIME-10", "TIME-02", "TIME-06", "CALL-15")
@pytest.mark.parametrize("way", ["task", "worker"])
@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
def test_handler_that_ends_after_an_unnoticed_deadline_times_out(way: str, raises: bool) -> None:
    with EngineHarness() as bench:
        reasons: list[str] = []

        def function(arguments: dict[str, Any], context: ToolContext) -> str:
            signal = context.abort_signal
            signal.add_callback(lambda: reasons.append(str(signal.reason)))
            bench.clock.advance(0.2)  # and no timer fires
            if raises:
                raise LookupError
            return "late"

        async def coroutine(arguments: dict[str, Any], context: ToolContext) -> str:
            return function(arguments, context)

        request_id = bench.start(
            bench.tool(coroutine if way == "task" else function, timeout_ms=100)
        )
        if way == "worker":
            bench.workers.run()
        assert bench.peer.outcome(request_id)["code"] == "TIMEOUT"
        assert bench.record["outcome"] == "late_completed"
        assert bench.record["errorCode"] == "TIMEOUT"
        assert reasons == ["deadline"]
        bench.assert_over()


@pytest.mark.rule("TIME-10")
def test_inline_handler_has_no_deadline() -> None:
    with EngineHarness() as bench:

        def inline(arguments: dict[str, Any], context: ToolContext) -> str:
            bench.clock.advance(10)
            return "done"

        bench.tool(inline, inline=True, timeout_ms=100)
        assert bench.peer.outcome(bench.peer.start("inline")) == "done"
        bench.assert_over()


@pytest.mark.rule("TIME-02", "CALL-15")
def test_ended_handler_has_no_deadline() -> None:
    with EngineHarness() as bench:
        held = HeldHandler()
        request_id = bench.start(bench.tool(held))
        bench.wait(999)
        held.end("in time")
        bench.scheduler.settle()
        bench.wait(5000)
        assert bench.peer.outcome(request_id) == "in time"
        assert not held.context.abort_signal.aborted
        bench.assert_over()


# -- signals and cancellation ----------------------------------------------------------------------


@pytest.mark.rule("TIME-03", "TIME-05", "TIME-08")
@pytest.mark.parametrize("reason", ["deadline", "cancelled", "disconnected", "shutdown"])
def test_abort_signal_has_a_reason_and_fires_once(reason: str) -> None:
    with EngineHarness(cancel_grace_ms=60_000) as bench:
        held = HeldHandler()
        request_id = bench.start(bench.tool(held))
        fired: list[str | None] = []
        signal = held.context.abort_signal
        signal.add_callback(lambda: fired.append(signal.reason))
        if reason == "deadline":
            bench.wait(1000)
        elif reason == "cancelled":
            bench.peer.notify("notifications/cancelled", {"requestId": request_id})
        else:
            bench.peer.connection.close(reason)
        assert fired == [reason]
        bench.peer.notify("notifications/cancelled", {"requestId": request_id})
        bench.peer.connection.close()
        bench.wait(2000)
        assert fired == [reason]
        held.end()
        bench.scheduler.settle()
        bench.assert_over()


@pytest.mark.rule("TIME-11")
def test_callback_that_raises_is_logged_and_affects_nothing_else() -> None:
    with EngineHarness() as bench:
        held = HeldHandler()
        request_id = bench.start(bench.tool(held))
        called: list[int] = []

        def fail(error: BaseException) -> None:
            called.append(1)
            raise error

        signal = held.context.abort_signal
        signal.add_callback(lambda: fail(LookupError("callback")))
        signal.add_callback(lambda: fail(SystemExit(3)))
        signal.add_callback(lambda: called.append(2))
        bench.wait(1000)
        assert called == [1, 1, 2]
        assert bench.peer.outcome(request_id)["code"] == "TIMEOUT"
        logged = bench.rig.logged("abort callback failed")
        assert [line["error"]["type"] for line in logged] == ["LookupError", "SystemExit"]
        assert {line["runId"] for line in logged} == {held.context.run_id}
        bench.wait(300)
        bench.assert_over()


@pytest.mark.rule("TIME-03")
@pytest.mark.parametrize("how", ["deadline", "cancelled", "closed", "lost"])
def test_callback_may_wait_for_a_thread_that_uses_the_connection(how: str) -> None:
    with EngineHarness() as bench:
        held = HeldHandler()
        request_id = bench.start(bench.tool(held))
        connection = bench.peer.connection
        joined: list[bool] = []

        def callback() -> None:
            other = threading.Thread(target=connection.close, daemon=True)
            other.start()
            other.join(5)
            joined.append(not other.is_alive())

        held.context.abort_signal.add_callback(callback)
        if how == "deadline":
            bench.wait(1000)
        elif how == "cancelled":
            bench.peer.notify("notifications/cancelled", {"requestId": request_id})
        elif how == "closed":
            connection.close()
        else:
            bench.broken = True
            bench.peer.ask("ping")
        assert joined == [True]
        assert connection.closed
        held.end()
        bench.scheduler.settle()
        bench.assert_over()


@pytest.mark.rule("TIME-04", "TIME-06")
def test_coroutine_that_ignores_its_cancellation_goes_on_and_keeps_its_slot() -> None:
    with EngineHarness() as bench:
        held = HeldHandler()
        held.stubborn = True
        bench.start(bench.tool(held))
        bench.wait(60_000)
        assert held.cancellations == 1
        assert bench.rig.slots_in_use == 1
        held.end("at last")
        bench.scheduler.settle()
        assert bench.record["outcome"] == "late_completed"
        bench.assert_over()


@pytest.mark.rule("TIME-04", "CALL-09")
def test_coroutine_cancelled_before_its_first_step_ends_its_call() -> None:
    with EngineHarness(cancel_grace_ms=0) as bench:
        bench.tool(HeldHandler())
        bench.peer.start("held")  # not settled: where tasks start later, this one has not
        bench.peer.notify("notifications/cancelled", {"requestId": 1})
        bench.wait(0)
        assert bench.record["outcome"] == "aborted"
        bench.assert_over()


@pytest.mark.rule("TIME-04", "CALL-09")
def test_task_cancelled_by_the_host_before_its_first_step_ends() -> None:
    """As `asyncio.run` does with whatever is left when its main coroutine returns."""
    with EngineHarness() as bench:
        bench.tool(HeldHandler())
        bench.peer.start("held")
        for task in asyncio.all_tasks(bench.scheduler.loop):
            task.cancel()
        bench.scheduler.settle()
        assert len(bench.rig.records) == 1
        assert len(bench.peer.received) == 1
        bench.assert_over()


@pytest.mark.rule("TIME-03", "TIME-08")
def test_connection_that_closes_while_a_call_starts_aborts_that_call() -> None:
    """The peer may leave, in another thread, at any moment between decision and start."""

    class Meddling(ManualClock):
        __slots__ = ("meddle",)

        def __init__(self) -> None:
            super().__init__()
            self.meddle: list[Callable[[], None]] = []

        def monotonic(self) -> float:
            while self.meddle:
                self.meddle.pop()()
            return super().monotonic()

    clock = Meddling()
    with EngineHarness(clock=clock) as bench:
        held = HeldHandler()
        bench.tool(held)
        clock.meddle.append(bench.peer.connection.close)
        bench.start("held")
        assert bench.peer.connection.closed
        assert held.context.abort_signal.reason == "disconnected"
        bench.wait(300)
        assert bench.record["outcome"] == "aborted"
        bench.assert_over()


# -- waiting for the end ---------------------------------------------------------------------------


@pytest.mark.rule("PROC-14", "CALL-09")
def test_idle_is_reported_when_the_last_handler_has_ended_and_answered() -> None:
    with EngineHarness() as bench:
        first, second = HeldHandler(), HeldHandler()
        bench.rig.server.register(ToolDefinition("first", "", ANYTHING), first)
        bench.rig.server.register(ToolDefinition("second", "", ANYTHING), second)
        idle: list[int] = []
        bench.engine.on_idle = lambda: idle.append(len(bench.peer.received))
        assert bench.engine.wait_idle(0)
        bench.start("first")
        bench.start("second")
        assert not bench.engine.wait_idle(0)
        first.end()
        bench.scheduler.settle()
        assert idle == []
        second.end()
        bench.scheduler.settle()
        assert idle == [2]
        assert bench.engine.wait_idle(0)


@pytest.mark.rule("TIME-09")
@pytest.mark.parametrize("way", ["task", "inline"])
def test_the_engine_knows_which_call_keeps_the_loop_busy(way: str) -> None:
    with EngineHarness() as bench:
        seen: list[str | None] = []

        def look() -> None:
            call = bench.engine.on_loop(bench.scheduler.loop)
            seen.append(None if call is None else call.name)

        async def task(arguments: dict[str, Any], context: ToolContext) -> None:
            look()
            await asyncio.sleep(0)
            look()

        def inline(arguments: dict[str, Any], context: ToolContext) -> None:
            look()

        held = HeldHandler()
        bench.start(bench.tool(held))
        name = bench.tool(task) if way == "task" else bench.tool(inline, inline=True)
        bench.start(name)
        assert seen == ([name, name] if way == "task" else [name])
        assert bench.engine.on_loop(bench.scheduler.loop) is None
        assert bench.engine.on_loop(None) is None
        held.end()
        bench.scheduler.settle()


# -- bugs of our own -------------------------------------------------------------------------------


@pytest.mark.rule("RPC-10", "CALL-09", "ERR-06")
@pytest.mark.parametrize("way", ["task", "worker", "inline"])
def test_bug_in_the_conclusion_of_a_call_is_answered(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EngineHarness() as bench:

        async def coroutine(arguments: dict[str, Any], context: ToolContext) -> None: ...

        def function(arguments: dict[str, Any], context: ToolContext) -> None: ...

        name = bench.tool(coroutine if way == "task" else function, inline=way == "inline")

        def fail(*args: Any) -> Any:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(type(bench.rig.server.runtime.resources), "record_completion", fail)
            request_id = bench.start(name)
            if way == "worker":
                bench.workers.run()
        answer = bench.peer.answer(request_id)
        assert answer["error"]["code"] == -32603
        [logged] = bench.rig.logged("internal error")
        assert logged["error"]["type"] == "ZeroDivisionError"
        bench.assert_over()


@pytest.mark.rule("RPC-10", "CALL-09", "ERR-06")
def test_bug_in_a_validator_is_answered_and_frees_the_slot() -> None:
    with EngineHarness() as bench:
        bench.tool(HeldHandler())
        tool = bench.rig.server.get("held")
        assert tool is not None

        def fail(arguments: Any) -> Any:
            raise ZeroDivisionError("a bug")

        tool.validate = fail
        request_id = bench.start("held")
        assert bench.peer.answer(request_id)["error"]["code"] == -32603
        bench.assert_over()
        assert bench.peer.answer(bench.peer.ask("ping"))["result"] == {}


@pytest.mark.rule("ERR-06", "CALL-09", "CALL-13", "CALL-15", "EMBED-03")
@pytest.mark.parametrize("way", ["worker", "task"])
def test_call_for_which_no_thread_can_be_started_is_answered_and_the_next_one_works(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = ServerFixture()
    idle = rig.server.runtime.engine.wait_idle

    async def task(arguments: dict[str, Any], context: ToolContext) -> None:
        if arguments["wait"]:
            await context.abort_signal.wait()

    def worker(arguments: dict[str, Any], context: ToolContext) -> None:
        if arguments["wait"]:
            fired = threading.Event()
            context.abort_signal.add_callback(fired.set)
            assert fired.wait(PATIENCE)

    handler = task if way == "task" else worker
    rig.server.register(ToolDefinition("work", "", ANYTHING), handler)
    rig.server.register(ToolDefinition("quick", "", ANYTHING), handler, timeout_ms=1)
    peer = rig.connect()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        request_id = peer.start("work", {"wait": False})
    assert peer.outcome(request_id)["code"] == "INTERNAL"
    assert [record["outcome"] for record in rig.records] == ["tool_error"]
    rig.assert_all_ended()
    assert peer.connection.session.in_flight == {}
    request_id = peer.start("work", {"wait": False})
    assert idle(PATIENCE)
    assert peer.outcome(request_id) is None
    request_id = peer.start("quick", {"wait": True})
    assert idle(PATIENCE)
    assert peer.outcome(request_id)["code"] == "TIMEOUT"
    rig.assert_all_ended()


@pytest.mark.rule("TIME-08", "CALL-09", "LIFE-06")
@pytest.mark.parametrize("way", ["task", "worker", "inline"])
def test_handler_may_close_its_own_connection(way: str) -> None:
    with EngineHarness() as bench:
        reasons: list[str | None] = []

        def function(arguments: dict[str, Any], context: ToolContext) -> str:
            bench.peer.connection.close()
            reasons.append(context.abort_signal.reason)
            return "nobody hears this"

        async def coroutine(arguments: dict[str, Any], context: ToolContext) -> str:
            return function(arguments, context)

        bench.start(bench.tool(coroutine if way == "task" else function, inline=way == "inline"))
        if way == "worker":
            bench.workers.run()
        assert reasons == ["disconnected"]
        assert bench.peer.received == []
        assert bench.record["outcome"] == "disconnected_completed"
        bench.assert_over()


# -- nothing is left behind ------------------------------------------------------------------------


@pytest.mark.rule("ERR-06", "CALL-09", "CALL-13", "RES-01")
def test_thousands_of_calls_leave_nothing_behind() -> None:
    """3,000 mixed calls: no slot, thread, timer, id or garbage grows with them."""
    with EngineHarness(slots=4, max_payload_bytes=300) as bench:

        async def quick(arguments: dict[str, Any], context: ToolContext) -> Any:
            await asyncio.sleep(0)
            return arguments

        async def waits(arguments: dict[str, Any], context: ToolContext) -> None:
            await context.abort_signal.wait()
            context.abort_signal.raise_if_aborted()

        def works(arguments: dict[str, Any], context: ToolContext) -> Any:
            context.abort_signal.add_callback(lambda: None)
            context.logger.debug("working")
            return arguments

        def fails(arguments: dict[str, Any], context: ToolContext) -> None:
            raise ToolError(ErrorCode.NOT_FOUND, "no", {"arguments": arguments})

        async def fails_later(arguments: dict[str, Any], context: ToolContext) -> None:
            await asyncio.sleep(0)
            raise LookupError("no")

        bench.tool(quick)
        bench.tool(waits)
        bench.tool(works)
        bench.tool(fails, inline=True)
        bench.tool(fails_later)

        def round_of_calls() -> int:
            peer = bench.peer
            peer.start("quick", {"a": 1})
            peer.start("works", {"b": [1, 2]})
            peer.start("fails")
            peer.start("fails_later")
            request_id = peer.start("waits")
            peer.start("no such tool")
            peer.start("health")
            peer.start("quick", {"big": "x" * 400})
            bench.scheduler.settle()
            bench.workers.run()
            peer.notify("notifications/cancelled", {"requestId": request_id})
            peer.start("waits")
            bench.scheduler.settle()
            bench.wait(1000)
            assert len(peer.received) == 8
            return 9

        def storm(calls: int) -> int:
            made = 0
            while made < calls:
                made += round_of_calls()
                bench.peer.received.clear()
            return made

        storm(80)
        bench.rig.sink.clear()
        gc.collect()
        gc.disable()  # what reference counting does not free is in cycles, and stays
        try:
            threads, objects = threading.active_count(), len(gc.get_objects())
            made = storm(3000)
            assert len(bench.rig.records) == made
            bench.rig.sink.clear()
            assert threading.active_count() == threads
            assert len(gc.get_objects()) - objects < 200
        finally:
            gc.enable()
        bench.assert_over()
