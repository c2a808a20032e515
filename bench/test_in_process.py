"""Bytes in, bytes out, in one process: the runtime beside the straight-line floor."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

from bench.app import server
from bench.floor import make_straight_line
from foundation_rt.kernel.engine.connection import Connection

# Set by `python -m bench`, in whose environment this runs.
_ROUNDS, _ITERATIONS = map(int, os.environ.get("BENCH_IN_PROCESS", "400 100").split())

_HANDSHAKE = (
    b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25"}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


def _call_line(number: int) -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",'
        b'"params":{"name":"inline_noop","arguments":{}}}' % number
    )


@pytest.fixture
def feed_calls() -> Callable[[], None]:
    """Feed one call after another to a connection; check only that it answers."""
    replies: list[bytes] = []

    def keep_last(line: bytes) -> None:
        replies[:] = [line]

    connection: Connection = server.connect(keep_last)
    connection.feed(_HANDSHAKE)
    numbers = itertools.count()

    def call() -> None:
        connection.feed(_call_line(next(numbers)) + b"\n")

    call()
    assert b'"isError":false' in replies[0]
    return call


def test_floor(benchmark) -> None:
    straight_line = make_straight_line()
    numbers = itertools.count()
    benchmark.pedantic(
        lambda: straight_line(_call_line(next(numbers))), rounds=_ROUNDS, iterations=_ITERATIONS
    )


def test_runtime(benchmark, feed_calls) -> None:
    benchmark.pedantic(feed_calls, rounds=_ROUNDS, iterations=_ITERATIONS)
