"""Operations that no node performs, over others; and the refusals of ledgers that lack some."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from ...base.exact_json import dumps
from ...errors import StructuredError, UsageError
from ..ledger.administration import PENDING, RequestQuery
from ..ledger.submissions import SubmittedRequest, TakenSubmissions
from ..ledger.types import (
    MESSAGE_STATES,
    Ending,
    Envelope,
    Link,
    MessageRecord,
    MessageState,
    Outcome,
    RequestRecord,
    RequestState,
)
from ..ledger.unit_of_work import ALL, UnitOfWork


class WithoutSubmissions:
    """The methods of a ledger into which nobody enters requests in a transaction of their own."""

    __slots__ = ()

    takes_submissions = False

    async def submit(self, connection: Any, submission: SubmittedRequest) -> None:
        """Refuse: see `AACPPersistenceAdapter`."""
        raise UsageError(
            "request_in needs a ledger in PostgreSQL, in the database of your transaction: set"
            " aacp.store to its URL. Use send_request with other ledgers"
        )

    async def submitted_to(self, request_id: str) -> str | None:
        """Return None: see `AACPPersistenceAdapter`."""
        return None

    async def take_submissions(
        self,
        transactions: Collection[int] | None,
        now_ms: int,
        next_attempt_at_ms: int,
        limit: int,
    ) -> TakenSubmissions:
        """Return nothing: see `AACPPersistenceAdapter`."""
        return TakenSubmissions([])


class DerivedOperations(Protocol):
    """Methods of `AACPPersistenceAdapter`, over those of a store without a body here."""

    __slots__ = ()

    incarnation: int

    async def list_requests(self, query: RequestQuery) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""

    async def get_request_records(self, request_ids: Sequence[str]) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""

    async def _read_messages(
        self, of: Link | MessageState, before_ms: int
    ) -> Iterable[MessageRecord]:
        """Return messages made before then, in any order.

        Args:
            of: a link, of which those count that are not acknowledged; or the state of all.
            before_ms: the time.
        """

    async def _change_link(
        self, link: Link, message_id: str, change: Callable[[UnitOfWork], Any]
    ) -> Any:
        """Return the answer of a change to a unit of work with a link and, if there, a message."""

    async def _mark(
        self, request_id: str, ending: Ending, now_ms: int, completion_ref: str | None
    ) -> bool:
        """Finish a request that is SENT; return whether it has that state now."""

    async def mark_completed(
        self, request_id: str, result: bytes | None, now_ms: int, completion_ref: str | None = None
    ) -> bool:
        """See `AACPPersistenceAdapter`."""
        ending = Ending(RequestState.COMPLETED, result)
        return await self._mark(request_id, ending, now_ms, completion_ref)

    async def mark_failed(self, request_id: str, error: StructuredError, now_ms: int) -> bool:
        """See `AACPPersistenceAdapter`."""
        ending = Ending(RequestState.FAILED, None, dumps(error.to_wire()))
        return await self._mark(request_id, ending, now_ms, None)

    async def get_request_record(self, request_id: str) -> RequestRecord | None:
        """See `AACPPersistenceAdapter`."""
        found = await self.get_request_records([request_id])
        return found[0] if found else None

    async def put_message_record(self, message_id: str, record: MessageRecord) -> None:
        """See `AACPPersistenceAdapter`."""
        link = (record.source_agent_id, record.target_agent_id)
        await self._change_link(link, message_id, lambda unit: unit.put_message(record))

    async def update_last_sequence(
        self, source_agent_id: str, target_agent_id: str, seq: int
    ) -> None:
        """See `AACPPersistenceAdapter`."""
        link = (source_agent_id, target_agent_id)
        await self._change_link(link, "", lambda unit: unit.advance(link, seq))

    async def get_last_sequence(self, source_agent_id: str, target_agent_id: str) -> int:
        """See `AACPPersistenceAdapter`."""
        link = (source_agent_id, target_agent_id)
        last: int = await self._change_link(link, "", lambda unit: unit.last_seq(link))
        return last

    async def get_unacknowledged_messages(
        self, source_agent_id: str, target_agent_id: str
    ) -> list[Envelope]:
        """See `AACPPersistenceAdapter`."""
        found = await self._read_messages((source_agent_id, target_agent_id), ALL)
        messages = sorted(found, key=lambda message: message.seq)
        return [each.envelope(each.message_id, None, self.incarnation) for each in messages]

    async def list_messages_in_state(
        self, outcome: Outcome, older_than_ms: int | None = None
    ) -> list[MessageRecord]:
        """See `AACPPersistenceAdapter`."""
        before_ms = ALL if older_than_ms is None else older_than_ms
        found = await self._read_messages(MESSAGE_STATES[outcome], before_ms)
        return sorted(found, key=lambda message: (message.created_at_ms, message.message_id))

    async def list_pending_requests(self, older_than_ms: int | None = None) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        query = RequestQuery(states=PENDING, before_ms=older_than_ms, limit=ALL, whole=True)
        return await self.list_requests(query)
