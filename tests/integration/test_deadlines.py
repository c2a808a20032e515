"""Deadlines, cancellations and the ways to run a handler, in a real process."""

from __future__ import annotations

import pytest

from tests.support.process import serve

APP = '''
import asyncio, contextvars, threading
from foundation_rt import Server, ToolContext

server = Server("deadlines")
go_on = threading.Event()
visitor = contextvars.ContextVar("visitor", default=None)


@server.tool
def release():
    go_on.set()


@server.tool(timeout_ms=100)
def slow_thread(ctx: ToolContext) -> str:
    """Looks at its signal, and takes its time."""
    ctx.abort_signal.add_callback(go_on_waiting.set)
    go_on_waiting.wait()
    ctx.logger.info("signalled", {"reason": ctx.abort_signal.reason})
    go_on.wait()
    return "late"


go_on_waiting = threading.Event()


@server.tool(timeout_ms=100)
async def slow_async(ctx: ToolContext) -> str:
    """Is told, is cancelled, and returns all the same."""
    try:
        ctx.logger.info("signalled", {"reason": await ctx.abort_signal.wait()})
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ctx.logger.info("cancelled")
    return "late"


@server.tool(timeout_ms=100)
async def deaf() -> str:
    """Does not look at its signal; ends when it is cancelled."""
    await asyncio.Event().wait()


@server.tool(timeout_ms=100)
async def obedient(ctx: ToolContext):
    await ctx.abort_signal.wait()
    ctx.abort_signal.raise_if_aborted()


@server.tool
async def patient(ctx: ToolContext):
    ctx.logger.info("waiting")
    await ctx.abort_signal.wait()
    ctx.logger.info("signalled", {"reason": ctx.abort_signal.reason})
    ctx.abort_signal.raise_if_aborted()


@server.tool
def patient_thread(ctx: ToolContext) -> str:
    ctx.logger.info("waiting")
    go_on.wait()
    return "late"


# -- where handlers run --------------------------------------------------------------------------

def whereabouts():
    before = visitor.get()
    visitor.set("somebody")
    thread = threading.current_thread()
    return {"before": before, "main": thread is threading.main_thread(), "thread": thread.name}


@server.tool(inline=True)
def where_inline() -> dict:
    return whereabouts()


@server.tool
def where_thread() -> dict:
    return whereabouts()


@server.tool
async def where_async() -> dict:
    place = whereabouts()
    await asyncio.sleep(0)
    return place | {"after": visitor.get(), "task": asyncio.current_task() in asyncio.all_tasks()}


@server.tool
async def uses_asyncio() -> list:
    results = []
    try:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        results.append("timeout")
    async with asyncio.TaskGroup() as group:
        one = group.create_task(asyncio.sleep(0, "one"))
        two = group.create_task(asyncio.to_thread(lambda: "two"))
    results += [one.result(), two.result()]
    reader, writer = await asyncio.open_connection(sock=ends()[0])
    writer.write(b"over a socket")
    await writer.drain()
    results.append(bytes(kept[1].recv(100)).decode())
    writer.close()
    process = await asyncio.create_subprocess_exec("echo", "from a child", stdout=-1)
    results.append((await process.communicate())[0].decode().strip())
    return results


kept = []


def ends():
    import socket

    kept.extend(socket.socketpair())
    return kept


@server.tool
async def own_context(value: str) -> str | None:
    """Sets a variable, lets others run, and looks again."""
    assert visitor.get() is None
    visitor.set(value)
    for _ in range(5):
        await asyncio.sleep(0.001)
    return visitor.get()
'''

COMPLETED = "tool call completed"
GRACE = {"tools.cancel_grace_ms": 50}


@pytest.mark.rule("TIME-02", "TIME-03", "TIME-06", "CALL-09", "CALL-13", "CALL-15")
def test_a_thread_that_is_late_is_answered_for_once_and_keeps_its_slot() -> None:
    with serve(APP, {"resources.max_concurrent_executions": 2, **GRACE}) as server:
        call = server.start("slow_thread")
        error = server.outcome(call)
        assert error["code"] == "TIMEOUT"
        assert error["details"] == {"timeoutMs": 100}
        assert server.record(message="signalled")["reason"] == "deadline"
        # Its slot is taken until it ends, and nothing but its own end ends it.
        assert server.call("health")["resources"]["concurrentExecutions"] == 1
        assert server.records_with(message=COMPLETED, toolName="slow_thread") == []
        server.call("release")
        record = server.completion("slow_thread")
        assert (record["outcome"], record["errorCode"]) == ("late_completed", "TIMEOUT")
        assert record["level"] == "warn"
        assert record["runId"] == error["runId"]
        assert record["durationMs"] >= 100
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
        assert len(server.answers(call)) == 1
        assert len(server.records_with(message=COMPLETED, toolName="slow_thread")) == 1


@pytest.mark.rule("TIME-02", "TIME-03", "TIME-04", "TIME-06", "TIME-07")
def test_a_coroutine_that_is_late_is_told_and_then_cancelled() -> None:
    outcomes = {"slow_async": "late_completed", "deaf": "timeout", "obedient": "timeout"}
    with serve(APP, GRACE) as server:
        calls = {tool: server.start(tool) for tool in outcomes}
        for tool, outcome in outcomes.items():
            error = server.outcome(calls[tool])
            assert error["code"] == "TIMEOUT"
            assert error["details"] == {"timeoutMs": 100}
            record = server.completion(tool)
            assert (record["outcome"], record["errorCode"]) == (outcome, "TIMEOUT")
            assert record["level"] == ("warn" if outcome == "late_completed" else "info")
        assert server.record(message="signalled")["reason"] == "deadline"
        server.record(message="cancelled")
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
        assert [len(server.answers(call)) for call in calls.values()] == [1, 1, 1]


@pytest.mark.rule("TIME-05", "TIME-06", "CALL-15")
def test_a_cancelled_call_is_aborted_and_never_answered() -> None:
    with serve(APP, GRACE) as server:
        calls = [server.start("patient"), server.start("patient_thread"), server.start("deaf")]
        server.wait_until(lambda: len(server.records_with(message="waiting")) == 2, "both")
        for call in calls:
            server.cancel(call)
            server.cancel(call)  # the second one names nothing in flight
        stopped = server.completion("patient")
        assert (stopped["outcome"], stopped["level"]) == ("aborted", "info")
        assert server.record(message="signalled")["reason"] == "cancelled"
        assert server.completion("deaf")["outcome"] == "aborted"
        assert server.call("health")["resources"]["concurrentExecutions"] == 1
        server.call("release")
        late = server.completion("patient_thread")
        assert (late["outcome"], late["level"]) == ("late_completed", "warn")
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
        assert [server.answers(call) for call in calls] == [[], [], []]
        assert len(server.records_with(message=COMPLETED, toolName="patient")) == 1


@pytest.mark.rule("CALL-12")
def test_handlers_run_where_they_should_and_share_no_context() -> None:
    with serve(APP) as server:
        for _ in range(2):
            inline, thread, later = (
                server.call(f"where_{how}") for how in ("inline", "thread", "async")
            )
            assert inline["main"]
            assert not thread["main"]
            assert later["main"]
            assert later["task"]
            assert later["after"] == "somebody"
            assert [each["before"] for each in (inline, thread, later)] == [None] * 3
        calls = {name: server.start("own_context", value=name) for name in "abcdef"}
        assert {name: server.outcome(call) for name, call in calls.items()} == {
            name: name for name in calls
        }
        assert server.finish() == 0


@pytest.mark.rule("CALL-12")
def test_asyncio_works_as_a_handler_expects() -> None:
    with serve(APP) as server:
        answers = ["timeout", "one", "two", "over a socket", "from a child"]
        assert server.call("uses_asyncio") == answers
        assert server.finish() == 0
        assert "Traceback" not in server.stderr
