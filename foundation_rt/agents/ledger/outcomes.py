"""The callers that wait for outcomes, and the messages that wait to be noticed as settled."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from ...errors import StructuredError
from .effects import AnyWaiter, NoticeSettled, Operation, Persist, ResolveWaiter
from .operations import Operations
from .rules import recorded_error
from .types import TERMINAL, OutgoingMessage, RequestRecord


@define(eq=False, repr=False)
class Outcomes:
    """The waiters of a node, by request, and the messages sent from it that are not settled."""

    operations: Operations
    waiting: dict[str, list[AnyWaiter]] = field(factory=dict, init=False)
    # Message id and expiry, by the key of the record.
    _unsettled: dict[str, tuple[str, int]] = field(factory=dict, init=False)

    def wait_for(self, request_id: str, waiter: AnyWaiter, now_ms: int) -> None:
        """Resolve `waiter` with the record of a request when it is finished."""
        self.waiting.setdefault(request_id, []).append(waiter)
        settings = self.operations.settings
        if settings.shared:
            self.operations.arm(Operation.LOOK_UP, now_ms + settings.poll_ms)

    def stop_waiting(self, request_id: str, waiter: AnyWaiter) -> None:
        """Forget a waiter: it is not resolved any more."""
        waiters = self.waiting.get(request_id)
        if waiters is None:
            return
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            del self.waiting[request_id]

    def settle(self, record: RequestRecord) -> None:
        """Resolve the waiters of a request that has its outcome."""
        for waiter in self.waiting.pop(record.request_id, ()):
            self.operations.effects.append(ResolveWaiter(waiter, record))
        if record.request_id in self._unsettled:
            self.notice_end(record.request_id, recorded_error(record))

    def await_end(self, message: OutgoingMessage) -> None:
        """Notice the end of a message from now on."""
        self._unsettled[message.key] = (message.message_id, message.expires_at_ms)

    def notice_end(self, key: str, error: StructuredError | None) -> None:
        """Notice that a message is completed, or failed with `error`; once."""
        unsettled = self._unsettled.pop(key, None)
        if unsettled is not None:
            self.operations.effects.append(NoticeSettled(unsettled[0], error))

    def look_up_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return the requests that are waited for: another process may have finished one."""
        if not self.waiting:
            return None
        self.operations.arm(Operation.LOOK_UP, now_ms + self.operations.settings.poll_ms)
        return (list(self.waiting),)

    def looked_up(self, persist: Persist, records: list[RequestRecord], now_ms: int) -> None:
        """Settle the requests that are finished."""
        for record in records:
            if record.state in TERMINAL:
                self.settle(record)

    def purged(self, persist: Persist, purged: int, now_ms: int) -> None:
        """Forget the messages that have expired too, the oldest first."""
        settings = self.operations.settings
        # Others get their turn between two batches.
        self.operations.arm(Operation.PURGE, now_ms + (1 if purged else settings.purge_ms))
        if purged and settings.has_transport:
            self.operations.want(Operation.TAKE_DUE)  # there may be new tombstones
        for key, (_, expires_at_ms) in list(self._unsettled.items()):
            if expires_at_ms > now_ms:
                break
            del self._unsettled[key]
