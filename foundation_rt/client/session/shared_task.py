"""Tasks that several calls wait for: making a connection, listing the tools."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..errors import ConnectionLostError

Result = TypeVar("Result")


def shared(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """Start a task to be joined. Its exception is dropped if all waiting callers have left."""
    task = asyncio.create_task(work)
    task.add_done_callback(_retrieve)
    return task


async def join(task: asyncio.Task[Result]) -> Result:
    """Return the result of a shared task, which only `Client.close` cancels.

    Cancelling one waiting caller leaves the task, and the other callers, alone.

    Raises:
        ConnectionLostError: it was cancelled: the client is closed.
        MCPError: as the task raised it.
    """
    await asyncio.wait([task])
    if task.cancelled():
        raise client_closed()
    return task.result()


async def stop(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended.

    A caller that is cancelled meanwhile cancels the task once more, in its cleanup, and still
    waits: nothing of it may be left (CLIENT-29).
    """
    task.cancel()
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise


def client_closed() -> ConnectionLostError:
    """Return the error for a call to a closed client; a retry is of no use."""
    error = ConnectionLostError("the client is closed", may_have_run=False, retryable=False)
    error.suggested_action = "Make another client."
    return error


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
