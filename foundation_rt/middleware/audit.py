"""Who did what: a stream of records of its own in the log, by category.

A record is a line with the message "audit" (OPS-11). What happens to a call is told by three
parties: this middleware, when its handler is about to start; the observers of completion records,
when it has ended; and the HTTP transport, when somebody could not say who they are.

The log's own level does not touch this stream. Its redaction does: what stands under a secret key
is never written, however much of the arguments an operator wants to see (OPS-13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..core.effects import CallCompleted, ClientConnected, ClientDisconnected, Event
from ..errors import ErrorCode, StructuredError, ToolCompletionOutcome
from ..logs.logger import StructuredLogger
from ..logs.redaction import REDACTED

if TYPE_CHECKING:
    from ..config.settings import AuditCategory, AuditSection
    from ..core.invocation import Invocation
    from ..core.session import Session
    from .stack import Proceed

MESSAGE = "audit"

_CALLS: dict[str, tuple[str, AuditCategory]] = {
    "tools/call": ("TOOL_INVOCATION", "TOOL"),
    "resources/read": ("RESOURCE_READ", "DATA"),
    "prompts/get": ("PROMPT_GET", "DATA"),
    "completion/complete": ("COMPLETION", "DATA"),
}
"""What a call is called, and its category while all goes well."""

_MAX_CHARACTERS = 64
_MAX_MEMBERS = 16
_MAX_LEVELS = 4


@define(eq=False, repr=False)
class AuditLog:
    """Writes the records of the categories that are wanted; safe from any thread.

    Args:
        logger: its sink, clock and redactor are used.
        settings: the `audit` section of the configuration.
        is_administrative: whether the tool of a name is one of the administrative ones.
    """

    _logger: StructuredLogger
    _settings: AuditSection
    _is_administrative: Callable[[str], bool]
    _stream: StructuredLogger = field(init=False)

    def __attrs_post_init__(self) -> None:
        logger = self._logger
        self._stream = StructuredLogger(logger.sink, logger.clock, "info", logger.redactor)

    def write(self, event_type: str, category: AuditCategory, success: bool, **fields: Any) -> None:
        """Write one record.

        Args:
            event_type: what happened, in capitals: "AUTHENTICATION_FAILED".
            fields: the rest of the record, in camelCase; those that are None are left out.
        """
        if category not in self._settings.categories:
            return
        record = {"eventType": event_type, "category": category, "success": success}
        record |= {name: value for name, value in fields.items() if value is not None}
        self._stream.log("info" if success else "warn", MESSAGE, record)

    async def __call__(self, call: Invocation, proceed: Proceed) -> Any:
        """The middleware: tell that the handler of a call is about to start, and with what."""
        noun, category = self._kind(call.method, call.name)
        arguments = _show(call.arguments, self._settings.sensitive_data)
        metadata = {"arguments": arguments}
        self.write(f"{noun}_START", category, True, **_identity(call), metadata=metadata)
        return await proceed()

    def note_rate_limit(self, call: Invocation, refusal: StructuredError) -> None:
        """Tell that a rate limit has refused a call."""
        fields = _identity(call)
        self.write("RATE_LIMIT_EXCEEDED", "SECURITY", False, **fields, metadata=refusal.details)

    def observe(self, session: Session, record: Event) -> None:
        """Tell what observers are told: the end of a call, of a session, and its beginning."""
        if isinstance(record, CallCompleted):
            self._note_end(session, record)
        elif isinstance(record, ClientConnected | ClientDisconnected):
            stage = "OPENED" if isinstance(record, ClientConnected) else "CLOSED"
            who = _who(session)
            self.write(f"SESSION_{stage}", "SECURITY", True, **who, metadata=record.fields)

    def _note_end(self, session: Session, record: CallCompleted) -> None:
        told = record.fields
        method = told.get("method", "tools/call")
        name = told.get("toolName") or told.get("name", "")
        noun, category = self._kind(method, name)
        outcome, code = told["outcome"], told.get("errorCode")
        refused = record.refusal is not None
        refused = refused or outcome == ToolCompletionOutcome.PROTOCOL_ERROR
        success = outcome == ToolCompletionOutcome.SUCCESS
        if not success:
            category = "SECURITY" if code == ErrorCode.UNAUTHORIZED else "ERROR"
        stage = "COMPLETED" if success else "REFUSED" if refused else "FAILED"
        metadata = {"outcome": outcome, "durationMs": told["durationMs"]}
        if record.refusal is not None:
            metadata["reason"] = record.refusal
        self.write(
            f"{noun}_{stage}",
            category,
            success,
            **_who(session),
            correlationId=told["correlationId"],
            runId=told.get("runId"),
            **_subject(method, name),
            errorCode=code,
            metadata=metadata,
        )

    def _kind(self, method: str, name: str) -> tuple[str, AuditCategory]:
        if method == "tools/call" and self._is_administrative(name):
            return "TOOL_INVOCATION", "ADMIN"
        return _CALLS.get(method, ("REQUEST", "DATA"))


def _who(session: Session) -> dict[str, Any]:
    """By whom, and over what."""
    who: dict[str, Any] = {
        "connectionCorrelationId": session.connection_correlation_id,
        "transport": session.transport_type,
    }
    if session.principal is not None:
        who["subject"] = session.principal.subject
        who["clientId"] = session.principal.client_id
    return who


def _identity(call: Invocation) -> dict[str, Any]:
    ids = {"correlationId": call.correlation_id, "runId": call.run_id}
    return _who(call.session) | ids | _subject(call.method, call.name)


def _subject(method: str, name: str) -> dict[str, str]:
    return {"toolName": name} if method == "tools/call" else {"method": method, "name": name}


def _show(arguments: Mapping[str, Any], how: str) -> Any:
    """What is written of the arguments of a call (OPS-13)."""
    if how == "redact":
        return dict.fromkeys(list(arguments)[:_MAX_MEMBERS], REDACTED)
    return _truncate(arguments, 1) if how == "truncate" else arguments


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
