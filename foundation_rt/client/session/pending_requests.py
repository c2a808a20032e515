"""The requests that wait for a response, and the meaning of each message from the server. Pure.

Requests become lines; lines become `MessageReceived` values. No input makes it raise. A response
reaches only the request that it names: ids are random (ID-01), so a late, repeated or invented
response matches no request (CLIENT-12).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
from attrs import define, field

from ...base.exact_json import check_levels, dumps, loads, may_be_deep
from ...base.shown import Shown
from ...protocol.framing import LineTooLong
from ...protocol.jsonrpc import (
    ABSENT,
    Batch,
    Malformed,
    Notification,
    Request,
    Response,
    parse,
    read,
)
from ...protocol.malformed import invalid
from ...protocol.methods import (
    NOTIFICATIONS_PROGRESS,
    facts,
)
from ...protocol.peer import SUBSCRIPTION_ID_KEY
from ..errors import MCPError

if TYPE_CHECKING:
    from ...base.request_ids import RequestIdGenerator


MAX_MENDED_BYTES: Final = 8 * 1024 * 1024
"""Longest line whose surrogates are replaced: the search takes 0.1 s for it at most."""

ABANDONED_SECONDS: Final = 30.0
"""Time for which a request that its caller left may still be the one that asks, in s."""

_MAX_ABANDONED = 1_000
_MAX_MENDED = 10_000  # surrogates of one line
_MAX_IDS = 1_000  # of one line that are looked at

# Each begins with what is searched for fast; what stands before that is looked at afterwards. A
# backslash before it makes it plain text, unless that is itself escaped.
_LONE_SURROGATE = re.compile(
    rb"\\u(?:(?<!\\\\u)|(?<=[^\\]\\\\\\u))[dD](?:"
    rb"[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb")"
)
_ID = re.compile(rb'"id"\s{0,8}:\s{0,8}"([^"\\]{1,128})"')
_METHOD = re.compile(rb'"method"\s{0,8}:\s{0,8}"([^"\\]{1,128})"')


def without_lone_surrogates(line: bytes) -> bytes:
    """Return the line with U+FFFD for every escape that is half a character."""
    if len(line) > MAX_MENDED_BYTES:
        return line
    return _LONE_SURROGATE.sub(rb"\\ufffd", line, count=_MAX_MENDED)


def ids_in(line: bytes) -> Iterator[str]:
    """Return the ids that stand in a line, those of requests and of responses alike.

    A line that does not end as a response does was cut off, by the end of its server, say.
    """
    if not line.rstrip().endswith((b"}", b"]")):
        return iter(())
    return (text for text, _ in zip(_texts(_ID, line), range(_MAX_IDS), strict=False))


def repeats_request(line: bytes, method: str) -> bool:
    """Return whether a line may repeat a request, as a server does that prints what it reads."""
    if b'"result"' not in line and b'"error"' not in line:
        return True
    found = zip(_texts(_METHOD, line), range(_MAX_IDS), strict=False)
    return any(text == method for text, _ in found)


def _texts(pattern: re.Pattern[bytes], line: bytes) -> Iterator[str]:
    return (match[1].decode("utf-8", "replace") for match in pattern.finditer(line))


@define(eq=False, repr=False)
class PendingRequest(Shown):
    """A request that waits for its response.

    Attributes:
        attempt: belongs to the caller; not used here.
    """

    id: str
    method: str
    attempt: Any


@define(eq=False, repr=False)
class ResponseReceived(Shown):
    """A response to a request; `error` is None if it has a result."""

    request: PendingRequest
    result: Any
    error: Any


@define(eq=False, repr=False)
class InvalidResponse(Shown):
    """A message that seems to answer a request, and is no valid response."""

    request: PendingRequest
    reason: str


@define(eq=False, repr=False)
class RequestReceived(Shown):
    """A request of the server.

    Attributes:
        about: the request on whose own stream it came; None on a shared stream.
    """

    request: Request
    about: PendingRequest | None


@define(eq=False, repr=False)
class NotificationReceived(Shown):
    """A notification of the server.

    Attributes:
        request: the request that it belongs to; None if unknown.
    """

    method: str
    params: Mapping[str, Any]
    request: PendingRequest | None


@define(eq=False, repr=False)
class Ignored(Shown):
    """A message that matches no request, and is dropped."""

    reason: str


MessageReceived = (
    ResponseReceived | InvalidResponse | RequestReceived | NotificationReceived | Ignored
)


@define(eq=False, repr=False)
class PendingRequests:
    """The pending requests of one session.

    Attributes:
        abandoned: when callers stopped waiting, in s, by the ids of requests without a response.
    """

    ids: RequestIdGenerator
    pending: dict[str, PendingRequest] = field(factory=dict, init=False)
    abandoned: dict[str, float] = field(factory=dict, init=False)

    def add(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        attempt: Any,
        wants_progress: bool = False,
    ) -> tuple[PendingRequest, bytes]:
        """Add a request; return it, and its line.

        Its response removes it from `pending`; the caller removes it when it stops waiting.

        Args:
            method: of the request.
            params: of the request; JSON.
            attempt: kept with the request.
            wants_progress: whether to send a progress token: its id, which is unique.

        Raises:
            MCPError: E203: `params` is not JSON.
        """
        request = PendingRequest(self.ids.request_id(), method, attempt)
        if wants_progress:
            params = params or {}
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": request.id}}
        try:
            line = orjson.dumps(_message(method, params, request.id))
        except TypeError as error:
            raise MCPError("E203", f"the params of {method} are not JSON: {error}") from None
        self.pending[request.id] = request
        return request, line

    def abandon(self, request: PendingRequest, now: float) -> None:
        """Note that nobody waits for a request any more, which the server may still work on."""
        if facts(request.method).asks_nothing:
            return
        self._forget_abandoned(now)
        self.abandoned[request.id] = now
        if len(self.abandoned) > _MAX_ABANDONED:
            del self.abandoned[next(iter(self.abandoned))]

    def asker(self, now: float) -> PendingRequest | None:
        """Return the request that the server works on, if that is certain (QUEST-24).

        A request of the server on a shared stream does not say to which it belongs.
        """
        self._forget_abandoned(now)
        asking = [each for each in self.pending.values() if not facts(each.method).asks_nothing]
        return asking[0] if len(asking) == 1 and not self.abandoned else None

    def _forget_abandoned(self, now: float) -> None:
        while self.abandoned:
            first = next(iter(self.abandoned))
            if now - self.abandoned[first] <= ABANDONED_SECONDS:
                return
            del self.abandoned[first]

    def receive(self, line: bytes | LineTooLong, stream: str | None) -> list[MessageReceived]:
        """Return the meaning of a line: one message, or those of a batch (CLIENT-12 to CLIENT-14).

        Args:
            line: as it came.
            stream: the id of the request on whose own stream it came; None for a shared stream.
        """
        if isinstance(line, LineTooLong):
            return [self._unreadable(f"a message of more than {line.limit} bytes", stream)]
        message = parse(line, loads)
        if type(message) is Malformed:
            message = parse(without_lone_surrogates(line), loads)
        if isinstance(message, Batch):
            messages = [read(each) for each in message.items]
            return [self._read(_within_levels(each, line), stream) for each in messages]
        message = _within_levels(message, line)
        if isinstance(message, Malformed) and message.id is None and stream is None:
            return self._read_remains(message, line)
        return [self._read(message, stream)]

    def _read(
        self, message: Request | Notification | Response | Malformed, stream: str | None
    ) -> MessageReceived:
        if isinstance(message, Response):
            return self._read_response(message, stream)
        if isinstance(message, Notification):
            return self._read_notification(message, stream)
        if isinstance(message, Request):
            return RequestReceived(message, None if stream is None else self.pending.get(stream))
        return self._read_malformed(message, stream)

    def _read_response(self, response: Response, stream: str | None) -> MessageReceived:
        if response.id is None and response.error is not None:
            request = self._take(self._only(stream))
            if request is None:
                return Ignored("an error that names no request")
            return ResponseReceived(request, None, response.error)
        request = self._take(response.id)
        if request is None:
            if self.abandoned and type(response.id) is str:
                self.abandoned.pop(response.id, None)
            return Ignored("a response to no request that waits for one")
        if response.error is None and type(response.result) is not dict:
            return InvalidResponse(request, "the result is not an object")
        return ResponseReceived(request, response.result, response.error)

    def _read_notification(self, notification: Notification, stream: str | None) -> MessageReceived:
        # Some servers write null for absent params.
        params = {} if notification.params in (ABSENT, None) else notification.params
        if type(params) is not dict:
            return Ignored(f"params of {notification.method} that are not an object")
        about = _subscription(params) or stream
        if notification.method == NOTIFICATIONS_PROGRESS:
            about = params.get("progressToken")
        return NotificationReceived(
            notification.method, params, self.pending.get(about) if type(about) is str else None
        )

    def _read_malformed(self, malformed: Malformed, stream: str | None) -> MessageReceived:
        # On a shared stream, a line without the id of a request was printed by mistake.
        request = self._take(malformed.id) or self._take(stream)
        reason = f"what is no message: {malformed.detail}"
        return (
            Ignored(reason)
            if request is None
            else InvalidResponse(request, f"the server sent {reason}")
        )

    def _read_remains(self, malformed: Malformed, line: bytes) -> list[MessageReceived]:
        """Return the meaning of an unreadable line; on a shared stream it may hold responses."""
        found = {name: self.pending[name] for name in ids_in(line) if name in self.pending}
        answered = [
            name for name, request in found.items() if not repeats_request(line, request.method)
        ]
        return [self._read_malformed(malformed, name) for name in answered or (None,)]

    def _unreadable(self, malformed: str, stream: str | None) -> MessageReceived:
        request = self._take(self._only(stream))
        return (
            Ignored(malformed)
            if request is None
            else InvalidResponse(request, f"the server sent {malformed}")
        )

    def _only(self, stream: str | None) -> str | None:
        """Return the id of the one request that a message without an id may answer (CLIENT-13)."""
        if stream is None and len(self.pending) == 1:
            return next(iter(self.pending))
        return stream

    def _take(self, request_id: Any) -> PendingRequest | None:
        """Remove and return the request of this id: it has one response (CLIENT-12)."""
        return self.pending.pop(request_id, None) if type(request_id) is str else None


def _within_levels(
    message: Request | Notification | Response | Malformed, line: bytes
) -> Request | Notification | Response | Malformed:
    """Return the message; if it is nested too deeply to be handed on, what is wrong (CLIENT-63)."""
    if not may_be_deep(line) or isinstance(message, Malformed):
        return message
    message_id, value = None, None
    if isinstance(message, Response):
        message_id, value = message.id, [message.result, message.error]
    elif message.params is not ABSENT:
        value = [message.params]
    try:
        check_levels(value)
    except TypeError as error:
        return invalid("too_deep", str(error), message_id)
    return message


def _subscription(params: Mapping[str, Any]) -> Any:
    """Return the id of the subscription that a notification names."""
    meta = params.get("_meta")
    return meta.get(SUBSCRIPTION_ID_KEY) if type(meta) is dict else None


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Return the line of a notification."""
    return orjson.dumps(_message(method, params))


def encode_response(request: Request, *, result: Any = None, error: Any = None) -> bytes:
    """Return the line of the response to a request of the server."""
    outcome = {"result": result} if error is None else {"error": error}
    return dumps({"jsonrpc": "2.0", "id": request.id, **outcome})


def _message(
    method: str, params: Mapping[str, Any] | None, request_id: str | None = None
) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        message["id"] = request_id
    if params is not None:
        message["params"] = params
    return message
