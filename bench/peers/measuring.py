"""The measurements: contestants take turns, round by round, so that all meet the same machine.

Each answer of a contestant is checked before it is measured. One that fails, dies or hangs leaves
and is a gap with a name; the others go on.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from attrs import asdict, define, field, frozen

from bench import over_http
from bench.over_http import Load, exchange, message_of, post, rpc_message, shake_hands
from bench.peers.contestants import Contestant
from bench.peers.environments import Environment
from bench.processes import Server, Target, pipelined, sequential
from bench.report import percentiles, say

TEXT = "The quick brown fox jumps over the lazy dog."
_CHECKED = (TEXT, "", 'a "quote", a\nline, Grüße, 日本, 🐍')
_DEPTH = 8
_PATIENCE = 1200.0
_FAILURES = (RuntimeError, OSError, KeyError, ValueError, subprocess.SubprocessError)


@frozen
class Rounds:
    """How much is measured; a duration is in seconds.

    Attributes:
        starts: processes started of each contestant.
        warm_up: calls before measuring.
        sequential, pipelined: rounds over stdio, and calls in each.
        calls: made to a server before its memory is read the second time.
        http: rounds, and the duration of each.
    """

    starts: int
    warm_up: int
    sequential: tuple[int, int]
    pipelined: tuple[int, int]
    calls: int
    http: tuple[int, float]


FULL = Rounds(
    starts=15,
    warm_up=500,
    sequential=(15, 200),
    pipelined=(9, 1000),
    calls=100_000,
    http=(9, 1.0),
)
SHORTEST = Rounds(
    starts=1, warm_up=2, sequential=(1, 5), pipelined=(1, 10), calls=30, http=(1, 0.05)
)


@frozen
class Gap:
    """A contestant that was not measured over one transport, and why."""

    name: str
    transport: str
    reason: str


@define(eq=False)
class Turns:
    """The contestants of one transport, in turn; whoever fails leaves.

    Attributes:
        transport: `stdio` or `HTTP`.
        entrants: by name.
        gaps: those that have left, after those that were missing.
        load: the highest load average of a minute that was seen.
    """

    transport: str
    entrants: dict[str, Any]
    gaps: list[Gap]
    load: float = field(factory=lambda: os.getloadavg()[0], init=False)

    def take(self, rounds: int, step: Callable[[Any], None]) -> None:
        """Let each contestant do this step so often; another one begins each round."""
        for number in range(rounds):
            names = list(self.entrants)
            first = number % len(names) if names else 0
            for name in (*names[first:], *names[:first]):
                entrant = self.entrants[name]
                try:
                    with _limited(entrant):
                        step(entrant)
                except _FAILURES as error:
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    self.gaps.append(Gap(name, self.transport, reason))
                    say(f"  {name} is out: {error}")
                    del self.entrants[name]
                    entrant.stop()
            self.load = max(self.load, os.getloadavg()[0])


@contextmanager
def _limited(entrant: StdioEntrant | HttpEntrant) -> Iterator[None]:
    """Kill a server that hangs: its client reads the end of its output then."""
    watchdog = threading.Timer(_PATIENCE, entrant.kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def _check(name: str, text: str, result: dict[str, Any]) -> None:
    """Raise `RuntimeError` unless the result is the echo of the text, and nothing else."""
    blocks = [(each["type"], each["text"]) for each in result["content"]]
    if blocks != [("text", text)] or result.get("isError"):
        raise RuntimeError(f"{name} answered {result} to {text!r}")


# -- over stdio ------------------------------------------------------------------------------------


@define(eq=False)
class StdioEntrant:
    """A server over stdio, and what was measured of it: times are in seconds."""

    contestant: Contestant
    environment: Environment
    server: Server | None = field(default=None, init=False)
    handshakes: list[float] = field(factory=list, init=False)
    starts: list[float] = field(factory=list, init=False)
    latencies: list[list[float]] = field(factory=list, init=False)
    rates: list[float] = field(factory=list, init=False)
    rest_mb: float = field(default=0.0, init=False)
    used_mb: float = field(default=0.0, init=False)

    @property
    def running(self) -> Server:
        """The server, which `open` has started."""
        assert self.server is not None
        return self.server

    def start(self) -> None:
        """Measure from the start of a process to the handshake, and to its first answer."""
        started = time.perf_counter()
        self._spawn()
        self.handshakes.append(time.perf_counter() - started)
        self.running.call()
        self.starts.append(time.perf_counter() - started)
        self.stop()

    def open(self, warm_up: int) -> None:
        """Start the server for the rounds, check its answers, and read its memory."""
        self._spawn()
        for text in _CHECKED:
            call: dict[str, object] = {"name": "echo", "arguments": {"text": text}}
            _check(self.contestant.name, text, self.running.ask("tools/call", call))
        self.rest_mb = self.running.resident_mb()
        sequential(self.running, warm_up)

    def measure_calls(self, calls: int) -> None:
        """Measure one call after another."""
        self.latencies.append(sequential(self.running, calls))

    def measure_rate(self, calls: int) -> None:
        """Measure calls in flight."""
        self.rates.append(pipelined(self.running, calls, _DEPTH))

    def close(self, calls: int) -> None:
        """Read the memory of the server once it has answered so many calls, and end it."""
        missing = calls - self.running.calls
        if missing > 0:
            pipelined(self.running, missing, _DEPTH)
        self.used_mb = self.running.resident_mb()
        self.stop()

    def kill(self) -> None:
        """End the server at once."""
        if self.server is not None:
            self.server.process.kill()

    def stop(self) -> None:
        """End the server if it runs."""
        if self.server is not None:
            self.server.stop()
            self.server = None

    def figures(self) -> dict[str, Any]:
        """Return what the report says of this server."""
        cuts = percentiles([each for one in self.latencies for each in one])
        return {
            **installation(self.contestant, self.environment),
            "handshake_ms": median(self.handshakes) * 1e3,
            "start_ms": median(self.starts) * 1e3,
            "p50_us": cuts[50] * 1e6,
            "p95_us": cuts[95] * 1e6,
            "p99_us": cuts[99] * 1e6,
            "calls_per_second": median(self.rates),
            "rest_mb": self.rest_mb,
            "used_mb": self.used_mb,
            "rounds": {
                "handshake_ms": [each * 1e3 for each in self.handshakes],
                "start_ms": [each * 1e3 for each in self.starts],
                "p50_us": [median(each) * 1e6 for each in self.latencies],
                "calls_per_second": self.rates,
            },
        }

    def _spawn(self) -> None:
        program, *arguments = self.environment.command
        target = Target(self.contestant.name, arguments, "echo", {"text": TEXT}, program)
        self.server = Server.spawn(target)
        self.server.initialize()


def measure_stdio(turns: Turns, rounds: Rounds) -> list[dict[str, Any]]:
    """Return the figures of the contestants that came to the end, in their order."""
    try:
        say(f"stdio: {rounds.starts} starts")
        turns.take(rounds.starts, lambda entrant: entrant.start())
        turns.take(1, lambda entrant: entrant.open(rounds.warm_up))
        count, calls = rounds.sequential
        say(f"stdio: {count} rounds of {calls} calls, one after another")
        turns.take(count, lambda entrant: entrant.measure_calls(calls))
        count, calls = rounds.pipelined
        say(f"stdio: {count} rounds of {calls} calls, {_DEPTH} in flight")
        turns.take(count, lambda entrant: entrant.measure_rate(calls))
        say(f"stdio: memory after {rounds.calls} calls")
        turns.take(1, lambda entrant: entrant.close(rounds.calls))
    finally:
        for entrant in turns.entrants.values():
            entrant.stop()
    return [entrant.figures() for entrant in turns.entrants.values()]


# -- over HTTP -------------------------------------------------------------------------------------


@define(eq=False)
class HttpEntrant:
    """A server over HTTP, and what was measured of it: a duration is in seconds."""

    contestant: Contestant
    environment: Environment
    server: over_http.Server | None = field(default=None, init=False)
    request: str = field(default="", init=False)
    single: list[dict[str, float]] = field(factory=list, init=False)
    deep: list[dict[str, float]] = field(factory=list, init=False)
    rest_mb: float = field(default=0.0, init=False)

    def open(self) -> None:
        """Start the server, begin a session, and check its answers."""
        program, *arguments = self.environment.command
        self.server = over_http.Server.spawn(self.contestant.name, arguments, "{}", program)
        port = self.server.port
        session = shake_hands(port)
        for text in _CHECKED:
            body = rpc_message("tools/call", {"name": "echo", "arguments": {"text": text}})
            _, answer = exchange(port, body, session)
            _check(self.contestant.name, text, message_of(answer)["result"])
        body = rpc_message("tools/call", {"name": "echo", "arguments": {"text": TEXT}})
        self.request = post(port, body, session)
        self.rest_mb = self.server.resident_mb()

    def measure(self, seconds: float) -> None:
        """Measure one connection, then several; each has one call in flight."""
        self.single.append(self._load(1, seconds))
        self.deep.append(self._load(_DEPTH, seconds))

    def kill(self) -> None:
        """End the server at once."""
        if self.server is not None:
            self.server.process.kill()

    def stop(self) -> None:
        """End the server if it runs."""
        if self.server is not None:
            self.server.stop()
            self.server = None

    def figures(self) -> dict[str, Any]:
        """Return what the report says of this server."""
        return {
            **installation(self.contestant, self.environment),
            **{f"{key}_us": median(e[key] for e in self.single) * 1e6 for key in _PERCENTILES},
            "calls_per_second": median(each["rate"] for each in self.deep),
            "rest_mb": self.rest_mb,
            "rounds": {
                "p50_us": [each["p50"] * 1e6 for each in self.single],
                "calls_per_second": [each["rate"] for each in self.deep],
            },
        }

    def _load(self, connections: int, seconds: float) -> dict[str, float]:
        assert self.server is not None
        load = Load.spawn()
        try:
            return load.do(
                job="calls",
                port=self.server.port,
                request=self.request,
                expect=TEXT,
                connections=connections,
                seconds=seconds,
            )
        finally:
            load.stop()


_PERCENTILES = ("p50", "p95", "p99")


def measure_http(turns: Turns, rounds: Rounds) -> list[dict[str, Any]]:
    """Return the figures of the contestants that came to the end, in their order."""
    count, seconds = rounds.http
    say(f"HTTP: {count} rounds of {seconds} s with 1 connection, and with {_DEPTH}")
    try:
        turns.take(1, lambda entrant: entrant.open())
        turns.take(count, lambda entrant: entrant.measure(seconds))
    finally:
        for entrant in turns.entrants.values():
            entrant.stop()
    return [entrant.figures() for entrant in turns.entrants.values()]


def installation(contestant: Contestant, environment: Environment) -> dict[str, Any]:
    """Return what the report says of what is installed for a contestant."""
    members = asdict(environment)
    del members["command"]
    return {"name": contestant.name, "is_floor": contestant.is_floor, **members}
