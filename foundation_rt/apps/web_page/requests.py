"""Requests of pages: routes, members, what is wrong with one, and room for some at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any
from urllib.parse import parse_qs

import orjson
from attrs import define, field

from ...base.exact_json import loads_bounded
from .responses import (
    PAGE_HEADERS,
    PageFile,
    RawHeaders,
    Receive,
    Scope,
    Send,
    send_error,
    send_json,
    send_response,
)

MAX_RUNNING = 8
"""Requests of one principal at once."""
_MAX_FIELDS = 20


class PageRequestError(Exception):
    """A request that has no result.

    Attributes:
        status: of HTTP.
        code: for programs.
        headers: of the response.
    """

    def __init__(self, status: int, code: str, message: str, headers: RawHeaders = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


def invalid(expected: str) -> PageRequestError:
    """Return the error of a request that a page should not have sent."""
    return PageRequestError(400, "invalid_request", expected)


@define(eq=False)
class PageRequest:
    """A request of a page.

    Attributes:
        scope: as ASGI has it, like the next two.
        principal: who asks.
        name: what its path has in the place of `*` in the path of its route.
    """

    scope: Scope
    receive: Receive
    send: Send
    principal: str = ""
    name: str = field(default="", init=False)

    @property
    def path(self) -> str:
        """The path below the one that the application is mounted at."""
        root: str = self.scope.get("root_path", "")
        return str(self.scope["path"]).removeprefix(root) or "/"

    def header(self, name: bytes) -> str | None:
        """Return a header; None if it is not there."""
        found = (value for key, value in self.scope["headers"] if key == name)
        value: bytes | None = next(found, None)
        return None if value is None else value.decode("latin-1")

    def query(self, name: str) -> str:
        """Return a parameter of the query; "" without it, or of too many."""
        text: str = self.scope.get("query_string", b"").decode("latin-1")
        try:
            return parse_qs(text, max_num_fields=_MAX_FIELDS).get(name, [""])[-1]
        except ValueError:  # more fields than that
            return ""

    async def read(self, most: int) -> dict[str, Any]:
        """Return the object in the body, which may have so many bytes.

        Raises:
            PageRequestError: there is none.
        """
        try:
            found = loads_bounded(await self._body(most))
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise invalid(f"the body: expected a JSON object of at most {most} bytes")
        return found

    async def _body(self, most: int) -> bytes:
        """Return the body; b"" if it has more bytes than `most`, or breaks off."""
        body = b""
        while len(body) <= most:
            event = await self.receive()
            body += event.get("body", b"")
            if not event.get("more_body", False):
                return body if event["type"] == "http.request" and len(body) <= most else b""
        return b""


Handler = Callable[[PageRequest], Any]
"""Returns what is sent as JSON, or an awaitable of that; None if it has sent a response itself."""

Routes = Mapping[str, Mapping[str, Handler]]
"""Handlers by path and method; `*` is any third part of a path, GET is HEAD too."""

_THIRD_PART = re.compile(r"(/[^/]+/[^/]+/)([^/]+)(/[^/]+)?")


async def respond(routes: Routes, request: PageRequest) -> None:
    """Answer a request."""
    try:
        found = _handler(routes, request)(request)
        if isawaitable(found):
            found = await found
    except PageRequestError as error:
        await send_error(request.send, error.status, error.code, str(error), error.headers)
    else:
        if found is not None:
            await send_json(request.send, found)


def _handler(routes: Routes, request: PageRequest) -> Handler:
    methods = None if "*" in request.path else routes.get(request.path)
    third = _THIRD_PART.fullmatch(request.path)
    if methods is None and third is not None:
        request.name = third[2]
        methods = routes.get(f"{third[1]}*{third[3] or ''}")
    if methods is None:
        raise PageRequestError(404, "path_not_found", "there is nothing at this path")
    method = request.scope["method"]
    handler = methods.get("GET" if method == "HEAD" else method)
    if handler is None:
        allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        headers = ((b"allow", allowed.encode()),)
        raise PageRequestError(405, "method_not_allowed", f"use {', '.join(methods)}", headers)
    return handler


def file_routes(files: Mapping[str, PageFile]) -> Routes:
    """Return the routes of the files of a page, which are given by their path."""
    return {path: {"GET": partial(_send_file, file)} for path, file in files.items()}


async def _send_file(file: PageFile, request: PageRequest) -> None:
    """Answer a request for a file of a page.

    The browser asks each time whether it has the newest version, and gets 304 if it has.
    """
    headers = (*PAGE_HEADERS, (b"etag", file.etag), (b"cache-control", b"no-cache"))
    known = (request.header(b"if-none-match") or "").encode("latin-1").split(b",")
    if {file.etag, b"*"} & {each.strip().removeprefix(b"W/") for each in known}:
        await send_response(request.send, 304, headers=headers)
    else:
        await send_response(request.send, 200, file.body, file.content_type, headers)


def text_of(body: Mapping[str, Any], name: str, longest: int, fewest: int = 1) -> str:
    """Return a text of a body."""
    value = body.get(name)
    if type(value) is not str or not fewest <= len(value) <= longest:
        raise invalid(f"{name}: expected a text of {fewest} to {longest} characters")
    return value


@define(eq=False)
class Room:
    """Room for some requests of each principal at once."""

    _most: int
    _running: dict[str, int] = field(factory=dict, init=False)

    @contextmanager
    def of(self, principal: str) -> Iterator[None]:
        """Count a request of a principal while it runs.

        Raises:
            PageRequestError: there is no room for it.
        """
        count = self._running.get(principal, 0)
        if count >= self._most:
            raise PageRequestError(429, "RATE_LIMITED", f"at most {self._most} requests at once")
        self._running[principal] = count + 1
        try:
            yield
        finally:
            self._running[principal] -= 1
            if not self._running[principal]:
                del self._running[principal]
