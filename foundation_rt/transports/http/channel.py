"""A session of the handshake era over HTTP: one connection of the runtime, many responses.

What the server says goes where it belongs (HTTP-08): what belongs to a request, to the response of
the POST that brought it; all else to the stream that the client opened with a GET. Every stream is
recorded, and can be resumed as long as its events are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from ...core.effects import Reply
from .absence import Absence
from .events import event_id, parse_event_id
from .exchange import Exchange, Message

if TYPE_CHECKING:
    from ...clock import Clock
    from ...engine.connection import Connection
    from ...protocol import jsonrpc
    from ...protocol.jsonrpc import RequestId
    from .events import EventStore, Trail
    from .streams import EventBody


@define(eq=False, repr=False)
class Channel:
    """One session; belongs to the event loop's thread.

    Args:
        retry_ms: when a client shall come back whose response was ended.
        grace_ms: how long questions wait for a client that has no response open, beyond that.

    Attributes:
        session_id: set when the session is admitted.
        connection: set by `attach`; it is given `deliver` and `close_response`.
    """

    retry_ms: int
    _grace_ms: int
    _store: EventStore
    _clock: Clock
    session_id: str = field(default="", init=False)
    connection: Connection = field(init=False)
    _absence: Absence = field(init=False)
    _exchanges: dict[RequestId, Exchange] = field(factory=dict, init=False)
    _streams: dict[str, Exchange] = field(factory=dict, init=False)
    _receiving: Exchange | None = field(default=None, init=False)
    _news: Exchange = field(init=False)
    _unheard: str | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._news = Exchange(None, self)
        self._absence = Absence(self._clock, self.retry_ms + self._grace_ms, self._is_client_here)

    def attach(self, connection: Connection) -> None:
        """Carry what `connection` says from now on; it delivers to this channel."""
        self.connection = self._absence.connection = connection
        connection.close_response = self.close_response

    # -- what the connection says --------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Send `message` where it belongs."""
        request_id = message.request_id
        if type(message) is Reply:
            exchange = self._find(request_id)
            if exchange is not None:
                exchange.deliver(message)
                self._forget(exchange)
        elif request_id is None:
            self._news.deliver(message)
        else:
            # A question that was open when its call was answered is taken back after that.
            self._exchanges.get(request_id, self._news).deliver(message)
            self._absence.watch()

    def _find(self, request_id: RequestId | None) -> Exchange | None:
        """Whose reply it is.

        What is no request, or has an id that is taken, is answered while it is received.
        """
        exchange = self._receiving
        if exchange is not None and (
            request_id in exchange.requests or request_id not in self._exchanges
        ):
            return exchange
        return None if request_id is None else self._exchanges.get(request_id)

    def receive(self, message: jsonrpc.Message, exchange: Exchange) -> None:
        """Take what one POST brought; `exchange` takes what is answered to it."""
        for request_id in exchange.requests:
            self._exchanges.setdefault(request_id, exchange)
        self._receiving = exchange
        self._absence.note_contact()
        try:
            self.connection.take(message)
        finally:
            self._receiving = None

    def end_cancelled(self) -> None:
        """End the responses of requests that were cancelled: nothing is said there any more."""
        session = self.connection.session
        for exchange in {*self._exchanges.values()}:
            if not any(
                session.is_open(each) or each in session.batches for each in exchange.requests
            ):
                exchange.finish()
                self._forget(exchange)

    def _forget(self, exchange: Exchange) -> None:
        for request_id in exchange.requests:
            if self._exchanges.get(request_id) is exchange:
                del self._exchanges[request_id]

    def close_response(self, request_id: RequestId) -> None:
        """End the response of a request that goes on; its client comes back for it (SEP-1699)."""
        exchange = self._exchanges.get(request_id)
        if exchange is not None and self.primes:
            exchange.detach()

    def close(self, reason: str) -> None:
        """The session is over: what runs is aborted, and every response ends."""
        self._absence.close()
        self.connection.close(reason)
        for exchange in [*self._exchanges.values(), *self._streams.values(), self._news]:
            exchange.finish()
        self._exchanges.clear()
        self._store.forget(self.session_id)

    @property
    def is_busy(self) -> bool:
        """Return whether a request is being answered, or the client listens."""
        return bool(self._exchanges) or self._news.body is not None

    # -- streams -------------------------------------------------------------------------------

    @property
    def primes(self) -> bool:
        """Return whether its revision knows events with empty data (SEP-1699)."""
        peer = self.connection.session.peer
        return peer is not None and peer.revision.primes_streams

    def begin_trail(self, exchange: Exchange) -> Trail:
        """Record what is said in `exchange` from now on."""
        trail = self._store.begin(self.session_id)
        self._streams[trail.stream_id] = exchange
        if exchange is self._news and exchange.body is None:
            self._unheard = event_id(trail.stream_id, 0)
        return trail

    def end_trail(self, trail: Trail) -> None:
        """Nothing more is said there; what was recorded stays as long as it is kept."""
        trail.end()
        self._streams.pop(trail.stream_id, None)

    def note_loss(self) -> None:
        """A response has ended before what it carried: its client may have gone."""
        self._absence.note_contact()
        self._absence.watch()

    def _is_client_here(self) -> bool:
        exchanges = (*self._exchanges.values(), *self._streams.values(), self._news)
        return any(exchange.body is not None for exchange in exchanges)

    def listen(self, body: EventBody) -> tuple[Exchange, str | None]:
        """Say in `body` from now on what belongs to no request; whoever listened so far is ended.

        A client that lost its connection may be back before we know that it has gone.

        Returns:
            The stream, and an event after which something was said there that nobody has heard.
        """
        self._news.attach(body)
        self._news.open_stream()
        unheard, self._unheard = self._unheard, None
        return self._news, unheard

    def resume(self, last_event_id: str, body: EventBody) -> Exchange | None:
        """Go on in `body` with the stream of an event; None if nothing more is to come there."""
        named = parse_event_id(last_event_id)
        exchange = None if named is None else self._streams.get(named[0])
        if exchange is not None:
            exchange.attach(body)
        return exchange

    def stop_listening(self) -> None:
        """The server stops: nobody waits any more for what belongs to no request."""
        self._news.finish()
