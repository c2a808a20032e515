"""Operations of the ledger as a node schedules them: waiting, under way, and due at a time.

Of each kind of operation at most one is under way. What comes up meanwhile goes into the next one,
so that load makes batches, and a batch shares one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from attrs import define, field, frozen

from ...base.shown import Shown
from .effects import Effect, Operation, Persist, SendEnvelopes, WriteLog
from .types import Envelope

MakeArguments: TypeAlias = Callable[[list[Any], int], "tuple[Any, ...] | None"]
"""Makes the arguments of an operation from a batch and the time; None: it is not needed now."""

TakeResult: TypeAlias = Callable[[Persist, Any, int], None]
"""Continues after an operation with its result, at that time."""


@frozen
class NodeSettings:
    """Limits and intervals, in ms.

    Attributes:
        owner: names this life of the node in its claims.
        lease_ms: how long a claim lasts unless it is renewed, which happens three times as often.
        ttl_ms: lifetime of messages that do not state their own.
        poll_ms: how often a shared ledger is polled for changes.
        outbox_poll_ms: how often a shared ledger is polled for messages that others have entered
            and not sent.
        purge_ms: how often expired records are deleted.
        store_retry_ms: the delay before a failed operation of the ledger is tried again.
        resend_pause_ms: the pause after `max_batch` messages that a transport has lost.
        max_batch: the largest number of items in one operation of the ledger.
        max_held_by_agent: the largest number of claims held at once for one agent.
        has_transport: whether there are other ledgers to send to.
        shared: whether other processes use this ledger.
        takes_submissions: whether applications enter requests in transactions of their own.
        max_clock_off_ms: how far the machine's clock may be off the ledger's for claims and purges;
            None: any.
    """

    owner: str
    lease_ms: int = 30_000
    ttl_ms: int = 86_400_000
    poll_ms: int = 1_000
    outbox_poll_ms: int = 10_000
    purge_ms: int = 60_000
    store_retry_ms: int = 500
    resend_pause_ms: int = 100
    max_batch: int = 500
    max_held_by_agent: int = 100
    has_transport: bool = False
    shared: bool = False
    takes_submissions: bool = False
    max_clock_off_ms: int | None = None


@define(eq=False, repr=False)
class _Queue(Shown):
    """One kind of operation.

    Attributes:
        pending: the items of the next one.
        delayed: items that wait before they are tried again, by what they are behind (AACP-90).
        delayed_until_ms: when they are.
        wanted: whether the next one is to begin even without items.
        busy: whether one is under way.
        in_doubt: whether the last one failed, and so may have happened.
        not_before_ms: when the next one may begin.
    """

    pending: list[Any] = field(factory=list)
    delayed: dict[str, list[Any]] = field(factory=dict)
    delayed_until_ms: int = 0
    wanted: bool = False
    busy: bool = False
    in_doubt: bool = False
    not_before_ms: int = 0


@define(eq=False, repr=False)
class Operations:
    """The schedule of a node's operations, and the effects that it has decided.

    Attributes:
        effects: what is to be done, in this order.
        awaits_time: whether nothing begins until the node's clock was set and judged (AACP-94).
        timers: when operations are due.
    """

    settings: NodeSettings
    effects: list[Effect] = field(factory=list, init=False)
    awaits_time: bool = field(default=False, init=False)
    timers: dict[Operation, int] = field(factory=dict, init=False)
    _queues: dict[Operation, _Queue] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._queues = {operation: _Queue() for operation in Operation}

    @property
    def is_quiet(self) -> bool:
        """Return whether no operation is under way or waits to be."""
        return not any(
            queue.busy or queue.pending or queue.delayed for queue in self._queues.values()
        )

    @property
    def wake_at_ms(self) -> int | None:
        """The time at which `tick` is due; None when nothing waits for time to pass."""
        return min(self.timers.values(), default=None)

    def is_busy(self, operation: Operation) -> bool:
        """Return whether an operation is under way."""
        return self._queues[operation].busy

    def is_pending(self, operation: Operation) -> bool:
        """Return whether an operation is under way or has items waiting for it."""
        queue = self._queues[operation]
        return queue.busy or bool(queue.pending) or bool(queue.delayed)

    def want(self, operation: Operation) -> None:
        """Begin an operation soon, after the one that is under way."""
        self._queues[operation].wanted = True

    def add(self, operation: Operation, item: Any, behind: str = "") -> None:
        """Put an item into the next operation of a kind.

        Args:
            operation: the kind.
            item: what its arguments are made from.
            behind: items that were delayed with the same value go first.
        """
        queue = self._queues[operation]
        queue.delayed.get(behind, queue.pending).append(item)

    def put_first(self, operation: Operation, items: list[Any]) -> None:
        """Put items into the next operation of a kind, before all others."""
        self._queues[operation].pending[:0] = items

    def delay(self, operation: Operation, item: Any, behind: str, now_ms: int) -> None:
        """Put an item that is locked into an operation after a delay (AACP-90)."""
        queue = self._queues[operation]
        if not queue.delayed:
            queue.delayed_until_ms = now_ms + self.settings.store_retry_ms
            self.arm(operation, queue.delayed_until_ms)
        queue.delayed.setdefault(behind, []).append(item)

    def sort_out(self, operation: Operation, behind_of: Callable[[Any], str]) -> None:
        """Put waiting items behind those that were delayed."""
        queue = self._queues[operation]
        waiting, queue.pending = queue.pending, []
        for item in waiting:
            self.add(operation, item, behind_of(item))

    def arm(self, operation: Operation, due_ms: int) -> None:
        """Begin an operation at that time, unless it is due earlier."""
        armed = self.timers.get(operation)
        if armed is None or due_ms < armed:
            self.timers[operation] = due_ms

    def tick(self, now_ms: int) -> None:
        """Want every operation whose time has come."""
        for operation, due_ms in list(self.timers.items()):
            if due_ms <= now_ms:
                del self.timers[operation]
                self.want(operation)

    def shift(self, by_ms: int) -> None:
        """Move every due time: the clock was corrected by that much."""
        for operation in self.timers:
            self.timers[operation] += by_ms
        for queue in self._queues.values():
            queue.not_before_ms += by_ms
            queue.delayed_until_ms += by_ms

    def send(self, envelopes: list[Envelope]) -> None:
        """Decide to send envelopes, if there are any."""
        if envelopes:
            self.effects.append(SendEnvelopes(envelopes))

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """Decide to write a record of the log."""
        self.effects.append(WriteLog(level, message, fields))

    def take_effects(
        self, parts: Mapping[Operation, tuple[MakeArguments, TakeResult]], now_ms: int
    ) -> list[Effect]:
        """Begin every operation that is wanted and not under way; return all that is to be done."""
        for operation, queue in () if self.awaits_time else self._queues.items():
            if queue.delayed and queue.delayed_until_ms <= now_ms:
                # Nothing that comes after one of them waits there: see `add` and `sort_out`.
                queue.pending += [item for items in queue.delayed.values() for item in items]
                queue.delayed = {}
            if queue.busy or not (queue.pending or queue.wanted):
                continue
            if queue.not_before_ms > now_ms:
                self.arm(operation, queue.not_before_ms)
                continue
            queue.wanted = False
            batch = queue.pending[: self.settings.max_batch]
            made = parts[operation][0](batch, now_ms)
            if made is not None:
                del queue.pending[: len(batch)]
                queue.busy = True
                self.effects.append(Persist(operation, made, batch))
        effects, self.effects = self.effects, []
        return effects

    def succeeded(self, persist: Persist) -> bool:
        """Record that an operation succeeded; return whether the one before it was in doubt."""
        queue = self._queues[persist.operation]
        was_in_doubt = queue.in_doubt
        queue.busy = queue.in_doubt = False
        queue.not_before_ms = 0
        return was_in_doubt

    def failed(self, persist: Persist, now_ms: int, *, repeat: bool) -> None:
        """Record that an operation failed, and try the next one after a delay.

        Args:
            persist: the operation.
            now_ms: the time.
            repeat: whether its items go into the next one.
        """
        queue = self._queues[persist.operation]
        queue.busy = False
        queue.not_before_ms = now_ms + self.settings.store_retry_ms
        if repeat:
            queue.pending[:0] = persist.batch
        queue.wanted = queue.in_doubt = True
        self.arm(persist.operation, queue.not_before_ms)
