"""The schedules of a ledger, as a node keeps them: it enters the runs that are due.

A process that has declared a schedule looks after all schedules of its ledger, so that those of a
process that died go on. A run is entered by whoever is first; the others find it decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from attrs import define, evolve, field

from ...errors import UsageError
from .effects import AnyWaiter, Operation, Persist, ResolveWaiter
from .encoder import format_time
from .exchange import Exchange
from .ledger_time import LedgerTime
from .operations import Operations
from .schedules import (
    Advance,
    DueSchedules,
    EnteredRuns,
    RecurrenceOf,
    Schedule,
    ScheduleChange,
    decide,
)
from .types import Appended, EntryVerdict, OutgoingMessage

MakeRun: TypeAlias = Callable[[Schedule, int, int], OutgoingMessage]
"""Makes the message of a schedule's run from the time of the run and the current time."""

_MAX_DUE = 100
"""The most schedules of one operation."""
_POLL_MS = 10_000
"""The pause between two looks for schedules that others have changed."""


@define(eq=False, repr=False)
class ScheduleKeeper:
    """The schedules of a node: CHANGE_SCHEDULES, DUE_SCHEDULES and ENTER_RUNS.

    Attributes:
        recurrence_of, make_run: are set before a schedule is declared.
        is_active: whether this process has declared a schedule.
    """

    operations: Operations
    exchange: Exchange
    time: LedgerTime
    recurrence_of: RecurrenceOf = field(init=False)
    make_run: MakeRun = field(init=False)
    is_active: bool = field(default=False, init=False)
    # Whether runs may have been entered by an operation that failed.
    _in_doubt: bool = field(default=False, init=False)
    # Schedules that were noticed as unusable.
    _unusable: set[str] = field(factory=set, init=False)

    def change(self, change: ScheduleChange, waiter: AnyWaiter) -> None:
        """Add, replace or remove a schedule; resolve `waiter`, if any, with whether it was there.

        Of a schedule to add, the time at which it begins is the one at which the ledger is asked.
        """
        if isinstance(change, Schedule):
            self.is_active = True
        self.operations.add(Operation.CHANGE_SCHEDULES, (change, waiter))

    # -- operations and their results ---------------------------------------------------------

    def change_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return the changes; schedules that are added begin now."""
        if not batch:
            return None
        return ([self._beginning(change, now_ms) for change, _ in batch],)

    def due_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return the time by which schedules are due."""
        operations = self.operations
        if not self.is_active or operations.is_pending(Operation.ENTER_RUNS):
            return None  # once runs are entered, it is asked again
        if not self.time.is_right:
            operations.arm(Operation.DUE_SCHEDULES, now_ms + operations.settings.store_retry_ms)
            return None
        return (now_ms, _MAX_DUE)

    def enter_arguments(self, batch: list[Any], now_ms: int) -> tuple[Any, ...] | None:
        """Return the decisions to enter."""
        return (batch, now_ms) if batch else None

    def changed(self, persist: Persist, results: Sequence[bool], now_ms: int) -> None:
        """Tell who waits; look at what is due next."""
        for (_, waiter), was_there in zip(persist.batch, results, strict=True):
            if waiter is not None:
                self.operations.effects.append(ResolveWaiter(waiter, was_there))
        self.operations.want(Operation.DUE_SCHEDULES)

    def found(self, persist: Persist, due: DueSchedules, now_ms: int) -> None:
        """Decide about the schedules that are due, and wake for the next one."""
        if self._in_doubt:
            self._in_doubt = False
            self.exchange.awake.wake_all()
        for schedule in due.schedules:
            try:
                self._decide(schedule, now_ms)
            except UsageError as error:  # another process knows more time zones
                self._notice_unusable(schedule, error)
        times = [] if due.next_at_ms is None else [due.next_at_ms]
        if self.operations.settings.shared:
            times.append(now_ms + _POLL_MS)
        if times:
            self.operations.arm(Operation.DUE_SCHEDULES, max(min(times), now_ms + 1))

    def entered(self, persist: Persist, results: Sequence[EnteredRuns], now_ms: int) -> None:
        """Have the runs executed, or sent; look again at schedules that were not as before."""
        envelopes = []
        decided: list[Advance] = persist.batch
        for advance, answers in zip(decided, results, strict=True):
            if answers is None:
                retry_at_ms = now_ms + self.operations.settings.store_retry_ms
                self.operations.arm(Operation.DUE_SCHEDULES, retry_at_ms)
                continue
            self._notice(advance, answers)
            for (_, message), appended in zip(advance.runs, answers, strict=True):
                envelope = self.exchange.entered(message, appended)
                if envelope is not None:
                    envelopes.append(envelope)
        self.operations.send(envelopes)
        self.operations.want(Operation.DUE_SCHEDULES)

    def failed(self) -> None:
        """Look again after ENTER_RUNS has failed: it may have happened all the same."""
        self._in_doubt = True
        self.operations.want(Operation.DUE_SCHEDULES)

    # -- parts of that ------------------------------------------------------------------------

    def _beginning(self, change: ScheduleChange, now_ms: int) -> ScheduleChange:
        if not isinstance(change, Schedule):
            return change
        recurrence = self.recurrence_of(change.expression, change.timezone)
        return evolve(
            change,
            created_at_ms=now_ms,
            decided_until_ms=now_ms,
            next_run_at_ms=next(recurrence.after(now_ms), None),
        )

    def _decide(self, schedule: Schedule, now_ms: int) -> None:
        recurrence = self.recurrence_of(schedule.expression, schedule.timezone)
        decision = decide(schedule, recurrence, now_ms)
        advance = Advance(
            schedule.name,
            schedule.revision,
            schedule.decided_until_ms,
            decision.until_ms,
            decision.next_run_at_ms,
            schedule.target_agent_id,
            [
                (run_at_ms, self.make_run(schedule, run_at_ms, now_ms))
                for run_at_ms in decision.runs
            ],
            decision.missed,
        )
        self.operations.add(Operation.ENTER_RUNS, advance)

    def _notice_unusable(self, schedule: Schedule, error: UsageError) -> None:
        """Notice once that this process cannot decide about a schedule."""
        if schedule.name not in self._unusable:
            self._unusable.add(schedule.name)
            self._log_refusal(schedule.name, str(error))

    def _notice(self, advance: Advance, answers: Sequence[Appended]) -> None:
        refused = [
            message.key
            for (_, message), appended in zip(advance.runs, answers, strict=True)
            if appended.verdict not in (EntryVerdict.NEW, EntryVerdict.DUPLICATE)
        ]
        if refused:
            error = f"the ledger has no room for it, or another request of this id: {refused[0]}"
            self._log_refusal(advance.name, error)
        if advance.missed:
            since = format_time(advance.decided_until_ms)
            fields = {"schedule": advance.name, "since": since, "entered": len(advance.runs)}
            self.operations.log("warn", "runs of a schedule were missed", fields)

    def _log_refusal(self, name: str, error: str) -> None:
        fields = {"schedule": name, "error": error}
        self.operations.log("error", "runs of a schedule are not entered", fields)
