"""What carries envelopes between processes, and loses, doubles, delays and reorders them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field

from foundation_rt.agents.ledger.encoder import decode, encode
from foundation_rt.agents.ledger.types import Envelope

from .faults import Fault

if TYPE_CHECKING:
    from .simulator import Simulator

Packet: TypeAlias = tuple[int, list[Envelope]]
"""The number of the process that it is for, and what it brings."""

_REORDERED_MS = 60
_DELAYED_MS = 3_000
_REDELIVERY_MS = 40


@define(eq=False, repr=False)
class SimulatedNetwork:
    """Brings envelopes to the processes with which their targets are registered.

    Attributes:
        cut: pairs of processes, from and to, between which nothing passes.
        in_flight: packets that have not come to their end.
    """

    simulator: Simulator
    cut: set[tuple[int, int]] = field(factory=set, init=False)
    in_flight: int = field(default=0, init=False)

    def send(self, sender: int, envelopes: list[Envelope]) -> None:
        """Take envelopes; those that nothing happens to travel together."""
        simulator = self.simulator
        packets: dict[int, list[Envelope]] = {}
        for envelope in envelopes:
            simulator.witness.sent(envelope)
            receiver = simulator.directory[envelope.target_agent_id]
            if (sender, receiver) in self.cut:
                simulator.note("cut off", sender, envelope)
                continue
            fault = simulator.dice.on_envelope(only_ack=envelope.seq == 0)
            if fault is None:
                packets.setdefault(receiver, []).append(envelope)
            else:
                self._send_badly(fault, receiver, envelope)
        for packet in packets.items():
            self._carry(packet, simulator.latency())

    def _send_badly(self, fault: Fault, receiver: int, envelope: Envelope) -> None:
        simulator = self.simulator
        simulator.note(fault.value, receiver, envelope)
        if fault in (Fault.DROP, Fault.LOST_ACK):
            return
        within_ms = _DELAYED_MS if fault is Fault.DELAY else _REORDERED_MS
        self._carry((receiver, [envelope]), 1 + simulator.below(within_ms))
        if fault is Fault.DUPLICATE:
            self._carry((receiver, [envelope]), 1 + simulator.below(within_ms))

    def _carry(self, packet: Packet, delay_ms: int) -> None:
        self.in_flight += 1
        self.simulator.after(delay_ms, self._arrive, packet)

    def _arrive(self, packet: Packet) -> None:
        process = self.simulator.processes[packet[0]]
        if process.paused_ms > 0:
            self.simulator.after(process.paused_ms, self._arrive, packet)
            return
        self.in_flight -= 1
        if process.is_up:
            process.deliver(self._as_it_arrives(packet))
        else:
            self.simulator.note("lost", packet[0], packet[1])

    def _as_it_arrives(self, packet: Packet) -> Packet:
        if not self.simulator.scenario.as_bytes:
            return packet
        return packet[0], [decode(encode(envelope)) for envelope in packet[1]]

    def redeliver(self, packet: Packet) -> None:
        """Deliver a packet again if a ledger may not have taken it and the transport remembers."""
        if self.simulator.scenario.redelivers:
            self._carry(packet, _REDELIVERY_MS)
