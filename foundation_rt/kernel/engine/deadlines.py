"""The deadline of a running call: armed, paused while the call waits for its client, extended.

The caller holds the lock of the connection, except where it arms a deadline for the first time: no
other thread knows the call then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .executor import RunningCall


def arm(run: RunningCall, now: float, expire: Callable[[RunningCall], object]) -> None:
    """Arm the timer of the deadline, unless the handler has just ended (TIME-01).

    Args:
        run: the call; its `due` is the deadline.
        now: the time, in monotonic seconds.
        expire: called with `run` when the deadline has passed.
    """
    if not run.ending:
        run.deadline = run.connection.scheduler.call_later(
            max(0.0, run.due - now), partial(expire, run)
        )


def pause(run: RunningCall, now: float) -> None:
    """Stop the deadline of a call that waits for its client (ASK-17)."""
    run.waits += 1
    if run.waits == 1:
        run.waits_since = now
        if run.deadline is not None:
            run.deadline.cancel()


def resume(run: RunningCall, now: float, expire: Callable[[RunningCall], object]) -> None:
    """Let the deadline go on when the call waits for nothing any more."""
    run.waits -= 1
    if run.waits:
        return
    run.due += now - run.waits_since
    if run.task is not None and not run.ended:
        arm(run, now, expire)
