"""Waiting for what others wait for too: a connection being made, the tools being listed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..errors import ConnectionLostError

Result = TypeVar("Result")


def shared(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """A task that is to be joined; what it raises is nobody's if all who waited have gone."""
    task = asyncio.create_task(work)
    task.add_done_callback(_retrieve)
    return task


async def join(task: asyncio.Task[Result]) -> Result:
    """What a task results in that nobody but `Client.close` cancels.

    Whoever waits may go without taking it from the others, and is not cancelled where it is.

    Raises:
        ConnectionLostError: it was cancelled: the client is closed.
        MCPError: as the task raised it.
    """
    await asyncio.wait([task])
    if task.cancelled():
        raise client_closed()
    return task.result()


async def stop(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has gone.

    Whoever is cancelled meanwhile cancels it once more, in whatever it was cleaning up, and still
    waits: nothing may be left of it (CLIENT-29).
    """
    task.cancel()
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise


def client_closed() -> ConnectionLostError:
    """There is no use in trying again."""
    error = ConnectionLostError("the client is closed", may_have_run=False, retryable=False)
    error.suggested_action = "Make another client."
    return error


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
