"""Traffic line by line to a server over stdio: all that a client may send, and must not."""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import orjson
from attrs import define, field

from tests.lab.servers.process import PATIENCE

from .processes import Watched

_IN_FLIGHT = 32
_LONG = b'{"jsonrpc":"2.0","id":"%s"}\n' % (b"x" * (17 * 1024 * 1024))
_MISTAKES = (
    b"{\n",
    b"[]\n",
    b'"text"\n',
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}\n',
    b"\xff\xfe\n",
)
"""Lines that no request can be made of; each is answered, without an id of its own."""


@define(eq=False)
class Lines:
    """A client that sends lines at random, and knows what has to come back.

    Attributes:
        server: over stdio.
        random: chooses.
        calls: how many calls of tools were sent.
        faults: what came back and should not have, or the other way round.
    """

    server: Watched
    random: random.Random
    calls: int = field(default=0, init=False)
    faults: list[str] = field(factory=list, init=False)
    _ids: Any = field(factory=lambda: count(1), init=False)
    _open: dict[int, str] = field(factory=dict, init=False)
    _nameless: int = field(default=0, init=False)
    _hanging: list[int] = field(factory=list, init=False)
    _rest: bytes = field(default=b"", init=False)

    def begin(self) -> None:
        """Begin a session."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "soak", "version": "1"},
        }
        self._write(self._request("initialize", params))
        self._settle()
        self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def run(self, seconds: float) -> None:
        """Send and receive for so long; then wait for what is still to come."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            room = _IN_FLIGHT - len(self._open)
            lines = [self._any() for _ in range(self.random.randint(1, room))] if room > 0 else []
            lines += [self._cancel(each) for each in self._hanging]
            self._hanging.clear()
            self._write(b"".join(lines))
            if self._open or self._nameless:
                self._receive()
        self._settle()

    def fill_threads(self) -> None:
        """Have as many calls in threads as there may be at once."""
        self._write(b"".join(self._call("thread", ms=500) for _ in range(_IN_FLIGHT)))
        self._settle()

    def call(self, tool: str) -> Any:
        """Call a tool alone, and return what the text of its result says."""
        request = self._call(tool)
        last = max(self._open)
        self._write(request)
        found = self._settle()[last]
        return orjson.loads(found["result"]["content"][0]["text"])

    # -- what is sent ----------------------------------------------------------------------------

    def _any(self) -> bytes:
        kinds = list(_KINDS.items())
        kind = self.random.choices([each for each, _ in kinds], [weight for _, weight in kinds])[0]
        return kind(self)

    def _request(self, method: str, params: Any) -> bytes:
        number = next(self._ids)
        self._open[number] = method
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        return orjson.dumps(message) + b"\n"

    def _call(self, tool: str, **arguments: object) -> bytes:
        self.calls += 1
        return self._request("tools/call", {"name": tool, "arguments": arguments})

    def _echo(self) -> bytes:
        return self._call("echo", text="x" * self.random.choice((0, 10, 1_000, 50_000)))

    def _later(self) -> bytes:
        return self._call("later", ms=self.random.randint(0, 5))

    def _thread(self) -> bytes:
        return self._call("thread", ms=self.random.randint(0, 2))

    def _large(self) -> bytes:
        return self._call("large", size=300_000)

    def _invalid(self) -> bytes:
        return self._call("echo", text=self.random.choice((1, None, ["a"], {"b": 1})))

    def _other(self) -> bytes:
        return self._call(self.random.choice(("fail", "crash", "tell", "late", "health", "none")))

    def _hang(self) -> bytes:
        line = self._call("hang")
        number = max(self._open)
        del self._open[number]  # a call that was cancelled gets no answer
        self._hanging.append(number)
        return line

    def _cancel(self, number: int) -> bytes:
        params = {"requestId": number, "reason": "soak"}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        return orjson.dumps(message) + b"\n"

    def _list(self) -> bytes:
        return self._request(self.random.choice(("tools/list", "ping", "no/such")), {})

    def _mistake(self) -> bytes:
        self._nameless += 1
        return self.random.choice(_MISTAKES)

    def _too_long(self) -> bytes:
        self._nameless += 1
        return _LONG

    # -- what comes back -------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        """Write all, and read meanwhile: who only writes may wait for a server that does too."""
        view = memoryview(data)
        while view:
            if self._wait(select.POLLOUT):
                view = view[os.write(self.server.input, view[: select.PIPE_BUF]) :]
            else:
                self._receive()

    def _wait(self, events: int = 0) -> bool:
        """Wait until input can be written, if that is asked, or output read; tell which."""
        ready = select.poll()
        ready.register(self.server.input, events)
        ready.register(self.server.output, select.POLLIN)
        found = dict(ready.poll(PATIENCE * 1000))
        if not found:
            raise RuntimeError(f"no answer to {len(self._open)} requests: {list(self._open)[:9]}")
        return self.server.output not in found

    def _receive(self) -> dict[int, dict[str, Any]]:
        """Take what has come, within `PATIENCE`; return the answers by id."""
        self._wait()
        data = os.read(self.server.output, 1 << 20)
        if not data:
            raise RuntimeError("the server has closed its output")
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = {}
        for message in map(orjson.loads, lines):
            if "method" in message:
                continue
            number = message.get("id")
            if number is None:
                self._nameless -= 1
            elif self._open.pop(number, None) is None:
                self.faults.append(f"a second answer, or one to nothing: {str(message)[:200]}")
            else:
                found[number] = message
        return found

    def _settle(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        while self._open or self._nameless > 0:
            found |= self._receive()
        return found


_KINDS: dict[Callable[[Lines], bytes], float] = {
    Lines._echo: 600,
    Lines._later: 100,
    Lines._thread: 50,
    Lines._invalid: 80,
    Lines._other: 80,
    Lines._hang: 20,
    Lines._list: 40,
    Lines._mistake: 30,
    Lines._large: 10,
    Lines._too_long: 0.1,
}
"""How often each kind of line is sent."""
