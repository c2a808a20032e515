"""Transports carry envelopes from one ledger to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ...errors import UsageError
from ..ledger.types import Envelope

Deliver = Callable[[Sequence[Envelope]], Awaitable[None]]
"""Takes received envelopes, and returns when they are in the ledger.

It raises `StoreError` when they may not be in the ledger: then they have to come again.
"""


OnLoss = Callable[[str | None], object]
"""Takes an agent that envelopes sent before may not have reached; None: any agent."""


class AgentServedElsewhereError(UsageError):
    """Another ledger serves the agent (AACP-101); the message says which, and what to change."""


class TransportError(Exception):
    """Sending failed, or it is not known whether it succeeded; the message is sent again later."""


class AACPTransport(Protocol):
    """Carries envelopes; it may repeat and reorder them, which AACP corrects (AACP-41)."""

    max_envelope_bytes: int
    """The size of the largest encoded envelope that it carries."""

    async def open(self, deliver: Deliver, ledger_uid: str) -> None:
        """Connect.

        Args:
            deliver: takes what is received.
            ledger_uid: of the ledger in which that is entered.

        Raises:
            TransportError: the server cannot be reached.
        """

    def on_loss(self, callback: OnLoss) -> None:
        """Call `callback` when envelopes that were sent before may be lost (AACP-100).

        So it is called when a ledger begins to listen for an agent. What is lost otherwise is sent
        again when its next attempt is due (AACP-13).
        """

    async def close(self) -> None:
        """Disconnect and release all resources; a second call does nothing."""

    async def listen(self, agent_id: str) -> None:
        """Deliver the envelopes for an agent from now on, and say so to those that send them.

        Raises:
            AgentServedElsewhereError: those of another ledger's processes are delivered (AACP-101).
            TransportError: it is not known whether they are.
        """

    async def unlisten(self, agent_id: str) -> None:
        """Stop delivering the envelopes for an agent; another ledger may listen for it."""

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send envelopes to the ledgers of their targets.

        Raises:
            TransportError: some of them may not have been sent.
        """
