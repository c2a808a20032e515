"""Coordinators in one process, joined by a network that may lose, double and delay envelopes.

Everything runs on the loop of the test, in virtual time. What an envelope is on the wire it is here
too: it is encoded where it is sent and decoded where it arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from attrs import define, field

from foundation_rt.agents.ledger.encoder import decode, encode
from foundation_rt.agents.ledger.types import Envelope
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.transports import (
    AgentServedElsewhereError,
    Deliver,
    OnLoss,
    TransportError,
)


@define(eq=False)
class LoopbackNetwork:
    """Brings an envelope to every end that listens for its target.

    Attributes:
        rng: with one, envelopes are lost, doubled and delayed; without, they come at once.
        lost, doubled: the share of them, from 0 to 1.
        max_delay_ms: the longest delay.
        is_down: nothing can be sent.
        cut_off: agents to whom everything is lost.
        sent: the envelopes so far.
    """

    rng: Random | None = None
    lost: float = 0.0
    doubled: float = 0.0
    max_delay_ms: int = 0
    is_down: bool = False
    cut_off: set[str] = field(factory=set)
    sent: list[Envelope] = field(factory=list)
    ends: list[LoopbackTransport] = field(factory=list)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)

    def end(self) -> LoopbackTransport:
        """Return a transport of another coordinator."""
        end = LoopbackTransport(self)
        self.ends.append(end)
        return end

    def carry(self, envelope: Envelope) -> None:
        """Deliver an envelope, as often and as late as `rng` decides."""
        self.sent.append(envelope)
        if envelope.target_agent_id in self.cut_off:
            return
        copies, delay = 1, 0.0
        if self.rng is not None:
            copies = 0 if self.rng.random() < self.lost else 1 + (self.rng.random() < self.doubled)
        for _ in range(copies):
            if self.rng is not None:
                delay = self.rng.randint(0, self.max_delay_ms) / 1000
            asyncio.get_running_loop().call_later(delay, self._arrive, encode(envelope))

    def _arrive(self, data: bytes) -> None:
        envelope = decode(data)
        for end in self.ends:
            if envelope.target_agent_id in end.agents and end.deliver is not None:
                task = asyncio.ensure_future(_deliver(end.deliver, envelope))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


async def _deliver(deliver: Deliver, envelope: Envelope) -> None:
    with suppress(StoreError):  # it comes again, since nobody acknowledged it
        await deliver([envelope])


@define(eq=False)
class LoopbackTransport:
    """One end of a `LoopbackNetwork`."""

    network: LoopbackNetwork
    max_envelope_bytes: int = 1 << 20
    deliver: Deliver | None = None
    agents: set[str] = field(factory=set)
    lost: OnLoss | None = None
    ledger_uid: str = ""

    async def open(self, deliver: Deliver, ledger_uid: str) -> None:
        if self.network.is_down:
            raise TransportError("the network is down")
        self.deliver, self.ledger_uid = deliver, ledger_uid

    def on_loss(self, callback: OnLoss) -> None:
        self.lost = callback

    async def close(self) -> None:
        self.deliver = None
        self.agents.clear()

    async def listen(self, agent_id: str) -> None:
        if self.network.is_down:
            raise TransportError("the network is down")
        for end in self.network.ends:
            if agent_id in end.agents and end.ledger_uid != self.ledger_uid:
                raise AgentServedElsewhereError(f"{agent_id} is served by another ledger")
        self.agents.add(agent_id)

    async def unlisten(self, agent_id: str) -> None:
        self.agents.discard(agent_id)

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        if self.network.is_down or self.deliver is None:
            raise TransportError("the network is down")
        for envelope in envelopes:
            self.network.carry(envelope)
