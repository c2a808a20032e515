"""A simulated database for handlers' writes: transactions with savepoints, and late answers.

`OutcomeWrites`, the code of the PostgreSQL ledger, runs on these connections. They behave as
psycopg and the server do in the cases where the two may disagree about the state of a transaction.
Writes take the time of a loop of their own. No time passes in the simulation, where
`Fault.SLOW_STORE` stands for operations that take long.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

import psycopg
from attrs import define, field
from psycopg.pq import TransactionStatus

from foundation_rt.agents.stores.postgres.connections import OPERATION_S
from foundation_rt.agents.stores.postgres.outcome_writes import WRITE_S

from .faults import Dice, Fault

T = TypeVar("T")

Row = tuple[str, int]
"""The id of a request, and the number of the execution that wrote the row."""

LATE_S = 2 * WRITE_S
"""After how long an answer comes that is late; at once when the client asks to cancel it."""

_MOST_STALLS = 5
"""How many transactions in succession a database in trouble stalls at most."""
_STATEMENTS = 4
"""SAVEPOINT, the write, SET CONSTRAINTS and RELEASE."""


class WriteFailedError(Exception):
    """A handler's write fails by itself."""


@define(eq=False, repr=False)
class Write:
    """The write of a handler with its outcome: one row.

    Attributes:
        fails: it raises an error after that.
    """

    row: Row
    fails: bool

    async def __call__(self, connection: SimulatedConnection) -> None:
        """Write.

        Raises:
            WriteFailedError: it was meant to fail.
        """
        await connection.insert(self.row)
        if self.fails:
            raise WriteFailedError


@define(eq=False, repr=False)
class Stalls:
    """Which transactions of an operation the database stalls, and how.

    Attributes:
        left: how many more.
        among: how many statements a transaction has, about.
    """

    dice: Dice
    fault: Fault | None
    left: int
    among: int

    def connect(self) -> SimulatedConnection:
        """Return a connection for the next transaction."""
        if self.fault is None or not self.left:
            return SimulatedConnection(self.dice, None, 0)
        self.left -= 1
        return SimulatedConnection(self.dice, self.fault, self.dice.below(self.among))


class _Waits(selectors.SelectSelector):
    """Lets time pass while the loop waits; there are no files, so the system is not asked."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("a transaction waits for something that does not come")
        self.now += max(timeout, 0)
        return []


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose time is that of the database."""

    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.now


@define(eq=False, repr=False)
class Database:
    """Keeps the writes of handlers for simulated ledgers."""

    dice: Dice
    _loop: _Loop | None = field(default=None, init=False)

    def run(self, transaction: Coroutine[Any, Any, T]) -> T:
        """Return the result of a transaction, in the time of the database."""
        if self._loop is None:
            self._loop = _Loop()
        return self._loop.run_until_complete(transaction)

    def close(self) -> None:
        """Close the loop that `run` made."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def stalls(self, writes: int) -> Stalls:
        """Return how an operation with so many writes is stalled."""
        fault = self.dice.on_writes()
        left = 0 if fault is None else 1 + self.dice.below(_MOST_STALLS)
        return Stalls(self.dice, fault, left, writes * _STATEMENTS)


@define(eq=False)
class SimulatedConnection:
    """A connection in a transaction, of which one statement may be stalled.

    Attributes:
        stalled_at: the number of that statement, from 0.
        rows: those written in the transaction and not undone.
        closed: it was lost, and the transaction with it.
    """

    dice: Dice
    fault: Fault | None
    stalled_at: int
    rows: list[Row] = field(factory=list, init=False)
    closed: bool = field(default=False, init=False)
    transaction_status: TransactionStatus = field(default=TransactionStatus.INTRANS, init=False)

    @property
    def pgconn(self) -> SimulatedConnection:
        """The part of psycopg's connection that knows its state."""
        return self

    def transaction(self) -> Savepoint:
        """Return a savepoint to enter."""
        return Savepoint(self)

    async def insert(self, row: Row) -> None:
        """Write a row."""
        self.rows.append(row)
        await self.answer()

    async def execute(self, statement: str) -> None:
        """Execute a statement that changes nothing here."""
        await self.answer()

    def commit(self) -> list[Row]:
        """Commit, and return the rows; `STORE_FAULTS` are the faults of a commit.

        Raises:
            psycopg.OperationalError: the connection was lost before.
        """
        self._check_open()
        return self.rows

    async def answer(self) -> None:
        """Wait for the answer to a statement that the server has carried out.

        Raises:
            psycopg.OperationalError: the connection was lost.
        """
        self._check_open()
        self.stalled_at -= 1
        if self.fault is None or self.stalled_at != -1:
            return
        self.dice.count(self.fault)
        is_late = self.fault is Fault.ANSWER_LATE
        self.transaction_status = TransactionStatus.ACTIVE
        try:
            await asyncio.sleep(LATE_S if is_late else OPERATION_S)
        finally:  # psycopg asks the server to cancel it, and waits for the answer
            self.closed = not is_late
            self.transaction_status = (
                TransactionStatus.INTRANS if is_late else TransactionStatus.UNKNOWN
            )
        self._check_open()

    def _check_open(self) -> None:
        if self.closed:
            raise psycopg.OperationalError("the connection is lost")


@define(eq=False)
class Savepoint:
    """A savepoint, as `psycopg.AsyncConnection.transaction` makes it in a transaction."""

    connection: SimulatedConnection
    _rows: list[Row] = field(factory=list, init=False)

    async def __aenter__(self) -> Savepoint:
        """Make the savepoint."""
        self._rows = list(self.connection.rows)
        await self.connection.answer()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Release the savepoint, or roll back to it; psycopg hides errors of the latter."""
        if self.connection.closed:
            return False
        if error is not None:
            self.connection.rows = self._rows
        try:
            await self.connection.answer()
        except psycopg.OperationalError:
            if error is None:
                raise
            return False
        return isinstance(error, psycopg.Rollback) and error.transaction is self
