"""What carries envelopes from one ledger to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ..ledger.types import Envelope

Deliver = Callable[[Sequence[Envelope]], Awaitable[None]]
"""Takes envelopes that came in; returns when they are in the ledger, and only then may they be
acknowledged to whatever carried them. Raises `StoreError` when they may not be: they have to come
again."""


class TransportError(Exception):
    """A transport could not send, or cannot say whether it did; the message is sent again later."""


class AACPTransport(Protocol):
    """Carries envelopes, as often and in any order it likes: AACP puts that right (AACP-41)."""

    max_envelope_bytes: int
    """The largest envelope it carries, encoded."""

    keeps: bool
    """Whether what was sent waits there for its target, so that sending it again is for the case
    that the transport lost it: every copy would wait as well."""

    async def open(self, deliver: Deliver) -> None:
        """Connect.

        Raises:
            TransportError: it cannot be reached.
        """

    async def close(self) -> None:
        """Disconnect and give everything back; a second time does nothing."""

    async def listen(self, agent_id: str) -> None:
        """Have the envelopes for this agent delivered from now on, first those that wait."""

    async def unlisten(self, agent_id: str) -> None:
        """Have no more of them delivered; they wait."""

    async def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send envelopes, to whichever ledgers have their targets.

        Raises:
            TransportError: some of them may not have been sent.
        """
