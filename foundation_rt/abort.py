"""Cooperative cancellation: one signal per call, fired at most once, safe from any thread.

The runtime holds the `AbortSignal` of every call it started and fires it when the deadline
passes, the client cancels or leaves, or the process shuts down (TIME-03). A handler looks at it,
waits for it or hangs a callback on it. Nothing forces a handler to stop: that is why its slot is
kept until it really ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from attrs import define, field

from .errors import AbortError

# One lock for all signals: it is held for a few list operations, only while a callback is being
# added or the signal fires, and a lock per call would cost every call an allocation.
_callbacks_lock = threading.Lock()


@define(eq=False, repr=False)
class AbortSignal:
    """Tells a handler that its result is no longer wanted.

    Attributes:
        reason: None until it fires; then "deadline", "cancelled", "disconnected" or "shutdown".
    """

    reason: str | None = field(default=None, init=False)
    _callbacks: list[Callable[[], object]] | None = field(default=None, init=False)

    @property
    def aborted(self) -> bool:
        """Return whether the signal has fired."""
        return self.reason is not None

    def raise_if_aborted(self) -> None:
        """Raise `AbortError` once the signal has fired; else do nothing."""
        if self.reason is not None:
            raise AbortError(self.reason)

    def add_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback()` called once when the signal fires; at once if it already has.

        It runs in whichever thread fires the signal, so it should be short and thread-safe.

        Returns:
            A function that takes the callback back.
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
        """Wait, in a coroutine, until the signal fires; return the reason."""
        import asyncio

        loop = asyncio.get_running_loop()
        fired: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not fired.done():
                fired.set_result(None)

        remove = self.add_callback(lambda: loop.call_soon_threadsafe(resolve))
        try:
            await fired
        finally:
            remove()
        assert self.reason is not None
        return self.reason

    def fire(self, reason: str) -> list[BaseException]:
        """Fire the signal; later calls change nothing. For the runtime, not for handlers.

        Returns:
            What callbacks raised, `SystemExit` included; a callback that raises does not keep the
            others from running.
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
