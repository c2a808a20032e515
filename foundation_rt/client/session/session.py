"""One conversation with one server, over one channel, from its handshake to its end.

What is decided, others decide (`pending_requests`, `handshake`); here it is performed: futures,
tasks and time. A session that has lost its channel is over; the client makes another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ...errors import JsonRpcErrorCode
from ...protocol.http_headers import NAME_SOURCES
from ...protocol.peer import LOG_LEVEL_KEY
from ..callbacks import report_log_message, report_progress
from ..errors import (
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
    SessionExpiredError,
    unexpected_error,
)
from ..handlers.client_handlers import ClientHandlers
from ..resilience.attempt import Attempt
from ..resilience.error_mapping import BEFORE_SESSION, map_mcp_error
from ..transports.transport import NO_HEADER_PARAMS, ClientMessage
from .handshake import Handshake, HandshakeRequest
from .negotiation import negotiate
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
from .server_description import ServerDescription
from .shared_task import client_closed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...protocol.framing import LineTooLong
    from ...protocol.jsonrpc import Request
    from ...protocol.revisions import Revision
    from ..resilience.deadline import Deadline
    from ..transports.transport import Transport

log = logging.getLogger("foundation_rt.client")

_UNSUPPORTED = int(JsonRpcErrorCode.UNSUPPORTED_PROTOCOL_VERSION)
# How long requests of a session that has expired may still hear so for themselves, in s.
_PATIENCE = 1.0
_LOG_MESSAGE = "notifications/message"


class NotificationObserver(Protocol):
    """Who is told what a session brings unasked."""

    def told(self, told: NotificationReceived) -> None:
        """The server says something that belongs to no single request."""


@define(eq=False, repr=False)
class Session:
    """A `Receiver` of what a channel brings, and a sender of requests.

    Args:
        probe_timeout: seconds after which a server that leaves the first question unanswered is
            asked `initialize` as well.
        handler_timeout: seconds that answering one question of the server's may take.
        log_level: the least severe level of log messages that the server is to send.

    Attributes:
        server: what is known of it, once `start` has returned.
        is_begun: whether it has been handed to those who wait for it.
        is_usable: whether anything can be asked in it. One that the server does not know any more
            cannot, and ends as soon as what is under way has heard the same (CHTTP-18).
        error: why it is over; None as long as it is not.
        ended: is set when it is over.
    """

    transport: Transport
    requests: PendingRequests
    handshake: Handshake
    handlers: ClientHandlers
    observer: NotificationObserver
    probe_timeout: float
    handler_timeout: float
    log_level: str | None = None
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

    # -- beginning and end

    async def start(self, required: frozenset[str] | None) -> None:
        """Open the channel and introduce both sides to each other, step by step (CLIENT-04).

        Args:
            required: capabilities without which the server is of no use; None: any that has
                something to offer will do.

        Raises:
            MCPError: there is no way to the server, or no common revision, or it lacks something.
        """
        await self.transport.open(self)
        try:
            self.server = await negotiate(self.handshake, self._say, self.probe_timeout)
        except ConnectionLostError:
            if self.error is not None:
                raise self.error from None  # as the channel says it: whether anything was read
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
            self.notify("notifications/initialized")
        self._log_connection()

    async def close(self) -> None:
        """End it; whoever waits for an answer gets a `ConnectionLostError`."""
        self._end(client_closed())
        try:
            if self._expiry is not None:
                self._expiry.cancel()
            await self._open_requests.ended()
        finally:
            await self.transport.close()

    async def _say(self, opening: HandshakeRequest) -> dict[str, Any]:
        self._revision = opening.revision if opening.revision.is_stateless else None
        return await self.request(opening.method, opening.params, Attempt())

    def _stateless_meta(self, revision: Revision) -> dict[str, Any]:
        meta = self.handshake.meta(revision)
        return meta if self.log_level is None else {**meta, LOG_LEVEL_KEY: self.log_level}

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
        """Ask the server, and wait for its answer; cancelled, the server is told (CLIENT-15).

        Args:
            meta: further members of `_meta`.
            mirrored: the arguments that headers repeat.

        Raises:
            MCPError: the server refused, or its answer is none, or it will not come; or nothing
                was sent, because a circuit is open.
        """
        attempt.admit()
        if self.transport.is_congested:
            await self._turn(attempt)
        if not self.is_usable:
            raise self._over()
        attempt.was_answered = False
        attempt.answer = asyncio.get_running_loop().create_future()
        message = self._with_meta(params, meta)
        request, line = self.requests.add(
            method, message, attempt, wants_progress=attempt.on_progress is not None
        )
        source = NAME_SOURCES.get(method)
        name = None if source is None or params is None else params.get(source)
        try:
            attempt.was_sent = True
            self.transport.send(
                ClientMessage(line, request.id, method, name, header_params, self._revision)
            )
            outcome = await attempt.answer
        except asyncio.CancelledError:
            self._withdraw(request)
            raise
        finally:
            self.requests.pending.pop(request.id, None)
        if isinstance(outcome, MCPError):
            raise outcome
        return outcome

    async def _turn(self, attempt: Attempt) -> None:
        """Wait until the channel takes a request.

        Raises:
            CircuitOpenError: a circuit has opened meanwhile.
        """
        # Over HTTP the wait is for one of the client's own places, and says nothing of the server.
        # Elsewhere the server does not read, which is its failure.
        if self.transport.has_exchanges:
            attempt.withdraw()
        await self.transport.drained()
        attempt.admit()

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something."""
        line = notification(method, params)
        self.transport.send(ClientMessage(line, method=method, revision=self._revision))

    def _with_meta(
        self, params: Mapping[str, Any] | None, meta: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        if not (self._meta or meta):
            return params
        return {**(params or {}), "_meta": {**self._meta, **(meta or {})}}

    def _withdraw(self, request: PendingRequest) -> None:
        """Nobody waits for this answer any more (CLIENT-15)."""
        answer = request.attempt.answer
        # Whoever is cancelled while waiting for it has cancelled it.
        if self.error is not None or (answer.done() and not answer.cancelled()):
            return
        is_told = self.transport.has_exchanges and (self._revision and self._revision.is_stateless)
        # Before both sides know what they speak a request is only forgotten.
        if not is_told and request.method not in BEFORE_SESSION:
            params: dict[str, Any] = {
                "requestId": request.id,
                "reason": "the caller does not wait any more",
            }
            if self._meta:
                params["_meta"] = dict(self._meta)
            self.notify("notifications/cancelled", params)
        self.transport.forget(request.id)

    # -- what a channel brings

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """A message has come."""
        for arrival in self.requests.receive(line, request_id):
            if isinstance(arrival, ResponseReceived) and isinstance(line, bytes):
                arrival.request.attempt.answer_bytes = len(line)
            try:
                self._arrived(arrival)
            except Exception as error:
                broken = unexpected_error(error)
                log.error(broken.message)
                if isinstance(arrival, ResponseReceived):  # there will be no other answer
                    self._settle(arrival.request, broken)

    def failed(self, request_id: str, error: MCPError) -> None:
        """No answer to this request will come."""
        request = self.requests.pending.get(request_id)
        if request is not None:
            self._refused(request, error)

    def awaits(self, request_id: str) -> bool:
        """Return whether a request still waits for its answer."""
        return request_id in self.requests.pending

    def lost(self, error: MCPError) -> None:
        """The channel has ended by itself."""
        if self.error is None:
            # As long as it begins, those who wait for it are told; later there may be nobody.
            level = logging.WARNING if self.is_begun else logging.DEBUG
            log.log(level, "the connection was lost: %s", error.message)
            self._end(error)

    def _end(self, error: MCPError) -> None:
        """It is over; whoever waits for an answer is told why."""
        self.is_usable = False
        if self.error is None:
            self.error = error
        self.ended.set()
        self._open_requests.abandon()
        for request in [*self.requests.pending.values()]:
            self._settle(request, _lost(error, may_have_run=True))

    def _over(self) -> ConnectionLostError:
        """Nothing can be asked in this session any more."""
        if self.error is None:
            return SessionExpiredError("the session has expired")
        return _lost(self.error, may_have_run=False)

    def _refused(self, request: PendingRequest, error: MCPError) -> None:
        self._settle(request, error)
        if isinstance(error, SessionExpiredError) and self.is_usable:
            self.is_usable = False
            self._expiry = asyncio.create_task(self._expire(error))

    async def _expire(self, error: SessionExpiredError) -> None:
        """What else is under way may hear for itself that it did not run, and be repeated."""
        attempts = [each.attempt for each in self.requests.pending.values()]
        answers = [each.answer for each in attempts if each.on_notification is None]
        if answers:
            await asyncio.wait(answers, timeout=_PATIENCE)
        self.lost(error)

    def _arrived(self, arrival: MessageReceived) -> None:
        if isinstance(arrival, ResponseReceived):
            arrival.request.attempt.was_answered = True
            if arrival.error is None:
                self._settle(arrival.request, arrival.result)
            else:
                self._refused(arrival.request, _refusal(arrival.request, arrival.error))
        elif isinstance(arrival, NotificationReceived):
            self._hear(arrival)
        elif isinstance(arrival, RequestReceived):
            self._ask(arrival.question)
        elif isinstance(arrival, InvalidResponse):
            arrival.request.attempt.was_answered = True
            self._settle(arrival.request, InvalidResponseError(arrival.why))
        elif isinstance(arrival, Ignored):
            log.debug("dropped: %s", arrival.reason)

    def _hear(self, told: NotificationReceived) -> None:
        attempt: Attempt | None = None if told.about is None else told.about.attempt
        if told.method == "notifications/progress":
            if attempt is not None and attempt.on_progress is not None:
                report_progress(attempt.on_progress, told.params)
        elif told.method == "notifications/cancelled":
            self._take_back(told.params.get("requestId"))
        elif attempt is not None and attempt.on_notification is not None:
            attempt.on_notification(told)
        else:
            if told.method == _LOG_MESSAGE:
                self._report_log(told, attempt)
            self.observer.told(told)

    def _report_log(self, told: NotificationReceived, attempt: Attempt | None) -> None:
        """A log message belongs to the request on whose stream it came, else to all that run."""
        attempts = [waiting.attempt for waiting in self.requests.pending.values()]
        for each in attempts if attempt is None else [attempt]:
            if each.on_log is not None:
                report_log_message(each.on_log, told.params)

    # -- what the server asks

    def _ask(self, question: Request) -> None:
        if self._revision is not None and self._revision.is_stateless:
            log.warning("dropped: the server asks %.64r, which it must not", question.method)
        elif self.error is None:
            self._open_requests.ask(question, self.handshake_revision)

    def _deadlines(self) -> Iterator[Deadline]:
        for waiting in self.requests.pending.values():
            if waiting.attempt.deadline is not None:
                yield waiting.attempt.deadline

    @property
    def handshake_revision(self) -> Revision:
        """What is spoken, or proposed as long as nothing is agreed on."""
        return self._revision or self.handshake.initialize().revision

    def _take_back(self, request_id: Any) -> None:
        """The server does not want an answer any more, or ends a stream of its own."""
        self._open_requests.take_back(request_id)
        request = self.requests.pending.get(request_id) if type(request_id) is str else None
        if request is not None and request.attempt.on_notification is not None:
            self._settle(request, ConnectionLostError("the server ended it", may_have_run=True))

    def _settle(self, request: PendingRequest, outcome: dict[str, Any] | MCPError) -> None:
        """Hand over an answer; as a value, so that one nobody takes is no unretrieved exception."""
        self.requests.pending.pop(request.id, None)
        future = request.attempt.answer
        if not future.done():
            future.set_result(outcome)

    def _reply(self, line: bytes) -> None:
        if self.error is None:  # a handler may hold on beyond the end
            self.transport.send(ClientMessage(line, revision=self._revision))


def _lost(error: MCPError, *, may_have_run: bool) -> ConnectionLostError:
    """Return what a request is told of the end of its session."""
    lost = ConnectionLostError(error.message, may_have_run=may_have_run, retryable=error.retryable)
    lost.suggested_action = error.suggested_action
    return lost


def _refusal(request: PendingRequest, said: Any) -> MCPError:
    error = map_mcp_error(said, request.method)
    if error.original_code == _UNSUPPORTED and request.method not in BEFORE_SESSION:
        # It was spoken before: another server has taken its place, and has to be met first.
        return SessionExpiredError(error.message, original_code=_UNSUPPORTED, data=error.data)
    return error
