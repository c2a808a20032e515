"""Every error that leaves the runtime: its codes, its shapes, and the exceptions that carry it.

Three families, and they never mix (spec/errors.md):

* **protocol errors** are JSON-RPC error responses (`JsonRpcErrorCode`, `to_json_rpc_error`);
* **tool errors** are results of `tools/call` with ``isError: true`` (`ErrorCode`, `to_tool_error`);
* **usage errors** are what the author or operator of a server did wrong (`UsageError` and its
  children): they are raised in Python and say what to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final, TypeGuard, TypeVar

import orjson
from attrs import define

from .base.exact_json import dumps
from .base.shown import Shown

_T = TypeVar("_T")


class ErrorCode(StrEnum):
    """Code of a tool error, spelled as on the wire (ERR-01)."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    """The arguments do not fit the schema; `details.errors` names each path."""
    NOT_FOUND = "NOT_FOUND"
    """There is no tool, resource or agent of that name."""
    TIMEOUT = "TIMEOUT"
    """The deadline passed, and the handler may still run; or the user did not answer
    (`details.reason` is `no_answer`)."""
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    """A limit is reached; `details.reason` names it. Retry with exponential backoff and jitter,
    except after `payload_too_large`."""
    INTERNAL = "INTERNAL"
    """The handler failed; the server's log has the cause."""
    UNAUTHORIZED = "UNAUTHORIZED"
    """The operation is not allowed here, or not to this client."""
    NOT_INITIALIZED = "NOT_INITIALIZED"
    """The handshake is not complete: `data.code` of the JSON-RPC error -32002."""


class ToolCompletionOutcome(StrEnum):
    """The end of a `tools/call`, as its completion record names it (TIME-07)."""

    SUCCESS = "success"
    TOOL_ERROR = "tool_error"
    TIMEOUT = "timeout"
    LATE_COMPLETED = "late_completed"
    ABORTED = "aborted"
    DISCONNECTED_COMPLETED = "disconnected_completed"
    PROTOCOL_ERROR = "protocol_error"


class JsonRpcErrorCode(IntEnum):
    """Codes of JSON-RPC error responses.

    JSON-RPC 2.0 section 5.1; -32002 is the seed's, and in the handshake mode also the
    specification's for a resource that does not exist; -32020 to -32022 are of MCP 2026-07-28.
    """

    PARSE_ERROR = -32700
    """The message is not valid JSON."""
    INVALID_REQUEST = -32600
    """The message is not a valid request; `data.reason` names the cause."""
    METHOD_NOT_FOUND = -32601
    """The method does not exist."""
    INVALID_PARAMS = -32602
    """The params have the wrong shape; in 2026-07-28 also: the resource does not exist."""
    INTERNAL_ERROR = -32603
    """A resource, a prompt or a completion failed, and `data.code` is the code of its tool error;
    otherwise a bug in the server."""
    NOT_INITIALIZED = -32002
    """The handshake is not complete."""
    RESOURCE_NOT_FOUND = -32002
    """The resource does not exist (before 2026-07-28)."""
    HEADER_MISMATCH = -32020
    """The headers of an HTTP request differ from its body."""
    MISSING_CLIENT_CAPABILITY = -32021
    """The call needs a capability that the client did not declare."""
    UNSUPPORTED_PROTOCOL_VERSION = -32022
    """The server does not speak the revision; `data.supported` lists the ones it speaks."""
    URL_ELICITATION_REQUIRED = -32042
    """The user has to visit a page first (2025-11-25)."""


SHARE_USED: Final = "principal_share"
"""The `reason` of a refusal that is due to a principal's share, before any handler (RES-13)."""


@define(repr=False)
class StructuredError(Shown):
    """An error as data: what a failed `tools/call` carries in its content (ERR-02).

    `run_id` and `correlation_id` are filled in when the error is wrapped for one call.
    """

    code: ErrorCode
    message: str
    details: Mapping[str, Any] | None = None
    run_id: str | None = None
    correlation_id: str | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> StructuredError:
        """Return the error that `to_wire` wrote, without the ids of a call."""
        return cls(ErrorCode(wire["code"]), wire["message"], wire.get("details"))

    def to_wire(self) -> dict[str, Any]:
        """Return the camelCase object that goes into a response, without absent members."""
        wire: dict[str, Any] = {"code": self.code.value, "message": self.message}
        if self.details is not None:
            wire["details"] = self.details
        if self.run_id is not None:
            wire["runId"] = self.run_id
        if self.correlation_id is not None:
            wire["correlationId"] = self.correlation_id
        return wire


def create_error(
    code: ErrorCode, message: str, details: Mapping[str, Any] | None = None
) -> StructuredError:
    """Return a `StructuredError` that belongs to no call yet."""
    return StructuredError(code, message, details)


def to_json_rpc_error(
    code: JsonRpcErrorCode, message: str, data: Mapping[str, Any], request_id: str | int | None
) -> dict[str, Any]:
    """Return the JSON-RPC error response for one request; `request_id` is None if unknown."""
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": int(code), "message": message, "data": data},
    }


def to_tool_error(error: StructuredError, *, run_id: str, correlation_id: str) -> dict[str, Any]:
    """Return the `tools/call` result that carries `error` and the ids of its call (ERR-03).

    Details that cannot be written as JSON are replaced by a reason that says so, so that an
    error can always be sent.
    """
    wire = StructuredError(error.code, error.message, error.details, run_id, correlation_id)
    try:
        text = dumps(wire.to_wire(), option=orjson.OPT_NON_STR_KEYS)
    except BaseException:  # any value in the details may raise anything (ERR-07)
        wire.message = error.message.encode("utf-8", "backslashreplace").decode()
        wire.details = {"reason": "details_not_serializable"}
        text = dumps(wire.to_wire())
    return {"content": [{"type": "text", "text": text.decode()}], "isError": True}


_MAX_INNER: Final = 10
_MAX_LEVELS: Final = 3


def describe_exception(error: BaseException, *, level: int = 1) -> dict[str, Any]:
    """Return an exception for the log: type, text, and where it was raised, innermost last.

    The frames are those of the last ten calls; a frame is ``file:line function``. A group has its
    first ten exceptions in `exceptions`, up to three levels deep (ERR-09).
    """
    try:
        text = str(error)
    except BaseException:  # its own code: it may raise anything
        text = "(no text: its __str__ raised)"
    frames = []
    traceback = _traceback_of(error)
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    described = {"type": _name_of(type(error)), "message": text, "frames": frames[-10:]}
    if has_type(error, BaseExceptionGroup) and level <= _MAX_LEVELS:
        inner = _exceptions_of(error)[:_MAX_INNER]
        described["exceptions"] = [describe_exception(each, level=level + 1) for each in inner]
    return described


def place_of(function: Callable[..., Any]) -> str | None:
    """Return where a function was written, as a frame of `describe_exception`; None if unknown."""
    written: Any = function
    while (inner := getattr(written, "func", getattr(written, "__wrapped__", None))) is not None:
        written = inner
    code = getattr(written, "__code__", None)
    return code and f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"


# The descriptors of the base classes: a class or its metaclass may have replaced the attributes.
_traceback_of = vars(BaseException)["__traceback__"].__get__
_name_of = vars(type)["__name__"].__get__
_exceptions_of = vars(BaseExceptionGroup)["exceptions"].__get__


class JsonRpcError(Exception):
    """Raised where a request is decided, to answer it with a JSON-RPC error.

    Args:
        data: for programs; the correlation id of the request is added if it has none (RPC-09).
    """

    def __init__(
        self, code: JsonRpcErrorCode, message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = {} if data is None else data


class ToolError(Exception):
    """Raised by a tool handler to choose the error its caller sees (ERR-04).

    Args:
        code: an `ErrorCode`, or its spelling.
        message: what the caller reads.
        details: JSON-serializable data for programs; optional.

    Raises:
        ValueError: `code` is no `ErrorCode`.
    """

    # For a subclass whose `__init__` does not call this one.
    code: ErrorCode = ErrorCode.INTERNAL
    message: str = "The tool failed."
    details: Mapping[str, Any] | None = None

    def __init__(
        self, code: ErrorCode | str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = ErrorCode(code)
        self.message = str(message)
        self.details = details

    def to_structured(self) -> StructuredError:
        """Return the error as data."""
        return StructuredError(self.code, self.message, self.details)


def has_type(value: object, kind: type[_T]) -> TypeGuard[_T]:
    """Return whether `value` is an instance of `kind`, without running any code of its class.

    `isinstance` reads `value.__class__`, which the class of a handler's value may define (ERR-07).
    """
    return issubclass(type(value), kind)


def chosen_error(error: BaseException | None) -> StructuredError | None:
    """Return the error that a handler chose by raising a `ToolError` (ERR-04).

    Returns:
        None for any other exception, and for a `ToolError` whose own code fails (ERR-07).
    """
    if not has_type(error, ToolError):
        return None
    try:
        chosen = error.to_structured()
        chosen.code = ErrorCode(chosen.code)
    except BaseException:
        return None
    return chosen


class AbortError(Exception):
    """Raised by `AbortSignal.raise_if_aborted()`: the result of the call is not needed any more."""


class UsageError(Exception):
    """Something the author or the operator of a server can mend; the message says how."""


class ConfigProblem:
    """One reason why a configuration is refused (CONF-04).

    A plain class: as an attrs class it would cost every start 0.25 ms.

    Attributes:
        key: the setting, as in ``tools.default_timeout_ms``; empty if a whole file is refused.
        value: its value, or ``"[REDACTED]"`` (CONF-05); None if it has none.
        expected: what would be accepted; completes "expected ...".
        source: ``environment NAME``, ``file PATH`` or ``code``.
    """

    __slots__ = ("_text", "expected", "key", "source", "value")

    def __init__(self, key: str, value: object, expected: str, source: str, text: str = "") -> None:
        self.key = key
        self.value = value
        self.expected = expected
        self.source = source
        self._text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigProblem) and (
            (self.key, self.value, self.expected, self.source)
            == (other.key, other.value, other.expected, other.source)
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"ConfigProblem({self._text})"


class ConfigError(UsageError):
    """The configuration is refused; the message lists every problem (CONF-04).

    Attributes:
        problems: the same as data.
    """

    def __init__(self, message: str, problems: tuple[ConfigProblem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class RegistrationError(UsageError):
    """A definition is refused at registration; the message names it and the cause (REG-03)."""

    code = ErrorCode.INVALID_ARGUMENT


class MissingExtraError(UsageError):
    """An optional area is used without its extra; the message says how to install it (ERR-11)."""

    def __init__(self, what: str, extra: str) -> None:
        from .base.installing import install_command

        super().__init__(f"{what} needs an extra: {install_command(extra)}")
        self.what, self.extra = what, extra

    def also(self, *extras: str) -> MissingExtraError:
        """Return the error of a command that needs `extras` too: all in one command."""
        found = dict.fromkeys((*self.extra.split(","), *extras))
        return MissingExtraError(self.what, ",".join(found))
