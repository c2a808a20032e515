"""The processes that have a database open: this one at most once (DB-14).

Beside the database is an empty file with the suffix ``-presence``, which is never deleted. Every
process that has the database open holds a shared lock on it, which the system releases in any
case when the process dies. So a process that gets an exclusive lock, before it shares it, knows
that all other processes are gone.

Two connections of one process are refused for two reasons: they would write in turns where one
writes in groups, and SQLite before 3.51.3 has a bug with them.
"""

from __future__ import annotations

import os
import threading
import time

from attrs import define, field

from ....errors import UsageError
from ...files import end_turn, open_private, share, try_lock, try_take_turn, wait_for_lock
from ..errors import DatabaseUnavailableError

_File = tuple[int, int, int]

# The files that this process has open. The process is part of the key, since after a fork the files
# of the parent are not those of the child. It is state of the process, and so of no object.
_open_files: set[_File] = set()
_lock = threading.Lock()

_TURN_PAUSE_S = 0.0005


@define(eq=False, repr=False)
class Turn:
    """The turn of this process among those that want a lock of the same database (DB-16).

    SQLite itself is unfair: it waits for locks in pauses of up to 100 ms, and between the
    transactions of a process that always has work lie 0.1 ms. So every process takes the turn, a
    lock on the presence file, before it begins to write, and keeps it until it has begun. A process
    that waits for the database keeps others from beginning, and then is the next.

    It is advice: a process that does not get it in time goes on without. So one that is stopped
    while it has the turn delays others once.
    """

    fd: int = -1
    _is_stuck: bool = field(default=False, init=False)

    def take(self, deadline: float) -> None:
        """Take the turn; wait until `deadline`, as `time.monotonic` counts."""
        if self.fd < 0:
            return
        while not self._try():
            if self._is_stuck or time.monotonic() >= deadline:
                self._is_stuck = True
                return
            time.sleep(_TURN_PAUSE_S)
        self._is_stuck = False

    def end(self) -> None:
        """Let others take the turn; nothing happens if this process does not have it."""
        if self.fd >= 0:
            end_turn(self.fd)

    def _try(self) -> bool:
        try:
            return try_take_turn(self.fd)
        except OSError:
            return False


@define(eq=False, repr=False)
class Presence:
    """The place of this process among those that have a database open.

    Attributes:
        alone: no other process had the database open when this one entered.
        fd: of the file beside the database.
    """

    alone: bool
    fd: int
    _file: _File
    _left: bool = field(default=False, init=False)

    @classmethod
    def enter(cls, path: str, patience_s: float) -> Presence:
        """Enter; if alone, no other process can enter until `settle` is called.

        Args:
            path: of the database.
            patience_s: how long to wait for a process that is entering alone.

        Raises:
            UsageError: this process has the database open already, or the file cannot be made.
            DatabaseUnavailableError: another process has been entering for too long, or the file
                cannot be locked.
        """
        try:
            fd = open_private(f"{path}-presence", os.O_RDWR | os.O_CREAT, follow=True)
        except OSError as error:
            raise UsageError(
                f"cannot open {path}-presence ({error.strerror}): a database needs a folder that"
                " exists and may be written to"
            ) from None
        status = os.fstat(fd)
        file = (os.getpid(), status.st_dev, status.st_ino)
        with _lock:
            if file in _open_files:
                os.close(fd)
                raise UsageError(f"{path} is open in this process already: open it once")
            _open_files.add(file)
        presence = cls(False, fd, file)
        try:
            presence.alone = try_lock(fd)
            if not presence.alone:
                presence._wait_to_share(path, patience_s)
        except OSError as error:
            presence.leave()
            raise DatabaseUnavailableError(
                f"{path}-presence cannot be locked ({error.strerror}): use a file system with locks"
            ) from None
        except BaseException:
            presence.leave()
            raise
        return presence

    def settle(self) -> None:
        """Let other processes enter."""
        share(self.fd)

    def leave(self) -> None:
        """Leave; a second call does nothing."""
        with _lock:
            if self._left:
                return
            self._left = True
            _open_files.discard(self._file)
        os.close(self.fd)

    def _wait_to_share(self, path: str, patience_s: float) -> None:
        if not wait_for_lock(self.fd, patience_s, shared=True):
            raise DatabaseUnavailableError(
                f"{path}: another process has been opening it for {patience_s:g} s, or keeps it for"
                " itself (exclusive): try again, or close it there"
            )
