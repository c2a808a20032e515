"""The load for a server: a process that holds one client and makes calls with it, as it is told.

    python -m bench.client_load CLIENT TRANSPORT ERA WHERE

CLIENT is `floor`, `official` or `ours`; TRANSPORT is `stdio` or `http`; WHERE is the command line
of a server, or its URL. It takes jobs as lines of JSON, ``{"in_flight", "seconds"}``, and answers
each with a line: the calls per second, how long each one took, and what one cost this process in
CPU, all in seconds. For each call that is to be in flight, a task makes one after another.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import orjson

from bench.client_floor import MODES, ProtocolMode, over_http, over_stdio

TOOL, ARGUMENTS, RESULT = "inline_echo", {"text": "a fairly short text"}, "a fairly short text"

# As many calls may run as are made; and of them nothing is logged: who reads stderr would pay.
SERVER_ENV = {
    "FOUNDATION_RT_RESOURCES__MAX_CONCURRENT_EXECUTIONS": "256",
    "FOUNDATION_RT_LOGGING__LEVEL": "error",
}

Call = Callable[[], Awaitable[str]]
"""Makes a call; returns the text of its result."""


@asynccontextmanager
async def floor(transport: str, mode: ProtocolMode, where: str) -> AsyncIterator[Call]:
    """Yield a call of the bare client."""
    opened = (
        over_http(where, mode)
        if transport == "http"
        else over_stdio(shlex.split(where), {**os.environ, **SERVER_ENV}, mode)
    )
    async with opened as ask:

        async def call() -> str:
            result = await ask(TOOL, ARGUMENTS)
            text: str = result["content"][0]["text"]
            return text

        yield call


@asynccontextmanager
async def official(transport: str, mode: ProtocolMode, where: str) -> AsyncIterator[Call]:
    """Yield a call of the client of the official SDK."""
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    command, *args = shlex.split(where)
    server = (
        where
        if transport == "http"
        else StdioServerParameters(command=command, args=args, env=SERVER_ENV)
    )
    async with Client(server, mode=mode.revision if mode.is_stateless else "legacy") as client:

        async def call() -> str:
            result = await client.call_tool(TOOL, ARGUMENTS)
            text: str = result.content[0].text  # type: ignore[union-attr]
            return text

        yield call


@asynccontextmanager
async def ours(transport: str, mode: ProtocolMode, where: str) -> AsyncIterator[Call]:
    """Yield a call of this client."""
    from foundation_rt.client import StdioServer, connect

    command, *args = shlex.split(where)
    server = where if transport == "http" else StdioServer(command, args, SERVER_ENV)
    async with connect(server, revision=mode.revision) as client:

        async def call() -> str:
            return (await client.call(TOOL, ARGUMENTS)).text

        yield call


CLIENTS: dict[str, Callable[[str, ProtocolMode, str], AbstractAsyncContextManager[Call]]] = {
    "floor": floor,
    "official": official,
    "ours": ours,
}


async def make_calls(call: Call, in_flight: int, seconds: float) -> dict[str, Any]:
    """Measure calls per second, the seconds that each one took, and the CPU seconds of one."""
    took: list[float] = []
    clock = time.perf_counter
    cpu, started = time.process_time(), clock()
    until = started + seconds

    async def one_after_another() -> None:
        now = clock()
        while now < until:
            began = now
            if await call() != RESULT:
                raise RuntimeError("a call did not return what it should")
            now = clock()
            took.append(now - began)

    await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
    seconds, cpu = clock() - started, time.process_time() - cpu
    return {"rate": len(took) / seconds, "took": took, "cpu": cpu / len(took)}


async def serve(client: str, transport: str, mode: str, where: str) -> None:
    """Do one job after another."""
    jobs = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(jobs)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async with CLIENTS[client](transport, MODES[mode], where) as call:
        await make_calls(call, 1, 0.2)  # connections, compiled schemas, imports
        while line := await jobs.readline():
            job = orjson.loads(line)
            answer = await make_calls(call, job["in_flight"], job["seconds"])
            sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
