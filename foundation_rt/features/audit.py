"""The audit log: records of calls, sessions and refusals in the server's log, by category.

A record is a line with the message "audit" (OPS-11), in the log or in a file of its own (OPS-36).
Records come from four places: from this middleware before a handler starts, from the observers of
completion records after it has ended, from the HTTP transport when authentication fails, and from
the application (`Server.audit`).

The level of the log does not apply to audit records. Its redaction does: the value of a secret key
is never written, however much of the arguments the configuration shows (OPS-13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import orjson
from attrs import define, field

from ..base.config.feature_sections import AuditCategory
from ..base.logs.logger import StructuredLogger
from ..base.logs.redaction import REDACTED
from ..errors import ErrorCode, StructuredError, ToolCompletionOutcome, UsageError
from ..kernel.effects import CallCompleted, ClientConnected, ClientDisconnected, Event
from ..protocol.methods import TOOLS_CALL, facts

if TYPE_CHECKING:
    from ..base.config.feature_sections import AuditSection
    from ..kernel.effects import Notify, Reply
    from ..kernel.engine.executor import Proceed
    from ..kernel.invocation import Invocation
    from ..kernel.session import Session
    from .audit_file import AuditFile
    from .context import ToolContext

MESSAGE = "audit"

_MAX_CHARACTERS = 64
_MAX_MEMBERS = 16
_MAX_LEVELS = 4

CATEGORIES: tuple[str, ...] = get_args(AuditCategory)


def check_event(event_type: object, category: object) -> None:
    """Raise `UsageError` unless an audit record can have this event type and category."""
    if category not in CATEGORIES:
        raise UsageError(f"audit: the category is one of {', '.join(CATEGORIES)}")
    if not (isinstance(event_type, str) and event_type.isidentifier() and event_type.isupper()):
        raise UsageError("audit: an event type is in capitals, as BATCH_JOB_COMPLETED is")


@define(eq=False, repr=False)
class AuditLog:
    """Writes the records of the configured categories; safe from any thread.

    Args:
        logger: lends its sink, clock and redactor.
        settings: the `audit` section of the configuration.
        is_administrative: returns whether the tool of that name is administrative.
        file: gets the records instead of the log.
    """

    _logger: StructuredLogger
    _settings: AuditSection
    _is_administrative: Callable[[str], bool]
    _file: AuditFile | None = None
    _stream: StructuredLogger = field(init=False)

    def __attrs_post_init__(self) -> None:
        logger = self._logger
        sink = self._file or logger.sink
        self._stream = StructuredLogger(sink, logger.clock, "info", logger.redactor)

    def flush(self, timeout: float) -> None:
        """Write the records so far to the file, in `timeout` seconds at most, and go on."""
        if self._file is not None:
            self._file.flush(timeout)

    def close(self, timeout: float) -> None:
        """Write the records so far to the file, in `timeout` seconds at most, and take no more."""
        if self._file is not None:
            self._file.close(timeout)

    def write(self, event_type: str, category: AuditCategory, success: bool, **fields: Any) -> None:
        """Write one record.

        Args:
            event_type: the event, such as "AUTHENTICATION_FAILED".
            category: dropped unless it is configured.
            success: whether the event is a success; decides the level of the record.
            fields: the rest of the record, in camelCase; fields that are None are left out.
        """
        if category not in self._settings.categories:
            return
        record = {"eventType": event_type, "category": category, "success": success}
        record |= {name: value for name, value in fields.items() if value is not None}
        self._stream.log("info" if success else "warn", MESSAGE, record)

    def write_own(
        self,
        event_type: str,
        category: AuditCategory,
        success: bool,
        context: ToolContext | None,
        correlation_id: str | None,
        error_message: str | None,
        metadata: Mapping[str, Any] | None,
        sensitive: Mapping[str, Any] | None,
    ) -> None:
        """Write a record of the application; see `Server.audit` (OPS-29, OPS-30)."""
        if category not in self._settings.categories:
            return
        mode = self._settings.sensitive_data
        fields: dict[str, Any] = {} if context is None else identity_of_context(context)
        if correlation_id is not None:
            fields["correlationId"] = correlation_id
        fields["errorMessage"] = error_message
        try:
            if metadata is not None:
                fields["metadata"] = metadata if mode == "full" else _truncate(metadata, 1)
            if sensitive is not None:
                fields["sensitiveData"] = _show(sensitive, mode)
        except Exception as error:  # another thread changes them, or a class of the application
            fields["metadata"] = {"unreadable": type(error).__name__}
        self.write(event_type, category, success, **fields)

    async def __call__(self, call: Invocation, proceed: Proceed) -> Any:
        """Write the record of a handler that is about to start, as middleware."""
        noun, category = self._kind(call.method, call.name)
        arguments = _show(call.arguments, self._settings.sensitive_data)
        metadata = {"arguments": arguments}
        self.write(f"{noun}_START", category, True, **_identity(call), metadata=metadata)
        return await proceed()

    def note_rate_limit(self, call: Invocation, refusal: StructuredError) -> None:
        """Write the record of a call that a rate limit has refused."""
        fields = _identity(call)
        self.write("RATE_LIMIT_EXCEEDED", "SECURITY", False, **fields, metadata=refusal.details)

    def observe(self, session: Session, record: Event) -> None:
        """Write the record of the end of a call, or of the begin or end of a session."""
        if isinstance(record, CallCompleted):
            self._note_end(session, record)
        elif isinstance(record, ClientConnected | ClientDisconnected):
            stage = "OPENED" if isinstance(record, ClientConnected) else "CLOSED"
            client = _client(session)
            self.write(f"SESSION_{stage}", "SECURITY", True, **client, metadata=record.fields)

    def _note_end(self, session: Session, record: CallCompleted) -> None:
        fields = record.fields
        method = fields.get("method", TOOLS_CALL)
        name = fields.get("toolName") or fields.get("name", "")
        noun, category = self._kind(method, name)
        outcome, code = fields["outcome"], fields.get("errorCode")
        refused = record.refusal is not None
        refused = refused or outcome == ToolCompletionOutcome.PROTOCOL_ERROR
        success = outcome == ToolCompletionOutcome.SUCCESS
        if not success:
            category = "SECURITY" if code == ErrorCode.UNAUTHORIZED else "ERROR"
        stage = "COMPLETED" if success else "REFUSED" if refused else "FAILED"
        metadata = {"outcome": outcome, "durationMs": fields["durationMs"]}
        if record.refusal is not None:
            metadata["reason"] = record.refusal
        self.write(
            f"{noun}_{stage}",
            category,
            success,
            **_client(session),
            correlationId=fields["correlationId"],
            runId=fields.get("runId"),
            **_subject(method, name),
            server=fields.get("server"),
            errorCode=code,
            errorMessage=self._shown_failure(record.failure),
            metadata=metadata,
        )

    def _shown_failure(self, failure: str | Reply | Notify | None) -> str | None:
        """Return why a call failed; it may quote the arguments (OPS-13)."""
        if failure is None:
            return None
        if self._settings.sensitive_data == "redact":
            return REDACTED
        return failure if isinstance(failure, str) else _text_of_result(failure.line)

    def _kind(self, method: str, name: str) -> tuple[str, AuditCategory]:
        if method == TOOLS_CALL and self._is_administrative(name):
            return facts(method).event, "ADMIN"
        return facts(method).event, "TOOL" if method == TOOLS_CALL else "DATA"


def _client(session: Session) -> dict[str, Any]:
    """Return the fields that identify the client of a session."""
    client: dict[str, Any] = {
        "connectionCorrelationId": session.connection_correlation_id,
        "transport": session.transport_type,
    }
    if session.principal is not None:
        client["subject"] = session.principal.subject
        client["clientId"] = session.principal.client_id
    return client


def _identity(call: Invocation) -> dict[str, Any]:
    ids = {"correlationId": call.correlation_id, "runId": call.run_id}
    fields = _client(call.session) | ids | _subject(call.method, call.name)
    return fields if call.kind.log_fields is None else {**fields, **call.kind.log_fields(call)}


def identity_of_context(context: ToolContext) -> dict[str, Any]:
    """Return the fields that identify the call of a context, and its client."""
    if context.call is not None:
        return _identity(context.call)
    return {"correlationId": context.correlation_id, "runId": context.run_id}


def _subject(method: str, name: str) -> dict[str, str]:
    return {"toolName": name} if method == TOOLS_CALL else {"method": method, "name": name}


def _text_of_result(line: bytes) -> str:
    """Return the first text of the result in a reply."""
    blocks = orjson.loads(line).get("result", {}).get("content")
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            return str(block["text"])
    return "The result is an error without a text."


def _show(arguments: Mapping[str, Any], mode: str) -> Any:
    """Return the arguments of a call as the record shows them (OPS-13)."""
    if mode == "redact":
        return dict.fromkeys(list(arguments)[:_MAX_MEMBERS], REDACTED)
    return _truncate(arguments, 1) if mode == "truncate" else arguments


def _truncate(value: Any, level: int) -> Any:
    if isinstance(value, str):
        cut = f"{value[:_MAX_CHARACTERS]} [cut at {_MAX_CHARACTERS} of {len(value)} characters]"
        return value if len(value) <= _MAX_CHARACTERS else cut
    if not isinstance(value, Mapping | list | tuple):
        return value
    if level > _MAX_LEVELS:
        return f"[{len(value)} members]"
    rest = len(value) - _MAX_MEMBERS
    if isinstance(value, Mapping):
        members = list(value.items())[:_MAX_MEMBERS]
        shown = {key: _truncate(member, level + 1) for key, member in members}
        return shown | ({"...": f"{rest} more"} if rest > 0 else {})
    items = [_truncate(item, level + 1) for item in value[:_MAX_MEMBERS]]
    return items + ([f"... {rest} more"] if rest > 0 else [])
