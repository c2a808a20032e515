"""The input and the output of a stdio client: lines in, messages out, and flow control.

A client that stops reading stops being read: input waits while more than `_HIGH_WATER_BYTES` of
output are pending (PROC-05).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...base.logs.writer import BackgroundWriter
from ..engine.shutdown import HANDLER_SHARE
from .reactor import GONE, READABLE

if TYPE_CHECKING:
    from ...protocol.framing import LineTooLong
    from ..effects import Notify, Reply
    from ..engine.connection import Connection
    from .descriptors import ProtocolDescriptors
    from .reactor import Reactor

CHUNK_BYTES = 65_536  # the capacity of a pipe
_HIGH_WATER_BYTES = 4 * 1024 * 1024
_LOW_WATER_BYTES = 1024 * 1024
_GATHER_BYTES = 2048  # small enough for one direct write of at most PIPE_BUF bytes


class ClientStreams:
    """Reads lines from a client for its connection, and writes the connection's messages.

    Args:
        reactor: waits for the descriptors.
        descriptors: the protocol's.
        budget: the shutdown budget, in seconds.
        on_end: called when the input has ended and all of it has been served; may be repeated.
        on_gone: called when the client has gone and does not read its answers.
        on_first_lines: called once, after the first lines have been served.

    Attributes:
        connection: the client's connection; set by the caller.
        lines: the lines that were read and not served yet.
        input_ended: whether the client has closed its sending side.
        stopped: whether no further input is served; may be set by a signal handler.
    """

    connection: Connection

    def __init__(
        self,
        reactor: Reactor,
        descriptors: ProtocolDescriptors,
        budget: float,
        *,
        on_end: Callable[[], object],
        on_gone: Callable[[], object],
        on_first_lines: Callable[[], object],
    ) -> None:
        self._reactor = reactor
        self._descriptors = descriptors
        self._budget = budget
        self._on_end = on_end
        self._on_gone = on_gone
        self._on_first_lines = on_first_lines
        self._writer = BackgroundWriter(
            descriptors.output,
            name="foundation-rt-stdout",
            on_broken=reactor.wake,
            on_drained=reactor.wake,
            high_water=_HIGH_WATER_BYTES,
            low_water=_LOW_WATER_BYTES,
        )
        self.lines: deque[bytes | LineTooLong] = deque()
        self.input_ended = False
        self.stopped = False
        self._gathered: list[bytes] | None = None
        self._gathered_bytes = 0
        self._is_open = False
        self._is_reading = False
        self._is_warm = False

    # -- input -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to read, and serve what was read before."""
        self._is_open = True
        self.resume_reading()
        if self.lines:
            self._reactor.wake()

    def watch_hang_up(self) -> None:
        """Read nothing yet, but notice when the client hangs up."""
        self._reactor.watch(self._descriptors.input, GONE, self._on_hang_up_while_waiting)

    def _on_readable(self, events: int) -> None:
        if self.stopped:
            return  # a signal came in the same turn: no more input is served
        try:
            data = self._reactor.read(self._descriptors.input, CHUNK_BYTES)
        except OSError:
            data = b""  # a terminal that hung up or a socket that was reset has ended
        if data:
            self.lines.extend(self.connection.reader.feed(data))
        else:
            self.lines.extend(self.connection.reader.end())
            self.input_ended = True
            self.stop_reading()
        self.serve_lines()

    def serve_lines(self) -> None:
        """Serve the lines that were read, as long as the client reads the answers."""
        if not self._is_open:
            return
        lines = self.lines
        if len(lines) > 1:
            with self.connection.lock:
                self._gathered = []
        try:
            while lines and self._writer.pending_bytes <= _HIGH_WATER_BYTES:
                try:
                    self.connection.receive(lines[0])
                finally:
                    del lines[0]
        finally:
            if self._gathered is not None:
                self._write_gathered()
        if lines:
            self._pause_reading()
        elif self.input_ended:
            self._on_end()
        if not self._is_warm:
            self._is_warm = True
            self._on_first_lines()

    def stop_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        self._reactor.unwatch(self._descriptors.input)
        self._is_reading = False

    def _pause_reading(self) -> None:
        """Read on when the output has drained; notice a hang-up until then."""
        self.stop_reading()
        if not self.input_ended:
            self.watch_hang_up()

    def resume_reading(self) -> None:
        """Read on, unless the input has ended or is no longer served."""
        if self._is_open and not (self._is_reading or self.input_ended or self.stopped):
            self._is_reading = True
            self._reactor.unwatch(self._descriptors.input)
            self._reactor.watch(self._descriptors.input, READABLE, self._on_readable)

    def _on_hang_up_while_waiting(self, events: int) -> None:
        """Give the client some time: it has gone without its answers, or will still read them."""
        self._reactor.unwatch(self._descriptors.input)
        self._reactor.call_later(self._budget * HANDLER_SHARE, self._check_waiting)

    def _check_waiting(self) -> None:
        if self.lines or not self._is_open:
            self._on_gone()

    # -- output ----------------------------------------------------------------------------------

    def watch_output(self) -> None:
        """Notice when the client closes the output."""
        self._reactor.watch(self._descriptors.output, 0, self._on_output_event)

    def _on_output_event(self, events: int) -> None:
        if events & GONE:
            self._on_gone()

    @property
    def is_broken(self) -> bool:
        """Return whether the client no longer takes output."""
        return self._writer.broken

    def deliver(self, message: Reply | Notify) -> None:
        """Write a message; while several lines of input are served, gather what fits one write.

        Calls that arrive together and end at once are answered together: every write to a client
        that sleeps costs a wake-up, and with eight calls in flight this gives a third more calls a
        second. The price: an inline handler that blocks, as none should, holds back the replies
        to the lines before it (PROC-09). Called under the connection's lock.
        """
        gathered = self._gathered
        if gathered is None:
            self._writer.write(message.line + b"\n")
            return
        gathered.append(message.line + b"\n")
        self._gathered_bytes += len(message.line) + 1
        if self._gathered_bytes >= _GATHER_BYTES:
            self._gathered = None
            self._flush(gathered)

    def _write_gathered(self) -> None:
        with self.connection.lock:
            gathered, self._gathered = self._gathered, None
            if gathered:
                self._flush(gathered)

    def _flush(self, gathered: list[bytes]) -> None:
        self._gathered_bytes = 0
        self._writer.write(b"".join(gathered))

    # -- closing ---------------------------------------------------------------------------------

    def discard(self) -> None:
        """Drop the lines not served, and take no more input."""
        self.stop_reading()
        self.lines.clear()

    def disconnect(self) -> None:
        """Drop the lines not served, and no longer watch either descriptor."""
        self.discard()
        self._reactor.unwatch(self._descriptors.output)

    def flush(self, timeout: float) -> None:
        """Wait `timeout` seconds at most until the client has read what was written."""
        if not self._writer.broken:
            self._writer.flush(timeout)

    def close(self) -> None:
        """Write nothing more, and no longer watch either descriptor."""
        self._writer.close(0)
        self._reactor.unwatch(self._descriptors.input)
        self._reactor.unwatch(self._descriptors.output)
