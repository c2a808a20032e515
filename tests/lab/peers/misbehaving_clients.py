"""Clients of servers that misbehave, over whichever transport they are reached."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from foundation_rt.client import CallResult, Client, StdioServer, connect
from foundation_rt.client.options import ClientOptions
from tests.lab.peers.misbehaving_harness import ROOT, MisbehavingHarness, MisbehavingHttpHarness
from tests.lab.peers.misbehaving_script import Act
from tests.lab.peers.misbehaving_transport import MemoryHarness
from tests.lab.peers.scripted_transport import ONCE

SOON = 0.3
"""Seconds that a call is given which is never answered."""

ANSWER: Act = ["answer"]

DEATHS: dict[str, list[Act]] = {
    "exits": [["exit", 3]],
    "is killed": [["kill"]],
    "exits within its answer": [["part", 0.5], ["exit", 1]],
    "exits with much to say": [["stderr", 300_000], ["exit", 1]],
    "closes its output": [["close", "stdout"]],
    "closes its output and ignores all": [["stubborn"], ["close", "stdout"], ["deaf"]],
    "leaves a process that holds its pipes": [["grandchild"], ["kill"]],
    "leaves one in another session": [["grandchild", "elsewhere"], ["exit", 0]],
}
"""What a server over stdio may end in; the client knows at once."""


@asynccontextmanager
async def client_of(
    harness: MemoryHarness | MisbehavingHarness, *, introduced: bool = True, **options: Any
) -> AsyncIterator[Client]:
    """Yield a client of a server that misbehaves.

    Args:
        introduced: whether both have introduced themselves before, so that all the time of a call
            is for the server.
    """
    async with _connect(harness, options) as client:
        if introduced:
            await client.initialize()
        yield client


def _connect(harness: MemoryHarness | MisbehavingHarness, options: dict[str, Any]) -> Client:
    if isinstance(harness, MemoryHarness):
        return Client(harness.make_transport, ClientOptions(**options))
    if isinstance(harness, MisbehavingHttpHarness):
        return connect(harness.url, **{"retries": ONCE, **options})
    command = harness.command
    server = StdioServer(command[0], command[1:], cwd=ROOT, shutdown_grace=0.2)
    return connect(server, **options)


async def call(
    client: Client, nonce: str, acts: list[Act] | None = None, **more: Any
) -> CallResult:
    """Make a call, and check that it is answered with its own nonce."""
    arguments = {"nonce": nonce} if acts is None else {"nonce": nonce, "acts": acts}
    result = await client.call("play", arguments, **more)
    assert (result.structured, result.text) == ({"nonce": nonce}, nonce)
    return result
