"""One call of a tool while its turn runs, and the events about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..chat import ChatMessage
from .results import json_size
from .scope import TurnScope

if TYPE_CHECKING:
    from ...coordinator import ToolRegistryEntry
    from .approvals import Subject

_PAUSE = 0.1
"""Seconds between two events about the progress of one call."""

_MAX_MESSAGE = 500

_MAX_REPEATED = 4096
"""The most bytes of arguments that each event of a call repeats; longer ones are in the first."""


@define(eq=False)
class OpenCall:
    """A call without outcome.

    Attributes:
        message: by which the model asks for it.
        name: of the tool, qualified if it is known.
        arguments: by name.
        entry: of the tool; None if it is not known.
        is_sent: whether the tool may have run.
        allowed: what the tool was when it was allowed; None if that does not matter.
        decision: of the people who were asked; None if nobody was, or has decided.
        began: time of the loop, in s.
    """

    scope: TurnScope
    message: ChatMessage
    name: str
    arguments: Mapping[str, Any]
    entry: ToolRegistryEntry | None
    is_sent: bool = False
    allowed: Subject | None = None
    decision: str | None = None
    began: float = 0.0
    _shown: int | None = field(default=None, init=False)
    _latest: Callable[[], str] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _next_at: float = field(default=0.0, init=False)
    _progress: Mapping[str, Any] | None = field(default=None, init=False)

    @property
    def call_id(self) -> str:
        """The id of the call, unique in its session."""
        return str(self.message.call_id)

    def processing(self, message: str, **more: Any) -> dict[str, Any]:
        """Return the payload of an event of the call before it has ended."""
        payload: dict[str, Any] = {
            "state": "processing",
            "tool": self.name,
            "message": message[:_MAX_MESSAGE],
            "callId": self.call_id,
        }
        if self._shown is None or self._shown <= _MAX_REPEATED:
            payload["data"] = {"arguments": dict(self.arguments)}
        if self._shown is None:
            self._shown = json_size(self.arguments)
        return {**payload, **more}

    # -- progress: at most ten events a second, the newest wins, the result never waits (TURN-35)

    def report_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Take the progress of the call."""
        progress = {"progress": done, "total": total, "message": message}
        self._progress = {name: value for name, value in progress.items() if value is not None}
        self._report(lambda: message or f"{self.name} is running")

    def report_log(self, level: str, logger: str | None, data: Any) -> None:
        """Take a log message of the call."""
        self._report(lambda: f"{level}: {data if isinstance(data, str) else repr(data)}")

    def end_reports(self) -> None:
        """Report nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._latest = None
        self._next_at = float("inf")

    def _report(self, message: Callable[[], str]) -> None:
        """Keep the newest report; it is written when it is sent, as most are not."""
        self._latest = message
        if self._timer is None:
            self._send_latest()

    def _send_latest(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._latest is None or self._next_at == float("inf"):
            return
        if loop.time() >= self._next_at and self.scope.events.has_room:
            more = {} if self._progress is None else {"progress": self._progress}
            self.scope.events.push("status", self.processing(self._latest(), **more))
            self._latest = None
            self._next_at = loop.time() + _PAUSE
        else:
            wait = max(self._next_at - loop.time(), _PAUSE / 10)
            self._timer = loop.call_later(wait, self._send_latest)
