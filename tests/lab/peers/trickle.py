"""A server whose answer never ends, and comes a byte at a time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.lab.servers.process import PATIENCE

TRICKLES = {
    "head": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n", b" "),
}
_MOST = 2000  # bytes


@contextmanager
def trickling(kind: str) -> Iterator[str]:
    """Yield the URL of a server for one request; raise unless the client leaves it.

    Args:
        kind: where its answer begins to trickle, one of `TRICKLES`.
    """
    begin, drop = TRICKLES[kind]
    sent = 0

    def trickle() -> None:
        nonlocal sent
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            peer.sendall(begin)
            while sent < _MOST:
                peer.sendall(drop)
                sent += 1
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE)
    assert sent < _MOST, "nobody has left"
