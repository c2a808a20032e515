"""Many sessions of one client on several workers, one of which is killed while all have a call.

Each session has answered a question and found a stream again that was closed under it. What was not
on the worker that is killed keeps its session and its call; what was on it gets 404, and begins
anew. `python -m tests.interop.many_sessions CLIENT SESSIONS` runs it by hand, with a count of its
own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from attrs import define, field
from mcp import Client
from mcp_types import ElicitResult, TextContent

from foundation_rt.client import connect
from tests.lab.programs import node
from tests.lab.servers.http_server import serve_workers
from tests.lab.servers.process import ServerProcess

HERE = Path(__file__).parent
WORKERS = 4
PATIENCE = 240.0

APP = """
import asyncio, os
from foundation_rt import Server, Text, ToolContext

server = Server("many")
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@server.tool
async def pid() -> Text:
    return Text(str(os.getpid()))


@server.tool
async def ask(context: ToolContext) -> Text:
    return Text((await context.elicit("Who?", FORM)).content["name"])


@server.tool
async def drop(context: ToolContext) -> Text:
    context.close_stream()
    return Text("found again")


@server.tool(timeout_ms=600_000)
async def hold(path: str, context: ToolContext) -> Text:
    context.report_progress(1)  # its stream has begun when the client knows
    while not os.path.exists(path):
        await asyncio.sleep(0.05)
    return Text("held")
"""

Say = Callable[..., Awaitable[str]]
Open = Callable[[str], AbstractAsyncContextManager[Say]]


@define
class Report:
    """The sessions that kept their worker, lost it, and came back; and what went wrong."""

    kept: int = 0
    lost: int = 0
    back: int = 0
    problems: list[str] = field(factory=list)


def run(client: str, sessions: int) -> tuple[Report, int]:
    """Return the report, and how many sessions were on the worker that was killed.

    Args:
        client: `typescript-1`, `typescript-2`, `python` or `ours`.
        sessions: their number.
    """
    with tempfile.TemporaryDirectory() as folder:
        app, path = Path(folder) / "app.py", Path(folder) / "go"
        app.write_text(APP)
        settings = {
            "http.retry_ms": 100,
            "resources.max_concurrent_executions": sessions + 1,
        }
        with serve_workers(app, WORKERS, settings=settings) as (process, url):
            kill = Kill(process, path, sessions)
            if client.startswith("typescript"):
                return _run_typescript(int(client[-1]), url, kill)
            return asyncio.run(
                _run_python(_open_official if client == "python" else _open, url, kill)
            )


@define
class Kill:
    """The end of one worker, to be called when every session has a call there or elsewhere."""

    process: ServerProcess
    path: Path
    sessions: int

    def __call__(self, pids: list[int]) -> int:
        """Kill the worker of the first session; return it."""
        os.kill(pids[0], signal.SIGKILL)
        self.process.wait_until(
            lambda: f"worker {pids[0]} has ended" in self.process.stderr, "the end of the worker"
        )
        self.path.touch()
        return pids[0]


def _run_typescript(sdk: int, url: str, kill: Kill) -> tuple[Report, int]:
    node.install(HERE)
    given = {"sdk": sdk, "url": url, "sessions": kill.sessions, "path": str(kill.path)}
    script = [node.NODE, HERE / "typescript_sessions.mjs", orjson.dumps(given).decode()]
    with subprocess.Popen(
        script, env=node.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        try:
            pids: list[int] = orjson.loads(client.stdout.readline())
            killed = kill(pids)
            client.stdin.write(b"%d\n" % killed)
            client.stdin.flush()
            return Report(**orjson.loads(client.stdout.readline())), pids.count(killed)
        finally:
            client.kill()


async def _run_python(open_client: Open, url: str, kill: Kill) -> tuple[Report, int]:
    report, pids, ended = Report(), dict[int, int](), asyncio.Event()
    all_hold: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def session(number: int) -> None:
        try:
            await _use(number)
        except Exception as error:
            report.problems.append(repr(error))
            if not all_hold.done():
                all_hold.set_exception(error)

    async def _use(number: int) -> None:
        async with open_client(url) as say:
            pid = pids[number] = int(await say("pid"))
            assert await say("ask") == "Ada"
            assert await say("drop") == "found again"
            holding = asyncio.Event()
            held = asyncio.create_task(_settle(say("hold", holding, path=str(kill.path))))
            await holding.wait()
            ready.add(number)
            if len(ready) == kill.sessions:
                all_hold.set_result(pids[0])
            await ended.wait()
            if pid != pids[0]:
                assert await held == "held"
                assert await say("ask") == "Ada"
                assert int(await say("pid")) == pid
                report.kept += 1
                return
            held.cancel()
            lost = await _settle(say("pid")) != str(pid)
            report.lost += lost
        async with open_client(url) as say:
            assert await say("ask") == "Ada"
            report.back += 1

    ready: set[int] = set()
    async with asyncio.timeout(PATIENCE):
        tasks = [asyncio.create_task(session(number)) for number in range(kill.sessions)]
        await all_hold
        await asyncio.to_thread(kill, [pids[0]])
        ended.set()
        await asyncio.gather(*tasks)
    return report, [*pids.values()].count(pids[0])


async def _settle(saying: Awaitable[str]) -> str:
    """Return what a tool said, or what went wrong."""
    try:
        return await saying
    except Exception as error:
        return repr(error)


@asynccontextmanager
async def _open_official(url: str) -> AsyncIterator[Say]:
    async def elicit(context: object, params: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with Client(url, mode="legacy", elicitation_callback=elicit) as client:

        async def say(tool: str, begun: asyncio.Event | None = None, **arguments: Any) -> str:
            async def advance(*progress: object) -> None:
                if begun is not None:
                    begun.set()

            called = await client.call_tool(tool, arguments, progress_callback=advance)
            [content] = called.content
            assert isinstance(content, TextContent)
            return content.text

        yield say


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[Say]:
    async with connect(
        url, revision="2025-11-25", elicitation=lambda request: {"name": "Ada"}
    ) as client:

        async def say(tool: str, begun: asyncio.Event | None = None, **arguments: Any) -> str:
            def advance(*progress: object) -> None:
                if begun is not None:
                    begun.set()

            safe = begun is None
            return (await client.call(tool, arguments, idempotent=safe, on_progress=advance)).text

        yield say


if __name__ == "__main__":
    name, count = sys.argv[1], int(sys.argv[2])
    print(name, *run(name, count))
