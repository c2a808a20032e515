"""The messages of clients as they go, their sessions and calls (DEV-22, DEV-24).

It is put around the HTTP application and changes nothing. What it keeps of a request is kept when
the runtime has read the body, which it does for authenticated clients alone.

`DescribedMessage` is one JSON-RPC message, described for the record of the wire.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from attrs import define, field, frozen

from ...base.bounded_dict import BoundedDict
from ...base.exact_json import loads
from ...base.ids import UuidGenerator
from ...protocol.methods import INITIALIZE, NOTIFICATIONS_CANCELLED, facts
from .journal import Journal, now_ms

MAX_SHOWN_BYTES = 16 * 1024
"""The most bytes of a message that are kept; its true size is told."""


@frozen(eq=False)
class DescribedMessage:
    """A message as it went.

    Attributes:
        kind: `request`, `response`, `notification`, `batch` or `invalid`.
        method: of a request or notification.
        id: of a request or response; None otherwise.
        size: of the message, in bytes.
        value: parsed; None if it is no JSON.
        line: the message.
    """

    kind: str
    method: str | None
    id: Any
    size: int
    value: Any
    line: bytes

    @property
    def params(self) -> dict[str, Any]:
        """The params, if they are an object; empty otherwise."""
        return member(self.value, "params")

    def to_json(self) -> dict[str, Any]:
        """Return the members of a `wire` event that tell of the message itself (DEV-22)."""
        is_cut = self.size > MAX_SHOWN_BYTES
        is_shown = self.value is not None and not is_cut
        text = None if is_shown else self.line[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
        return {
            "kind": self.kind,
            "method": self.method,
            "id": self.id,
            "bytes": self.size,
            "message": self.value if is_shown else None,
            "text": text,
            "truncated": is_cut,
        }


def member(value: Any, name: str) -> dict[str, Any]:
    """Return a member that should be an object; an empty one if it is none, or not there."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def describe_message(line: bytes) -> DescribedMessage:
    """Return the description of a message, which may be anything."""
    size = len(line)
    try:
        value = loads(line)
    except ValueError:
        return DescribedMessage("invalid", None, None, size, None, line)
    if isinstance(value, list):
        return DescribedMessage("batch", None, None, size, value, line)
    if not isinstance(value, dict):
        return DescribedMessage("invalid", None, None, size, value, line)
    method, has_id = value.get("method"), "id" in value
    message_id = value.get("id")
    if isinstance(message_id, dict | list):
        message_id = None
    if not isinstance(method, str):
        kind = "response" if has_id else "invalid"
        return DescribedMessage(kind, None, message_id, size, value, line)
    return DescribedMessage(
        "request" if has_id else "notification", method, message_id, size, value, line
    )


MAX_SESSIONS = 100
MAX_OPEN_CALLS = 1_000
MAX_CORRELATIONS = 2_000
MAX_KEPT_BYTES = 8 * 1024 * 1024
"""The most bytes of one message that are read here; of a longer one the size is told."""

_SESSION = b"mcp-session-id"
_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
_VERSION = "io.modelcontextprotocol/protocolVersion"

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[..., Awaitable[None]]


@define(eq=False)
class WireSession:
    """The session of a client, or all requests of one without sessions.

    Attributes:
        label: a name that is no secret, as its id is.
    """

    label: str
    name: str | None = None
    version: str | None = None
    revision: str | None = None
    since: float = field(factory=now_ms)
    calls: int = 0
    open: dict[str, ClientCall] = field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the session as the page has it."""
        return {
            "session": self.label,
            "name": self.name,
            "version": self.version,
            "revision": self.revision,
            "since": self.since,
            "calls": self.calls,
        }


@define(eq=False)
class ClientCall:
    """A call of a client.

    Attributes:
        label: names it in all events.
        has_begun: whether its start has been told.
    """

    label: str
    session: WireSession
    method: str
    name: str | None
    request_id: Any
    correlation_id: str | None
    began: float = field(factory=time.perf_counter)
    has_begun: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the members that the start and the end of a call have in common."""
        return {
            "call": self.label,
            "session": self.session.label,
            "client": self.session.name,
            "method": self.method,
            "name": self.name,
            "id": self.request_id,
            "correlationId": self.correlation_id,
        }


_exchange: ContextVar[RecordedExchange | None] = ContextVar("exchange", default=None)


class NotingIds(UuidGenerator):
    """Ids of the runtime; tells the exchange under way which correlation id its call has got."""

    def correlation_id(self) -> str:
        """Return the id of one chain of requests."""
        made = super().correlation_id()
        exchange = _exchange.get()
        if exchange is not None:
            exchange.note_correlation(made)
        return made


@define(eq=False)
class ClientWire:
    """Keeps the record of the messages between clients and the front.

    Args:
        journal: gets it.
        path: of the endpoint.

    Attributes:
        calls_by_correlation: the labels of calls, of the latest.
    """

    journal: Journal
    path: str
    calls_by_correlation: dict[str, str] = field(
        factory=lambda: BoundedDict(MAX_CORRELATIONS), init=False
    )
    _sessions: dict[str, WireSession] = field(factory=lambda: BoundedDict(MAX_SESSIONS), init=False)
    _labels: int = field(default=0, init=False)
    _calls: int = field(default=0, init=False)

    @property
    def sessions(self) -> list[WireSession]:
        """The sessions that are open, the latest last."""
        return [*self._sessions.values()]

    def around(self, app: Application) -> Application:
        """Return an ASGI application that keeps the record of what passes through another."""

        async def recorded(scope: Any, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] != self.path:
                await app(scope, receive, send)
                return
            exchange = RecordedExchange(
                self, dict(scope["headers"]), scope["method"], receive, send
            )
            before = _exchange.set(exchange)
            try:
                await app(scope, exchange.receive, exchange.send)
            finally:
                _exchange.reset(before)
                exchange.end()

        return recorded

    # -- sessions

    def find(self, session_id: bytes | None) -> WireSession | None:
        """Return the session of an id."""
        return None if session_id is None else self._sessions.get(session_id.decode("latin-1"))

    def begin(self, params: dict[str, Any]) -> WireSession:
        """Return a new session, of the params of `initialize`."""
        self._labels += 1
        info = member(params, "clientInfo")
        return WireSession(
            f"c{self._labels}",
            _short(info.get("name")),
            _short(info.get("version")),
            _short(params.get("protocolVersion")),
        )

    def admit(self, session: WireSession, session_id: str) -> None:
        """Keep a session under its id; the oldest one makes room for it."""
        self._sessions[session_id] = session
        self.journal.wake()

    def forget(self, session_id: bytes | None) -> None:
        """Forget a session that has ended."""
        if session_id is not None:
            gone = self._sessions.pop(session_id.decode("latin-1"), None)
            for call in [*gone.open.values()] if gone is not None else ():
                self.end_call(call, "lost", None)
            self.journal.wake()

    def stateless(self, params: dict[str, Any]) -> WireSession:
        """Return what stands for the session of a client without sessions: one for its name."""
        meta = member(params, "_meta")
        info = member(meta, _CLIENT_INFO)
        name, version = _short(info.get("name")), _short(info.get("version"))
        key = f"stateless {name} {version}"
        found = self._sessions.get(key)
        if found is None:
            self._labels += 1
            revision = _short(meta.get(_VERSION))
            found = WireSession(f"c{self._labels}", name, version, revision)
            self.admit(found, key)
        return found

    # -- calls and messages

    def begin_call(self, session: WireSession, message: DescribedMessage) -> ClientCall | None:
        """Return the call that a request is; None if it is none."""
        if message.kind != "request" or message.method is None or not facts(message.method).is_call:
            return None
        self._calls += 1
        session.calls += 1
        given = member(message.params, "_meta").get("correlationId")
        given = given if isinstance(given, str) and 0 < len(given) <= 128 else None
        label = f"{session.label}-{self._calls}"
        name = _name_of(message)
        call = ClientCall(label, session, message.method, name, message.id, given)
        if len(session.open) >= MAX_OPEN_CALLS:
            oldest = session.open[next(iter(session.open))]
            self.end_call(oldest, "lost", None)
        session.open[_key(message.id)] = call
        return call

    def tell_start(self, call: ClientCall, correlation_id: str | None) -> None:
        """Tell the start of a call, once."""
        if call.has_begun:
            return
        call.has_begun = True
        call.correlation_id = correlation_id or call.correlation_id
        if call.correlation_id is not None:
            self.calls_by_correlation[call.correlation_id] = call.label
        self.journal.add("call", {"phase": "start", **call.to_json()})

    def end_call(self, call: ClientCall, outcome: str, error: Any) -> None:
        """Tell the end of a call, once."""
        if call.session.open.pop(_key(call.request_id), None) is None:
            return
        self.tell_start(call, None)
        took = round((time.perf_counter() - call.began) * 1000, 2)
        ended = {"durationMs": took, "outcome": outcome, "error": error}
        self.journal.add("call", {"phase": "end", **call.to_json(), **ended})

    def tell(
        self,
        direction: str,
        session: WireSession | None,
        message: DescribedMessage,
        call: ClientCall | None,
    ) -> None:
        """Tell a message."""
        self.journal.add(
            "wire",
            {
                "leg": "client",
                "direction": direction,
                "session": None if session is None else session.label,
                "client": None if session is None else session.name,
                "server": None,
                "call": None if call is None else call.label,
                **message.to_json(),
            },
        )


@define(eq=False)
class RecordedExchange:
    """One HTTP request, and its response."""

    _wire: ClientWire
    _headers: dict[bytes, bytes]
    _method: str
    _receive: Receive
    _send: Send
    _session: WireSession | None = field(default=None, init=False)
    _call: ClientCall | None = field(default=None, init=False)
    _is_stateless: bool = field(default=False, init=False)
    _body: bytearray = field(factory=bytearray, init=False)
    _size: int = field(default=0, init=False)
    _is_read: bool = field(default=False, init=False)
    _status: int = field(default=0, init=False)
    _answer: MessageStream | None = field(default=None, init=False)

    async def receive(self) -> Any:
        """Pass a part of the request on."""
        event = await self._receive()
        if event["type"] == "http.request" and not self._is_read and self._method == "POST":
            body = event.get("body", b"")
            self._size += len(body)
            if self._size <= MAX_KEPT_BYTES:
                self._body += body
            if not event.get("more_body", False):
                self._is_read = True
                self._take_request()
        return event

    async def send(self, event: Any) -> None:
        """Pass a part of the response on."""
        if event["type"] == "http.response.start":
            self._begin_response(event)
        elif event["type"] == "http.response.body" and self._answer is not None:
            is_last = not event.get("more_body", False)
            for line, size in self._answer.feed(event.get("body", b""), is_last):
                self._take_answer(line, size)
        await self._send(event)

    def note_correlation(self, correlation_id: str) -> None:
        """Take the correlation id that the runtime has given to the request."""
        if self._call is not None:
            self._wire.tell_start(self._call, correlation_id)

    def end(self) -> None:
        """Note that the response has ended, complete or not."""
        call = self._call
        if call is not None and self._is_stateless:
            self._wire.end_call(call, "cancelled", None)  # nothing, if it has been answered

    def _take_request(self) -> None:
        message = _message(bytes(self._body), self._size)
        self._body = bytearray()
        session = self._wire.find(self._headers.get(_SESSION))
        if session is None and message.method == INITIALIZE:
            session = self._wire.begin(message.params)
        elif session is None and _SESSION not in self._headers:
            session, self._is_stateless = self._wire.stateless(message.params), True
        self._session = session
        if session is not None:
            self._call = self._wire.begin_call(session, message)
        self._wire.tell("in", session, message, self._call)
        if self._call is not None and self._call.correlation_id is not None:
            self._wire.tell_start(self._call, None)
        if message.method == NOTIFICATIONS_CANCELLED and session is not None:
            cancelled = session.open.get(_key(message.params.get("requestId")))
            if cancelled is not None:
                self._wire.end_call(cancelled, "cancelled", None)

    def _begin_response(self, event: Any) -> None:
        headers = {bytes(name).lower(): bytes(value) for name, value in event.get("headers", ())}
        self._status = event["status"]
        session_id = self._headers.get(_SESSION)
        if self._session is None and session_id is not None:
            self._session = self._wire.find(session_id)
        if self._status == 404 or (self._method == "DELETE" and self._status < 300):
            self._wire.forget(session_id)
        if self._is_read and self._session is not None and _SESSION in headers:
            self._wire.admit(self._session, headers[_SESSION].decode("latin-1"))
        is_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        is_json = headers.get(b"content-type", b"").startswith(b"application/json")
        if is_stream or (is_json and self._is_read):
            self._answer = MessageStream(is_stream)

    def _take_answer(self, line: bytes, size: int) -> None:
        message = _message(line, size)
        session, call = self._session, None
        if message.kind == "response" and session is not None:
            call = session.open.get(_key(message.id))
        self._wire.tell("out", session, message, call or self._call)
        if call is not None:
            self._wire.end_call(call, *_outcome(message))


@define(eq=False)
class MessageStream:
    """Cuts a response into its messages: one of JSON, or the events of a stream.

    Args:
        is_stream: whether it is a stream of events.
    """

    _is_stream: bool
    _rest: bytearray = field(factory=bytearray, init=False)
    _size: int = field(default=0, init=False)

    def feed(self, data: bytes, is_last: bool) -> list[tuple[bytes, int]]:
        """Return the messages that are complete now, each with its true size."""
        if not self._is_stream:
            self._keep(data)
            return [self._take()] if is_last and self._size else []
        found = []
        while True:
            # An event ends at an empty line, which may be cut in two.
            at = data.find(b"\n\n")
            ends_before = bool(self._rest) and self._rest[-1:] == b"\n" and data[:1] == b"\n"
            if ends_before:
                found += self._event()
                data = data[1:]
            elif at >= 0:
                self._keep(data[: at + 1])
                found += self._event()
                data = data[at + 2 :]
            else:
                self._keep(data)
                return found

    def _event(self) -> list[tuple[bytes, int]]:
        event, size = self._take()
        lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        text = b"\n".join(lines)
        return [(text, max(len(text), size - 64 if size > MAX_KEPT_BYTES else 0))] if text else []

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAX_KEPT_BYTES:
            self._rest += data

    def _take(self) -> tuple[bytes, int]:
        taken, size = bytes(self._rest), self._size
        self._rest, self._size = bytearray(), 0
        return taken, size


def _message(line: bytes, size: int) -> DescribedMessage:
    if size > len(line):
        return DescribedMessage("invalid", None, None, size, None, line)
    return describe_message(line)


def _outcome(message: DescribedMessage) -> tuple[str, Any]:
    """Return the outcome in a response, and its error."""
    value = message.value
    error = value.get("error")
    if isinstance(error, dict):
        return "error", {"code": error.get("code"), "message": str(error.get("message"))[:2000]}
    result = member(value, "result")
    if result.get("isError") is True:
        return "tool_error", _tool_error(result)
    if result.get("resultType") == "input_required":
        return "input_required", None
    return "ok", None


def _tool_error(result: dict[str, Any]) -> dict[str, Any]:
    """Return code and message of the error that a tool has returned (ERR-02)."""
    content = result.get("content")
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    text = text if isinstance(text, str) else ""
    try:
        value = loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        code = value.get("code")
        return {"code": code if isinstance(code, str) else None, "message": value["message"][:2000]}
    return {"code": None, "message": text[:2000]}


def _name_of(message: DescribedMessage) -> str | None:
    params = message.params
    ref = member(params, "ref")
    named = params.get("name") or params.get("uri") or ref.get("name") or ref.get("uri")
    return _short(named)


def _short(value: object) -> str | None:
    return value[:256] if isinstance(value, str) else None


def _key(request_id: object) -> str:
    return f"{type(request_id).__name__} {request_id}"
