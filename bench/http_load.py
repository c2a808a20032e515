"""The load: a process that keeps HTTP servers busy, and does as little as possible besides.

It takes jobs as lines of JSON and answers each with a line. Requests are bytes made beforehand;
of a response only its head and its length are looked at, and that it holds what it should.

* ``{"job": "calls", "port", "request", "expect", "connections", "seconds"}``: each connection
  sends its next request when the answer to the last has come;
* ``{"job": "subscribe", "port", "request", "expect", "connections"}``: each connection sends one
  request, and stays open until the process ends; answered when `expect` has come on all of them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import uvloop
from attrs import define, field

from bench.report import percentiles

_PATIENCE = 60.0

FIRST_ID = "100000"
"""Stands in every request for its id: each connection puts one of its own there."""


@define(eq=False)
class Caller(asyncio.Protocol):
    """One connection with one request in flight."""

    request: bytes
    expect: bytes
    latencies: list[float]
    ended: Callable[[str], object]
    until: float = 0.0
    sent: float = field(default=0.0, init=False)
    received: bytes = field(default=b"", init=False)
    transport: Any = field(default=None, init=False)

    def connection_made(self, transport: Any) -> None:
        """Wait for `send`."""
        self.transport = transport

    def send(self) -> None:
        """Return the next request."""
        self.sent = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Take a part of the response, or all of it."""
        received = self.received + data if self.received else data
        if not is_whole(received):
            self.received = received
            return
        self.received = b""
        now = time.perf_counter()
        if self.expect not in received:
            self.ended(received.decode(errors="replace"))
            return
        self.latencies.append(now - self.sent)
        if now < self.until:
            self.send()
        else:
            self.ended("")

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection was lost before the time is over."""
        if time.perf_counter() < self.until:
            self.ended(f"connection lost: {error}")


def is_whole(received: bytes) -> bool:
    """Whether a response has come to its end."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = received[:end].lower()
    start = head.find(b"content-length:")
    if start < 0:
        return received.endswith(b"0\r\n\r\n")
    stop = head.find(b"\r\n", start)
    length = int(head[start + 15 : stop if stop > 0 else None])
    return len(received) >= end + 4 + length


@define(eq=False)
class Subscriber(asyncio.Protocol):
    """One connection that waits for what it is told."""

    request: bytes
    expect: bytes
    subscribed: Callable[[], object]
    failed: Callable[[str], object]
    received: bytes = field(default=b"", init=False)

    def connection_made(self, transport: Any) -> None:
        """Subscribe."""
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Take the acknowledgement, and drop what comes later."""
        if self.expect in self.received:
            return
        self.received += data
        if self.expect in self.received:
            self.subscribed()

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection was lost, which it should not be."""
        if self.expect not in self.received:
            self.failed(self.received.decode(errors="replace"))


async def calls(job: dict[str, Any]) -> dict[str, Any]:
    """Measure calls per second, and percentiles of their latencies, in seconds."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()
    latencies: list[float] = []
    busy = job["connections"]

    def ended(why: str) -> None:
        nonlocal busy
        busy -= 1
        if (why or not busy) and not done.done():
            done.set_result(why)

    callers = []
    for number in range(job["connections"]):
        request = job["request"].replace(FIRST_ID, str(int(FIRST_ID) + number)).encode()
        _, caller = await loop.create_connection(
            partial(Caller, request, job["expect"].encode(), latencies, ended),
            "127.0.0.1",
            job["port"],
        )
        callers.append(caller)
    started = time.perf_counter()
    for caller in callers:
        caller.until = started + job["seconds"]
        caller.send()
    why = await asyncio.wait_for(done, job["seconds"] + _PATIENCE)
    seconds = time.perf_counter() - started
    for caller in callers:
        caller.transport.close()
    if why:
        raise RuntimeError(f"a call failed: {why}")
    cuts = percentiles(latencies)
    figures = {"p50": cuts[50], "p95": cuts[95], "p99": cuts[99]}
    return {"rate": len(latencies) / seconds, "calls": len(latencies), **figures}


async def subscribe(job: dict[str, Any], kept: list[Any]) -> dict[str, Any]:
    """How long it took until all were subscribed, in seconds."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()
    count = 0

    def subscribed() -> None:
        nonlocal count
        count += 1
        if count == job["connections"] and not done.done():
            done.set_result("")

    def failed(why: str) -> None:
        if not done.done():
            done.set_result(why or "connection lost")

    started = time.perf_counter()
    for _ in range(job["connections"]):
        transport, _ = await loop.create_connection(
            lambda: Subscriber(job["request"].encode(), job["expect"].encode(), subscribed, failed),
            "127.0.0.1",
            job["port"],
        )
        kept.append(transport)
    why = await asyncio.wait_for(done, _PATIENCE)
    if why:
        raise RuntimeError(f"a subscription failed: {why}")
    return {"seconds": time.perf_counter() - started}


async def serve() -> None:
    """Do one job after another."""
    loop = asyncio.get_running_loop()
    jobs = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(jobs), sys.stdin)
    kept: list[Any] = []
    while line := await jobs.readline():
        job = orjson.loads(line)
        answer = await (calls(job) if job["job"] == "calls" else subscribe(job, kept))
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(serve())
