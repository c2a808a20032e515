"""Callbacks of an application for the ends of sessions whose keys its handlers have read.

A session ends while handlers of it may still run. They may make what the application then drops:
a connection of its own for the session, for instance. So the end is reported once, after the last
of them has ended (LIFE-18).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from ...errors import describe_exception

if TYPE_CHECKING:
    from ...base.logs.logger import StructuredLogger
    from .connection import Connection

SessionCallback = Callable[[str], object]
"""Takes the key of a session; called in any thread, its return value ignored."""


def call_each(
    callbacks: tuple[SessionCallback, ...], logger: StructuredLogger, subject: str, key: str
) -> None:
    """Call all of `callbacks` with `key`; what one raises is logged (LIFE-19)."""
    for callback in callbacks:
        try:
            callback(key)
        except BaseException as error:
            described = {"error": describe_exception(error)}
            logger.error(f"callback for {subject} failed", described)


@define(eq=False, repr=False)
class SessionEnds:
    """The sessions whose end is to be reported, and the functions that are called with it.

    Args:
        callbacks: the functions of the application.
    """

    _callbacks: tuple[SessionCallback, ...]
    _logger: StructuredLogger
    _ended: dict[Connection, str] = field(factory=dict, init=False)

    def add(self, connection: Connection, key: str) -> None:
        """Note that the session of `connection` has ended; `report` follows."""
        self._ended[connection] = key

    def awaits(self, connection: Connection) -> bool:
        """Return whether the end of the session of `connection` is still to be reported."""
        return connection in self._ended

    def report(self, connection: Connection) -> None:
        """Report the end of a session, once; from any thread, at any time."""
        key = self._ended.pop(connection, None)
        if key is not None:
            call_each(self._callbacks, self._logger, "the end of a session", key)
