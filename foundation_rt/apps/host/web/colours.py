"""Syntax colours of code, made by Pygments in a process of its own (HOST-63).

A lexer of a language may take for ever over a hostile text, and holds the process while it does.
So it runs in `colour_worker`, which is ended when it takes too long.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from ....base.exact_json import dumps, loads
from .offers import OfferError

if TYPE_CHECKING:
    from asyncio.subprocess import Process

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
            OfferError: too many texts at once.
        """
        size = len(code.encode("utf-8", "replace"))
        if size > MAX_CODE_BYTES or not find_spec("pygments"):
            return None
        if self._waiting >= MAX_WAITING:
            raise OfferError(429, "RATE_LIMITED", f"at most {MAX_WAITING} texts at once")
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
