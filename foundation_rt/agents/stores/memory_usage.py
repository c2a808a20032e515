"""Bounds on memory: how much is held, in total and for each owner (AACP-49, AACP-51).

They apply to a ledger in memory, and to messages that wait to be entered in any ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from attrs import Factory, define, field, frozen

from ...base.exact_json import compact
from ...base.shown import Shown
from ...errors import ErrorCode, StructuredError
from ..ledger.ownership import owner_of
from ..ledger.types import (
    ClaimCompletion,
    Ending,
    Envelope,
    MessageRecord,
    MessageType,
    OutgoingMessage,
    RequestRecord,
    RequestState,
)
from ..persistence import LedgerFullError

RECORD_BYTES = 1024
"""The size of a record without its payload; ids, indexes and a small outcome take less."""

SMALL_OUTCOME_BYTES = 256
"""An outcome up to this size counts nothing, so every request that was taken can be finished."""


@frozen
class MemoryLimits:
    """The most that is held in memory.

    Attributes:
        records, bytes: in total.
        principal_records, principal_bytes: for one owner (AACP-48); by default the total.
    """

    records: int = 200_000
    bytes: int = 256 * 1024 * 1024
    principal_records: int = Factory(lambda self: self.records, takes_self=True)
    principal_bytes: int = Factory(lambda self: self.bytes, takes_self=True)


@define(eq=False, repr=False)
class _Held(Shown):
    """Records and bytes that are held, in total or for one owner."""

    records: int = 0
    size: int = 0


NO_ROOM = orjson.dumps(
    StructuredError(
        ErrorCode.RESOURCE_EXHAUSTED,
        "The ledger has no room for the outcome.",
        {"reason": "ledger_full"},
    ).to_wire()
)
"""The error of a request that was executed but whose outcome could not be kept."""


def outcome_size(outcome: bytes | None) -> int:
    """Return for how many bytes a result, or an error, counts."""
    if outcome is None or len(outcome) <= SMALL_OUTCOME_BYTES:
        return 0
    return len(outcome) - SMALL_OUTCOME_BYTES


def size_of(record: RequestRecord | MessageRecord) -> int:
    """Return for how many bytes a record counts."""
    size = RECORD_BYTES + len(record.payload)
    if isinstance(record, RequestRecord):
        return size + outcome_size(record.result or record.error) + len(record.retry or b"")
    return size + len(record.options or b"")


@define(eq=False, repr=False)
class Usage(Shown):
    """Counts records and bytes, and tells whether more fit within the limits."""

    limits: MemoryLimits
    _total: _Held = field(factory=_Held, init=False)
    _owners: dict[str, _Held] = field(factory=dict, init=False)

    @property
    def records(self) -> int:
        """The number of records that are held."""
        return self._total.records

    @property
    def size(self) -> int:
        """The number of bytes for which the records count."""
        return self._total.size

    def has_room(self, request_id: str | None, records: int, size: int) -> bool:
        """Return whether so much more fits for a request, and for its owner."""
        limits, total = self.limits, self._total
        if total.records + records > limits.records or total.size + size > limits.bytes:
            return False
        owner = owner_of(request_id) if request_id else None
        if owner is None:
            return True
        held = self._owners.get(owner) or _Held()
        return (
            held.records + records <= limits.principal_records
            and held.size + size <= limits.principal_bytes
        )

    def has_room_for_messages(self, made: Sequence[OutgoingMessage]) -> bool:
        """Return whether messages of one owner that are made here fit."""
        records = size = 0
        for each in made:
            # A request to another ledger is a request record and a message record.
            copies = 2 if each.message_type is MessageType.REQUEST and not each.local else 1
            options = b"" if each.options is None else each.options.to_json()
            records += copies
            size += copies * (RECORD_BYTES + len(each.payload) + len(options))
        return self.has_room(made[0].request_id, records, size)

    def has_room_for_envelope(self, envelope: Envelope) -> bool:
        """Return whether a received message fits, if it is new."""
        if envelope.message_type is MessageType.RESPONSE or envelope.tombstone:
            return True
        size = RECORD_BYTES + len(envelope.payload) + len(envelope.options or b"")
        return self.has_room(envelope.request_id, 1, size)

    def demand(self, request_id: str | None, records: int, size: int) -> None:
        """Raise `LedgerFullError` unless so much more fits."""
        if not self.has_room(request_id, records, size):
            raise LedgerFullError("the ledger in memory has no room for this record")

    def add(self, record: RequestRecord | MessageRecord) -> None:
        """Count a new record."""
        self.change(record.request_id, 1, size_of(record))

    def remove(self, record: RequestRecord | MessageRecord) -> None:
        """Stop counting a record."""
        self.change(record.request_id, -1, -size_of(record))

    def change(self, request_id: str | None, records: int, size: int) -> None:
        """Count more, or less, for a request and its owner."""
        total = self._total
        total.records += records
        total.size += size
        owner = owner_of(request_id) if request_id else None
        if owner is not None:
            held = self._owners.setdefault(owner, _Held())
            held.records += records
            held.size += size
            if held.records == 0:
                del self._owners[owner]

    def finish(self, record: RequestRecord, ending: Ending | ClaimCompletion, now_ms: int) -> None:
        """Give a request its outcome; one that does not fit is replaced by FAILED."""
        state, result, error = ending.state, ending.result, ending.error
        size = outcome_size(result or error)
        if size and not self.has_room(record.request_id, 0, size):
            state, result, error, size = RequestState.FAILED, None, NO_ROOM, 0
        if size:
            self.change(record.request_id, 0, size)
        record.state = state
        record.result = None if result is None else compact(result)
        record.error = error if error is None or error is NO_ROOM else compact(error)
        record.owner = record.lease_until_ms = None
        record.finished_at_ms = now_ms
