"""Transports carry envelopes from one ledger to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ..ledger.types import Envelope

Deliver = Callable[[Sequence[Envelope]], Awaitable[None]]
"""Takes received envelopes, and returns when they are in the ledger.

Only then may they be acknowledged to the transport's server. It raises `StoreError` when they may
not be in the ledger: then they have to be delivered again.
"""


class TransportError(Exception):
    """Sending failed, or it is not known whether it succeeded; the message is sent again later."""


class AACPTransport(Protocol):
    """Carries envelopes; it may repeat and reorder them, which AACP corrects (AACP-41)."""

    max_envelope_bytes: int
    """The size of the largest encoded envelope that it carries."""

    keeps: bool
    """Set if sent envelopes wait in the transport for their target.

    Then they are sent again only in case that the transport lost them: every copy waits as well.
    """

    async def open(self, deliver: Deliver) -> None:
        """Connect.

        Raises:
            TransportError: the server cannot be reached.
        """

    async def close(self) -> None:
        """Disconnect and release all resources; a second call does nothing."""

    async def listen(self, agent_id: str) -> None:
        """Deliver the envelopes for an agent from now on, first those that wait."""

    async def unlisten(self, agent_id: str) -> None:
        """Stop delivering the envelopes for an agent; they wait."""

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send envelopes to the ledgers of their targets.

        Raises:
            TransportError: some of them may not have been sent.
        """
