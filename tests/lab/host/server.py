"""A chat host that serves in the loop of a test, and clients of its WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
from attrs import define, field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from foundation_rt import Server
from foundation_rt.apps.coordinator import Coordinator
from foundation_rt.apps.host import Host, connection_options, make_server
from foundation_rt.base.exact_json import loads
from foundation_rt.cli.demo import demo_server
from foundation_rt.http.serve import HttpServing, make_serving
from tests.lab.host.chat import ScriptedModel

PATIENCE = 60.0

Frame = dict[str, Any]


@define(eq=False)
class Page:
    """A client of `/ws`.

    Attributes:
        frames: what has come.
    """

    connection: ClientConnection
    frames: list[Frame] = field(factory=list)

    @property
    def session(self) -> str:
        """The id of the session."""
        return next(str(each["payload"]["sessionId"]) for each in self.of("connection"))

    @property
    def seq(self) -> int:
        """The newest number."""
        return max((each["seq"] for each in self.frames if "seq" in each), default=0)

    @property
    def numbers(self) -> list[int]:
        """The numbers of all events, in the order they came in."""
        return [each["seq"] for each in self.frames if "seq" in each]

    def of(self, kind: str) -> list[Frame]:
        """Return the frames of a type."""
        return [each for each in self.frames if each["type"] == kind]

    async def send(self, kind: str, **payload: Any) -> None:
        """Send a frame."""
        await self.connection.send(orjson.dumps({"type": kind, "payload": payload}).decode())

    async def say(self, text: str, **more: Any) -> None:
        """Send a message."""
        await self.send("message", text=text, **more)

    async def next(self) -> Frame:
        """Return the next frame."""
        async with asyncio.timeout(PATIENCE):
            frame: Frame = loads(await self.connection.recv())
        self.frames.append(frame)
        return frame

    async def until(self, wanted: str | Callable[[Frame], object], **payload: Any) -> Frame:
        """Return the next frame of a type, with such a payload, or that a function accepts."""
        while True:
            frame = await self.next()
            if callable(wanted):
                if wanted(frame):
                    return frame
            elif frame["type"] == wanted and payload.items() <= frame["payload"].items():
                return frame

    async def turn(self, text: str) -> Frame:
        """Say something; return the end of its turn."""
        await self.say(text)
        return await self.until("turn", state="finished")

    async def close_code(self) -> int | None:
        """Return the code with which the server closes, after all frames before."""
        try:
            while True:
                await self.next()
        except ConnectionClosed:
            return self.connection.close_code

    @property
    def text(self) -> str:
        """All text of the model."""
        return "".join(each["payload"]["content"] for each in self.of("text"))


@asynccontextmanager
async def connected(
    port: int, headers: Mapping[str, str], session: str | None, after: int | None
) -> AsyncIterator[Page]:
    """Connect to a host; `connection` has come when the block begins."""
    query = "" if session is None else f"?session={session}"
    query += "" if after is None else f"&after={after}"
    async with connect(
        f"ws://127.0.0.1:{port}/ws{query}",
        additional_headers=headers,
        compression=None,
        proxy=None,
        max_size=None,
        ping_interval=None,
        close_timeout=1,
    ) as connection:
        page = Page(connection)
        await page.next()
        yield page


@define(eq=False)
class Hosting:
    """A host that serves."""

    host: Host
    model: ScriptedModel
    serving: HttpServing
    task: asyncio.Task[None]

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.serving.url.rpartition(":")[2].partition("/")[0])

    @property
    def headers(self) -> dict[str, str]:
        """Those with the key of the page."""
        access = self.host.page_access
        return {} if access is None else {"X-API-Key": access.token}

    @asynccontextmanager
    async def page(
        self, session: str | None = None, after: int | None = None, *, key: str | None = None
    ) -> AsyncIterator[Page]:
        """Connect; `connection` has come when the block begins."""
        headers = self.headers if key is None else {"X-API-Key": key}
        async with connected(self.port, headers, session, after) as page:
            yield page

    async def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request; return status, headers and body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        given = {
            "Host": f"127.0.0.1:{self.port}",
            "Connection": "close",
            **(self.headers if headers is None else headers),
            **({} if body is None else {"Content-Length": str(len(body))}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + (body or b""))
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        found = dict(line.lower().split(": ", 1) for line in rest)
        return int(first.split()[1]), found, body


def host_server(
    http: Mapping[str, Any] | None = None,
    host: Mapping[str, Any] | None = None,
    **sections: Mapping[str, Any],
) -> Server:
    """Return a server of a host on a free port, which logs errors alone."""
    config = {
        "http": {"port": 0, **(http or {})},
        "host": dict(host or {}),
        "logging": {"level": "error"},
        # The token of the page is derived from it, and not kept in a file of the user.
        "security": {"state_key": "ab" * 32},
        **sections,
    }
    return make_server(config)


@asynccontextmanager
async def hosting(
    answers: Iterable[Sequence[Any]] = (),
    *,
    server: Server | None = None,
    store: Any = "memory",
    servers: Mapping[str, Any] | None = None,
    lists: Iterable[str] = ("tools",),
    change: Callable[[Host], object] = lambda host: None,
) -> AsyncIterator[Hosting]:
    """Serve a host with a model that gives these answers."""
    model = ScriptedModel(answers)
    coordinator = Coordinator(
        {"demo": demo_server()} if servers is None else servers,
        connections=connection_options(),
        lists=lists,
    )
    host = Host(coordinator, model, store, server=server or host_server())
    change(host)
    serving = make_serving(host.server.runtime)
    task = asyncio.create_task(serving.run())
    found = Hosting(host, model, serving, task)
    try:
        yield found
    finally:
        serving.stop()
        async with asyncio.timeout(PATIENCE):
            await task
        host.server.runtime.close_logs(1.0)
