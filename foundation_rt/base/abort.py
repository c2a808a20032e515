"""Cooperative cancellation: one signal per call, fired at most once, safe from any thread.

The runtime holds the `AbortSignal` of every call it has started. It fires the signal when the
deadline passes, the client cancels or leaves, or the process shuts down (TIME-03). A handler may
check the signal, wait for it or add a callback. Nothing forces a handler to stop, so its slot is
kept until it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import AbortError

if TYPE_CHECKING:
    import asyncio

# One lock for all signals: it is held for a few list operations, only while a callback is being
# added or the signal fires, and a lock per call would cost every call an allocation.
_callbacks_lock = threading.Lock()


class AbortSignal:
    """Signals to a handler that its result is no longer wanted.

    A plain class: each call makes one.

    Attributes:
        reason: None until it fires; then "deadline", "cancelled", "disconnected" or "shutdown".
    """

    __slots__ = ("__weakref__", "_callbacks", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self._callbacks: list[Callable[[], object]] | None = None

    @property
    def aborted(self) -> bool:
        """Return whether the signal has fired."""
        return self.reason is not None

    def raise_if_aborted(self) -> None:
        """Raise `AbortError` once the signal has fired; else do nothing."""
        if self.reason is not None:
            raise AbortError(self.reason)

    def add_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback()` once when the signal fires; at once if it has fired already.

        The callback runs in the thread that fires the signal: it should be short and thread-safe.

        Returns:
            A function that removes the callback.
        """
        with _callbacks_lock:
            fired = self.reason is not None
            if not fired:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
        if fired:
            callback()
        return lambda: self._remove(callback)

    def _remove(self, callback: Callable[[], object]) -> None:
        with _callbacks_lock:
            if self._callbacks is not None and callback in self._callbacks:
                self._callbacks.remove(callback)

    async def wait(self) -> str:
        """Wait until the signal fires; return the reason."""
        from .waiter import Waiter

        with suppress(AbortError):
            await Waiter[None]().wait(self)
        assert self.reason is not None
        return self.reason

    def fail(self, future: asyncio.Future[Any]) -> Callable[[], None]:
        """Fail `future` with `AbortError`, in its loop, when the signal fires.

        Returns:
            A function that takes this back.
        """
        loop = future.get_loop()
        return self.add_callback(lambda: call_in_loop(loop, _fail, future, AbortError(self.reason)))

    def fire(self, reason: str) -> list[BaseException]:
        """Fire the signal; later calls change nothing. For the runtime, not for handlers.

        Returns:
            The exceptions of callbacks, `SystemExit` included. A callback that raises does not
            keep the others from running.
        """
        with _callbacks_lock:
            if self.reason is not None:
                return []
            self.reason = reason
            callbacks, self._callbacks = self._callbacks or [], None
        raised: list[BaseException] = []
        for callback in callbacks:
            try:
                callback()
            except BaseException as error:
                raised.append(error)
        return raised


def is_task_cancelled() -> bool:
    """Return whether the running asyncio task is being cancelled.

    A `CancelledError` alone does not say so: a handler may raise one, or await a task that was
    cancelled elsewhere.
    """
    import asyncio

    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def call_in_loop(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: Any
) -> bool:
    """Call `callback` soon in an event loop, from any thread; return False if the loop is closed.

    To look first whether it is closed is no use: another thread may close it before the call.
    """
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        return False
    return True


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
