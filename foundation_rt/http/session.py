"""A session of the handshake mode over HTTP: one connection of the runtime, many responses.

Messages are routed by what they belong to (HTTP-08): those of a request to the response of the
POST that brought it, all others to the stream that the client opened with a GET. Every stream is
logged, and can be resumed as long as its events are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from ..features.server_requests.open_requests import fail_requests, open_requests
from ..kernel.effects import Reply
from ..protocol.jsonrpc import Batch, Request
from ..protocol.methods import facts
from .event_store import event_id, parse_event_id
from .post_response import Message, PostResponse
from .session_table import session_key_of

if TYPE_CHECKING:
    from ..base.clock import Clock
    from ..base.timers import Timer
    from ..kernel.engine.connection import Connection
    from ..protocol import jsonrpc
    from ..protocol.jsonrpc import RequestId
    from .cluster.worker_group import WorkerGroup
    from .event_store import EventStore, StreamLog
    from .sse import EventBody


SERVER_STOPS = "shutdown"
"""The reason with which a connection is closed that the server ends."""


@define(eq=False, repr=False)
class ClientAbsence:
    """Cancels a session's open server requests once its client was away for too long (ASK-19).

    A client that lost its connections may come back and resume its streams, or answer with a POST.
    The session waits for it, but not for as long as a user may take to answer, since the waiting
    calls hold slots. There is a timer only while server requests are open and no response is.

    Args:
        grace_ms: how long the client may be away.
        is_here: returns whether any response of the session is open.

    Attributes:
        connection: the session's connection; set by the caller.
    """

    _clock: Clock
    _grace_ms: int
    _is_here: Callable[[], bool]
    connection: Connection = field(init=False)
    _last_contact: float = field(default=0.0, init=False)
    _timer: Timer | None = field(default=None, init=False)

    def note_contact(self) -> None:
        """Count the absence from now on: a message came, or a response has ended."""
        self._last_contact = self._clock.monotonic()

    def watch(self) -> None:
        """Arm the timer, if server requests are open and the client is away."""
        if self._timer is None and self._is_waited_for():
            self._timer = self.connection.scheduler.call_later(self._left(), self._check)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_waited_for(self) -> bool:
        return bool(open_requests(self.connection.session)) and not self._is_here()

    def _left(self) -> float:
        """Return the rest of the grace, in seconds."""
        return max(0.0, self._last_contact + self._grace_ms / 1000 - self._clock.monotonic())

    def _check(self) -> None:
        self._timer = None
        if self._left() > 0:
            self.watch()  # the client was here in between
        elif self._is_waited_for():
            self.connection.apply(fail_requests, self._grace_ms)


@define(eq=False, repr=False)
class HttpSession:
    """One session; belongs to the event loop's thread.

    Args:
        retry_ms: the delay before a client reconnects whose response was ended, in milliseconds.
        grace_ms: how much longer server requests wait for a client that has no response open.

    Attributes:
        session_id: set when the session is admitted.
        connection: set by `attach`; delivers to `deliver` and `close_response`.
        group: the workers that share the session's client; None if there are no others.
        is_marked: whether another worker may restore the session, since it has nothing but its
            handshake: no stream, subscription or level of log messages, nor a key that an
            application knows (HTTP-62).
    """

    retry_ms: int
    _grace_ms: int
    _store: EventStore
    _clock: Clock
    session_id: str = field(default="", init=False)
    connection: Connection = field(init=False)
    group: WorkerGroup | None = field(default=None, init=False)
    is_marked: bool = field(default=False, init=False)
    _absence: ClientAbsence = field(init=False)
    _responses: dict[RequestId, PostResponse] = field(factory=dict, init=False)
    _streams: dict[str, PostResponse] = field(factory=dict, init=False)
    _receiving: PostResponse | None = field(default=None, init=False)
    _get_stream: PostResponse = field(init=False)
    _undelivered_after: str | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._get_stream = PostResponse(None, self)
        grace_ms = self.retry_ms + self._grace_ms
        self._absence = ClientAbsence(self._clock, grace_ms, self._is_client_here)

    def attach(self, connection: Connection) -> None:
        """Carry the messages of `connection` from now on."""
        self.connection = self._absence.connection = connection
        connection.close_response = self.close_response
        connection.make_key = self._make_key
        connection.shared_id = lambda: self.session_id

    def _make_key(self) -> str:
        self._note_state()
        return session_key_of(self.session_id)

    def mark(self) -> None:
        """Let another worker restore the session, until it has state."""
        if self.group is not None:
            self.is_marked = True
            self.group.mark(self.session_id)

    def _note_state(self) -> None:
        if self.is_marked and self.group is not None:
            self.is_marked = False
            self.group.keep(self.session_id)

    # -- messages from the connection ------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Route `message` to the response that it belongs to."""
        request_id = message.request_id
        if type(message) is Reply:
            response = self._find(request_id)
            if response is not None:
                response.deliver(message)
                self._forget(response)
        elif request_id is None:
            self._get_stream.deliver(message)
        else:
            # A server request that outlives the call it belongs to is cancelled after the reply.
            self._responses.get(request_id, self._get_stream).deliver(message)
            self._absence.watch()

    def _find(self, request_id: RequestId | None) -> PostResponse | None:
        """Return the response that a reply belongs to.

        Replies to messages that are no requests, or whose ids are in use, come while the message
        is received.
        """
        response = self._receiving
        if response is not None and (
            request_id in response.requests or request_id not in self._responses
        ):
            return response
        return None if request_id is None else self._responses.get(request_id)

    def receive(
        self, message: jsonrpc.Message, response: PostResponse, headers: Mapping[str, str]
    ) -> None:
        """Handle the message of one POST, which came with `headers`; `response` answers it."""
        for request_id in response.requests:
            known = self._responses.setdefault(request_id, response)
            # One that was cancelled ends at the end of this turn.
            if known is not response and not self.connection.session.is_open(request_id):
                self._responses[request_id] = response
        if self.is_marked and _leaves_state(message):
            self._note_state()
        self._receiving = response
        self._absence.note_contact()
        try:
            self.connection.handle_with(message, headers)
        finally:
            self._receiving = None

    def end_cancelled(self) -> None:
        """End the responses of cancelled requests: they get no reply.

        A request whose handler has just ended in a thread is no longer open either. Its reply waits
        for this turn of the event loop to end, and so these responses are ended behind it.
        """
        session = self.connection.session
        with self.connection.lock:
            closed = [
                response
                for response in {*self._responses.values()}
                if not any(session.is_open(each) for each in response.requests)
            ]
        if closed:
            asyncio.get_running_loop().call_soon(self._end, closed)

    def _end(self, responses: Iterable[PostResponse]) -> None:
        for response in responses:
            response.finish()
            self._forget(response)

    def _forget(self, response: PostResponse) -> None:
        for request_id in response.requests:
            if self._responses.get(request_id) is response:
                del self._responses[request_id]

    def close_response(self, request_id: RequestId) -> None:
        """End the response of a request that continues; its client reconnects (SEP-1699)."""
        response = self._responses.get(request_id)
        if response is not None and self.primes:
            response.detach()

    def close(self, reason: str) -> None:
        """End the session: abort its calls, and end every response."""
        self._absence.close()
        self.connection.close(reason)
        for response in [*self._responses.values(), *self._streams.values(), self._get_stream]:
            response.finish()
        self._responses.clear()
        self._store.forget(self.session_id)
        if self.group is not None and self.is_marked and reason == SERVER_STOPS:
            return  # another worker may restore it
        if self.session_id:
            self.connection.engine.forget_session(self.session_id)
        if self.group is not None:
            self.group.forget(self.session_id)

    @property
    def is_busy(self) -> bool:
        """Return whether a request is being answered, or the client listens."""
        return bool(self._responses) or self._get_stream.body is not None

    # -- streams ---------------------------------------------------------------------------------

    @property
    def primes(self) -> bool:
        """Return whether the session's revision has events with empty data (SEP-1699)."""
        peer = self.connection.session.peer
        return peer is not None and peer.revision.primes_streams

    def begin_log(self, response: PostResponse) -> StreamLog:
        """Return the log of a new stream, that of `response`."""
        self._note_state()
        log = self._store.begin(self.session_id)
        self._streams[log.stream_id] = response
        if response is self._get_stream and response.body is None:
            self._undelivered_after = event_id(log.stream_id, 0)
        return log

    def end_log(self, log: StreamLog) -> None:
        """Close the log of a stream that has ended; its events are kept for their time."""
        log.end()
        self._streams.pop(log.stream_id, None)

    def note_loss(self) -> None:
        """Start to count the client's absence: a response has ended before its stream."""
        self._absence.note_contact()
        self._absence.watch()

    def _is_client_here(self) -> bool:
        responses = (*self._responses.values(), *self._streams.values(), self._get_stream)
        return any(response.body is not None for response in responses)

    def listen(self, body: EventBody) -> tuple[PostResponse, str | None]:
        """Send the messages that belong to no request in `body`; end the previous such body.

        A client that lost its connection may be back before the loss is noticed.

        Returns:
            The stream, and the event after which it has messages that were never sent.
        """
        self._get_stream.attach(body)
        self._get_stream.open_stream()
        undelivered, self._undelivered_after = self._undelivered_after, None
        return self._get_stream, undelivered

    def resume(self, last_event_id: str, body: EventBody) -> PostResponse | None:
        """Continue the stream of an event in `body`; return None if the stream has ended."""
        named = parse_event_id(last_event_id)
        response = None if named is None else self._streams.get(named[0])
        if response is not None:
            response.attach(body)
        return response

    def stop_listening(self) -> None:
        """End the stream of messages that belong to no request: the server stops."""
        self._get_stream.finish()


def _leaves_state(message: jsonrpc.Message) -> bool:
    items = message.items if type(message) is Batch else ()
    methods = [each.get("method") for each in items if type(each) is dict]
    if type(message) is Request:
        methods.append(message.method)
    return any(type(method) is str and facts(method).keeps_state for method in methods)
