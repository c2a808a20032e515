"""The opening of a SQLite file, its journal, and the meaning of its errors.

The journal is a WAL from library 3.51.3 on. Older ones have a bug by which two connections can
corrupt a WAL, so with them it is the rollback journal, unless a process keeps the file for itself:
SQLite then lets no second connection in, of whatever program (DB-26). A file is converted by a
process that has it open alone; one that joins others keeps what they use, or refuses it (DB-11).

Of the rollback journals PERSIST commits fastest: one row, with synchronous=FULL, in 0.66 ms; with
TRUNCATE 0.78 ms, with DELETE 0.73 ms and in a WAL 0.27 ms; 5,000 rows take 14 ms with each, 11 ms
in a WAL. DELETE has a second disadvantage: nothing forces its deletion of the journal to the disk,
so after a loss of power the journal may be there again and undo a commit that was acknowledged.
SQLite's remedy, synchronous=EXTRA, commits in 0.87 ms.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path

from ....errors import UsageError
from ...files import make_private_folder, open_private
from ..errors import (
    DatabaseFullError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    TransactionFailedError,
)
from .presence import Turn

WAL_VERSION = (3, 51, 3)
"""The first SQLite without the bug by which two connections can corrupt a WAL (DB-11)."""

_PAUSE_S = 0.0005
_WAL_PAGES = 4000
_JOURNAL_BYTES = 64 * 1024 * 1024
"""The size to which a journal, or a WAL, is cut after a transaction that needed more."""


def connect(
    path: str, patience_s: float, *, alone: bool, private: bool, exclusive: bool
) -> sqlite3.Connection:
    """Open a file and set it up; the connection begins no transactions by itself.

    Any thread may use it, one at a time.

    Args:
        path: of the file.
        patience_s: how long each statement waits for locks of other processes.
        alone: no other process has it open, nor opens it now.
        private: make the file, if it is missing, for its owner only.
        exclusive: let no other connection in until this one is closed.

    Raises:
        DatabaseUnavailableError: other processes use a WAL, which this library must not share.
        sqlite3.Error: it cannot be opened, or is no database.
    """
    if private:
        _make_private(path)
        if sys.platform == "win32":  # elsewhere SQLite gives a journal the mode of its file
            has_wal = _is_wal_safe(exclusive) if alone else _has_wal(path)
            _make_private(f"{path}-wal" if has_wal else f"{path}-journal")
    connection = sqlite3.connect(
        path, timeout=patience_s, isolation_level=None, check_same_thread=False
    )
    try:
        if exclusive:  # before the journal is read: then the WAL has no index that others share
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        _choose_journal(connection, path, alone, exclusive)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES}")
        connection.execute("PRAGMA cache_size = -32768")  # KiB: indexes of ids are written all over
    except BaseException:
        connection.close()
        raise
    return connection


def make_folder(path: str) -> None:
    """Make the folder of a file, and those above it, for their owner only, if they are missing.

    Raises:
        UsageError: it cannot be made.
    """
    folder = Path(path).parent
    try:
        for missing in [each for each in (*reversed(folder.parents), folder) if not each.exists()]:
            make_private_folder(missing)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None


def _make_private(path: str) -> None:
    with suppress(OSError):  # of which SQLite then says the same
        os.close(open_private(path, os.O_RDWR | os.O_CREAT, follow=True))


def _choose_journal(
    connection: sqlite3.Connection, path: str, alone: bool, exclusive: bool
) -> None:
    safe = _is_wal_safe(exclusive)
    if sys.platform == "win32" and not (alone or exclusive or _has_wal(path)):
        _roll_back_beside_others(connection)
    [present] = connection.execute("PRAGMA journal_mode").fetchone()
    if alone:
        present = _convert(connection, "WAL" if safe else "PERSIST")
    elif present != "wal":
        present = _convert(connection, "PERSIST")
    if present == "wal" and not safe:
        raise DatabaseUnavailableError(
            f"{path}: another process has it open with a WAL, which this SQLite"
            f" ({sqlite3.sqlite_version}) may damage: close it there, or use SQLite"
            f" {'.'.join(map(str, WAL_VERSION))} or later here"
        )


def _is_wal_safe(exclusive: bool) -> bool:
    return exclusive or sqlite3.sqlite_version_info >= WAL_VERSION


def _roll_back_beside_others(connection: sqlite3.Connection) -> None:
    """Undo what a killed process has left, without the deletion of its journal.

    On Windows each connection with the journal PERSIST has it open, so that nobody can delete it:
    SQLite would report a disk I/O error. In exclusive mode it overwrites the head of the journal.
    """
    read = "SELECT count(*) FROM sqlite_schema"
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute(read).fetchone()
    connection.execute("PRAGMA journal_mode = PERSIST").fetchone()
    connection.execute("PRAGMA locking_mode = NORMAL")
    connection.execute(read).fetchone()  # at its end the lock is given back


def _has_wal(path: str) -> bool:
    """Return whether the head of a file says that its journal is a WAL."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(20)[18:] == b"\2\2"
    except OSError:  # it is not there yet
        return False


def _convert(connection: sqlite3.Connection, mode: str) -> str:
    """Change the journal; return what it is then: other connections can prevent the change."""
    try:
        [changed] = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
    except sqlite3.OperationalError as error:
        if code_of(error) != sqlite3.SQLITE_BUSY:
            raise
        [changed] = connection.execute("PRAGMA journal_mode").fetchone()
    return str(changed)


def close(connection: sqlite3.Connection) -> None:
    """Close a connection; the last one leaves the file alone, with no journal beside it."""
    with suppress(sqlite3.Error):  # the journal is then deleted at another time
        if connection.execute("PRAGMA journal_mode").fetchone() == ("persist",):
            # Changing the mode deletes the journal, unless another process uses it.
            connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def wait_here(connection: sqlite3.Connection) -> None:
    """Let the functions below wait for locks instead of SQLite, which looks less often."""
    connection.execute("PRAGMA busy_timeout = 0")


def begin_writing(connection: sqlite3.Connection, turn: Turn, patience_s: float) -> None:
    """Begin a transaction that may write; wait for others to end theirs.

    Raises:
        sqlite3.Error: it could not begin; SQLITE_BUSY after `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    turn.take(deadline)
    try:
        _insist(connection, "BEGIN IMMEDIATE", deadline)
    finally:
        turn.end()


def begin_reading(connection: sqlite3.Connection, turn: Turn, patience_s: float) -> None:
    """Begin a transaction that reads one snapshot; wait for others that commit.

    Raises:
        sqlite3.Error: it could not begin; SQLITE_BUSY after `patience_s`.
    """
    if try_reading(connection):
        return
    deadline = time.monotonic() + patience_s
    turn.take(deadline)
    try:
        _insist(connection, _FIRST_READ, deadline)
    finally:
        turn.end()


def try_reading(connection: sqlite3.Connection) -> bool:
    """Begin a transaction that reads one snapshot; it has none yet if this returns False.

    Another connection has a lock then, and this has not waited for it.
    """
    connection.execute("BEGIN")
    return _try(connection, _FIRST_READ)


def commit(connection: sqlite3.Connection, patience_s: float) -> None:
    """Commit; wait for those who read, and keep others from beginning to.

    Raises:
        sqlite3.Error: it is not known to have happened; with SQLITE_BUSY it has not.
    """
    if not _try(connection, "COMMIT"):
        _insist(connection, "COMMIT", time.monotonic() + patience_s)


_FIRST_READ = "PRAGMA schema_version"
"""BEGIN alone reads nothing, and so takes no lock."""


def _insist(connection: sqlite3.Connection, statement: str, deadline: float) -> None:
    """Execute a statement; repeat it while another connection has a lock."""
    while not _try(connection, statement):
        if time.monotonic() >= deadline:
            connection.execute(statement)
            return
        time.sleep(_PAUSE_S)


def _try(connection: sqlite3.Connection, statement: str) -> bool:
    """Execute a statement; return False if another connection has a lock."""
    try:
        connection.execute(statement)
    except sqlite3.OperationalError as error:
        if code_of(error) != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def explained(path: str, error: sqlite3.Error) -> Exception:
    """Return the error to raise for a transaction that has not happened.

    One that is a bug of the caller's, like the violation of a constraint, is unchanged.
    """
    kind, advice = _ADVICE.get(code_of(error), (TransactionFailedError, ""))
    if is_refused_write(error):
        kind, advice = DatabaseFullError, _REFUSED
    if not advice and not isinstance(error, sqlite3.OperationalError):
        return error
    raised = kind(f"{path}: {advice or error}")
    raised.__cause__ = error
    return raised


def explained_at_open(path: str, error: sqlite3.Error) -> Exception:
    """Return the error to raise when the file cannot be opened: mostly it is the wrong one."""
    reason = _OPEN_ADVICE.get(code_of(error))
    return explained(path, error) if reason is None else UsageError(f"{path} {reason}")


def code_of(error: sqlite3.Error) -> int:
    """Return the primary result code, its lowest byte; 0 for an error of the Python module."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_refused_write(error: sqlite3.Error) -> bool:
    """Return whether the disk took no more for another reason than that it is full, like a quota.

    SQLite does not say which reason.
    """
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_WRITE


_REFUSED = (
    "the disk takes no more: raise the quota or the limit on the size of files, or look for a"
    " defect of the disk"
)
_DAMAGED = "the file is damaged: stop all processes and restore it from a backup"
_ADVICE: dict[int, tuple[type[TransactionFailedError], str]] = {
    sqlite3.SQLITE_BUSY: (
        DatabaseUnavailableError,
        "another process has been using it for too long: try again",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        DatabaseReadOnlyError,
        "a file beside it cannot be made: let its folder be written to",
    ),
    sqlite3.SQLITE_CORRUPT: (TransactionFailedError, _DAMAGED),
    sqlite3.SQLITE_FULL: (DatabaseFullError, "the disk is full: make room"),
    sqlite3.SQLITE_NOTADB: (TransactionFailedError, _DAMAGED),
    sqlite3.SQLITE_READONLY: (
        DatabaseReadOnlyError,
        "the file may not be written: change its permissions",
    ),
}

_OPEN_ADVICE = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: a database needs a file in a folder that may be"
    " written to",
    sqlite3.SQLITE_NOTADB: "is no SQLite database: choose another file",
    sqlite3.SQLITE_READONLY: "may not be written: change its permissions, or choose another file",
}
