"""The bench of the client runs: every client it compares makes its calls, in both eras."""

from __future__ import annotations

import sys

import pytest

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


@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_over_stdio(era: str) -> None:
    check("stdio", era, " ".join([sys.executable, *APP]))


@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_over_http(era: str) -> None:
    server = Server.spawn("runtime", [*APP, "--no-auth", "--http"], "127.0.0.1:{}")
    try:
        check("http", era, f"http://127.0.0.1:{server.port}/mcp")
    finally:
        server.stop()
        assert server.process.returncode is not None
