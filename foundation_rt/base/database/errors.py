"""The errors of both databases: whether a transaction happened, and what would help.

    DatabaseError
      TransactionFailedError       it did not happen
        DatabaseUnavailableError   not now: try again later
          DatabaseLockedError      rows stayed locked by another transaction for too long
        DatabaseFullError          the disk is full: make room, then try again
        DatabaseReadOnlyError      it may not be written to: change that, then try again
      CommitUnknownError           it happened or not: look, or repeat what may be repeated

No message contains a password or the values of a row. It is for operators: it may name the host, or
the path of the file.
"""

from __future__ import annotations


class DatabaseError(Exception):
    """A transaction failed, or it is not known whether it happened (DB-01)."""


class TransactionFailedError(DatabaseError):
    """The transaction did not happen (DB-01).

    Attributes:
        sqlstate: PostgreSQL's code of the cause, as in ``"23505"``; None if it gave none.
    """

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class DatabaseUnavailableError(TransactionFailedError):
    """The database is away, or others kept it busy for too long. It may work later (DB-01)."""


class DatabaseLockedError(DatabaseUnavailableError):
    """Another transaction kept rows locked for longer than `lock_ms` (DB-01)."""


class DatabaseFullError(TransactionFailedError):
    """The disk of the database is full (DB-01)."""


class DatabaseReadOnlyError(TransactionFailedError):
    """The database may not be written to (DB-01)."""


class CommitUnknownError(DatabaseError):
    """The connection or the disk failed in COMMIT: the transaction happened or not (DB-01)."""
