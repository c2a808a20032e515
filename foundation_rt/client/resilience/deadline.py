"""How long a caller waits, whatever it waits for (CLIENT-20).

A deadline is for the server and the way to it. While a person answers what the server asks, it
stands still; but not for longer in all than its allowance, so that a server cannot hold a caller
for ever by asking.

What runs inside one is cancelled as `asyncio.timeout` does it. But that arms a timer each time,
which is cancelled again by nearly every call, and costs it 3.5 of 28 us; here one timer serves all.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from attrs import define, field


@define(eq=False, repr=False)
class DeadlineTimer:
    """Ends deadlines when their time is over, with one timer of the event loop for all of them.

    It is armed for the earliest of those there were, and when it fires for the earliest there is.
    Once this is closed it is not left armed for nobody.
    """

    _is_closed: bool = field(default=False, init=False)
    _running: set[Deadline] = field(factory=set, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    def add(self, deadline: Deadline, end: float) -> None:
        """Watch a deadline, or see that it ends at another time now."""
        self._running.add(deadline)
        loop = asyncio.get_running_loop()
        if self._timer is None or end < self._timer.when() or loop is not self._loop:
            self._arm(loop, end)

    def remove(self, deadline: Deadline) -> None:
        """It was left."""
        self._running.discard(deadline)
        if self._is_closed:
            self._disarm()

    def close(self) -> None:
        """There will be few from now on, or none."""
        self._is_closed = True
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None and not self._running:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._loop = loop.call_at(end, self._look, loop, end), loop

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._timer = None
        now = max(loop.time(), due)  # a loop may be early, by the resolution of its clock
        ends = [(deadline, deadline.end) for deadline in self._running]
        later = [end for _, end in ends if end > now]
        if later:
            self._arm(loop, min(later))
        for deadline, end in ends:
            if end <= now:
                self._running.discard(deadline)
                deadline.expire()


@define(eq=False, repr=False)
class Deadline:
    """Cancels what runs inside it when its time is over; raises `TimeoutError` then.

    It may be entered again after it was left: the time is one for all. It may be held by whoever
    outlives what runs inside it, as a handler does that still asks when the server has answered.

    Args:
        when: the time of the event loop at which it is over.
        allowance: how long it may stand still in all, in seconds.
        watch: ends it.
    """

    when: float
    allowance: float = 0.0
    watch: DeadlineTimer = field(factory=DeadlineTimer)
    _task: asyncio.Task[object] | None = field(default=None, init=False)
    _cancellations: int = field(default=0, init=False)
    _is_over: bool = field(default=False, init=False)
    _holds: int = field(default=0, init=False)
    _held_since: float = field(default=0.0, init=False)

    def hold(self) -> None:
        """Let it stand still until `resume`; may be nested."""
        self._holds += 1
        if self._holds == 1:
            self._held_since = asyncio.get_running_loop().time()
            self._move()

    def resume(self) -> None:
        """Let it go on, if nobody else holds it."""
        self._holds -= 1
        if self._holds == 0:
            held = min(asyncio.get_running_loop().time() - self._held_since, self.allowance)
            self.allowance -= held
            self.when += held
            self._move()

    def remaining(self) -> float:
        """Seconds that are left."""
        return self.when - asyncio.get_running_loop().time()

    @property
    def end(self) -> float:
        """When it is over, as things stand."""
        return self.when + self.allowance if self._holds else self.when

    def expire(self) -> None:
        """Its time is over: cancel what runs inside it."""
        assert self._task is not None
        self._is_over = True
        self._task.cancel()

    async def __aenter__(self) -> Deadline:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancellations, self._is_over = task, task.cancelling(), False
        self._move()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.watch.remove(self)
        assert self._task is not None
        task, self._task = self._task, None
        # Cancelled by somebody else too, it is cancelled.
        is_ours = self._is_over and task.uncancel() <= self._cancellations
        if is_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _move(self) -> None:
        if self._task is not None and not self._is_over:
            self.watch.add(self, self.end)
