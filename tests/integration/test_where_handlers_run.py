"""Where handlers run, and what they find there, in a real process."""

from __future__ import annotations

import pytest

from tests.lab.servers.process import serve

APP = '''
import asyncio, contextvars, threading
from foundation_rt import Server

server = Server("places")
visitor = contextvars.ContextVar("visitor", default=None)


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
