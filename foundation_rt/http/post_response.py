"""The response to one POST: its reply as JSON, or a stream of events that ends with it (HTTP-06).

The response is JSON if the reply is the first message. It is a stream from the first message that
precedes the reply on. Where a client must be able to resume, it is a stream as soon as the reply
takes long: without an event there is no id from which to resume (HTTP-07).

The stream that a client opens with a GET is the same, without a reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from ..base.shown import Shown
from ..kernel.effects import Notify, Reply
from .sse import EventBody, encode_event, encode_priming, encode_retry

if TYPE_CHECKING:
    from ..protocol.jsonrpc import RequestId
    from .event_store import StreamLog

Message = Reply | Notify


class Resumption(Protocol):
    """The means by which the clients of a session resume its streams."""

    @property
    def retry_ms(self) -> int:
        """The delay before a client reconnects, in milliseconds."""

    @property
    def primes(self) -> bool:
        """Return whether the session's revision has events with empty data."""

    def begin_log(self, response: PostResponse) -> StreamLog:
        """Return the log of a new stream, that of `response`."""

    def end_log(self, log: StreamLog) -> None:
        """Close the log of a stream that has ended."""

    def note_loss(self) -> None:
        """Take note that a stream that is not finished has lost its HTTP response."""


@define(eq=False, repr=False)
class PostResponse(Shown):
    """The response to one POST; belongs to the event loop's thread.

    Args:
        body: the body of the HTTP response; None while there is none.
        resumption: None where nothing can be resumed.
        requests: the ids of the requests that one reply answers; several are a batch.

    Attributes:
        reply: the whole response, if no message preceded it.
        is_stream: whether the response is a stream of events.
        last_event_id: the id of the last event recorded.
        finished: whether the response is complete.
    """

    body: EventBody | None
    resumption: Resumption | None = None
    requests: tuple[RequestId, ...] = ()
    reply: Reply | None = field(default=None, init=False)
    is_stream: bool = field(default=False, init=False)
    last_event_id: str | None = field(default=None, init=False)
    finished: bool = field(default=False, init=False)
    _log: StreamLog | None = field(default=None, init=False)

    @property
    def has_begun(self) -> bool:
        """Return whether the response has begun, or will have no message at all."""
        return self.is_stream or self.finished

    def deliver(self, message: Message) -> None:
        """Send `message` to the client; a reply is the last one."""
        if self.finished:
            return
        is_reply = type(message) is Reply
        if is_reply and not self.is_stream:
            self.reply = message  # type: ignore[assignment]
        else:
            self.open_stream()
            self._send(message.line)
        if is_reply:
            self.finish()

    def finish(self) -> None:
        """Complete the response, with a reply or without one."""
        if self.finished:
            return
        self.finished = True
        if self.resumption is not None and self._log is not None:
            self.resumption.end_log(self._log)
        if self.body is not None:
            self.body.end()

    def open_stream(self) -> None:
        """Answer with events from now on; the first one has the id from which to resume."""
        if self.is_stream:
            return
        self.is_stream = True
        resumption = None if self.finished else self.resumption
        if resumption is not None:
            self._log = resumption.begin_log(self)
            self.last_event_id = self._log.record(b"")
            self._prime(resumption)
        elif self.body is not None:
            self.body.wake()

    def attach(self, body: EventBody) -> None:
        """Continue in the body of another HTTP response; end the previous one."""
        if self.body is not None:
            self.body.end()
        self.body = body
        if self.is_stream and self.resumption is not None:
            self._prime(self.resumption)

    def drop(self, body: EventBody) -> None:
        """Let go of a body whose HTTP response has ended."""
        if self.body is body:
            self._lose_body()

    def detach(self) -> None:
        """End the HTTP response of a stream that continues; the client may resume (SEP-1699)."""
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
        """Send the id from which to resume, before the first message."""
        assert self.last_event_id is not None
        first, retry_ms = self.last_event_id, resumption.retry_ms
        self._write(encode_priming(first, retry_ms, visible=resumption.primes))

    def _send(self, line: bytes) -> None:
        if self._log is not None:
            self.last_event_id = self._log.record(line)
        self._write(encode_event(line, self.last_event_id))

    def _write(self, chunk: bytes) -> None:
        if self.body is not None:
            self.body.write(chunk)
            if self.body.gone:
                self._lose_body()
