"""`foundation-rt dev` in a process of its own, with what its page would read.

`dev_front(folder, "tools.py")` starts it on a free port, in a home of its own, and waits until it
serves. Its events are read from the first on; `wait_for` waits for one of them.
"""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import orjson
from attrs import define, field

from tests.lab.programs.program import end, home_at, output_file
from tests.lab.servers import fork_server

from .process import PATIENCE, Hanging, command, environment

Event: TypeAlias = "tuple[str, dict[str, Any]]"


@define(eq=False)
class EventReader:
    """Reads the events of a front in a thread, as a page does.

    Attributes:
        events: kind and members, in order.
        ids: of the events that have one.
        status: of the response.
    """

    port: int
    token: str
    last_event_id: str | None = None
    events: list[Event] = field(factory=list, init=False)
    ids: list[str] = field(factory=list, init=False)
    status: int = field(default=0, init=False)
    _news: threading.Condition = field(factory=threading.Condition, init=False)
    _connection: http.client.HTTPConnection = field(init=False)
    _response: http.client.HTTPResponse = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self.token}"}
        if self.last_event_id is not None:
            headers["Last-Event-ID"] = self.last_event_id
        self._connection.request("GET", "/dev/events", headers=headers)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def of(self, kind: str, **members: object) -> list[dict[str, Any]]:
        """Return the members of the events of a kind that have these members."""
        return [
            each for name, each in self.events if name == kind and members.items() <= each.items()
        ]

    def wait_for(
        self, kind: str, holds: Callable[[dict[str, Any]], bool] | None = None, **members: object
    ) -> dict[str, Any]:
        """Wait for an event; return its members."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self.of(kind, **members) if holds is None or holds(each)]

        with self._news:
            if not self._news.wait_for(found, PATIENCE):
                raise Hanging(f"no event {kind} {members}; the last ones: {self.events[-12:]}")
            return found()[0]

    def forget(self) -> None:
        """Forget what has been read."""
        with self._news:
            self.events.clear()

    def close(self) -> None:
        """Stop reading."""
        with suppress(OSError, AttributeError):
            self._connection.sock.shutdown(2)
        self._thread.join(PATIENCE)
        self._response.close()
        self._connection.close()

    def _read(self) -> None:
        members: dict[str, str] = {}
        with suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while raw := self._response.readline():
                line = raw.decode().rstrip("\n")
                name, _, value = line.partition(": ")
                if line:
                    members[name] = value
                    continue
                with self._news:
                    if "event" in members:
                        self.events.append((members["event"], orjson.loads(members["data"])))
                    if "id" in members:
                        self.ids.append(members["id"])
                    self._news.notify_all()
                members = {}


@define(eq=False)
class DevFront:
    """A front that runs.

    Attributes:
        url: of the endpoint.
        page_url: with the token, as it was printed.
        process: of the front.
        reader: of its events, from the first on.
    """

    url: str
    page_url: str
    process: subprocess.Popen[str]
    log: Path
    _lines: list[str]
    _printed: threading.Condition
    reader: EventReader = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reader = self.read_events()

    @property
    def port(self) -> int:
        """Its port."""
        port = urllib.parse.urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def token(self) -> str:
        """The token of the page, which MCP clients use too."""
        return urllib.parse.urlsplit(self.page_url).fragment.removeprefix("token=")

    @property
    def headers(self) -> dict[str, str]:
        """The headers with which it is used."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def printed(self) -> str:
        """What it has written to stdout."""
        return "\n".join(self._lines)

    def wait_for_line(self, text: str) -> str:
        """Wait for a line of its output that has this text; return it."""

        def found() -> list[str]:
            return [each for each in self._lines if text in each]

        with self._printed:
            if not self._printed.wait_for(found, PATIENCE):
                raise Hanging(f"no line {text!r} in\n{self.printed}\n{self.log.read_text()}")
            return found()[0]

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request; return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            given = self.headers if headers is None else dict(headers)
            connection.request(method, path, headers=given)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, response.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """Return what the front has at a path."""
        status, _, body = self.get(path)
        assert status == 200, body
        return orjson.loads(body)

    def server(self, server_id: str | None = None) -> dict[str, Any]:
        """Return the state of a server; of the only one, without an id."""
        servers = self.json("/dev/state")["servers"]
        found: dict[str, Any] = next(
            each for each in servers if server_id is None or each["id"] == server_id
        )
        return found

    def wait_for_state(self, state: str, server_id: str | None = None) -> dict[str, Any]:
        """Wait until a server is in a state; return it."""

        def of(members: dict[str, Any]) -> list[dict[str, Any]]:
            return [
                each
                for each in members["servers"]
                if each["state"] == state and server_id in (None, each["id"])
            ]

        return of(self.reader.wait_for("state", lambda members: bool(of(members))))[0]

    def read_events(self, last_event_id: str | None = None) -> EventReader:
        """Return a reader of its events."""
        return EventReader(self.port, self.token, last_event_id)

    def next_restart(self, change: Callable[[], object], **members: object) -> dict[str, Any]:
        """Make a change; return the `restart` event that it leads to."""
        before = len(self.reader.of("restart", **members))
        change()
        self.reader.wait_for(
            "restart",
            lambda _: len(self.reader.of("restart", **members)) > before,
            **members,
        )
        return self.reader.of("restart", **members)[-1]

    def end(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def dev_front(
    folder: Path, *words: str, env: Mapping[str, str] | None = None
) -> Iterator[DevFront]:
    """Run `foundation-rt dev` in a folder, which is its home, too."""
    log = folder / "front.log"
    port = () if "--port" in words else ("--port", "0")
    with open(output_file(log), "wb") as stderr:
        process = fork_server.Popen(
            command("dev", *port, *words),
            cwd=folder,
            env={**environment(), **home_at(folder), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    lines: list[str] = []
    printed = threading.Condition()
    reading = threading.Thread(target=_read_lines, args=(process, lines, printed), daemon=True)
    reading.start()
    front: DevFront | None = None
    try:
        with printed:
            found = printed.wait_for(lambda: any("Stop" in each for each in lines), PATIENCE)
        assert found, log.read_text()
        page, endpoint = re.findall(r"^  (?:Page|Endpoint) +(\S+)", "\n".join(lines), re.MULTILINE)
        front = DevFront(endpoint, page, process, log, lines, printed)
        yield front
        if process.poll() is None:
            end(process, PATIENCE)
    finally:
        if front is not None:
            front.reader.close()
        process.kill()
        process.wait(PATIENCE)
        reading.join(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def _read_lines(
    process: subprocess.Popen[str], lines: list[str], printed: threading.Condition
) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with printed:
            lines.append(line.rstrip("\n"))
            printed.notify_all()
