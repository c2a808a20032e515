"""Hooks of the host, which are called with messages as they come in and end (AACP-29)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.abort import is_task_cancelled
from ...errors import StructuredError, describe_exception
from .effects import NoticeReceived, NoticeSettled
from .types import Envelope

if TYPE_CHECKING:
    from ...base.logs.logger import StructuredLogger

MessageHook = Callable[[Envelope], Awaitable[None]]
CompletedHook = Callable[[str], Awaitable[None]]
FailedHook = Callable[[str, StructuredError], Awaitable[None]]

MAX_WAITING = 8192
"""Notices that wait for the hooks."""

MAX_WAITING_BYTES = 32 * 1024 * 1024
"""Bytes of the payloads of these."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


@define(eq=False, repr=False)
class Hooks:
    """The hooks of one host, which are called one at a time and in order."""

    on_received: MessageHook | None
    on_completed: CompletedHook | None
    on_failed: FailedHook | None
    logger: StructuredLogger
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _notices: deque[NoticeReceived | NoticeSettled] = field(factory=deque, init=False)
    _waiting_bytes: int = field(default=0, init=False)
    _is_dropping: bool = field(default=False, init=False)

    @property
    def are_set(self) -> bool:
        """Return whether there is a hook; without one, no notices are made."""
        return any((self.on_received, self.on_completed, self.on_failed))

    def notice(self, notice: NoticeReceived | NoticeSettled, spawn: Spawn) -> None:
        """Call the hooks with a notice after those before it, in a task that `spawn` makes.

        It is dropped if too many wait; where none waits it is taken, however large it is.
        """
        size, waiting = self._waiting_bytes + _size(notice), len(self._notices)
        if waiting and (waiting >= MAX_WAITING or size > MAX_WAITING_BYTES):
            if not self._is_dropping:
                self._is_dropping = True
                self.logger.warn("hooks are too slow: calls of them are dropped")
            return
        self._notices.append(notice)
        self._waiting_bytes = size
        if self._task is None or self._task.done():
            self._task = spawn(self._call_all())

    async def _call_all(self) -> None:
        """Call the hooks until no notice is left; a hook that fails is logged."""
        try:
            while self._notices:
                notice = self._notices.popleft()
                self._waiting_bytes -= _size(notice)
                try:
                    await self._call(notice)
                except BaseException as error:
                    if isinstance(error, asyncio.CancelledError) and is_task_cancelled():
                        raise
                    self.logger.error("hook failed", {"error": describe_exception(error)})
        finally:
            self._task, self._is_dropping = None, False

    async def _call(self, notice: NoticeReceived | NoticeSettled) -> None:
        if isinstance(notice, NoticeReceived):
            if self.on_received is not None:
                await self.on_received(notice.envelope)
        elif notice.error is not None:
            if self.on_failed is not None:
                await self.on_failed(notice.message_id, notice.error)
        elif self.on_completed is not None:
            await self.on_completed(notice.message_id)


def _size(notice: NoticeReceived | NoticeSettled) -> int:
    return len(notice.envelope.payload) if isinstance(notice, NoticeReceived) else 0
