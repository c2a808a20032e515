"""The status of a message, as callers see it (AACP-20)."""

from __future__ import annotations

from typing import Any

from attrs import define

from ...base.exact_json import loads
from ...errors import StructuredError
from .ownership import given_id
from .rules import recorded_error
from .types import MessageRecord, MessageType, Outcome, RequestRecord


@define
class MessageStatus:
    """The status of a message in the ledger (AACP-20).

    Attributes:
        message_id: of the first attempt; None where the ledger keeps the request only.
        request_id: None for an EVENT without one.
        result: the handler's result, once COMPLETED.
        error: once FAILED.
        timestamp_ms: when it was finished, or else when the message was made.
        target_agent_id: the receiver; None for a tool call that the ledger does not have yet.
    """

    message_id: str | None
    request_id: str | None
    outcome: Outcome
    timestamp_ms: int
    result: Any = None
    error: StructuredError | None = None
    completion_ref: str | None = None
    target_agent_id: str | None = None


def request_status(record: RequestRecord) -> MessageStatus:
    """Return the status in the record of a request, or of an event that is to be executed."""
    is_request = record.message_type is MessageType.REQUEST
    given = given_id(record.request_id)
    return MessageStatus(
        None if is_request else given,
        given if is_request else None,
        record.outcome,
        record.finished_at_ms or record.created_at_ms,
        None if record.result is None else loads(record.result),
        recorded_error(record),
        record.completion_ref,
        record.target_agent_id,
    )


def message_status(message: MessageRecord) -> MessageStatus:
    """Return the status in the record of a message to another ledger."""
    given = None if message.request_id is None else given_id(message.request_id)
    return MessageStatus(
        message.message_id,
        given,
        message.outcome,
        message.created_at_ms,
        target_agent_id=message.target_agent_id,
    )
