"""Handlers that return an awaitable although they are no `async def`, in a real process.

And awaitables that nobody awaited.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.servers.process import serve

APP = '''
import asyncio, contextvars, functools, threading
from typing import Annotated
from foundation_rt import ByName, Depends, Server, ToolContext
from enum import Enum

server = Server("awaitables")
visitor = contextvars.ContextVar("visitor")
closed = []


class Color(Enum):
    RED = 1


def plainly(function):
    """Wrap a function as decorators often do: the wrapper is no coroutine function."""
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        visitor.set("set by the wrapper")
        return function(*args, **kwargs)
    return wrapper


async def later(value):
    await asyncio.sleep(0)
    return value


def database():
    yield "open"
    closed.append(threading.current_thread().name)


@server.tool
@plainly
async def wrapped(n: int) -> dict:
    await asyncio.sleep(0)
    return {"n": n, "visitor": visitor.get()}


@server.tool
def handed_on(n: int) -> int:
    return later(n)


@server.tool(inline=True)
def in_place(n: int) -> int:
    return later(later(n))


@server.tool
async def forgotten(n: int) -> int:
    return later(n)


@server.tool
def colored() -> Annotated[Color, ByName()]:
    return later(Color.RED)


@server.tool
def with_dependency(db: Annotated[str, Depends(database)]) -> list:
    async def use():
        return [db, *closed]
    return use()


@server.tool
def closings() -> int:
    return len(closed)


@server.tool
def forgetful() -> dict:
    return {"a": later(1)}


@server.tool
async def group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(failing())


async def failing():
    raise ValueError("inside of a task")


@server.tool(timeout_ms=100)
def endless() -> str:
    return later(asyncio.Event().wait())


@server.resource("text://fixed")
def fixed() -> str:
    return later("a resource")


@server.resource("text://{name}")
def named(name: str) -> str:
    return later(f"resource {name}")


@server.prompt
def ask(name: str) -> str:
    return later(f"Greet {name}")


@server.completion("ask", "name")
def names(value: str) -> list:
    return later(["Ann"])


@server.tool
async def reads(ctx: ToolContext) -> str:
    return (await ctx.read_resource("text://fixed"))[0].text
'''

PASSES_ON = """
@server.middleware
async def passes_on(request, proceed):
    return await proceed()
"""


@pytest.mark.rule("CALL-40")
@pytest.mark.parametrize("middleware", ["", PASSES_ON])
def test_awaitable_that_a_handler_returns_is_awaited(middleware: str) -> None:
    with serve(APP + middleware, {"tools.cancel_grace_ms": 50}) as server:
        assert server.call("handed_on", n=1) == 1  # before anything has needed an event loop
        assert server.call("wrapped", n=2) == {"n": 2, "visitor": "set by the wrapper"}
        assert [server.call(tool, n=3) for tool in ("in_place", "forgotten")] == [3, 3]
        assert server.call("colored") == "RED"
        assert server.call("with_dependency") == ["open"]
        assert server.call("closings") == 1
        assert server.call("reads") == "a resource"
        assert _text_of(server, "text://fixed") == "a resource"
        assert _text_of(server, "text://x") == "resource x"
        prompt = server.request("prompts/get", {"name": "ask", "arguments": {"name": "Ann"}})
        assert prompt["result"]["messages"][0]["content"]["text"] == "Greet Ann"
        subject = {"type": "ref/prompt", "name": "ask"}
        asked = {"ref": subject, "argument": {"name": "name", "value": "A"}}
        values = server.request("completion/complete", asked)["result"]["completion"]["values"]
        assert values == ["Ann"]


@pytest.mark.rule("CALL-40", "TIME-04")
def test_awaitable_that_a_handler_returns_ends_with_its_call() -> None:
    with serve(APP, {"tools.cancel_grace_ms": 50}) as server:
        assert server.outcome(server.start("endless"))["code"] == "TIMEOUT"
        assert server.completion("endless")["outcome"] == "timeout"
        assert server.call("health")["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
        assert len(server.records_with(message="tool call completed", toolName="endless")) == 1


@pytest.mark.rule("CALL-41", "ERR-09")
def test_log_names_a_forgotten_await_and_what_a_task_of_a_group_raised() -> None:
    with serve(APP) as server:
        assert server.outcome(server.start("forgetful"))["code"] == "INTERNAL"
        refused = server.record(message="tool result refused")["error"]
        assert refused["message"].startswith("$.a: later() was not awaited (")
        assert [frame.split()[-1] for frame in refused["frames"]] == ["forgetful"]
        assert server.outcome(server.start("group"))["code"] == "INTERNAL"
        [inner] = server.record(message="tool handler failed")["error"]["exceptions"]
        assert (inner["type"], inner["message"]) == ("ValueError", "inside of a task")
        assert inner["frames"][-1].endswith(" failing")


def _text_of(server: Any, uri: str) -> Any:
    return server.request("resources/read", {"uri": uri})["result"]["contents"][0]["text"]
