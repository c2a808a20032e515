"""The interface of a ledger, which every store implements.

Every method is one transaction: it happens as a whole or not at all. When it has returned, its
changes are as durable as the adapter says (`durability`). A method that raises `StoreError` may
have happened or not. Therefore every method may be repeated: a repetition changes nothing that
happened before, and its answer allows the caller to go on (AACP-30).

Batches keep their order, and their items do not affect one another except by that order. An item
whose rows another process keeps locked is answered with `LOCKED`; the others do not wait for it
(AACP-90).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ..errors import StructuredError
from .ledger.administration import AgentSummary, Changed, RequestQuery
from .ledger.agent_limits import AgentLimits
from .ledger.schedules import Advance, DueSchedules, EnteredRuns, Schedule, ScheduleChange
from .ledger.submissions import SubmittedRequest, TakenSubmissions
from .ledger.types import (
    NO_CLAIMING,
    Appended,
    ClaimCompletion,
    Claimed,
    Claiming,
    Completed,
    Due,
    Envelope,
    Hastened,
    IncomingEnvelope,
    LedgerNews,
    Locked,
    MessageRecord,
    OutboxKey,
    Outcome,
    OutgoingMessage,
    Queued,
    Received,
    Release,
    RequestRecord,
)

RetryDecision = Callable[[MessageRecord], "int | None"]
"""Returns the time of the attempt after the next one, in ms; None gives the message up."""


class StoreError(Exception):
    """An operation of a store failed, or it is not known whether it happened."""


class LedgerFullError(StoreError):
    """A store has no room for a record, or its owner has no share left (AACP-49).

    Nothing has happened, and trying again at once does not help.
    """


class LeaseRenewer(Protocol):
    """Renews leases from another event loop than that of the ledger, in another thread."""

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> object:
        """Extend leases, given by request id and epoch, that still hold.

        Raises:
            StoreError: they may not be extended.
        """

    async def close(self) -> None:
        """Release all resources, in the event loop in which leases were renewed."""


class AACPPersistenceAdapter(Protocol):
    """A ledger: requests, messages to other ledgers, and the numbers of links."""

    durability: str
    """The meaning of an acknowledgement with this adapter, in a sentence or two (AACP-31)."""

    shared: bool
    """Set if other processes may change the ledger, so that it has to be polled."""

    takes_writes: bool
    """Set if the store calls `ClaimCompletion.in_transaction`; other stores refuse it (AACP-05)."""

    immediate: bool
    """Set if operations end without waiting for anything, so that they need no task."""

    compares_clocks: bool
    """Set if a machine whose clock is far off the ledger's may not claim or purge (AACP-94)."""

    takes_submissions: bool
    """Set if applications may enter requests in transactions of their own (AACP-150)."""

    uid: str
    """The unique name of the ledger while it is open, which is kept in it; a copy has the same."""

    incarnation: int
    """The name of the ledger while it is open: its creation time in ms since 1970 (AACP-19)."""

    async def open(self) -> None:
        """Open the ledger.

        Raises:
            StoreError: the store cannot be reached.
            UsageError: the message says what to change.
        """

    async def close(self) -> None:
        """Finish what was begun and release all resources; a second call does nothing."""

    def on_change(self, callback: Callable[[LedgerNews | None], object]) -> None:
        """Call `callback(news)`, in the event loop, when another process has changed the ledger.

        None means that it may have changed anything. Calls may be too many, or missing.
        """

    async def read_time(self) -> int | None:
        """Return the time of the ledger's clock, in ms since 1970 (AACP-33).

        None if it has no clock, as nobody else goes by it.
        """

    def renewer(self) -> LeaseRenewer | None:
        """Return what renews leases while the event loop is blocked (AACP-95).

        None if nobody else could take the claims over meanwhile.
        """

    # -- messages and requests ----------------------------------------------------------------

    async def append(
        self,
        messages: Sequence[OutgoingMessage],
        now_ms: int,
        claiming: Claiming = NO_CLAIMING,
    ) -> Sequence[Appended | Locked]:
        """Enter messages with the next numbers of their links (AACP-10).

        What it enters in an empty queue of an agent without limits is claimed with it, as by
        `claim`; the first one is begun (AACP-193).

        A request whose `request_id` is known, and an event whose `message_id` is known, is not
        entered again and takes no number. Local messages may be claimed from now on, or are
        DELAYED. Those of one `batch` are entered together or not at all: then each has the same
        CONFLICT or FULL.
        """

    async def receive(
        self, arrivals: Sequence[IncomingEnvelope], now_ms: int, ttl_ms: int
    ) -> Received:
        """Enter received messages, each once, and apply the acknowledgements in their envelopes.

        A message that does not state when it expires lives for `ttl_ms`.
        """

    async def claim(self, claiming: Claiming, now_ms: int) -> Claimed:
        """Claim requests of agents, in the order of their queues (AACP-22).

        Args:
            claiming: the agents, the owner and the end of the leases.
            now_ms: the time by which leases lapse and requests expire.
        """

    async def limit_agents(self, limits: Mapping[str, AgentLimits]) -> dict[str, AgentLimits]:
        """Set the limits of agents in all processes, by which `claim` goes (AACP-190).

        Returns:
            The limits of those agents that had other ones.
        """

    async def queue_delayed(self, now_ms: int, limit: int) -> Queued:
        """Give requests whose time has come the last places of their queues (AACP-120).

        Args:
            now_ms: the current time.
            limit: the most requests, those whose time came first.
        """

    async def complete(
        self, completions: Sequence[ClaimCompletion], now_ms: int
    ) -> Sequence[Completed | Locked]:
        """Enter outcomes whose claims are still the newest; with them, the RESPONSEs.

        A completion that was taken before is taken again and changes nothing (AACP-23).
        """

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> list[bool]:
        """Extend leases, given by request id and epoch; return for each whether it still holds.

        One that another process keeps locked counts as held: the next renewal decides.
        """

    async def release(self, releases: Sequence[Release]) -> list[Release]:
        """Give claims back; claims that are no longer held are ignored.

        Returns:
            Those that another process keeps locked, and with which nothing has happened.
        """

    async def take_due(self, now_ms: int, limit: int, decide: RetryDecision) -> Due:
        """Return messages whose next attempt is due; count it, and set the time of the next one.

        An expired message becomes a tombstone first, whatever `decide` returns (AACP-14).

        Args:
            now_ms: the current time.
            limit: the most messages that are returned.
            decide: called with each message as it was. A message that it gives up becomes a
                tombstone.
        """

    async def hasten(
        self, targets: Sequence[str], at_ms: int, after: OutboxKey, limit: int
    ) -> Hastened:
        """Make a page of the messages that are not acknowledged due (AACP-100).

        Args:
            targets: to which agents; empty: to all.
            at_ms: when they are due. Those that are due earlier, or were made later, stay so.
            after: the last message of the page before.
            limit: the most messages of a page, of both kinds, in the order of links and numbers.

        Returns:
            One that another process keeps locked may be left as it is.
        """

    async def reschedule(
        self, message_id: str, at_ms: int, *, give_up: bool = False
    ) -> MessageRecord | None:
        """Set when one message is sent again; return the message.

        Args:
            message_id: that of the first attempt.
            at_ms: the time of the next attempt.
            give_up: the message becomes a tombstone (AACP-14).

        Returns:
            None if there is no such message, or it is acknowledged.
        """

    # -- records ------------------------------------------------------------------------------

    async def put_request_record(self, request_id: str, record: RequestRecord) -> None:
        """Keep a request record unless its id is known.

        Raises:
            LedgerFullError: there is no room for it.
        """

    async def put_message_record(self, message_id: str, record: MessageRecord) -> None:
        """Keep a message record unless its id is known.

        Raises:
            LedgerFullError: there is no room for it.
        """

    async def get_request_record(self, request_id: str) -> RequestRecord | None:
        """Return the request record of an id."""

    async def get_request_records(self, request_ids: Sequence[str]) -> list[RequestRecord]:
        """Return the request records of those ids that are known, in any order."""

    async def get_message_record(self, message_id: str) -> MessageRecord | None:
        """Return the message record of an id, which is that of the first attempt."""

    async def mark_completed(
        self, request_id: str, result: bytes | None, now_ms: int, completion_ref: str | None = None
    ) -> bool:
        """Make a SENT request COMPLETED; return whether the request is COMPLETED now.

        A request that is executed in this ledger (HELD, RECEIVED, CLAIMED) does not change: only
        the execution of a claim gives it an outcome, by `complete` (AACP-23).

        Raises:
            LedgerFullError: there is no room for the result.
        """

    async def mark_failed(self, request_id: str, error: StructuredError, now_ms: int) -> bool:
        """Make a SENT request FAILED; return whether the request is FAILED now.

        Other requests do not change, as with `mark_completed`.

        Raises:
            LedgerFullError: there is no room for the error.
        """

    # -- numbers ------------------------------------------------------------------------------

    async def get_last_sequence(self, source_agent_id: str, target_agent_id: str) -> int:
        """Return the last number given out on a link; 0 before the first."""

    async def update_last_sequence(
        self, source_agent_id: str, target_agent_id: str, seq: int
    ) -> None:
        """Make `seq` the last number given out; a smaller number changes nothing (AACP-10)."""

    # -- recovery and retention ---------------------------------------------------------------

    async def get_unacknowledged_messages(
        self, source_agent_id: str, target_agent_id: str
    ) -> list[Envelope]:
        """Return the messages of a link that are not acknowledged, in the order of numbers."""

    async def list_pending_requests(self, older_than_ms: int | None = None) -> list[RequestRecord]:
        """Return requests without an outcome made before `older_than_ms`, the oldest first."""

    async def list_messages_in_state(
        self, outcome: Outcome, older_than_ms: int | None = None
    ) -> list[MessageRecord]:
        """Return messages with an outcome made before `older_than_ms`, the oldest first."""

    async def purge_expired(self, now_ms: int) -> int:
        """Delete a batch of the records that have expired; return how many, 0 for none (AACP-15).

        A batch is small enough that nobody waits long for its end.

        An expired message that is not acknowledged becomes a tombstone. It is counted then, and not
        again.
        """

    # -- what operators ask -------------------------------------------------------------------

    async def list_requests(self, query: RequestQuery) -> list[RequestRecord]:
        """Return a page of requests, by creation time and id (AACP-111).

        Their payloads are `VOID_PAYLOAD`, and results are left out: a page has bounded size.
        """

    async def summarize_agents(self, after: str, limit: int) -> list[AgentSummary]:
        """Return what the ledger has of each agent behind `after`, by its id (AACP-111).

        Args:
            after: the last agent of the page before; "" for the first page.
            limit: the most agents.
        """

    async def measure_queues(self, agent_ids: Sequence[str]) -> list[AgentSummary]:
        """Return the length and age of the queues of agents that have one (AACP-160).

        Only requests that may be claimed here, now or later, count, and of each queue the first
        `MAX_MEASURED`: so it costs little, however much a ledger keeps.
        """

    async def cancel(self, cancellations: Sequence[ClaimCompletion], now_ms: int) -> list[Changed]:
        """Enter outcomes for requests that have none, and their RESPONSEs (AACP-114).

        A claim that there is gets a higher epoch, and so is lost. The epochs of the completions
        are ignored. A repetition finds the request finished.
        """

    async def requeue(self, request_ids: Sequence[str], expires_at_ms: int) -> list[Changed]:
        """Put requests that FAILED at the end of the queues of their agents (AACP-112).

        A repetition finds that they have not failed.
        """

    # -- schedules ----------------------------------------------------------------------------

    async def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        """Add, replace and remove schedules, in this order (AACP-142).

        A schedule that says the same as the one of its name changes nothing.

        Returns:
            Whether there was a schedule of that name.
        """

    async def list_schedules(self, after: str, limit: int) -> list[Schedule]:
        """Return a page of the schedules, by name.

        Args:
            after: the last name of the page before; "" for the first page.
            limit: the most schedules.
        """

    async def due_schedules(self, now_ms: int, limit: int) -> DueSchedules:
        """Return the schedules that have a run to decide about, the longest due first."""

    async def enter_runs(self, advances: Sequence[Advance], now_ms: int) -> list[EnteredRuns]:
        """Enter runs, as `append` does, and move their schedules on, both or neither (AACP-140).

        That happens if the schedule is as it was when it was read. So a repetition, and whoever
        comes later, changes nothing.
        """

    # -- requests in transactions of an application -------------------------------------------

    async def submit(self, connection: Any, submission: SubmittedRequest) -> None:
        """Add a request to the transaction of an application (AACP-150).

        Args:
            connection: in the transaction, of the driver of this store.
            submission: the request.

        Raises:
            UsageError: this is not possible; the message says what to change, and nothing was done
                in the transaction.
        """

    async def submitted_to(self, request_id: str) -> str | None:
        """Return the target of a request that was committed and waits to be taken over, if any."""

    async def take_submissions(
        self,
        transactions: Collection[int] | None,
        now_ms: int,
        next_attempt_at_ms: int,
        limit: int,
    ) -> TakenSubmissions:
        """Enter requests of committed transactions, as `append` does, and forget them there.

        Args:
            transactions: the numbers of those that are looked at; None: of all.
            now_ms: the time at which their lifetimes begin.
            next_attempt_at_ms: when those to other ledgers are sent a second time.
            limit: the most requests.
        """
