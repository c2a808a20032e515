"""A task that is being cancelled, told from one in which something merely ended as cancelled."""

from __future__ import annotations


def is_cancelled() -> bool:
    """Return whether the task that runs here is being cancelled.

    A `CancelledError` alone does not say so: a handler may raise one, or await a task that was
    cancelled by somebody else.
    """
    import asyncio

    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
