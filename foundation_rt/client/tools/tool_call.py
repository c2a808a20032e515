"""One call of a tool, and a request of any method (spec/client-requests.md).

A call finds the tool, checks the arguments, sends them and checks the result. The session, the
deadline, the breakers and the retries are those of every request.

The values of callers are encoded as JSON before anything is sent (CLIENT-24).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from math import isfinite
from typing import Any, ClassVar, Final

import orjson
from attrs import define, field

from ...base.exact_json import dumps, loads
from ...base.tool_versions import VERSION_KEY as TOOL_VERSION_KEY
from ...base.tool_versions import at_version
from ...errors import JsonRpcErrorCode, UsageError
from ...protocol.methods import INITIALIZE, TOOLS_CALL, facts
from ...protocol.peer import CAPABILITIES_KEY, INFO_KEY
from ...protocol.revisions import VERSION_KEY
from ..errors import InvalidResponseError, MCPError
from ..resilience.retries import Attempt
from ..results.results import CallResult
from ..results.tool_schemas import ToolSchema
from ..session.session import ClientSession
from ..transports.transport import NO_HEADER_PARAMS
from .input_rounds import InputRounds
from .server_tools import ServerTools, repeats_headers

HEADER_MISMATCH = int(JsonRpcErrorCode.HEADER_MISMATCH)
"""The code of a call whose headers do not repeat its arguments as the server wants it."""


@define(eq=False, repr=False)
class ToolCall:
    """A call of a tool, with its attempts.

    Args:
        tool: its name.
        arguments: as `encode_arguments` makes them.
        meta: further members of `_meta`.
        idempotent: whether it may run twice; None: as the tool's annotations say.
    """

    method: ClassVar[str] = TOOLS_CALL

    tools: ServerTools
    rounds: InputRounds
    tool: str
    arguments: bytes
    correlation_id: str | None
    idempotent: bool | None
    meta: Mapping[str, Any] | None = None
    _tool: ToolSchema | None = field(default=None, init=False)

    async def run(self, session: ClientSession, attempt: Attempt) -> dict[str, Any]:
        """Return the server's result; send again if it requires other headers (CLIENT-27).

        Raises:
            MCPError: there is none.
        """
        try:
            return await self._send(session, attempt)
        except MCPError as error:
            if error.original_code != HEADER_MISMATCH:
                raise
        attempt.was_sent = False  # it was refused, and did not run
        await self.tools.list(session, attempt)
        return await self._send(session, attempt)

    def read(self, wire: Mapping[str, Any]) -> CallResult:
        """Read a result, and check it against the tool's output schema (CLIENT-25).

        Raises:
            InvalidResponseError: it is invalid, or does not fit the schema.
        """
        result = CallResult.read(wire, self.correlation_id)
        tool = self._tool
        if tool is not None and tool.output_schema is not None and not result.is_error:
            _check_output(tool, result)
        return result

    async def _send(self, session: ClientSession, attempt: Attempt) -> dict[str, Any]:
        found = await self.tools.find(session, self.tool, attempt)
        arguments = loads(self.arguments)
        tool = self._tool = await self.tools.check(session, found, arguments, attempt)
        if tool.needs_task and session.server.can("tasks", "requests", "tools", "call"):
            raise _needs_task(tool.name)
        attempt.is_idempotent = tool.is_idempotent if self.idempotent is None else self.idempotent
        params = {"name": tool.name, "arguments": orjson.Fragment(self.arguments)}
        meta = self.meta
        if self.correlation_id is not None:
            meta = {**(meta or {}), "correlationId": self.correlation_id}
        header_params = (
            tool.header_params(arguments) if tool.header_parameters else NO_HEADER_PARAMS
        )
        try:
            return await self.rounds.exchange(
                session, TOOLS_CALL, params, attempt, meta, header_params
            )
        except MCPError as error:
            if error.code == "E204":
                self.tools.invalidate()
            raise


def _needs_task(tool: str) -> MCPError:
    return MCPError(
        "E205",
        f"the server runs {tool!r} as a task only (execution.taskSupport), which this client"
        " does not do",
        user_message="This tool needs tasks",
        suggested_action="Use another tool, or a client that has tasks.",
    )


def _check_output(tool: ToolSchema, result: CallResult) -> None:
    if not result.has_structured:
        raise InvalidResponseError(
            f"the result of {tool.name} lacks the structured content it declares"
        )
    issues = tool.check_output(result.structured)
    result.unchecked = tool.unchecked_output
    if issues:
        listed = "; ".join(f"{issue.path or 'it'} {issue.message}" for issue in issues)
        raise InvalidResponseError(
            f"the result of {tool.name} does not fit its output schema: {listed}"
        )


_META: Final = ("_meta",)
_OWN_META: Final = ("progressToken", VERSION_KEY, INFO_KEY, CAPABILITIES_KEY)
"""Members of `_meta` that the client itself has to say, or leaves out (CREQ-08)."""


@define(eq=False, repr=False)
class RawRequest:
    """A request of any method, with its attempts.

    Args:
        params: of the request; JSON. Their `_meta` is one with `meta`.
        meta: further members of `_meta`.
        idempotent: whether it may run twice; None: as its method or the annotations of its tool
            say.

    Attributes:
        tool: the name of the tool that is called; None for other methods.

    Raises:
        UsageError: the method is none of a request that a caller makes.
        MCPError: E203: the params are not JSON, or lack the name that the method needs.
    """

    tools: ServerTools
    method: str
    params: Mapping[str, Any] | None
    meta: Mapping[str, Any] | None
    idempotent: bool | None
    tool: str | None = field(default=None, init=False)
    _arguments: Any = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        check_method(self.method)
        if self.params is not None:
            given = self.params
            self.params = encode_members(f"the params of {self.method}", given, _META)
            if given.get("_meta") is not None:
                self.meta = {**read_meta(given["_meta"]), **(self.meta or {})}
            self._arguments = given.get("arguments")
        self.meta = encode_meta(self.meta)
        source = facts(self.method).mirrored
        name = None if source is None or self.params is None else self.params.get(source)
        if source is not None and type(name) is not str:
            raise MCPError("E203", f"the params of {self.method} need {source!r}, a string")
        if self.method == TOOLS_CALL:
            self.tool = name

    async def run(self, session: ClientSession, attempt: Attempt) -> dict[str, Any]:
        """Return the server's result; send again if it requires other headers (CLIENT-27).

        Raises:
            MCPError: there is none.
        """
        if self.tool is None:
            attempt.is_idempotent = self._may_repeat(facts(self.method).is_repeatable)
            return await session.request(self.method, self.params, attempt, meta=self.meta)
        try:
            return await self._call(session, self.tool, attempt)
        except MCPError as error:
            if error.original_code != HEADER_MISMATCH or not repeats_headers(session):
                raise
        attempt.was_sent = False  # it was refused, and did not run
        await self.tools.list(session, attempt)
        return await self._call(session, self.tool, attempt)

    async def _call(self, session: ClientSession, name: str, attempt: Attempt) -> dict[str, Any]:
        version = (self.meta or {}).get(TOOL_VERSION_KEY)
        called = at_version(name, version) if type(version) is str else name
        tool = await self.tools.definition(session, called, attempt)
        attempt.is_idempotent = self._may_repeat(tool is not None and tool.is_idempotent)
        header_params = NO_HEADER_PARAMS
        if tool is not None and tool.header_parameters and repeats_headers(session):
            header_params = tool.header_params(loads(encode("the arguments", self._arguments)))
        try:
            return await session.request(
                self.method, self.params, attempt, meta=self.meta, header_params=header_params
            )
        except MCPError as error:
            if error.code == "E204":
                self.tools.invalidate()
            raise

    def _may_repeat(self, by_default: bool) -> bool:
        return by_default if self.idempotent is None else self.idempotent


def check_method(method: Any) -> None:
    """Raise unless a caller may send a request of this method.

    Raises:
        UsageError: it is no name, that of a notification, or `initialize`.
    """
    if type(method) is not str or not method:
        raise UsageError(f"a method is a string that is not empty, not {method!r}")
    if method == INITIALIZE or method.startswith("notifications/"):
        raise UsageError(f"{method} is not a request that a caller makes")


def read_meta(meta: Any) -> Mapping[str, Any]:
    """Return the `_meta` of params.

    Raises:
        MCPError: E203: it is no object.
    """
    if not isinstance(meta, Mapping):
        raise MCPError("E203", "the member _meta of the params is not an object")
    return meta


def encode_meta(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the further members of `_meta`, encoded, without those that are the client's own.

    Raises:
        MCPError: E203: they are not JSON.
    """
    if not meta:
        return None
    return encode_members("the members of _meta", meta, _OWN_META)


def read_entry(entry: Any) -> dict[str, Any]:
    """Return an entry of a list as it came.

    Raises:
        InvalidResponseError: it is no object.
    """
    if type(entry) is not dict:
        raise InvalidResponseError("an entry is listed that is not an object")
    return entry


_NO_NUMBER: Final = "NaN or an infinity is in them"
_NO_OBJECT: Final = "an object with names is needed"


def encode(what: str, value: Any) -> bytes:
    """Encode a value as JSON.

    Args:
        what: the value, for the error: "the arguments of forecast".
        value: to be encoded; integers may be of any size.

    Raises:
        MCPError: E203: it is not JSON.
    """
    try:
        encoded = dumps(value)
    except (TypeError, ValueError) as error:
        raise _not_json(what, error) from None
    if b"null" in encoded and _has_no_number(value):
        raise _not_json(what, _NO_NUMBER)
    return encoded


def encode_arguments(tool: str, arguments: Mapping[str, Any] | None) -> bytes:
    """Encode the arguments of a tool; this form is sent and checked.

    Every call comes here: it is written out, instead of calling `encode`.

    Raises:
        MCPError: E203: they are not JSON.
    """
    try:
        given = dict(arguments or {})
        encoded = dumps(given)
    except (TypeError, ValueError) as error:
        raise _not_json(f"the arguments of {tool}", error) from None
    # orjson writes null for NaN and infinities, without an error. For `in` Python makes an error.
    if encoded.find(b"null") >= 0 and _has_no_number(given):
        raise _not_json(f"the arguments of {tool}", _NO_NUMBER)
    return encoded


def encode_members(what: str, members: Any, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return an object whose members are encoded, except those that are strings.

    Args:
        what: the object, for the error.
        members: the object.
        leave_out: names of members that are neither encoded nor returned.

    Raises:
        MCPError: E203: it is not JSON.
    """
    if not isinstance(members, Mapping):
        raise _not_json(what, _NO_OBJECT)
    encoded: dict[str, Any] = {}
    for name, value in members.items():
        if type(name) is not str:
            raise _not_json(what, _NO_OBJECT)
        if name not in leave_out:
            encoded[name] = value if type(value) is str else orjson.Fragment(encode(what, value))
    return encoded


def _not_json(what: str, reason: object) -> MCPError:
    return MCPError("E203", f"{what} are not JSON: {reason}")


def _has_no_number(value: Any) -> bool:
    """Return whether a value that orjson has written holds NaN or an infinity."""
    if isinstance(value, float):
        return not isfinite(value)
    parts: Iterable[Any]
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, Enum):
        parts = (value.value,)
    else:  # the fields of a dataclass, if it is one
        names = getattr(type(value), "__dataclass_fields__", ())
        parts = [getattr(value, name) for name in names]
    return any(map(_has_no_number, parts))
