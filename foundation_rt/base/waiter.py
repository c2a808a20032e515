"""Waiting in a coroutine for a result that comes from any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import AbortError
from .abort import call_in_loop

if TYPE_CHECKING:
    import asyncio

    from .abort import AbortSignal

T = TypeVar("T")


class Waiter(Generic[T]):
    """A coroutine that waits for a result from any thread, or for an abort signal.

    Made in the coroutine's loop. It drops the result or the error once the coroutine has it: the
    traceback of a raised error has a frame that refers to the waiter, and only the garbage
    collector would find that cycle.
    """

    __slots__ = ("_error", "_loop", "_result", "_woken")

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] = self._loop.create_future()
        self._result: list[T] = []
        self._error: Exception | None = None

    async def wait(self, signal: AbortSignal) -> T:
        """Return the result, or raise the error, that comes first.

        Raises:
            AbortError: `signal` has fired first.
        """
        remove = signal.add_callback(lambda: self.call(self._wake))
        try:
            await self._woken
        finally:
            remove()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        if not self._result:
            raise AbortError(signal.reason)
        return self._result.pop()

    def resolve(self, result: T) -> None:
        """Set the result, unless the wait is over; safe from any thread."""
        self.call(self._resolve, result)

    def fail(self, error: Exception) -> None:
        """Set the error, unless the wait is over; safe from any thread."""
        self.call(self._fail, error)

    def call(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call `callback` in the thread of the coroutine's loop; safe from any thread."""
        call_in_loop(self._loop, callback, *arguments)

    def call_later(
        self, seconds: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Call `callback` in `seconds`; only in the thread of the coroutine's loop."""
        return self._loop.call_later(seconds, callback, *arguments)

    def _resolve(self, result: T) -> None:
        if not self._woken.done():
            self._result.append(result)
            self._wake()

    def _fail(self, error: Exception) -> None:
        if not self._woken.done():
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)
