"""Traffic by the client: calls that succeed, fail, are late, are given up; and lost connections."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from attrs import define, field

from foundation_rt.client import BreakerSettings, Client, InvalidArgumentsError, MCPError, connect

_NEVER = BreakerSettings(failure_threshold=2**31)
_MEMBERS = 4
_PATIENCE = 60.0


def running(held: Mapping[str, Any], health: Mapping[str, Any]) -> dict[str, int]:
    """Return what the tools `held` and `health` have said."""
    return {"tasks": held["tasks"], "calls": health["resources"]["concurrentExecutions"]}


@define(eq=False)
class Clients:
    """Clients of one server that call it at random.

    Attributes:
        name: in the report.
        target: of `connect`.
        random: chooses.
        prefix: of the names of tools.
        calls: how many calls were made, those included that never left the client.
        faults: what did not end as it should.
    """

    name: str
    target: Any
    random: random.Random
    prefix: str = ""
    calls: int = field(default=0, init=False)
    faults: list[str] = field(factory=list, init=False)

    async def run(self, seconds: float) -> None:
        """Call for so long, with clients that come and go."""
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(_MEMBERS):
                group.create_task(self._come_and_go(end))

    async def fill_threads(self) -> None:
        """Have as many calls in threads as there may be at once."""
        async with self._connect() as client, asyncio.TaskGroup() as group:
            for _ in range(_MEMBERS**2):
                group.create_task(client.call(f"{self.prefix}thread", {"ms": 500}))

    async def held(self) -> dict[str, int]:
        """Return what the server says of itself: its tasks, and the calls that run."""
        async with self._connect() as client:
            held = await client.call(f"{self.prefix}held")
            health = await client.call(f"{self.prefix}health")
        return running(orjson.loads(held.text), orjson.loads(health.text))

    def _connect(self) -> Client:
        revision = self.random.choice((None, "2025-11-25"))
        return connect(self.target, breaker=_NEVER, timeout=_PATIENCE, revision=revision)

    async def _come_and_go(self, end: float) -> None:
        while time.monotonic() < end:
            async with self._connect() as client, asyncio.TaskGroup() as group:
                for _ in range(_MEMBERS):
                    group.create_task(self._call(client, end, self.random.randint(1, 400)))

    async def _call(self, client: Client, end: float, times: int) -> None:
        kinds = list(_KINDS)
        for kind in self.random.choices(kinds, [_KINDS[each] for each in kinds], k=times):
            if time.monotonic() >= end:
                return
            self.calls += 1
            try:
                fault = await kind(self, client)
            except Exception as error:
                fault = repr(error)
            if fault:
                self.faults.append(f"{self.name}, {kind.__name__}: {fault[:300]}")

    # -- calls: each returns what was wrong ------------------------------------------------------

    async def _echo(self, client: Client) -> str | None:
        text = "x" * self.random.choice((0, 10, 1_000, 50_000))
        result = await client.call(f"{self.prefix}echo", {"text": text})
        return None if result.text == text else f"another text: {result.text[:40]}"

    async def _later(self, client: Client) -> str | None:
        tool = self.random.choice(("later", "thread"))
        result = await client.call(f"{self.prefix}{tool}", {"ms": self.random.randint(0, 5)})
        return None if result.text == tool else f"another text: {result.text[:40]}"

    async def _large(self, client: Client) -> str | None:
        result = await client.call(f"{self.prefix}large", {"size": 300_000})
        return None if len(result.text) == 300_000 else "another length"

    async def _fail(self, client: Client) -> str | None:
        tool = self.random.choice(("fail", "crash", "late"))
        result = await client.call(f"{self.prefix}{tool}")
        return None if result.is_error else "no error"

    async def _tell(self, client: Client) -> str | None:
        heard: list[float] = []
        result = await client.call(
            f"{self.prefix}tell", on_progress=lambda done, *_: heard.append(done)
        )
        return None if result.text == "told" and heard == [1] else f"{result.text}, {heard}"

    async def _refused(self, client: Client) -> str | None:
        with suppress(InvalidArgumentsError):
            await client.call(f"{self.prefix}echo", {"text": 1})
            return "accepted"
        return None

    async def _unknown(self, client: Client) -> str | None:
        with suppress(MCPError):
            result = await client.call(f"{self.prefix}none")
            return None if result.is_error else "accepted"
        return None

    async def _given_up(self, client: Client) -> str | None:
        with suppress(MCPError):
            await client.call(f"{self.prefix}hang", timeout=0.05)
            return "answered"
        return None

    async def _cancelled(self, client: Client) -> str | None:
        task = asyncio.ensure_future(client.call(f"{self.prefix}hang"))
        await asyncio.sleep(self.random.choice((0, 0.002, 0.01)))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
            return "answered"
        return None

    async def _list(self, client: Client) -> str | None:
        client.invalidate()
        tools = await client.list_tools()
        return None if len(tools) >= 10 else f"{len(tools)} tools"


_KINDS: dict[Callable[[Clients, Client], Awaitable[str | None]], float] = {
    Clients._echo: 600,
    Clients._later: 150,
    Clients._fail: 60,
    Clients._tell: 40,
    Clients._refused: 40,
    Clients._unknown: 20,
    Clients._given_up: 10,
    Clients._cancelled: 30,
    Clients._list: 10,
    Clients._large: 10,
}
"""How often each kind of call is made."""
