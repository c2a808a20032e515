"""What answers one POST: its reply as JSON, or a stream of events that its reply ends (HTTP-06).

JSON as long as the reply is the first thing there is to say. A stream from the first message that
comes before it, and where a client must be able to resume, from the moment that the reply is not
there soon: what has not begun has no event that could be named as the last one (HTTP-07).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from ...core.effects import Notify, Reply
from .streams import EventBody, encode_event, encode_priming, encode_retry

if TYPE_CHECKING:
    from ...protocol.jsonrpc import RequestId
    from .events import Trail

Message = Reply | Notify


class Resumption(Protocol):
    """How the clients of a session resume its streams."""

    @property
    def retry_ms(self) -> int:
        """When they shall come back."""

    @property
    def primes(self) -> bool:
        """Return whether their revision knows events with empty data."""

    def begin_trail(self, exchange: Exchange) -> Trail:
        """Where what is said in `exchange` is kept from now on."""

    def end_trail(self, trail: Trail) -> None:
        """Nothing more is said there."""

    def note_loss(self) -> None:
        """An exchange that is not finished has no response any more."""


@define(eq=False, repr=False)
class Exchange:
    """One POST that awaits something; belongs to the event loop's thread.

    Args:
        body: of the response, as long as there is one.
        resumption: None where nothing can be resumed.
        requests: the ids of those that it answers, with one reply: several are a batch.

    Attributes:
        reply: the whole answer, if nothing was said before it.
        is_stream: events are sent, or were.
        last_event_id: of the last one that was recorded.
        finished: nothing more will be said.
    """

    body: EventBody | None
    resumption: Resumption | None = None
    requests: tuple[RequestId, ...] = ()
    reply: Reply | None = field(default=None, init=False)
    is_stream: bool = field(default=False, init=False)
    last_event_id: str | None = field(default=None, init=False)
    finished: bool = field(default=False, init=False)
    _trail: Trail | None = field(default=None, init=False)

    @property
    def has_begun(self) -> bool:
        """Return whether anything was said, or will not be."""
        return self.is_stream or self.finished

    def deliver(self, message: Message) -> None:
        """Say `message` to the client; a reply is the last there is."""
        if self.finished:
            return
        is_reply = type(message) is Reply
        if is_reply and not self.is_stream:
            self.reply = message  # type: ignore[assignment]
        else:
            self.open_stream()
            self._say(message.line)
        if is_reply:
            self.finish()

    def finish(self) -> None:
        """Nothing more is said, be it for the reply or for want of one."""
        if self.finished:
            return
        self.finished = True
        if self.resumption is not None and self._trail is not None:
            self.resumption.end_trail(self._trail)
        if self.body is not None:
            self.body.end()

    def open_stream(self) -> None:
        """Answer with events from now on; the first one tells where to resume."""
        if self.is_stream:
            return
        self.is_stream = True
        resumption = None if self.finished else self.resumption
        if resumption is not None:
            self._trail = resumption.begin_trail(self)
            self.last_event_id = self._trail.record(b"")
            self._prime(resumption)
        elif self.body is not None:
            self.body.wake()

    def attach(self, body: EventBody) -> None:
        """Go on in another response; the one there was is ended."""
        if self.body is not None:
            self.body.end()
        self.body = body
        if self.is_stream and self.resumption is not None:
            self._prime(self.resumption)

    def drop(self, body: EventBody) -> None:
        """A response is over, whichever side ended it."""
        if self.body is body:
            self._lose_body()

    def detach(self) -> None:
        """End the response without an end of what is said: the client may resume (SEP-1699)."""
        self.open_stream()
        body = self.body
        if body is not None:
            if self.resumption is not None:
                body.write(encode_retry(self.resumption.retry_ms))
            body.end()
            self._lose_body()

    def _lose_body(self) -> None:
        self.body = None
        if self.resumption is not None and not self.finished:
            self.resumption.note_loss()

    def _prime(self, resumption: Resumption) -> None:
        """Tell where to resume, before there is anything to say."""
        assert self.last_event_id is not None
        first, retry_ms = self.last_event_id, resumption.retry_ms
        self._write(encode_priming(first, retry_ms, visible=resumption.primes))

    def _say(self, line: bytes) -> None:
        if self._trail is not None:
            self.last_event_id = self._trail.record(line)
        self._write(encode_event(line, self.last_event_id))

    def _write(self, chunk: bytes) -> None:
        if self.body is not None:
            self.body.write(chunk)
            if self.body.gone:
                self._lose_body()
