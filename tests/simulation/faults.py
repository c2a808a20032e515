"""The faults by name, and the dice that decide where they strike.

A scenario has some of the faults, or none. Each kind of place where a fault can strike (an envelope
on its way, an operation of the ledger, an execution, ...) asks the dice once; they answer from the
seeded chance of the run, and count what they answered.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random

from attrs import define, field

from foundation_rt.agents.ledger.effects import Operation


class Fault(StrEnum):
    """One thing that can go wrong."""

    # To an envelope on its way.
    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    DELAY = "delay"
    LOST_ACK = "lost ack"
    # To an operation of the ledger.
    STORE_ERROR = "store error"
    COMMIT_UNKNOWN = "commit unknown"
    LATE_COMMIT = "commit after its error"
    SLOW_STORE = "slow store"
    CRASH_BEFORE_LEDGER = "crash before the ledger has it"
    CRASH_AFTER_LEDGER = "crash after the ledger has it"
    CRASH_BEFORE_OUTCOME = "crash before the outcome is recorded"
    CRASH_AFTER_OUTCOME = "crash after the outcome is recorded"
    # To the writes of handlers with their outcomes.
    ANSWER_LATE = "answer late"
    SAVEPOINT_TIMEOUT = "timeout within a savepoint"
    # At a send.
    CRASH_BEFORE_SEND = "crash before a send"
    CRASH_AFTER_SEND = "crash after a send"
    CRASH_BEFORE_ACK = "crash before an ack"
    CRASH_AFTER_ACK = "crash after an ack"
    # To an execution.
    SLOW_EXECUTOR = "slow executor"
    STUCK_EXECUTOR = "stuck executor"
    TEMPORARY_ERROR = "temporary error"
    CRASH_BEFORE_EXECUTION = "crash before an execution"
    CRASH_IN_EXECUTION = "crash in an execution"
    CRASH_AFTER_EXECUTION = "crash after an execution"
    # At a time drawn beforehand, and for a while.
    PARTITION = "one-way partition"
    PAUSE = "pause"
    CRASH = "crash at any time"
    SHUTDOWN = "orderly shutdown"
    CLOCK_FORWARD = "clock jumps forward"
    CLOCK_BACKWARD = "clock jumps backward"
    SUSPENSION = "machine suspended"
    UNREGISTER = "unregister in flight"
    LOST_LEDGER = "ledger lost"
    FROZEN = "frozen within a transaction"
    CUT_OFF = "cut off from the ledger"
    SHORT_HOLE = "cut off for about a lease, many times"
    BLOCKED = "event loop blocked"
    CANCELLED = "cancelled by an operator"
    REQUEUED = "requeued by an operator"
    # Not by the dice, but as consequences of the workload.
    RESTART = "restart with the store kept"
    EXPIRY = "expiry in mid-retry"
    GIVEN_UP = "given up after max_attempts"
    REPEATED = "request asked again"
    CONFLICT = "request id of another request"


ENVELOPE_FAULTS = (Fault.DROP, Fault.DUPLICATE, Fault.REORDER, Fault.DELAY)
ACK_FAULTS = (Fault.LOST_ACK,)
STORE_FAULTS = (Fault.STORE_ERROR, Fault.COMMIT_UNKNOWN, Fault.LATE_COMMIT, Fault.SLOW_STORE)
WRITE_FAULTS = (Fault.ANSWER_LATE, Fault.SAVEPOINT_TIMEOUT)
LEDGER_CRASHES = (Fault.CRASH_BEFORE_LEDGER, Fault.CRASH_AFTER_LEDGER)
OUTCOME_CRASHES = (Fault.CRASH_BEFORE_OUTCOME, Fault.CRASH_AFTER_OUTCOME)
SEND_CRASHES = (Fault.CRASH_BEFORE_SEND, Fault.CRASH_AFTER_SEND)
ACK_CRASHES = (Fault.CRASH_BEFORE_ACK, Fault.CRASH_AFTER_ACK)
SLOWNESS = (Fault.SLOW_EXECUTOR, Fault.STUCK_EXECUTOR)
HANDLER_ERRORS = (Fault.TEMPORARY_ERROR,)
EXECUTION_CRASHES = (
    Fault.CRASH_BEFORE_EXECUTION,
    Fault.CRASH_IN_EXECUTION,
    Fault.CRASH_AFTER_EXECUTION,
)
SPELLS = (
    Fault.PARTITION,
    Fault.PAUSE,
    Fault.CRASH,
    Fault.SHUTDOWN,
    Fault.CLOCK_FORWARD,
    Fault.CLOCK_BACKWARD,
    Fault.SUSPENSION,
    Fault.UNREGISTER,
    Fault.LOST_LEDGER,
    Fault.FROZEN,
    Fault.CUT_OFF,
    Fault.SHORT_HOLE,
    Fault.BLOCKED,
    Fault.CANCELLED,
    Fault.REQUEUED,
)
SELECTABLE = (
    *ENVELOPE_FAULTS,
    *ACK_FAULTS,
    *STORE_FAULTS,
    *WRITE_FAULTS,
    *LEDGER_CRASHES,
    *OUTCOME_CRASHES,
    *SEND_CRASHES,
    *ACK_CRASHES,
    *SLOWNESS,
    *HANDLER_ERRORS,
    *EXECUTION_CRASHES,
    *SPELLS,
)
"""The faults that a scenario has or has not."""

LEASE_KEEPING = (
    *ENVELOPE_FAULTS,
    *ACK_FAULTS,
    *SLOWNESS,
    Fault.PARTITION,
    Fault.CLOCK_FORWARD,
    Fault.CLOCK_BACKWARD,
    Fault.BLOCKED,
)
"""The faults under which no claim is lost."""

_CRASHES_AMONG_STRIKES = 0.2
"""A place at which a process can crash is passed more often than one can crash."""
_STALLS_AMONG_STRIKES = 4
"""Few operations write for handlers, so more of them are struck."""


@define(eq=False, repr=False)
class Dice:
    """Decides where faults strike.

    Args:
        enabled: the faults of the scenario.
        rate: how likely something goes wrong where it can.

    Attributes:
        counts: how often each struck.
    """

    rng: Random
    enabled: tuple[Fault, ...]
    rate: float
    counts: dict[Fault, int] = field(factory=dict, init=False)
    _crash_rate: float = field(init=False)
    # The enabled faults of each group: read for every envelope and operation, so kept ready.
    _envelope: tuple[Fault, ...] = field(init=False)
    _ack: tuple[Fault, ...] = field(init=False)
    _store: tuple[Fault, ...] = field(init=False)
    _write: tuple[Fault, ...] = field(init=False)
    _ledger_crash: tuple[Fault, ...] = field(init=False)
    _outcome_crash: tuple[Fault, ...] = field(init=False)
    _send_crash: tuple[Fault, ...] = field(init=False)
    _ack_crash: tuple[Fault, ...] = field(init=False)
    _slowness: tuple[Fault, ...] = field(init=False)
    _error: tuple[Fault, ...] = field(init=False)
    _execution_crash: tuple[Fault, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._crash_rate = self.rate * _CRASHES_AMONG_STRIKES
        self._envelope = self._enabled_of(ENVELOPE_FAULTS)
        self._ack = self._enabled_of(ACK_FAULTS)
        self._store = self._enabled_of(STORE_FAULTS)
        self._write = self._enabled_of(WRITE_FAULTS)
        self._ledger_crash = self._enabled_of(LEDGER_CRASHES)
        self._outcome_crash = self._enabled_of(OUTCOME_CRASHES)
        self._send_crash = self._enabled_of(SEND_CRASHES)
        self._ack_crash = self._enabled_of(ACK_CRASHES)
        self._slowness = self._enabled_of(SLOWNESS)
        self._error = self._enabled_of(HANDLER_ERRORS)
        self._execution_crash = self._enabled_of(EXECUTION_CRASHES)

    def _enabled_of(self, group: tuple[Fault, ...]) -> tuple[Fault, ...]:
        return tuple(fault for fault in group if fault in self.enabled)

    def heal(self) -> None:
        """Disable all faults."""
        self.enabled = ()
        self.__attrs_post_init__()

    # -- the places ---------------------------------------------------------------------------

    def on_envelope(self, *, only_ack: bool) -> Fault | None:
        """Return the fault that strikes an envelope on its way."""
        fault = self._roll(self._ack, self.rate) if only_ack else None
        return fault or self._roll(self._envelope, self.rate)

    def on_operation(self, operation: Operation) -> Fault | None:
        """Return the fault that strikes an operation of the ledger, or its process."""
        recording = operation is Operation.COMPLETE
        crashes = self._outcome_crash if recording else self._ledger_crash
        return self._roll(self._store, self.rate) or self._roll(crashes, self._crash_rate)

    def on_writes(self) -> Fault | None:
        """Return how an operation is stalled that writes for handlers; not counted yet."""
        if not self._write or self.rng.random() >= self.rate * _STALLS_AMONG_STRIKES:
            return None
        return self._write[self.below(len(self._write))]

    def on_send(self, *, has_ack: bool) -> Fault | None:
        """Whether the process crashes beside a send."""
        return self._roll(self._ack_crash if has_ack else self._send_crash, self._crash_rate)

    def on_execution(self) -> Fault | None:
        """Return the fault that strikes an execution, or its process."""
        return self._roll(self._slowness, self.rate) or self._roll(
            self._execution_crash, self._crash_rate
        )

    def on_end(self) -> Fault | None:
        """Whether a handler fails with a temporary error."""
        return self._roll(self._error, self.rate)

    def _roll(self, faults: tuple[Fault, ...], chance: float) -> Fault | None:
        if not faults or self.rng.random() >= chance:
            return None
        fault = faults[self.below(len(faults))]
        self.count(fault)
        return fault

    def below(self, limit: int) -> int:
        """Return a whole number from 0, below the limit."""
        return int(self.rng.random() * limit)

    def count(self, fault: Fault) -> None:
        """Count a fault that has struck."""
        self.counts[fault] = self.counts.get(fault, 0) + 1
