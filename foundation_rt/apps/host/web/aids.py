"""`/api/...` for the writer and the reader: prompts, resources, colours (HOST-63 to HOST-65).

Pygments makes the colours of code in a process of its own. A lexer of a language may take for ever
over a hostile text, and holds the process while it does. So it runs in `colour_worker`, which is
ended when it takes too long.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ....base.exact_json import dumps, loads
from ...web_page.requests import PageRequest, PageRequestError, Room, Routes, invalid, text_of
from .offers import Offers

if TYPE_CHECKING:
    from asyncio.subprocess import Process


MAX_BODY = 256 * 1024
MAX_COLOURED = 4
"""Texts of one principal at once: one process colours those of all."""
_MAX_NAME = 2_048
_MAX_ARGUMENTS = 50
_MAX_VALUE = 32_768


@define(eq=False)
class Aids:
    """The REST interface of what the message field and the transcript need."""

    _offers: Offers
    _colours: Colours = field(factory=lambda: Colours())
    _colouring: Room = field(factory=lambda: Room(MAX_COLOURED), init=False)

    @property
    def routes(self) -> Routes:
        """The routes of all that."""
        return {
            "/api/offers": {"GET": lambda request: self._offers.listed(request.principal)},
            "/api/prompt": {"POST": self._prompt},
            "/api/resource": {"POST": self._resource},
            "/api/completion": {"POST": self._complete},
            "/api/colours": {"POST": self._colour},
        }

    async def _prompt(self, request: PageRequest) -> Any:
        body = await request.read(MAX_BODY)
        server, name = _text(body, "server"), _text(body, "name")
        return await self._offers.prompt(request.principal, server, name, _texts(body, "arguments"))

    async def _resource(self, request: PageRequest) -> Any:
        body = await request.read(MAX_BODY)
        server, uri = _text(body, "server"), _text(body, "uri")
        return await self._offers.resource(request.principal, server, uri)

    async def _complete(self, request: PageRequest) -> Any:
        body = await request.read(MAX_BODY)
        server, name, argument = (_text(body, each) for each in ("server", "name", "argument"))
        typed = {"name": argument, "value": _text(body, "value", fewest=0)}
        others, whose = _texts(body, "arguments"), request.principal
        return {"values": await self._offers.complete(whose, server, name, typed, others)}

    async def _colour(self, request: PageRequest) -> Any:
        body = await request.read(MAX_BODY)
        code = body.get("code")
        if type(code) is not str:
            raise invalid("code: expected a text")
        language = _text(body, "language")
        with self._colouring.of(request.principal):
            return {"spans": await self._colours.spans(language, code)}

    async def close(self) -> None:
        """End the process that colours."""
        await self._colours.close()


def _text(body: Mapping[str, Any], name: str, fewest: int = 1) -> str:
    return text_of(body, name, _MAX_NAME, fewest)


def _texts(body: Mapping[str, Any], name: str) -> dict[str, str]:
    values = body.get(name, {})
    is_right = type(values) is dict and len(values) <= _MAX_ARGUMENTS
    if not is_right or any(
        type(each) is not str or len(each) > _MAX_VALUE for each in values.values()
    ):
        raise invalid(
            f"{name}: expected at most {_MAX_ARGUMENTS} texts of at most {_MAX_VALUE} characters"
        )
    return {str(name): str(each) for name, each in values.items()}


MAX_CODE_BYTES = 32 * 1024
MAX_WAITING = 32
_WORKER = Path(__file__).with_name("colour_worker.py")
_TIMEOUT_S = 1.0
_START_S = 10.0
_IDLE_S = 60.0
_LINE_BYTES = 1024 * 1024

Spans = Sequence[tuple[int, str]]


@define(eq=False)
class Colours:
    """Colours one text at a time. It belongs to one event loop."""

    _process: Process | None = field(default=None, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _waiting: int = field(default=0, init=False)
    _idle: asyncio.TimerHandle | None = field(default=None, init=False)

    async def spans(self, language: str, code: str) -> Spans | None:
        """Return the spans of a text, one behind the other; None: it stays plain.

        It stays plain where Pygments is not there or does not know the language, and beyond 32 KiB,
        5,000 spans or 1 s.

        Raises:
            PageRequestError: too many texts at once.
        """
        size = len(code.encode("utf-8", "replace"))
        if size > MAX_CODE_BYTES or not find_spec("pygments"):
            return None
        if self._waiting >= MAX_WAITING:
            raise PageRequestError(429, "RATE_LIMITED", f"at most {MAX_WAITING} texts at once")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._ask(language, code)
        finally:
            self._waiting -= 1

    async def _ask(self, language: str, code: str) -> Spans | None:
        if self._idle is not None:
            self._idle.cancel()
        try:
            process = self._process or await self._start()
            assert process.stdin is not None and process.stdout is not None
            async with asyncio.timeout(_TIMEOUT_S):
                process.stdin.write(dumps([language, code]) + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
            spans: Spans | None = loads(line)
        except (OSError, ValueError):  # too slow, ended, or no line of JSON
            await self.close()
            return None
        except BaseException:  # what it still writes is the answer to nothing
            await self.close()
            raise
        self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self._end)
        return spans

    async def _start(self) -> Process:
        """Start the process; what it loads is not part of the second that a text has."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(_WORKER)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_BYTES,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(_START_S):
            await self._process.stdout.readline()
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()

    async def close(self) -> None:
        """End the process, and wait for its end."""
        if self._idle is not None:
            self._idle.cancel()
        process = self._process
        self._end()
        if process is not None:
            await process.wait()
