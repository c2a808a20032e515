"""A chat host that serves the page, and sends the frames that a test says when it says so.

It speaks `/ws` as the host does (numbered events, kept for replay; `history` for who has none) and
runs in a thread of its own, so that a test can drive a browser beside it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from attrs import define, field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from foundation_rt.apps.host.texts import WELCOME
from foundation_rt.apps.web_page.responses import PAGE_HEADERS, PageFile, read_page
from tests.lab.servers.process import PATIENCE
from tests.lab.waiting import until

FILES = read_page("foundation_rt.apps.host.web")

Frame = dict[str, Any]

OFFERS = ("prompt", "resource", "completion", "colours")


@define(eq=False)
class ScriptedHost:
    """See the module.

    Attributes:
        url: the address of the page.
        status: what `/api/status` answers.
        offers: what the servers offer, by the path of `/api/` that it is asked for.
        asked: what was asked of them.
        models: what `/api/models` lists.
        session_id: of its session; a test that changes it has the host forget the old one.
        events: what was sent, numbered from 1.
        history: what a page gets that asks without a number.
        chats: what the list of chats has; None: nobody is known.
        listed: the query of each request for that list.
        older: pages of older messages, by the id of the message that they are before.
        said: the frames of pages, but for `ping`.
        opened: the query of each WebSocket.
        refuses: it answers 401 to everything but the page.
        accepts: it takes connections.
        pings: one for each that came.
        answers_pings: it sends `pong`.
    """

    url: str = ""
    status: Frame = field(factory=lambda: {"model": "scripted", "servers": []})
    offers: Frame = field(factory=dict)
    asked: queue.Queue[tuple[str, Frame]] = field(factory=queue.Queue)
    models: list[str] = field(factory=list)
    session_id: str = "session-1"
    events: list[Frame] = field(factory=list)
    history: Frame = field(factory=dict)
    chats: list[Frame] | None = None
    older: dict[str, Frame] = field(factory=dict)
    listed: queue.Queue[Mapping[str, str]] = field(factory=queue.Queue)
    said: queue.Queue[Frame] = field(factory=queue.Queue)
    opened: queue.Queue[Mapping[str, str]] = field(factory=queue.Queue)
    refuses: bool = False
    accepts: bool = True
    pings: queue.Queue[None] = field(factory=queue.Queue)
    answers_pings: bool = True
    _sockets: set[WebSocket] = field(factory=set)
    _loop: asyncio.AbstractEventLoop | None = None

    def event(self, kind: str, payload: Frame, turn: str | None = "turn-1") -> None:
        """Send the next event of the session, and keep it."""
        frame = {"type": kind, "payload": payload, "seq": len(self.events) + 1}
        if turn is not None:
            frame["turnId"] = turn
        self.events.append(frame)
        self.send(frame)

    def send(self, *frames: Frame) -> None:
        """Send frames as they are to every page."""
        self._run(self._send(frames))

    def cut(self) -> None:
        """End every connection."""
        self._run(self._cut())

    def next_said(self, kind: str) -> Frame:
        """Wait for a frame of this type, and return its payload."""
        while True:
            frame = self.said.get(timeout=PATIENCE)
            if frame["type"] == kind:
                return dict(frame["payload"])

    def next_opened(self) -> Mapping[str, str]:
        """Wait for a WebSocket, and return its query."""
        return self.opened.get(timeout=PATIENCE)

    def _run(self, work: Any) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _send(self, frames: tuple[Frame, ...]) -> None:
        for socket in list(self._sockets):
            for frame in frames:
                await socket.send_json(frame)

    async def _cut(self) -> None:
        for socket in list(self._sockets):
            with suppress(RuntimeError):
                await socket.close(1012)

    async def _status(self, request: Request) -> Response:
        if self.refuses:
            return JSONResponse({"error": "unauthorized"}, 401)
        return JSONResponse(self.status)

    async def _offer(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/api/")
        if request.method == "POST":
            self.asked.put((name, await request.json()))
        return JSONResponse(self.offers.get(name, {}))

    async def _list(self, request: Request) -> Response:
        self.listed.put(dict(request.query_params))
        return JSONResponse({"chats": self.chats, "next": None})

    async def _session(self, request: Request) -> Response:
        if request.path_params["id"] != self.session_id:
            return JSONResponse({"error": "unknown_session"}, 404)
        if request.method == "DELETE":
            return Response(status_code=204)
        return Response(f"# as {request.query_params['format']}\n", media_type="text/plain")

    async def _older(self, request: Request) -> Response:
        return JSONResponse(self.older[request.query_params["before"]])

    async def _chat(self, socket: WebSocket) -> None:
        query = dict(socket.query_params)
        if self.refuses or not self.accepts:
            self.opened.put(query)
            await socket.close(1008)
            return
        await socket.accept()
        asked = socket.query_params.get("session")
        is_known = asked == self.session_id
        state = "reconnected" if is_known and "after" in socket.query_params else "connected"
        payload = {"state": state, "message": WELCOME, "sessionId": self.session_id}
        await socket.send_json({"type": "connection", "payload": payload})
        if asked is not None and not is_known:
            error = {"code": "unknown_session", "message": "There is no such session."}
            await socket.send_json({"type": "error", "payload": error})
        elif is_known and "after" not in socket.query_params:
            history = {"messages": [], "seq": len(self.events), **self.history}
            await socket.send_json({"type": "history", "payload": history})
        elif is_known:
            for event in self.events[int(socket.query_params["after"]) :]:
                await socket.send_json(event)
        # Who waits for it may cut it at once.
        self._sockets.add(socket)
        self.opened.put(query)
        with suppress(WebSocketDisconnect):
            while True:
                frame = await socket.receive_json()
                if frame["type"] == "ping":
                    self.pings.put(None)
                    if self.answers_pings:
                        await socket.send_json({"type": "pong", "payload": {}})
                else:
                    self.said.put(frame)
        self._sockets.discard(socket)


def _sends(file: PageFile) -> Callable[[Request], Response]:
    headers = {name.decode(): value.decode() for name, value in PAGE_HEADERS}
    headers["content-type"] = file.content_type.decode()
    return lambda _: Response(file.body, headers=headers)


@contextmanager
def scripted_host() -> Iterator[ScriptedHost]:
    """Serve a host on a free port, in a thread, until the block is left."""
    host = ScriptedHost()
    routes: list[Route | WebSocketRoute] = [
        Route("/api/status", host._status),
        Route("/api/offers", host._offer),
        *(Route(f"/api/{name}", host._offer, methods=["POST"]) for name in OFFERS),
        Route("/api/models", lambda _: JSONResponse({"models": host.models})),
        Route("/api/sessions", host._list),
        Route("/api/sessions/{id}", host._session, methods=["GET", "DELETE"]),
        Route("/api/sessions/{id}/export", host._session),
        Route("/api/sessions/{id}/messages", host._older),
        WebSocketRoute("/ws", host._chat),
    ]
    routes += [Route(path, _sends(file)) for path, file in FILES.items()]
    app = Starlette(routes=routes)

    options = {"log_level": "warning", "lifespan": "off", "ws": "websockets-sansio"}
    config = uvicorn.Config(app, port=0, **options)
    server = uvicorn.Server(config)
    is_ready = threading.Event()

    async def serve() -> None:
        host._loop = asyncio.get_running_loop()
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started, "uvicorn listens")
        port = server.servers[0].sockets[0].getsockname()[1]
        host.url = f"http://127.0.0.1:{port}/"
        is_ready.set()
        await serving

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert is_ready.wait(PATIENCE)
        yield host
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(PATIENCE)
