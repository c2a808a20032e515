"""uvicorn's side of a WebSocket, with the limits of the runtime (HTTP-41, HTTP-42, HTTP-75).

a message over 1 MiB ──► closed with 1009
more than 1,000 frames within 10 s ──► closed with 1008; what still comes is not parsed
every 30 s ──► a ping; the application is told how long the client has been silent
90 s of silence ──► cut off, if the application has not closed it before
closed, and the client does not read the rest ── 75 s ──► cut off
the server stops ──► the application gets `websocket.disconnect` with 1012, and may still send
"""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError

if find_spec("websockets") is None:
    raise MissingExtraError("WebSocket", "host")

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .asgi import UNCOUNTED_BYTES
from .mounted_app import RESTARTING

if TYPE_CHECKING:
    import uvicorn
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

    from .uvicorn_protocol import UnreadBytes

MAX_MESSAGE_BYTES = 1024 * 1024
PING_SECONDS = 30.0
MAX_FRAMES = 1_000
FRAMES_SECONDS = 10.0
POLICY_VIOLATION = 1008

_MAX_SILENT_PINGS = 3
_STALL_SECONDS = 75.0
_PIECE_BYTES = 1024  # at most 512 frames, which are parsed in some ms

SECONDS_SILENT = "foundation_rt.seconds_silent"
"""The scope extension that returns for how long nothing has come, not even a pong; a function."""


def take_websockets(config: uvicorn.Config, unread: UnreadBytes) -> None:
    """Let a server of uvicorn take WebSockets."""
    config.ws = partial(BoundedWebSocket, unread)  # type: ignore[assignment]
    config.ws_max_size = MAX_MESSAGE_BYTES
    config.ws_ping_interval = PING_SECONDS
    config.ws_ping_timeout = None  # the application decides how long a client may be silent
    # Each connection would have its own compressor, of 40 KiB.
    config.ws_per_message_deflate = False


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket.

    Args:
        unread: counts the bytes that the server's clients have not read.
        uvicorn_arguments: uvicorn's own arguments.
    """

    def __init__(self, unread: UnreadBytes, **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self.held = 0
        self._unread = unread
        self._heard_at = self.loop.time()
        self._stall_timer: asyncio.TimerHandle | None = None
        self.close_timeout = 2.0
        self._frames = 0
        self._frames_since = self._heard_at
        self._is_flooded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the connection of a request that asks for the upgrade."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(UNCOUNTED_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection's bytes no longer."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._unread.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the client; not those after too many frames."""
        self._heard_at = self.loop.time()
        for start in range(0, len(data), _PIECE_BYTES):
            if self._is_flooded or self.transport.is_closing():
                return
            super().data_received(data[start : start + _PIECE_BYTES])
        if not self.handshake_initiated:
            # A head that uvicorn's HTTP parser takes and this one does not: a very long line.
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def handle_events(self) -> None:
        """Handle what was parsed, and count its frames."""
        if self._heard_at - self._frames_since > FRAMES_SECONDS:
            self._frames, self._frames_since = 0, self._heard_at
        self._frames += len(self.conn.events)
        super().handle_events()
        if self._frames > MAX_FRAMES and not self.transport.is_closing():
            self._is_flooded = True
            if self.handshake_complete:
                self._close_flooded()
            else:
                self.cut()

    def _close_flooded(self) -> None:
        """Close with 1008, and drop what comes until the client has read that."""
        if not self.close_sent:
            reason = f"more than {MAX_FRAMES} frames within {FRAMES_SECONDS:.0f} s"
            event = {"type": "websocket.disconnect", "code": POLICY_VIOLATION, "reason": reason}
            self.queue.put_nowait(event)  # type: ignore[arg-type]
            self.disconnected = True  # for what the application still sends
            self.conn.send_close(POLICY_VIOLATION, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        if self.read_paused:  # else the system would reset the connection, and the client not know
            self.read_paused = False
            self.transport.resume_reading()
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next event; other connections have their turn before it."""
        if not self.queue.empty():
            await asyncio.sleep(0)
        return await super().receive()

    def pause_writing(self) -> None:
        """Count the unsent bytes: the client has not read what was written."""
        super().pause_writing()
        self._unread.wait(self)

    def resume_writing(self) -> None:
        """Count the unsent bytes no longer: the client has read most of them."""
        self._unread.resume(self)
        super().resume_writing()

    def unsent(self) -> int:
        """Return how many bytes the transport has not sent."""
        return self.transport.get_write_buffer_size()

    def cut(self) -> None:
        """End the connection at once, and drop what it has not sent."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Let the application end the connection: the server stops."""
        if self.handshake_complete and not self.close_sent:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": RESTARTING})
        else:
            super().shutdown()

    async def run_asgi(self) -> None:
        """Run the application."""
        extensions: dict[str, Any] = {**(self.scope["extensions"] or {})}
        extensions[SECONDS_SILENT] = self._seconds_silent
        self.scope["extensions"] = extensions
        await super().run_asgi()

    async def send(self, message: ASGISendEvent) -> None:
        """Send an event of the application."""
        if message["type"] == "websocket.close":
            # It waits behind what the client has not read; the application does not wait for it.
            self.writable.set()
            self._end_stalled()
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # A refusal: uvicorn would log that the application has not completed the handshake.
            self.handshake_complete = True

    def send_keepalive_ping(self) -> None:
        """Ping the client; cut off one that has been silent for several pings."""
        if self._seconds_silent() > _MAX_SILENT_PINGS * PING_SECONDS and not self.read_paused:
            self.cut()
        else:
            super().send_keepalive_ping()

    def _end_stalled(self) -> None:
        """Cut off a client that does not read the end of what was sent, unless it has gone."""
        if self._stall_timer is None and self in self.connections:
            self._stall_timer = self.loop.call_later(_STALL_SECONDS, self.cut)

    def _seconds_silent(self) -> float:
        return self.loop.time() - self._heard_at
