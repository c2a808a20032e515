"""Transports carry envelopes from one ledger to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ...errors import UsageError
from ..ledger.types import Envelope

Deliver = Callable[[Sequence[Envelope]], Awaitable[None]]
"""Takes received envelopes, and returns when they are in the ledger.

Only then may they be acknowledged to the transport's server. It raises `StoreError` when they may
not be in the ledger: then they have to be delivered again.
"""


OnLoss = Callable[[int | None], object]
"""Takes the time, in ms since 1970, before which lost envelopes may have been sent; None: now."""


class AgentServedElsewhereError(UsageError):
    """Another ledger serves the agent (AACP-101); the message says which, and what to change."""


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

    async def open(self, deliver: Deliver, ledger_uid: str) -> None:
        """Connect.

        Args:
            deliver: takes what is received.
            ledger_uid: of the ledger in which that is entered.

        Raises:
            TransportError: the server cannot be reached.
        """

    def on_loss(self, callback: OnLoss) -> None:
        """Call `callback` when envelopes that were sent may not be in the transport any more."""

    async def close(self) -> None:
        """Disconnect and release all resources; a second call does nothing."""

    async def listen(self, agent_id: str) -> None:
        """Deliver the envelopes for an agent from now on, first those that wait.

        Raises:
            AgentServedElsewhereError: those of another ledger's processes are delivered (AACP-101).
            TransportError: it is not known whether they are.
        """

    async def unlisten(self, agent_id: str) -> None:
        """Stop delivering the envelopes for an agent; they wait."""

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send envelopes to the ledgers of their targets.

        Raises:
            TransportError: some of them may not have been sent.
        """
