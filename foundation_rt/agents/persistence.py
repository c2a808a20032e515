"""What AACP asks of a ledger, whatever keeps it.

Every method is one transaction: it happens as a whole or not at all, and when it has returned, what
it changed is as durable as the adapter says (`durability`). A method that raises `StoreError` may
have happened or not. Every one may therefore be repeated: what happened before does not happen
again, and the answer allows the caller to go on (AACP-30).

Batches keep their order, and their items do not affect one another except by that order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from ..errors import StructuredError
from .ledger.types import (
    Appended,
    Claimed,
    Completed,
    Completion,
    Due,
    Envelope,
    IncomingEnvelope,
    MessageRecord,
    Outcome,
    OutgoingMessage,
    Received,
    Release,
    RequestRecord,
)

RetryDecision = Callable[[MessageRecord], "int | None"]
"""When a message that is about to be sent again is due after that, in ms; None gives it up."""


class StoreError(Exception):
    """A store could not do, or cannot say whether it did, what it was asked."""


class LedgerFullError(StoreError):
    """A store has no room for a record, or its owner has no share left (AACP-49).

    Nothing has happened, and trying again at once does not help.
    """


class AACPPersistenceAdapter(Protocol):
    """A ledger: requests, messages to other ledgers, and the numbers of links."""

    durability: str
    """What an acknowledgement means with this adapter, in a sentence or two (AACP-31)."""

    shared: bool
    """Whether other processes may change the ledger, so that it has to be looked at."""

    takes_writes: bool
    """Whether `Completion.in_transaction` is called, and not refused (AACP-05)."""

    immediate: bool
    """Whether operations end without waiting for anything, so that they need no task."""

    incarnation: int
    """Names the ledger, when it is open: ms since 1970 at which it was made (AACP-19)."""

    async def open(self) -> None:
        """Get ready.

        Raises:
            StoreError: it cannot be reached.
            UsageError: says what to change.
        """

    async def close(self) -> None:
        """Finish what was begun and give everything back; a second time does nothing."""

    def on_change(self, callback: Callable[[], object]) -> None:
        """Have `callback()` called, in the event loop, when others may have changed something.

        A hint: it may come too often or not at all.
        """

    # -- what correctness needs in one transaction --------------------------------------------

    async def append(self, messages: Sequence[OutgoingMessage], now_ms: int) -> list[Appended]:
        """Enter messages with the next numbers of their links (AACP-10).

        A request that is there already, by `request_id`, and an event that is, by `message_id`, is
        not entered again and takes no number. What is local may be claimed from now on.
        """

    async def receive(
        self, arrivals: Sequence[IncomingEnvelope], now_ms: int, ttl_ms: int
    ) -> Received:
        """Take note of what came in, each message once, and of the acknowledgements in it.

        Args:
            ttl_ms: lifetime of messages that do not state their own.
        """

    async def claim(
        self,
        wanted: Mapping[str, int],
        owner: str,
        now_ms: int,
        lease_until_ms: int,
        idle: Collection[str] = (),
    ) -> Claimed:
        """Claim, in the order of their queues, what may be claimed for these agents (AACP-22).

        Args:
            wanted: the most that are claimed for each agent, by its id.
            idle: those among them that execute nothing: the first request that is claimed for one
                of them is begun at once, and counted in its `executions` (AACP-46).
        """

    async def complete(self, completions: Sequence[Completion], now_ms: int) -> list[Completed]:
        """Enter outcomes, each only if its claim is still the newest; with them, the RESPONSEs.

        A completion that was taken before is taken again and changes nothing (AACP-23).
        """

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> list[bool]:
        """Lengthen leases, given by request id and epoch; tell for each whether it still holds."""

    async def release(self, releases: Sequence[Release]) -> None:
        """Give claims back; those that are no longer held are left alone."""

    async def take_due(self, now_ms: int, limit: int, decide: RetryDecision) -> Due:
        """Take messages whose next attempt is due, count it, and settle when the next one is.

        An expired message becomes a tombstone first, whatever `decide` says (AACP-14).

        Args:
            decide: is given each message as it was; one that is given up becomes a tombstone.
        """

    async def reschedule(
        self, message_id: str, at_ms: int, *, give_up: bool = False
    ) -> MessageRecord | None:
        """Settle when one message is sent again; return it as it is then.

        Args:
            message_id: that of the first attempt.
            give_up: it becomes a tombstone (AACP-14).

        Returns:
            None if there is no such message, or it is acknowledged.
        """

    # -- records ------------------------------------------------------------------------------

    async def put_request_record(self, request_id: str, record: RequestRecord) -> None:
        """Keep a request record that is not there; one that is there stays as it is.

        Raises:
            LedgerFullError: there is no room for it.
        """

    async def put_message_record(self, message_id: str, record: MessageRecord) -> None:
        """Keep a message record that is not there; one that is there stays as it is.

        Raises:
            LedgerFullError: there is no room for it.
        """

    async def get_request_record(self, request_id: str) -> RequestRecord | None:
        """The request record of that id."""

    async def get_request_records(self, request_ids: Sequence[str]) -> list[RequestRecord]:
        """The request records of those ids that are there, in any order."""

    async def get_message_record(self, message_id: str) -> MessageRecord | None:
        """The message record of that id, which is that of the first attempt."""

    async def mark_completed(
        self, request_id: str, result: bytes | None, now_ms: int, completion_ref: str | None = None
    ) -> bool:
        """Make a request COMPLETED that is SENT; return whether it is COMPLETED now.

        One that is to be executed in this ledger (HELD, RECEIVED, CLAIMED) stays as it is: only the
        execution of a claim gives it an outcome, by `complete` (AACP-23).

        Raises:
            LedgerFullError: there is no room for the result.
        """

    async def mark_failed(self, request_id: str, error: StructuredError, now_ms: int) -> bool:
        """Make a request FAILED that is SENT; return whether it is FAILED now.

        Every other one stays as it is, as for `mark_completed`.

        Raises:
            LedgerFullError: there is no room for the error.
        """

    # -- numbers ------------------------------------------------------------------------------

    async def get_last_sequence(self, source_agent_id: str, target_agent_id: str) -> int:
        """The last number given out on a link; 0 before the first."""

    async def update_last_sequence(
        self, source_agent_id: str, target_agent_id: str, seq: int
    ) -> None:
        """Make `seq` the last number given out; a smaller one changes nothing (AACP-10)."""

    # -- recovery and retention ---------------------------------------------------------------

    async def get_unacknowledged_messages(
        self, source_agent_id: str, target_agent_id: str
    ) -> list[Envelope]:
        """What a link has sent and not yet had acknowledged, in the order of its numbers."""

    async def list_pending_requests(self, older_than_ms: int | None = None) -> list[RequestRecord]:
        """Requests without an outcome, the oldest first; only those made before `older_than_ms`."""

    async def list_messages_in_state(
        self, outcome: Outcome, older_than_ms: int | None = None
    ) -> list[MessageRecord]:
        """Messages with this outcome, the oldest first; only those made before `older_than_ms`."""

    async def purge_expired(self, now_ms: int) -> int:
        """Delete every record that has expired; return how many (AACP-15).

        An expired message that is not acknowledged leaves a tombstone, which is counted when it is
        made, and not again.
        """
