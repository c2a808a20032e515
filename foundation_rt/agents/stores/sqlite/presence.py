"""The processes that have the file of a ledger open: this one at most once (AACP-32).

Beside the ledger is an empty file with the suffix ``-presence``, which is never deleted. Every
process that has the ledger open holds a shared `flock` on it, which the system releases in any case
when the process dies. So a process that gets an exclusive lock, before it shares it, knows that all
other processes are gone, and with them the owners of all claims.

Two connections of one process are refused for two reasons: they would write in turns where one
writes in groups, and SQLite before 3.51.3 has a bug with them.
"""

from __future__ import annotations

import fcntl
import os
import threading

from attrs import define, field

from ....errors import UsageError

_File = tuple[int, int, int]

# The files that this process has open. The process is part of the key, since after a fork the files
# of the parent are not those of the child. It is state of the process, and so of no object.
_open_files: set[_File] = set()
_lock = threading.Lock()


@define(eq=False, repr=False)
class Presence:
    """The place of this process among those that have a ledger open.

    Attributes:
        alone: no other process had the ledger open when this one entered.
    """

    alone: bool
    _fd: int
    _file: _File
    _left: bool = field(default=False, init=False)

    @classmethod
    def enter(cls, path: str) -> Presence:
        """Enter; no other process can enter until `settle` is called.

        Raises:
            UsageError: this process has the ledger open already, or the file cannot be made.
        """
        try:
            fd = os.open(f"{path}-presence", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"cannot open {path}-presence ({error.strerror}): a ledger needs a folder that"
                " exists and may be written to"
            ) from None
        status = os.fstat(fd)
        file = (os.getpid(), status.st_dev, status.st_ino)
        with _lock:
            if file in _open_files:
                os.close(fd)
                raise UsageError(
                    f"{path} is open in this process already: share one adapter, or close the other"
                )
            _open_files.add(file)
        return cls(_lock_alone(fd), fd, file)

    def settle(self) -> None:
        """Let other processes enter; wait for one that is entering."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Leave; a second call does nothing."""
        with _lock:
            if self._left:
                return
            self._left = True
            _open_files.discard(self._file)
        os.close(self._fd)


def _lock_alone(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
