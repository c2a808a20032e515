"""One session with one server, over one transport, from its handshake to its end.

`pending_requests` and `handshake` decide; this module performs: futures, tasks and time. A session
that has lost its transport is over; the client makes another one.

In the handshake mode a server sends requests of its own. Each is a task, which ends with the
session at the latest. While one is open, the deadlines of the calls that wait for the server are
paused (CLIENT-20).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ...errors import JsonRpcErrorCode
from ...protocol.methods import (
    INITIALIZE,
    LOGGING_SET_LEVEL,
    NOTIFICATIONS_CANCELLED,
    NOTIFICATIONS_INITIALIZED,
    NOTIFICATIONS_MESSAGE,
    NOTIFICATIONS_PROGRESS,
    SERVER_DISCOVER,
    facts,
)
from ...protocol.peer import CAPABILITIES_KEY, LOG_LEVEL_KEY
from ..callbacks import report_log_message, report_progress
from ..errors import (
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
    SessionExpiredError,
    unexpected_error,
)
from ..resilience.deadline import Deadline, DeadlineTimer
from ..resilience.error_mapping import map_mcp_error
from ..resilience.retries import Attempt
from ..transports.transport import NO_HEADER_PARAMS, ClientMessage
from .handshake import Handshake, HandshakeRequest, ServerDescription
from .open_requests import OpenRequests
from .pending_requests import (
    Ignored,
    InvalidResponse,
    MessageReceived,
    NotificationReceived,
    PendingRequest,
    PendingRequests,
    RequestReceived,
    ResponseReceived,
    notification,
)
from .shared_task import client_closed

if TYPE_CHECKING:
    from ...protocol.framing import LineTooLong
    from ...protocol.revisions import Revision
    from ..callbacks import ProgressCallback
    from ..handlers.server_requests import ServerRequestHandlers
    from ..transports.transport import Transport

log = logging.getLogger("foundation_rt.client")

_UNSUPPORTED = int(JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION)
# How long requests of an expired session may wait for their own error, in s.
_EXPIRY_SECONDS = 1.0


class SessionObserver(Protocol):
    """Gets the notifications of a session, its beginning and its end."""

    def notified(self, notification: NotificationReceived) -> None:
        """Handle a notification that belongs to no single request."""

    def connected(self, server: ServerDescription) -> None:
        """Handle the beginning of a session that callers can have."""

    def disconnected(self, error: MCPError) -> None:
        """Handle the loss of such a session."""


@define(eq=False, repr=False)
class ClientSession:
    """Sends requests over a transport, and receives its messages (`Receiver`).

    Args:
        probe_timeout: seconds after which a server that does not answer `server/discover` gets
            `initialize` as well.
        handler_timeout: seconds that a handler may take for one request of the server.
        log_level: the least severe log messages that the server should send.
        watch: of the client's deadlines; that of the probe stands still with them.

    Attributes:
        server: its description, once `start` has returned.
        is_begun: whether the calls that waited for it have it.
        is_usable: whether it takes requests. An expired one does not, and ends as soon as its
            pending requests have got their own error (CHTTP-18).
        error: the reason for its end; None while it lasts.
        ended: set when it is over.
    """

    transport: Transport
    requests: PendingRequests
    handshake: Handshake
    handlers: ServerRequestHandlers
    observer: SessionObserver
    probe_timeout: float
    handler_timeout: float
    log_level: str | None = None
    watch: DeadlineTimer = field(factory=DeadlineTimer)
    server: ServerDescription = field(init=False)
    is_begun: bool = field(default=False, init=False)
    is_usable: bool = field(default=True, init=False)
    error: MCPError | None = field(default=None, init=False)
    ended: asyncio.Event = field(factory=asyncio.Event, init=False)
    _revision: Revision | None = field(default=None, init=False)
    _meta: Mapping[str, Any] = field(factory=dict, init=False)
    _open_requests: OpenRequests = field(init=False)
    _expiry: asyncio.Task[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._open_requests = OpenRequests(
            self.handlers, self.handler_timeout, self._reply, self._deadlines
        )

    # -- start and end

    async def start(self, required: frozenset[str] | None) -> None:
        """Open the transport and perform the handshake, step by step (CLIENT-04).

        Args:
            required: capabilities that the server must have; None: tools, resources or prompts.

        Raises:
            MCPError: there is no connection, no common revision, or a capability is missing.
        """
        await self.transport.open(self)
        try:
            self.server = await negotiate(
                self.handshake, self._send_handshake, self.probe_timeout, self.watch
            )
        except ConnectionLostError:
            if self.error is not None:
                raise self.error from None  # the transport knows whether anything was read
            raise
        if required is None:
            self.server.check_any()
        else:
            self.server.check(required)
        revision = self._revision = self.server.revision
        self.transport.negotiated(revision)
        if revision.is_stateless:
            self._meta = self._stateless_meta(revision)
        else:
            self.notify(NOTIFICATIONS_INITIALIZED)
        self._log_connection()
        await self._set_log_level()

    async def close(self) -> None:
        """End it; pending requests get a `ConnectionLostError`."""
        self._end(client_closed())
        try:
            if self._expiry is not None:
                self._expiry.cancel()
            await self._open_requests.ended()
        finally:
            await self.transport.close()

    async def _send_handshake(self, opening: HandshakeRequest) -> dict[str, Any]:
        self._revision = opening.revision if opening.revision.is_stateless else None
        return await self.request(opening.method, opening.params, Attempt())

    def _stateless_meta(self, revision: Revision) -> dict[str, Any]:
        meta = self.handshake.meta(revision)
        return meta if self.log_level is None else {**meta, LOG_LEVEL_KEY: self.log_level}

    async def _set_log_level(self) -> None:
        """Send `logging/setLevel`, in the handshake mode; a refusal is only logged."""
        if self.log_level is None or self.server.revision.is_stateless:
            return
        if not self.server.can("logging"):
            return
        try:
            await self.request(LOGGING_SET_LEVEL, {"level": self.log_level}, Attempt())
        except MCPError as error:
            if not self.is_usable:
                raise
            log.warning("the server does not set its log level: %s", error.message)

    def _log_connection(self) -> None:
        server, revision = self.server, self.server.revision.name
        fields = {"revision": revision, "channel": self.transport.description}
        text = "connected to %.100r, version %.50r, in revision %s"
        log.info(text, server.name, server.version, revision, extra={"fields": fields})

    # -- requests

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        attempt: Attempt,
        *,
        meta: Mapping[str, Any] | None = None,
        header_params: Mapping[str, str] = NO_HEADER_PARAMS,
    ) -> dict[str, Any]:
        """Send a request, and wait for its result; a cancellation notifies the server (CLIENT-15).

        Args:
            method: of the request.
            params: of the request; JSON.
            attempt: the attempt that it belongs to.
            meta: further members of `_meta`.
            header_params: the arguments that headers repeat.

        Raises:
            MCPError: the server refused it, the response is invalid, or none will come; or a
                circuit is open, and nothing was sent.
        """
        attempt.admit()
        if self.transport.is_congested:
            await self._wait_for_transport(attempt)
        if not self.is_usable:
            raise self._ended_error()
        attempt.was_answered = False
        attempt.response = asyncio.get_running_loop().create_future()
        message = self._with_meta(params, meta, attempt)
        request, line = self.requests.add(
            method, message, attempt, wants_progress=attempt.on_progress is not None
        )
        source = facts(method).mirrored
        name = None if source is None or params is None else params.get(source)
        try:
            attempt.was_sent = True
            self.transport.send(
                ClientMessage(line, request.id, method, name, header_params, self._revision)
            )
            outcome = await attempt.response
        except asyncio.CancelledError:
            self._cancel_request(request)
            raise
        finally:
            self.requests.pending.pop(request.id, None)
            if attempt.handlers is not None:
                self._open_requests.end_of(attempt)
        if isinstance(outcome, MCPError):
            raise outcome
        return outcome

    async def _wait_for_transport(self, attempt: Attempt) -> None:
        """Wait until the transport takes a request.

        Raises:
            CircuitOpenError: a circuit has opened meanwhile.
        """
        # Over HTTP the wait is for a slot of the client, and says nothing about the server.
        # Elsewhere the server does not read, which is its failure.
        if self.transport.has_exchanges:
            attempt.withdraw()
        await self.transport.drained()
        attempt.admit()

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        line = notification(method, params)
        self.transport.send(ClientMessage(line, method=method, revision=self._revision))

    def _with_meta(
        self, params: Mapping[str, Any] | None, meta: Mapping[str, Any] | None, attempt: Attempt
    ) -> Mapping[str, Any] | None:
        if not (self._meta or meta):
            return params
        # What describes the client is last: no caller may change it.
        members = {**(meta or {}), **self._meta}
        if attempt.handlers is not None and CAPABILITIES_KEY in members and self._revision:
            given = attempt.handlers.capabilities(self._revision)
            members[CAPABILITIES_KEY] = dict(self.handshake.declared(self._revision, given))
        return {**(params or {}), "_meta": members}

    def _cancel_request(self, request: PendingRequest) -> None:
        """Cancel a request, and notify the server (CLIENT-15)."""
        response = request.attempt.response
        # A task that is cancelled while it awaits the future has cancelled the future.
        if self.error is not None or (response.done() and not response.cancelled()):
            return
        is_stateless = self._revision is not None and self._revision.is_stateless
        if not is_stateless:
            self.requests.abandon(request, asyncio.get_running_loop().time())
        is_told = self.transport.has_exchanges and is_stateless
        # A request of the handshake cannot be cancelled by a notification.
        if not is_told and not facts(request.method).opens_session:
            params: dict[str, Any] = {
                "requestId": request.id,
                "reason": "the caller does not wait any more",
            }
            if self._meta:
                params["_meta"] = dict(self._meta)
            self.notify(NOTIFICATIONS_CANCELLED, params)
        self.transport.forget(request.id)

    # -- messages of the transport; see `Receiver`

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """Handle a message."""
        for arrival in self.requests.receive(line, request_id):
            if isinstance(arrival, ResponseReceived) and isinstance(line, bytes):
                arrival.request.attempt.response_bytes = len(line)
            try:
                self._message_received(arrival)
            except Exception as error:
                broken = unexpected_error(error)
                log.error(broken.message)
                if isinstance(arrival, ResponseReceived):  # there will be no other response
                    self._settle(arrival.request, broken)

    def failed(self, request_id: str, error: MCPError) -> None:
        """Fail a request that will get no response."""
        request = self.requests.pending.get(request_id)
        if request is not None:
            self._refused(request, error)

    def awaits(self, request_id: str) -> bool:
        """Return whether a request still waits for its response."""
        return request_id in self.requests.pending

    def lost(self, error: MCPError) -> None:
        """End the session: the transport has ended."""
        if self.error is None:
            # During the start the waiting calls get the error; later there may be no call.
            level = logging.WARNING if self.is_begun else logging.DEBUG
            log.log(level, "the connection was lost: %s", error.message)
            self._end(error)
            if self.is_begun:
                self.observer.disconnected(error)

    def _end(self, error: MCPError) -> None:
        """End the session, and fail its pending requests."""
        self.is_usable = False
        if self.error is None:
            self.error = error
        self.ended.set()
        self._open_requests.cancel_all()
        for request in [*self.requests.pending.values()]:
            self._settle(request, _lost(error, may_have_run=True))

    def _ended_error(self) -> ConnectionLostError:
        """Return the error for a request to a session that has ended."""
        if self.error is None:
            return SessionExpiredError("the session has expired")
        return _lost(self.error, may_have_run=False)

    def _refused(self, request: PendingRequest, error: MCPError) -> None:
        self._settle(request, error)
        if isinstance(error, SessionExpiredError) and self.is_usable:
            self.is_usable = False
            self._expiry = asyncio.create_task(self._expire(error))

    async def _expire(self, error: SessionExpiredError) -> None:
        """Give pending requests time to get their own error, which allows a retry."""
        attempts = [each.attempt for each in self.requests.pending.values()]
        responses = [each.response for each in attempts if each.on_notification is None]
        if responses:
            await asyncio.wait(responses, timeout=_EXPIRY_SECONDS)
        self.lost(error)

    def _message_received(self, arrival: MessageReceived) -> None:
        if isinstance(arrival, ResponseReceived):
            arrival.request.attempt.was_answered = True
            if arrival.error is None:
                self._settle(arrival.request, arrival.result)
            else:
                self._refused(arrival.request, _refusal(arrival.request, arrival.error))
        elif isinstance(arrival, NotificationReceived):
            self._notification_received(arrival)
        elif isinstance(arrival, RequestReceived):
            self._ask(arrival)
        elif isinstance(arrival, InvalidResponse):
            arrival.request.attempt.was_answered = True
            self._settle(arrival.request, InvalidResponseError(arrival.reason))
        elif isinstance(arrival, Ignored):
            log.debug("dropped: %s", arrival.reason)

    def _notification_received(self, notification: NotificationReceived) -> None:
        attempt: Attempt | None = (
            None if notification.request is None else notification.request.attempt
        )
        if notification.method == NOTIFICATIONS_PROGRESS:
            if attempt is not None and attempt.on_progress is not None:
                _report_progress(attempt, attempt.on_progress, notification.params)
        elif notification.method == NOTIFICATIONS_CANCELLED:
            self._cancelled_by_server(notification.params.get("requestId"))
        elif attempt is not None and attempt.on_notification is not None:
            attempt.on_notification(notification)
        else:
            if notification.method == NOTIFICATIONS_MESSAGE:
                self._report_log(notification, attempt)
            self.observer.notified(notification)

    def _report_log(self, notification: NotificationReceived, attempt: Attempt | None) -> None:
        """Pass a log message to the request on whose stream it came, else to all pending ones."""
        attempts = [waiting.attempt for waiting in self.requests.pending.values()]
        for each in attempts if attempt is None else [attempt]:
            if each.on_log is not None:
                report_log_message(each.on_log, notification.params)

    # -- requests of the server

    def _ask(self, arrival: RequestReceived) -> None:
        request = arrival.request
        if self._revision is not None and self._revision.is_stateless:
            log.warning(
                "dropped: the server sent the request %.64r, which this revision does not have",
                request.method,
            )
        elif self.error is None:
            about = arrival.about or self.requests.asker(asyncio.get_running_loop().time())
            attempt = None if about is None else about.attempt
            self._open_requests.ask(request, self.handshake_revision, attempt)

    def _deadlines(self) -> Iterator[Deadline]:
        for waiting in self.requests.pending.values():
            if waiting.attempt.deadline is not None:
                yield waiting.attempt.deadline

    @property
    def handshake_revision(self) -> Revision:
        """The revision of the session, or the one proposed during the handshake."""
        return self._revision or self.handshake.initialize().revision

    def _cancelled_by_server(self, request_id: Any) -> None:
        """Handle `notifications/cancelled`: of a request of the server, or of a stream."""
        self._open_requests.cancel(request_id)
        request = self.requests.pending.get(request_id) if type(request_id) is str else None
        if request is not None and request.attempt.on_notification is not None:
            self._settle(request, ConnectionLostError("the server ended it", may_have_run=True))

    def _settle(self, request: PendingRequest, outcome: dict[str, Any] | MCPError) -> None:
        """Set the outcome of a request; as a value, so that asyncio never warns of an exception."""
        self.requests.pending.pop(request.id, None)
        future = request.attempt.response
        if not future.done():
            future.set_result(outcome)

    def _reply(self, line: bytes) -> None:
        if self.error is None:  # a handler may run longer than the session
            self.transport.send(ClientMessage(line, revision=self._revision))


def _report_progress(
    attempt: Attempt, callback: ProgressCallback, params: Mapping[str, Any]
) -> None:
    """Pass on progress, which may extend the deadline (CLIENT-57)."""
    if attempt.deadline is not None and type(params.get("progress")) in (int, float):
        attempt.deadline.extend()
    report_progress(callback, params)


def _lost(error: MCPError, *, may_have_run: bool) -> ConnectionLostError:
    """Return the error of a request whose session has ended."""
    lost = ConnectionLostError(error.message, may_have_run=may_have_run, retryable=error.retryable)
    lost.suggested_action = error.suggested_action
    return lost


def _refusal(request: PendingRequest, said: Any) -> MCPError:
    error = map_mcp_error(said, request.method)
    if error.original_code == _UNSUPPORTED and not facts(request.method).opens_session:
        # It was spoken before: another server has replaced this one, and needs a handshake.
        expired = SessionExpiredError(error.message, original_code=_UNSUPPORTED, data=error.data)
        expired.wire = error.wire
        return expired
    return error


SendHandshake = Callable[[HandshakeRequest], Awaitable[dict[str, Any]]]
"""Sends a request of the handshake; returns its result, or raises the server's `MCPError`."""


async def negotiate(
    handshake: Handshake, say: SendHandshake, probe_timeout: float, watch: DeadlineTimer
) -> ServerDescription:
    """Agree on a revision; return the description of the server (CLIENT-01, CLIENT-02).

    Args:
        handshake: decides which request is next.
        say: sends a request.
        probe_timeout: seconds after which a server that does not answer `server/discover` gets
            `initialize` as well.
        watch: of the client's deadlines, with which that one stands still.

    Raises:
        MCPError: there is no common revision, or it cannot be found.
    """
    outcome: HandshakeRequest | ServerDescription = handshake.first()
    while isinstance(outcome, HandshakeRequest):
        outcome = await _ask(handshake, say, outcome, probe_timeout, watch)
    return outcome


async def _ask(
    handshake: Handshake,
    say: SendHandshake,
    opening: HandshakeRequest,
    probe_timeout: float,
    watch: DeadlineTimer,
) -> HandshakeRequest | ServerDescription:
    """Send `opening`; return the description of the server, or the next request."""
    asked = {asyncio.ensure_future(_send_handshake(say, opening)): opening}
    try:
        if opening.method == SERVER_DISCOVER and handshake.may_fall_back:
            try:
                async with Deadline(asyncio.get_running_loop().time() + probe_timeout, watch=watch):
                    await asyncio.wait(asked)
            except TimeoutError:
                # The server is an older one, or slow to start: the first good response decides.
                other = handshake.initialize()
                asked[asyncio.ensure_future(_send_handshake(say, other))] = other
        pending = {*asked}
        while True:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            # A server that was slow to start has answered both: `server/discover` counts.
            task = next(each for each in asked if each in done)
            pending |= done - {task}
            try:
                result = task.result()
            except MCPError as error:
                if not pending:
                    return handshake.refused(asked[task], error)
            else:
                outcome = handshake.answered(asked[task], result)
                if isinstance(outcome, ServerDescription) or not pending:
                    return outcome
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _send_handshake(say: SendHandshake, opening: HandshakeRequest) -> dict[str, Any]:
    result = await say(opening)
    spoken = result.get("protocolVersion")
    if opening.method == INITIALIZE and spoken != opening.revision.name:
        said = spoken if isinstance(spoken, str) else None
        fields = {"asked": opening.revision.name, "spoken": said}
        text = "the server was asked for revision %s, and speaks %.100r"
        log.warning(text, opening.revision.name, spoken, extra={"fields": fields})
    return result
