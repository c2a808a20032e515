"""How a caller waits for an outcome, and what ends that before there is one (AACP-26)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

from ...errors import AbortError
from .errors import LedgerRefusalError, OutcomeUnknownError, RequestConflictError
from .rules import conflict_error
from .types import TERMINAL, Appended, RequestRecord, Verdict

if TYPE_CHECKING:
    import asyncio

    from ...abort import AbortSignal


@define(eq=False, repr=False)
class Entry:
    """The waiter of a request: hands on what its entry in the ledger decides already."""

    request_id: str
    finished: asyncio.Future[RequestRecord]

    def done(self) -> bool:
        """As of a future, like the others."""
        return self.finished.done()

    def set_result(self, appended: Appended) -> None:
        """It is in the ledger, or another is, or there is no room for it."""
        if appended.verdict is Verdict.CONFLICT:
            self.finished.set_exception(RequestConflictError(conflict_error(self.request_id)))
        elif appended.verdict is Verdict.FULL:
            self.finished.set_exception(LedgerRefusalError())
        elif appended.existing is not None and appended.existing.state in TERMINAL:
            self.finished.set_result(appended.existing)

    def set_exception(self, error: Exception) -> None:
        """It may not be in the ledger."""
        self.finished.set_exception(error)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def time_out(future: asyncio.Future[Any], request_id: str) -> None:
    """Let whoever waits hear that the outcome is UNKNOWN; too late, nothing happens."""
    _fail(future, OutcomeUnknownError(request_id))


def fail_when_aborted(
    signal: AbortSignal | None, future: asyncio.Future[Any], loop: asyncio.AbstractEventLoop
) -> Callable[[], None]:
    """Let whoever waits fail when `signal` fires; return a function that takes that back."""
    if signal is None:
        return _nothing
    return signal.add_callback(
        lambda: loop.call_soon_threadsafe(_fail, future, AbortError(signal.reason))
    )


def _nothing() -> None:
    pass
