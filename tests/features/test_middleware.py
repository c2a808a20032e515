"""Plain callables around handlers: in their order, with everything else as it is without them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from foundation_rt import (
    AbortError,
    RegistrationError,
    Server,
    ToolContext,
    ToolError,
    UsageError,
)
from foundation_rt.testing import ManualClock, TestClient
from tests.lab.clock.virtual_loop import VirtualLoop, run_bounded
from tests.lab.servers.engine import EngineHarness, HeldHandler
from tests.lab.servers.process import environment, serve
from tests.lab.waiting import PATIENCE, until

Proceed = Callable[[], Awaitable[Any]]

WAYS = ("task", "worker", "inline")


async def pass_through(call: Any, proceed: Proceed) -> Any:
    return await proceed()


def add_tool(server: Server, way: str, function: Callable[[], Any], name: str = "tool") -> None:
    """Register a tool that runs `function` in one of the three ways."""
    if way == "task":

        @server.tool(name=name)
        async def coroutine() -> Any:
            await asyncio.sleep(0)
            return function()
    else:

        @server.tool(name=name, inline=way == "inline")
        def plain() -> Any:
            return function()


def call(server: Server, tool: str = "tool", **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Return the result of a tool, or its error, with the record of its call."""

    async def main() -> tuple[Any, dict[str, Any]]:
        async with TestClient(server, clock=ManualClock()) as client:
            try:
                value = await client.call(tool, **arguments)
            except ToolError as error:
                value = error
            records = [line for line in client.logs or () if "outcome" in line]
            return value, records[-1]

    found: tuple[Any, dict[str, Any]] = run_bounded(main)
    return found


# -- order, and what it may do


@pytest.mark.rule("OPS-22")
@pytest.mark.parametrize("way", WAYS)
def test_the_first_registered_is_outermost(way: str) -> None:
    server, seen = Server("s"), []

    def add(name: str) -> None:
        @server.middleware
        async def around(call: Any, proceed: Proceed) -> Any:
            seen.append(f"{name} before {call.method} {call.name} {call.arguments}")
            value = await proceed()
            seen.append(f"{name} after {value}")
            return value

    add("outer")
    add("inner")
    add_tool(server, way, lambda: seen.append("handler") or 5)
    assert call(server)[0] == 5
    assert seen == [
        "outer before tools/call tool {}",
        "inner before tools/call tool {}",
        "handler",
        "inner after 5",
        "outer after 5",
    ]


@pytest.mark.rule("OPS-08")
@pytest.mark.parametrize("way", WAYS)
def test_middleware_may_return_another_value_or_not_proceed(way: str) -> None:
    server, ran = Server("s"), []

    @server.middleware
    async def around(call: Any, proceed: Proceed) -> Any:
        return {"cached": 1} if call.name == "cached" else {"wrapped": await proceed()}

    for name in ("cached", "tool"):
        add_tool(server, way, lambda: ran.append(1) or "value", name)
    assert call(server, "cached")[0] == {"cached": 1}
    assert ran == []
    assert call(server)[0] == {"wrapped": "value"}


@pytest.mark.rule("OPS-08")
@pytest.mark.parametrize("way", WAYS)
def test_middleware_may_raise_a_tool_error(way: str) -> None:
    server, ran = Server("s"), []

    @server.middleware
    async def around(call: Any, proceed: Proceed) -> Any:
        raise ToolError("RESOURCE_EXHAUSTED", "Too often.", {"retryAfterMs": 5})

    add_tool(server, way, lambda: ran.append(1))
    error, record = call(server)
    assert (error.code, error.message) == ("RESOURCE_EXHAUSTED", "Too often.")
    assert error.details == {"retryAfterMs": 5}
    assert (record["outcome"], record["errorCode"]) == ("tool_error", "RESOURCE_EXHAUSTED")
    assert ran == []


@pytest.mark.rule("OPS-08")
@pytest.mark.parametrize("error", [LookupError("secret"), SystemExit(3)], ids=repr)
def test_other_exception_of_middleware_is_internal(error: BaseException) -> None:
    server = Server("s")

    @server.middleware
    async def around(call: Any, proceed: Proceed) -> Any:
        raise error

    add_tool(server, "inline", lambda: 1)
    told, record = call(server)
    assert told.code == record["errorCode"] == "INTERNAL"
    assert "secret" not in told.message


@pytest.mark.rule("OPS-08")
@pytest.mark.parametrize("way", WAYS)
def test_middleware_may_proceed_twice(way: str) -> None:
    server, attempts = Server("s"), []

    def flaky() -> int:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("once more")
        return len(attempts)

    @server.middleware
    async def retry(call: Any, proceed: Proceed) -> Any:
        while True:
            try:
                return await proceed()
            except OSError:
                continue

    add_tool(server, way, flaky)
    assert call(server)[0] == 3


@pytest.mark.rule("OPS-08")
def test_proceed_after_the_end_of_the_call_is_refused() -> None:
    server, kept, ran = Server("s"), [], []

    @server.middleware
    async def around(call: Any, proceed: Proceed) -> Any:
        kept.append(proceed)

    add_tool(server, "task", lambda: ran.append(1))
    assert call(server)[0] is None
    with pytest.raises(RuntimeError, match="after its call had ended"):
        run_bounded(kept[0])
    assert ran == []


# -- everything else is as without


ENDINGS = [
    ToolError("NOT_FOUND", "Nowhere.", {"at": 1}),
    AbortError("by itself"),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    LookupError("x"),
]


@pytest.mark.rule("OPS-09")
@pytest.mark.parametrize("ending", [*ENDINGS, StopIteration(1), None, {"a": [1]}], ids=repr)
@pytest.mark.parametrize("way", WAYS)
def test_call_ends_the_same_way_with_middleware(way: str, ending: Any) -> None:
    def function() -> Any:
        if isinstance(ending, BaseException):
            raise ending
        return ending

    found = []
    for middleware in ((), (pass_through, pass_through)):
        server = Server("s")
        for each in middleware:
            server.middleware(each)
        add_tool(server, way, function)
        value, record = call(server)
        told = (value.code, value.message, value.details) if isinstance(value, ToolError) else value
        found.append((told, record["outcome"], record.get("errorCode")))
    assert found[0] == found[1]


def start_and_end(
    way: str, middleware: tuple[Any, ...], event: str, ending: str
) -> tuple[Any, dict[str, Any]]:
    """Start a call, let something happen to it, then let its handler end: answers and record."""

    def finish(context: ToolContext) -> str:
        if ending == "stops":
            context.abort_signal.raise_if_aborted()
        if ending == "raises":
            raise LookupError("own accord")
        return "late"

    def plain(arguments: dict[str, Any], context: ToolContext) -> str:
        return finish(context)

    class Slow(HeldHandler):
        async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> Any:
            await super().__call__(arguments, context)
            return finish(context)

    with EngineHarness(middleware=middleware) as bench:
        slow = Slow()
        request_id = bench.start(bench.tool(slow if way == "task" else plain))
        if event == "deadline":
            bench.wait(1000)
        elif event == "cancel":
            bench.peer.notify("notifications/cancelled", {"requestId": request_id})
        else:
            bench.peer.connection.close()
        assert bench.rig.slots_in_use == 1
        if event == "deadline then grace":
            bench.wait(1500)
        slow.end() if way == "task" else bench.workers.run()
        bench.scheduler.settle()
        bench.assert_over()
        record = {k: v for k, v in bench.record.items() if k in ("outcome", "errorCode", "level")}
        codes = [bench.peer.outcome(request_id)["code"]] if bench.peer.answers(request_id) else []
        return codes, record


@pytest.mark.rule("OPS-09")
@pytest.mark.parametrize("ending", ["returns", "raises", "stops"])
@pytest.mark.parametrize("event", ["deadline", "cancel", "disconnect"])
@pytest.mark.parametrize("way", ["task", "worker"])
def test_deadlines_and_aborts_are_the_same_with_middleware(
    way: str, event: str, ending: str
) -> None:
    without = start_and_end(way, (), event, ending)
    assert start_and_end(way, (pass_through,), event, ending) == without


@pytest.mark.rule("OPS-24")
@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_after_the_grace_the_slot_is_held_until_the_thread_has_ended(ending: str) -> None:
    def works(arguments: dict[str, Any], context: ToolContext) -> str:
        if ending == "raises":
            raise LookupError
        return "late"

    with EngineHarness(middleware=(pass_through,)) as bench:
        request_id = bench.start(bench.tool(works))
        bench.wait(1000 + 300 + 1)  # the deadline, the grace: its task is cancelled
        assert bench.peer.outcome(request_id)["code"] == "TIMEOUT"
        assert bench.rig.slots_in_use == 1
        assert len(bench.engine.running) == 1
        bench.workers.run()
        assert bench.record["outcome"] == "late_completed"
        bench.assert_over()


@pytest.mark.rule("OPS-09", "OPS-24")
def test_task_that_waits_in_middleware_is_cancelled_after_the_grace() -> None:
    async def waits(call: Any, proceed: Proceed) -> Any:
        await proceed()
        await asyncio.Event().wait()

    with EngineHarness(middleware=(waits,)) as bench:
        request_id = bench.start(bench.tool(lambda arguments, context: 1, inline=True))
        assert bench.rig.slots_in_use == 1
        bench.wait(1000 + 300 + 1)
        assert bench.peer.outcome(request_id)["code"] == "TIMEOUT"
        assert bench.record["outcome"] == "timeout"
        bench.assert_over()


@pytest.mark.rule("OPS-24")
def test_call_ends_with_its_thread_if_middleware_does_not_wait() -> None:
    async def impatient(call: Any, proceed: Proceed) -> Any:
        try:
            async with asyncio.timeout(0.1):
                return await proceed()
        except TimeoutError:
            return "instead"

    with EngineHarness(middleware=(impatient,)) as bench:
        request_id = bench.start(bench.tool(lambda arguments, context: "own"))
        bench.wait(200)
        assert bench.peer.answers(request_id) == []
        assert bench.rig.slots_in_use == 1
        bench.workers.run()
        assert bench.peer.outcome(request_id) == "instead"
        assert bench.record["outcome"] == "success"
        bench.assert_over()


@pytest.mark.rule("OPS-24")
def test_call_left_in_two_threads_ends_with_the_later_one() -> None:
    async def twice(call: Any, proceed: Proceed) -> Any:
        for _ in range(2):
            try:
                async with asyncio.timeout(0.1):
                    return await proceed()
            except TimeoutError:
                continue
        return "gave up"

    with EngineHarness(middleware=(twice,)) as bench:
        request_id = bench.start(bench.tool(lambda arguments, context: "own"))
        bench.wait(200)
        bench.wait(200)
        assert len(bench.workers.waiting) == 2
        bench.workers.run()
        assert bench.rig.slots_in_use == 1
        bench.workers.run()
        assert bench.peer.outcome(request_id) == "gave up"
        bench.assert_over()


@pytest.mark.rule("OPS-24")
def test_when_the_loop_is_closed_under_a_thread_the_call_still_ends() -> None:
    server = Server("s")
    server.middleware(pass_through)
    started, go_on = threading.Event(), threading.Event()

    @server.tool
    def works() -> None:
        started.set()
        go_on.wait(PATIENCE)

    async def leave() -> None:
        lines: list[bytes] = []
        connection = server.connect(lines.append)
        connection.feed(
            b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":'
            b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}\n'
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"works"}}\n'
        )
        await until(started.is_set, "the handler runs")

    run_bounded(leave)  # which cancels the call's task, and closes the loop
    runtime = server.runtime
    assert runtime.resources.concurrent_executions == 1
    go_on.set()
    assert runtime.engine.wait_idle(PATIENCE)
    assert runtime.resources.concurrent_executions == 0


@pytest.mark.rule("OPS-24")
def test_call_ends_when_the_loop_is_closed_silently() -> None:
    with EngineHarness(middleware=(pass_through,)) as bench:
        bench.start(bench.tool(lambda arguments, context: 1))
        [run_] = bench.engine._runs.values()
        assert run_.task is not None and run_.coroutine is not None
        bench.scheduler.loop.close()
        bench.workers.run()
        assert bench.record["outcome"] == "success"
        bench.rig.assert_all_ended()
        run_.task._log_destroy_pending = False  # type: ignore[attr-defined]
        run_.coroutine.close()
        bench.scheduler.loop = VirtualLoop(bench.clock)


@pytest.mark.rule("OPS-09")
@pytest.mark.parametrize("way", WAYS)
def test_only_handlers_see_the_context_variables_of_middleware(way: str) -> None:
    server, seen = Server("s"), []
    user = contextvars.ContextVar("user", default="nobody")

    @server.middleware
    async def sign_in(call: Any, proceed: Proceed) -> Any:
        seen.append(user.get())
        user.set("somebody")
        return await proceed()

    def handler() -> str:
        found = user.get()
        user.set("changed")
        return found

    add_tool(server, way, handler)
    assert [call(server)[0] for _ in range(2)] == ["somebody"] * 2
    assert seen == ["nobody"] * 2
    assert user.get() == "nobody"


@pytest.mark.rule("OPS-09")
def test_calls_leave_no_garbage() -> None:
    with EngineHarness(middleware=(pass_through, pass_through)) as bench:

        async def task(arguments: dict[str, Any], context: ToolContext) -> Any:
            raise LookupError

        def worker(arguments: dict[str, Any], context: ToolContext) -> Any:
            raise LookupError

        def inline(arguments: dict[str, Any], context: ToolContext) -> Any:
            return 1

        names = [bench.tool(task), bench.tool(worker), bench.tool(inline, inline=True)]

        def storm(rounds: int) -> None:
            for _ in range(rounds):
                for name in names:
                    bench.start(name)
                    while bench.workers.waiting:
                        bench.workers.run()
                    bench.scheduler.settle()
                bench.wait(1)  # forgets the timers that were cancelled
                bench.peer.take()
                bench.rig.sink.clear()

        storm(20)
        gc.collect()
        gc.disable()  # what reference counting does not free is in cycles, and stays
        try:
            storm(300)
            assert gc.collect() < 200
        finally:
            gc.enable()
        bench.assert_over()


# -- when, and what


@pytest.mark.rule("OPS-10")
def test_without_middleware_nothing_is_imported() -> None:
    script = """
import sys
from foundation_rt import Server
server = Server("s")

@server.tool(inline=True)
def loaded() -> list[str]:
    return [name for name in sys.modules if ".middleware" in name or "lifespan" in name]

lines = []
connection = server.connect(lines.append)
connection.feed(
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":'
    b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}\\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\\n'
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"loaded"}}\\n'
)
assert b'"[]"' in lines[1], lines
assert "asyncio" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True, timeout=PATIENCE)


@pytest.mark.rule("OPS-22", "OPS-09")
def test_over_stdio_every_call_passes_through() -> None:
    app = """
from foundation_rt import Server
server = Server("wrapped")

@server.middleware
async def count(call, proceed):
    return [call.name, await proceed()]

@server.tool
def worker():
    return 1

@server.tool(inline=True)
def inline():
    return 2

@server.tool
async def task():
    return 3
"""
    with serve(app) as server:
        assert server.call("worker") == ["worker", 1]
        assert server.call("inline") == ["inline", 2]
        assert server.call("task") == ["task", 3]
        assert server.finish() == 0


def _not_async(call: Any, proceed: Any) -> None: ...


async def _one_argument(call: Any) -> None: ...


async def _three_arguments(call: Any, proceed: Any, more: Any) -> None: ...


@pytest.mark.rule("OPS-07", "OPS-23")
@pytest.mark.parametrize("function", [_not_async, _one_argument, _three_arguments, 5])
def test_invalid_middleware_is_refused_with_advice(function: Any) -> None:
    with pytest.raises(RegistrationError, match=r"write `async def .*\(call, proceed\)`"):
        Server("s").middleware(function)


@pytest.mark.rule("OPS-07")
def test_instance_whose_class_has_an_async_call_is_middleware() -> None:
    class Around:
        async def __call__(self, call: Any, proceed: Proceed) -> Any:
            return [await proceed()]

    server = Server("s")
    server.middleware(Around())
    add_tool(server, "inline", lambda: 1)
    assert call(server)[0] == [1]


@pytest.mark.rule("OPS-07")
def test_registration_after_the_start_is_refused() -> None:
    server = Server("s")
    assert server.runtime
    with pytest.raises(UsageError, match="before the server is started"):
        server.middleware(pass_through)
