"""`python -m tests.soak MINUTES`, that is `make soak`: mixed load, and what it leaves behind.

A round loads every server at once, lets them come to rest, and looks at what they hold. The first
quarter of the rounds warms up. Exits with 1 where a request had no answer or two, a call no record
or two, a server more tasks, threads, descriptors, children, temporary files or running calls at its
rests than in the warm-up, or memory that grows by more than 1 MB in a million calls in the second
half. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import linear_regression
from unittest.mock import patch

import orjson
from attrs import asdict, define, field

from bench.over_http import Server as Model
from tests.lab.servers.process import environment

from .app import server as app
from .clients import Clients, running
from .lines import Lines
from .processes import SETTINGS, Reading, Watched
from .sockets import BrokenRequests, Chats

_APP = str(Path(__file__).with_name("app.py"))
_MB = 1024 * 1024
_GROWTH_MB = 1.0
_ENOUGH_CALLS = 200_000
"""Fewer calls say nothing about growth: one page in them may be chance."""
_ENOUGH_ROUNDS = 12
"""Fewer have no quarter that says more than one moment."""
_REST_SECONDS = 15.0


@define(eq=False)
class Row:
    """What one process has held at its rests.

    Attributes:
        name: of the process.
        calls: returns how many it has had.
        look: returns what it holds, by name; `memory` in bytes.
        seen: calls, and what was held, at each rest.
    """

    name: str
    calls: Callable[[], int]
    look: Callable[[], Awaitable[dict[str, int]]]
    seen: list[tuple[int, dict[str, int]]] = field(factory=list, init=False)

    async def rest(self) -> None:
        """Wait until nothing changes but memory, and note what is held then."""
        deadline = time.monotonic() + _REST_SECONDS
        held = await self.look()
        while time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            before, held = held, await self.look()
            if {**before, "memory": 0} == {**held, "memory": 0}:
                break
        self.seen.append((self.calls(), held))

    @property
    def _warm_up(self) -> int:
        return max(1, len(self.seen) // 4)

    @property
    def growth(self) -> float | None:
        """In MB in a million calls, in the second half; None where there were too few.

        Until half a million calls of all sizes the memory of a sound process still finds its level.
        """
        seen = self.seen[len(self.seen) // 2 :]
        if len(self.seen) < _ENOUGH_ROUNDS or seen[-1][0] - seen[0][0] < _ENOUGH_CALLS:
            return None
        calls = [each for each, _ in seen]
        memory = [held["memory"] for _, held in seen]
        return linear_regression(calls, memory).slope * 1_000_000 / _MB

    def faults(self) -> list[str]:
        """Return what it holds that it did not hold in the warm-up, and may not."""
        found: list[str] = []
        if len(self.seen) < _ENOUGH_ROUNDS:
            return found
        warm, last = self.seen[: self._warm_up], self.seen[-self._warm_up :]
        for name in last[-1][1].keys() - {"memory"}:
            most, least = max(held[name] for _, held in warm), min(held[name] for _, held in last)
            if least > (0 if name == "calls" else most):
                found.append(f"{self.name}: {name} {most} after the warm-up, {least} at the end")
        if self.growth is not None and self.growth > _GROWTH_MB:
            found.append(f"{self.name}: memory grows by {self.growth:.2f} MB in a million calls")
        return found

    def __str__(self) -> str:
        (_, first), (calls, last) = self.seen[self._warm_up - 1], self.seen[-1]
        memory = f"{first['memory'] / _MB:.1f} to {last['memory'] / _MB:.1f} MB"
        growth = "too few calls" if self.growth is None else f"{self.growth:+.2f} MB/M"
        others = ", ".join(
            f"{name} {first[name]} to {last[name]}" for name in last if name != "memory"
        )
        return f"  {self.name:14}{calls:>11,}  {memory:22}{growth:16}{others}"


@define(eq=False)
class Soak:
    """All servers, their load, and what was seen of them."""

    lines: Lines
    http: Clients
    gateway: Clients
    memory: Clients
    broken: BrokenRequests
    chats: Chats
    random: random.Random
    rows: list[Row]
    faults: list[str] = field(factory=list, init=False)

    async def warm_up(self) -> None:
        """Have all threads started that the load may need at once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(self.lines.fill_threads))
            for clients in (self.http, self.gateway, self.memory):
                group.create_task(clients.fill_threads())

    async def round(self, seconds: float) -> None:
        """Load all at once, let them come to rest, and look."""
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(self.lines.run, seconds))
            group.create_task(asyncio.to_thread(self._short_life, seconds))
            group.create_task(self.http.run(seconds))
            group.create_task(self.gateway.run(seconds))
            group.create_task(self.memory.run(seconds))
            group.create_task(self.broken.run(seconds))
            group.create_task(self.chats.run(seconds))
        for row in self.rows:
            await row.rest()
        self._check_records(self.lines)
        for faults in (
            self.lines.faults,
            self.http.faults,
            self.gateway.faults,
            self.memory.faults,
            self.chats.faults,
        ):
            self.faults += faults
            faults.clear()

    def _short_life(self, seconds: float) -> None:
        """Load a server that lives for one round; it has to end as its client leaves."""
        with _stdio("short life") as server:
            lines = Lines(server, random.Random(self.random.random()))
            lines.begin()
            lines.run(seconds)
        self._check_records(lines)
        self.faults += lines.faults

    def _check_records(self, lines: Lines) -> None:
        if lines.server.records != lines.calls:
            self.faults.append(
                f"{lines.server.name}: {lines.calls} calls, {lines.server.records} records"
            )


@contextmanager
def _stdio(name: str) -> Iterator[Watched]:
    server = Watched.over_stdio(name, "serve", _APP)
    try:
        yield server
    finally:
        code = server.stop()
    if code:
        raise RuntimeError(f"{name}: exit code {code}")


@contextmanager
def _over_http(name: str, *words: str, **variables: str) -> Iterator[Watched]:
    server = Watched.over_http(name, *words, variables=variables)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def _log_of_this_process(path: Path) -> Iterator[None]:
    """Keep what the server in memory logs, which are its errors, in a file."""
    app.override("logging", level="error")
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def servers(seed: int) -> Iterator[Soak]:
    """Start everything, and end it."""
    chance = random.Random(seed)

    def draw() -> random.Random:
        return random.Random(chance.random())

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        temporary = folder / "temporary"
        temporary.mkdir()
        stack.enter_context(patch.dict(os.environ, TMPDIR=str(temporary)))  # of all servers
        at = "127.0.0.1:{port}"
        app.override("resources", max_concurrent_executions=256)
        app.override("tools", cancel_grace_ms=0)
        stack.enter_context(_log_of_this_process(folder / "errors"))
        stdio = stack.enter_context(_stdio("stdio"))
        http = stack.enter_context(_over_http("HTTP", "serve", _APP, "--no-auth", "--http", at))
        entries = {
            "child": {
                "command": sys.executable,
                "args": ["-m", "foundation_rt", "serve", _APP],
                "env": {key: each for key, each in environment(SETTINGS).items() if "_RT_" in key},
            },
            "other": {"url": http.url},
        }
        (folder / "mcp.json").write_bytes(orjson.dumps({"mcpServers": entries}))
        (folder / "none.json").write_text('{"mcpServers": {}}')
        gateway = stack.enter_context(
            _over_http("gateway", "gateway", str(folder / "mcp.json"), "--no-auth", "--http", at)
        )
        model = Model.spawn("model", ["-m", "bench.host_model"], "{}")
        stack.callback(model.stop)
        host = stack.enter_context(
            _over_http(
                *("host", "host", "--no-auth", "--model", "openai:fake", "--port", "{port}"),
                LLM_BASE_URL=f"http://127.0.0.1:{model.port}/v1",
                OPENAI_API_KEY="none",
                MCP_JSON_PATH=str(folder / "none.json"),
            )
        )
        lines = Lines(stdio, draw())
        lines.begin()
        over_http = Clients("HTTP", http.url, draw())
        through = Clients("gateway", gateway.url, draw(), prefix="child__")
        memory = Clients("in memory", app, draw())
        broken, chats = BrokenRequests(http.port, draw()), Chats(host.port, draw())

        async def look_at_stdio() -> dict[str, int]:
            held = await asyncio.to_thread(lines.call, "held")
            health = await asyncio.to_thread(lines.call, "health")
            return asdict(stdio.reading()) | running(held, health)

        async def look_at_http() -> dict[str, int]:
            return asdict(http.reading()) | await over_http.held()

        async def look_at_gateway() -> dict[str, int]:
            return asdict(gateway.reading())

        async def look_at_host() -> dict[str, int]:
            return asdict(host.reading())

        async def look_here() -> dict[str, int]:
            held = await memory.held()
            # What glibc keeps free in an arena for each thread comes and goes by megabytes.
            ctypes.CDLL(None).malloc_trim(0)
            files = sum(1 for _ in temporary.rglob("*"))
            return asdict(Reading.of(os.getpid())) | held | {"files": files}

        yield Soak(
            lines,
            over_http,
            through,
            memory,
            broken,
            chats,
            chance,
            [
                Row("stdio", lambda: lines.calls, look_at_stdio),
                Row("HTTP", lambda: over_http.calls, look_at_http),
                Row("gateway", lambda: through.calls, look_at_gateway),
                Row("host", lambda: chats.turns, look_at_host),
                Row("client", lambda: over_http.calls + through.calls + memory.calls, look_here),
            ],
        )


async def _run(soak: Soak, seconds: float, each: float) -> None:
    await soak.warm_up()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await soak.round(each)
        print(*soak.rows, "", sep="\n", flush=True)
        if soak.faults:
            return


def main() -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("minutes", type=float, help="how long")
    parser.add_argument("--seed", type=int, default=1, help="of all that is chosen (default 1)")
    parser.add_argument("--round", type=float, help="seconds (default: a sixtieth of the time)")
    asked = parser.parse_args()
    seconds = asked.minutes * 60
    print(f"seed {asked.seed}; a row: calls, memory after the warm-up and at the end, its growth")
    with servers(asked.seed) as soak:
        asyncio.run(_run(soak, seconds, asked.round or max(2.0, seconds / 60)))
        faults = soak.faults + [fault for row in soak.rows for fault in row.faults()]
    print(*faults[:20], sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
