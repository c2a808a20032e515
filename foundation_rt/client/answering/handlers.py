"""Running a handler that this program's author wrote, from the event loop.

An `async def` handler runs on the loop. A `def` handler may wait for a person, so it runs in a
thread of its own: a daemon, since neither the loop's end nor the interpreter's should wait for
somebody who has gone to lunch. Whoever waits may be cancelled; the thread then goes on for nobody.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ...registry.tools import is_async_callable


async def run_handler(
    handler: Callable[..., Any], arguments: tuple[Any, ...], ended: Callable[[], object]
) -> Any:
    """What `handler` returns; raises what it raises.

    Args:
        ended: called once, when the handler has really ended; from any thread.

    Raises:
        RuntimeError: there is no thread for it; or it raised something that is no `Exception`.
    """
    if not is_async_callable(handler):
        outcome = await _in_thread(partial(handler, *arguments), ended)
        return await outcome if inspect.isawaitable(outcome) else outcome
    try:
        return await handler(*arguments)
    finally:
        ended()


async def _in_thread(function: Callable[[], Any], ended: Callable[[], object]) -> Any:
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    waiting: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def deliver(outcome: tuple[Any, BaseException | None]) -> None:
        if not waiting.done():
            waiting.set_result(outcome)

    def run() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = context.run(function), None
        except BaseException as error:  # SystemExit too: nobody but this thread would hear of it
            outcome = None, error
        ended()
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(deliver, outcome)

    try:
        threading.Thread(target=run, name="foundation-rt-handler", daemon=True).start()
    except RuntimeError:
        ended()
        raise
    value, error = await waiting
    if error is None:
        return value
    if isinstance(error, Exception):
        raise error
    raise RuntimeError(f"the handler raised {type(error).__name__}") from error
