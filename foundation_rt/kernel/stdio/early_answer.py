"""The answer to `initialize` before the lifespan of a server has been entered (OPS-40)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ...protocol.jsonrpc import Request, parse
from ...protocol.methods import INITIALIZE
from .streams import CHUNK_BYTES

if TYPE_CHECKING:
    from ...protocol.framing import LineTooLong
    from .reactor import Reactor
    from .streams import ClientStreams


def answer_initialize(reactor: Reactor, descriptor: int, streams: ClientStreams) -> None:
    """Answer `initialize` if it is there already; serve nothing else before `streams.open`.

    Clients send it as soon as they have started the process.
    """
    if not reactor.has_input(descriptor):
        return
    with suppress(OSError):  # reported when it is read again
        # At the end of the input this reads nothing, and will again.
        streams.lines.extend(streams.connection.reader.feed(os.read(descriptor, CHUNK_BYTES)))
    if streams.lines and _is_initialize(streams.lines[0]):
        streams.connection.receive(streams.lines.popleft())


def _is_initialize(line: bytes | LineTooLong) -> bool:
    """Return whether a line is the request that begins a session."""
    if not isinstance(line, bytes):
        return False
    message = parse(line)
    return isinstance(message, Request) and message.method == INITIALIZE
