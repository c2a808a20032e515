"""Servers that are slow to start: when they are there, they have been asked twice."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from attrs import define, field

from foundation_rt.client import connect
from foundation_rt.client.session.handshake import NEWEST_REVISION
from foundation_rt.client.transports.transport import ClientMessage, Receiver
from foundation_rt.protocol.revisions import NEWEST_HANDSHAKE_REVISION

CLIENTS = 16
"""So many that an answer which is taken by chance is seen."""


@define(eq=False)
class SlowStart:
    """A channel to a server of both kinds, which reads nothing until it was asked `initialize`.

    Attributes:
        newest_first: whether it answers in the order in which it was asked.
    """

    newest_first: bool
    description: str = "a slow server"
    has_exchanges: bool = False
    is_congested: bool = False
    _receiver: Receiver = field(init=False)
    _unread: list[ClientMessage] = field(factory=list)

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: ClientMessage) -> None:
        self._unread.append(message)
        if message.method == "initialize":
            asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        for message in self._unread if self.newest_first else reversed(self._unread):
            result: dict[str, Any] = {"capabilities": {}, "serverInfo": {"name": "slow"}}
            if message.method == "initialize":
                result["protocolVersion"] = NEWEST_HANDSHAKE_REVISION
            else:
                result["supportedVersions"] = [NEWEST_REVISION, NEWEST_HANDSHAKE_REVISION]
            answer = {"jsonrpc": "2.0", "id": message.request_id, "result": result}
            self._receiver.received(orjson.dumps(answer), None)

    async def drained(self) -> None: ...

    def forget(self, request_id: str) -> None: ...

    def negotiated(self, revision: object) -> None: ...

    def stderr_tail(self) -> str:
        return ""

    async def close(self) -> None: ...


@pytest.mark.rule("CLIENT-01", "CLIENT-36")
@pytest.mark.parametrize("newest_first", [True, False])
def test_of_two_answers_that_come_together_the_newer_kind_counts(newest_first: bool) -> None:
    async def spoken() -> str:
        async with connect(
            lambda: SlowStart(newest_first), require=(), probe_timeout=0.001
        ) as client:
            return (await client.initialize()).revision.name

    async def main() -> list[str]:
        return await asyncio.gather(*(spoken() for _ in range(CLIENTS)))

    assert set(asyncio.run(main())) == {NEWEST_REVISION}
