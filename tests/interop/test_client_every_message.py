"""Every message that our client can send is what the official types of its revision say.

In each revision a client does all it can with a server in memory. What it sends is checked line by
line, and at the end it must have sent everything that the official types know for the revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import orjson
import pytest
from attrs import define, field
from mcp_types import methods

from foundation_rt import Text
from foundation_rt.cli.server_loading import load_app
from foundation_rt.client import Client, SampleResult, connect
from foundation_rt.client.transports.memory import MemoryTransport
from foundation_rt.client.transports.transport import ClientMessage, Receiver
from tests.interop import tour
from tests.lab.checks import official_types
from tests.lab.servers.process import PATIENCE

STATELESS = "2026-07-28"
NEVER_SENT = {"notifications/progress", "notifications/roots/list_changed", "answer to ping"}
"""Ours has nothing to report, roots are asked for anew each time, and no server of ours pings."""
ASKING = {
    "roots/list": "ask_roots",
    "sampling/createMessage": "ask_model",
    "elicitation/create": "ask_user",
}
"""The tools that ask, by what they ask."""


@define(eq=False, repr=False)
class Recording(MemoryTransport):
    """A channel that checks what is sent through it.

    Attributes:
        seen: what of the revision's has been sent: requests, notifications, and answers by what
            they answer.
    """

    proposed: str = field(kw_only=True)
    seen: set[str] = field(factory=set, init=False)
    _asked: dict[Any, str] = field(factory=dict, init=False)
    _listener: Receiver = field(init=False)

    async def open(self, receiver: Receiver) -> None:
        self._listener = receiver
        await super().open(self)

    def send(self, message: ClientMessage) -> None:
        wire = orjson.loads(message.line)
        assert wire.get("method") == message.method
        asked = self._asked.get(wire["id"]) if message.method is None else None
        revision = self.proposed if message.revision is None else message.revision.name
        official_types.check_of_client(revision, wire, asked)
        self.seen.add(message.method or f"answer to {asked}")
        super().send(message)

    def received(self, line: Any, request_id: str | None) -> None:
        wire = orjson.loads(line)
        if "method" in wire and "id" in wire:
            self._asked[wire["id"]] = wire["method"]
        self._listener.received(line, request_id)

    def awaits(self, request_id: str) -> bool:
        return self._listener.awaits(request_id)

    def failed(self, request_id: str, error: Any) -> None:
        self._listener.failed(request_id, error)

    def lost(self, error: Any) -> None:
        self._listener.lost(error)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the server in this process, with its log."""
    monkeypatch.setenv("FOUNDATION_RT_LOGGING__LEVEL", "error")


@pytest.mark.parametrize("revision", official_types.REVISIONS)
def test_of_every_revision(revision: str) -> None:
    transport = _use(_do_everything, revision, revision)
    assert transport.seen == _known(revision)


def test_of_a_client_that_asks_which() -> None:
    async def negotiate(client: Client) -> None:
        server = await client.initialize()
        assert server.revision.name == STATELESS

    assert _use(negotiate, STATELESS, None).seen >= {"server/discover", "tools/list"}


def _use(
    what: Callable[[Client], Awaitable[None]], proposed: str, revision: str | None
) -> Recording:
    """Do something with a client; return the channel it was done through."""
    transport = Recording(load_app(str(tour.APP)), proposed=proposed)

    async def bounded() -> None:
        async with (
            asyncio.timeout(PATIENCE),
            connect(
                lambda: transport,
                revision=revision,
                title="Tests",
                log_level="debug",
                sampling=lambda _: SampleResult("assistant", (Text("yes"),), "test", "endTurn"),
                sampling_tools=True,
                elicitation=lambda _: {"name": "Ada"},
                elicitation_url=lambda _: True,
                roots=["file:///home/ada"],
                on_list_changed=lambda _: None,
            ) as client,
        ):
            await what(client)

    asyncio.run(bounded())
    return transport


async def _do_everything(client: Client) -> None:
    """All there is in the revision that is spoken."""
    server = await client.initialize()
    await client.call("add", {"a": 2, "b": 3}, correlation_id=str(uuid4()))
    await client.list_resources()
    await client.list_resource_templates()
    await client.read_resource("note://today")
    await client.list_prompts()
    await client.get_prompt("greet", {"name": "Ada"})
    await client.complete("greet", "name", "A", known={"city": "Oslo"})
    await client.ping()
    await client.call("enough")
    await client.call("count", {"to": 1}, on_progress=lambda *_: None, on_log=lambda *_: None)
    for server_request in server.revision.client_requests:
        if server_request in ASKING:
            assert not (await client.call(ASKING[server_request])).is_error
    if "url" in server.revision.elicitation_modes:
        assert not (await client.call("ask_elsewhere")).is_error
    await _subscribe(client)
    running = asyncio.create_task(client.call("wait"))
    await client.call("waiting")
    running.cancel()
    await client.call("ended_with")


async def _subscribe(client: Client) -> None:
    async with client.subscribe("note://today") as changes:
        await client.call("touch", {"uri": "note://today"})
        await anext(changes)
    await client.ping()  # what ends a subscription is sent before it


def _known(revision: str) -> set[str]:
    """Return the methods that a client of this revision can send."""
    tables = (methods.CLIENT_REQUESTS, methods.CLIENT_NOTIFICATIONS)
    sent = {method for table in tables for method, date in table if date == revision}
    answers = {f"answer to {method}" for method, date in methods.CLIENT_RESULTS if date == revision}
    return (sent | answers) - NEVER_SENT
