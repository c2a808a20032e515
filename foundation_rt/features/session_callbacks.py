"""Callbacks of an application for sessions whose keys its handlers have read (LIFE-18, ASK-47)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..errors import describe_exception
from ..kernel.dispatcher import dropped
from ..kernel.effects import FeatureCallback
from ..kernel.feature import RuntimeFeature
from ..kernel.session import State
from ..protocol.methods import NOTIFICATIONS_ROOTS_LIST_CHANGED

if TYPE_CHECKING:
    from ..base.logs.logger import StructuredLogger
    from ..kernel.dispatcher import Dispatcher
    from ..kernel.effects import Effect
    from ..kernel.session import Session
    from ..protocol.jsonrpc import Notification

SessionCallback = Callable[[str], object]
"""Takes the key of a session; called in any thread, its return value ignored."""


class SessionEnds(RuntimeFeature):
    """Calls functions with the key of a session that has ended."""

    def __init__(self, callbacks: tuple[SessionCallback, ...], logger: StructuredLogger) -> None:
        self._report = partial(call_each, callbacks, logger, "the end of a session")

    def session_ended(self, key: str) -> None:
        """Report the end of a session."""
        self._report(key)


class RootsChanges(RuntimeFeature):
    """Calls functions with the key of a session whose client has changed its roots."""

    def __init__(self, callbacks: tuple[SessionCallback, ...], logger: StructuredLogger) -> None:
        self._report = partial(call_each, callbacks, logger, "changed roots")
        self.notifications = {NOTIFICATIONS_ROOTS_LIST_CHANGED: self._decide}

    def _decide(
        self, dispatcher: Dispatcher, session: Session, notification: Notification
    ) -> list[Effect]:
        """Report new roots to an application that knows the session (ASK-47)."""
        if session.state is not State.RUNNING or session.key is None:
            return dropped(notification, "no handler has asked for the key of the session")
        return [FeatureCallback(partial(self._report, session.key))]


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
