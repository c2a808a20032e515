"""The bench of the client runs: every client it compares makes its calls.

Each transport has one era here, since starting the official client takes a second.
"""

from __future__ import annotations

import sys

from bench.client_load import CLIENTS
from bench.over_client import APP, compare
from bench.over_http import Server


def check(transport: str, era: str, where: str) -> None:
    found = compare(transport, era, where, in_flight=(2,), rounds=1, seconds=0.01)
    assert set(found[2]) == set(CLIENTS)
    for [answer] in found[2].values():
        assert answer["rate"] > 0
        assert answer["cpu"] > 0
        assert answer["took"]


def test_over_stdio() -> None:
    check("stdio", "handshake", " ".join([sys.executable, *APP]))


def test_over_http() -> None:
    server = Server.spawn("runtime", [*APP, "--no-auth", "--http"], "127.0.0.1:{}")
    try:
        check("http", "stateless", f"http://127.0.0.1:{server.port}/mcp")
    finally:
        server.stop()
        assert server.process.returncode is not None
