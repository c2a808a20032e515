"""The caller's functions for progress and log messages.

Neither the data of a server nor a callback that raises affects another call (CLIENT-16).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from ..errors import UsageError

log = logging.getLogger("foundation_rt.client")

ProgressCallback = Callable[[float, float | None, str | None], object]
"""Takes what is done, how much there is to do, and a message; the last two may be None."""

LogCallback = Callable[[str, str | None, Any], object]
"""Takes the level, the name of the logger or None, and the data of a log message."""


def check_plain(name: str, callback: Callable[..., object] | None) -> None:
    """Raise unless the callback is a plain function. Its return value is ignored.

    Raises:
        UsageError: it is an `async def` function: its body would never run.
    """
    if callback is not None and _is_async(callback):
        raise UsageError(f"{name} is called, and not awaited: it must not be `async def`")


def _is_async(callback: Callable[..., object]) -> bool:
    """Return whether a callback is an `async def` function; of functions their code says so."""
    code = getattr(getattr(callback, "__func__", callback), "__code__", None)
    if isinstance(code, CodeType):  # nearly always, and a tenth of what `inspect` costs
        return bool(code.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(callback)


def call_callback(callback: Callable[..., object], *values: Any) -> None:
    """Call a function of the caller; log what it raises."""
    try:
        callback(*values)
    except (Exception, asyncio.CancelledError):  # a callback may read a cancelled future
        log.exception("a callback failed")


def ignore_progress(done: float, total: float | None, message: str | None) -> None:
    """Do nothing: progress is asked for because it extends a deadline."""


def report_progress(callback: ProgressCallback, params: Mapping[str, Any]) -> None:
    """Pass on a `notifications/progress`, if it says how much is done."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    if type(done) in (int, float):
        call_callback(
            callback,
            done,
            total if type(total) in (int, float) else None,
            message if isinstance(message, str) else None,
        )


def report_log_message(callback: LogCallback, params: Mapping[str, Any]) -> None:
    """Pass on a `notifications/message`."""
    level, logger = params.get("level"), params.get("logger")
    call_callback(
        callback,
        level if isinstance(level, str) else "info",
        logger if isinstance(logger, str) else None,
        params.get("data"),
    )
