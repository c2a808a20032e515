"""Who has the file of a ledger open: this process once at most, and others or none (AACP-32).

Beside the ledger stands a file of the same name with ``-presence`` behind it, empty and never
deleted, on which every process that has the ledger open holds a shared `flock`. The system takes
the lock away when a process dies, in whatever way. So a process that gets the lock for itself
alone, before it shares it, knows that everybody else is gone, and with them the owners of all
claims.

Two connections of one process are refused for every other reason than locks: they would write in
turns where one writes in groups, and they are what SQLite before 3.51.3 has a bug with.
"""

from __future__ import annotations

import fcntl
import os
import threading

from attrs import define, field

from ....errors import UsageError

_File = tuple[int, int, int]

# Which files this process has open. The process is in the key: after a fork, those of the parent
# are not the child's. A fact about the process, hence kept with it and not with an object.
_open_files: set[_File] = set()
_lock = threading.Lock()


@define(eq=False, repr=False)
class Presence:
    """The place of this process among those that have a ledger open.

    Attributes:
        alone: whether nobody else had it open when this process came.
    """

    alone: bool
    _fd: int
    _file: _File
    _left: bool = field(default=False, init=False)

    @classmethod
    def enter(cls, path: str) -> Presence:
        """Come in; as long as `settle` was not called, nobody else can.

        Raises:
            UsageError: this process has it open already, or there can be no such file.
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
        """Let others in; waits for one that is just coming in itself."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Go out; a second time does nothing."""
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
