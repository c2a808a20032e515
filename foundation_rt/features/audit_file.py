"""The file of the audit log: whole JSON lines, never blocking, and never failing a call.

A call only appends its record to a queue. A daemon thread, which is started with the first record
and sleeps while there is none, writes what has gathered for 20 ms. Its invariants (OPS-36 to
OPS-39):

* Several processes may write to one file. Each write is made under a lock of the file, and
  what the file system took only a part of is taken back. So a line of one process never stands
  within that of another.
* A process that is killed in the middle of a write leaves a part of a line. The next write begins
  with a newline then: one line is broken, and no other.
* The lock is waited for a second at most, since its holder may have been stopped. Without it the
  write is still one append; on Windows, where an append is a seek and a write, it is tried again.
* Before each write the path is compared with the open file, so that a file that was moved, or
  deleted, is left at once (logrotate: rename and create).
* What cannot be written waits, and is tried again every second. Only when the queue is full records
  are dropped, and counted. The log says once that the file cannot be written, or is too slow, and
  once that it is written again, with the number of records that were dropped.

A forked child has no thread, and its parent writes what is queued: the child begins with nothing.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.exact_json import compact
from ..base.files import open_private, unlock, wait_for_lock
from ..errors import UsageError

if TYPE_CHECKING:
    from ..base.logs.logger import StructuredLogger

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
"""To be read too: the last byte. O_NONBLOCK, since the open of a FIFO would block."""

_APPENDS_AT_ONCE = os.name != "nt"
"""On POSIX an append goes to the end, whoever else writes (O_APPEND)."""

_CHUNK = 65_536
_DELAY_SECONDS = 0.02
_RETRY_SECONDS = 1.0
_LOCK_SECONDS = 1.0


def check_path(path: str) -> None:
    """Check that the file exists and can be written, or can be made; make nothing.

    Raises:
        UsageError: names the file and the reason.
    """
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"audit.file: there is no folder {folder}")
    if not Path(path).exists():
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"audit.file: no file can be made in {folder}")
    elif not Path(path).is_file():
        raise UsageError(f"audit.file: {path} is no regular file")
    elif not os.access(path, os.R_OK | os.W_OK):
        raise UsageError(f"audit.file: {path} cannot be read and written")


class AuditFile:
    """A log sink that appends to a file; closed within a second when it is collected.

    Args:
        path: of the file; made with mode 0600 if it does not exist.
        capacity: the most bytes that wait in memory; lines beyond are dropped and counted.
        logger: gets a record when the file cannot be written, and when it is written again.
    """

    __slots__ = ("__weakref__", "_writer")

    def __init__(self, path: str, capacity: int, logger: StructuredLogger) -> None:
        self._writer = writer = _FileWriter(path, capacity, logger)
        weakref.finalize(self, writer.close, 1.0)

    def write(self, line: bytes) -> None:
        """Append one line, which ends with a newline; never blocks, never raises."""
        self._writer.write(compact(line))

    @property
    def dropped(self) -> int:
        """Return the number of lines that were lost."""
        return self._writer.dropped

    def flush(self, timeout: float) -> bool:
        """Wait `timeout` seconds at most for the lines so far; return whether none is left."""
        return self._writer.flush(timeout)

    def close(self, timeout: float) -> None:
        """Write the waiting lines within `timeout` seconds, and take no more (OPS-39)."""
        self._writer.close(timeout)


class _FileWriter:
    """The queue of an `AuditFile`, and the thread that empties it.

    It is no part of the `AuditFile`, since its thread would keep that from being collected.
    """

    def __init__(self, path: str, capacity: int, logger: StructuredLogger) -> None:
        self._path = path
        self._capacity = capacity
        self._logger = logger
        self.dropped = 0
        self._descriptor = -1
        self._is_open = True  # takes lines
        self._is_stopped = False  # writes nothing any more
        self._reset()
        this = weakref.ref(self)

        def reset() -> None:
            if (writer := this()) is not None:
                writer._leave_file()
                writer._reset()

        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=reset)

    def _reset(self) -> None:
        """Set the part of the state that a forked child does not inherit."""
        # An RLock: a signal handler may write while its thread is inside `write`.
        self._changed = threading.Condition(threading.RLock())
        self._lines: deque[bytes] = deque()
        self._pending_bytes = 0
        self._taken = 0  # lines that were ever queued
        self._settled = 0  # of these, lines that are written or lost
        self._has_thread = False
        self._is_idle = False  # the thread waits to be woken
        self._hurry = False  # a caller waits for a flush
        self._cannot_write = False  # the last write failed
        self._logged_failure = False
        self._logged_drops = False
        self._reported = self.dropped  # drops that the log has told of

    # -- in the threads of calls

    def write(self, line: bytes) -> None:
        if not self._is_open:
            # No lock: the end of the interpreter may have stopped a thread that holds it.
            self.dropped += 1
            return
        begins_to_drop = False
        with self._changed:
            if self._pending_bytes + len(line) <= self._capacity:
                self._lines.append(line)
                self._pending_bytes += len(line)
                self._taken += 1
            else:
                self.dropped += 1
                begins_to_drop, self._logged_drops = not self._logged_drops, True
            self._wake()
        if begins_to_drop:
            self._logger.warn("audit records are dropped", {"file": self._path})

    def _wake(self) -> None:
        """Make the thread look at the queue; the lock is held."""
        if not self._has_thread:
            thread = threading.Thread(target=self._run, name="foundation-rt-audit", daemon=True)
            with suppress(RuntimeError):  # no thread is available: the next line tries again
                thread.start()
                self._has_thread = True
        elif self._is_idle:
            self._is_idle = False
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        with self._changed:
            until = self._taken
            if self._settled < until:
                self._hurry = True
                self._changed.notify_all()
            return self._changed.wait_for(lambda: self._settled >= until, timeout)

    def close(self, timeout: float) -> None:
        self._is_open = False
        self.flush(timeout)
        with self._changed:
            self._is_stopped = True
            lost = len(self._lines)
            self.dropped += lost
            self._settled += lost
            self._lines.clear()
            self._changed.notify_all()
        if lost:
            self._logger.warn("audit records are lost", {"file": self._path, "dropped": lost})

    # -- in the thread of the file

    def _run(self) -> None:
        while lines := self._next_lines():
            error = None
            try:
                self._append(b"".join(lines))
            except OSError as raised:
                error = raised
            self._settle(len(lines), error)
        self._leave_file()

    def _next_lines(self) -> list[bytes]:
        """Return the lines to write next, once there are any; none when there will be no more."""
        lines: list[bytes] = []
        with self._changed:
            while not self._lines and self._is_open:
                self._is_idle = True
                self._changed.wait()
            self._is_idle = False
            if self._lines and self._is_open:
                # Further lines gather; or what kept the file from being written passes.
                delay = _RETRY_SECONDS if self._cannot_write else _DELAY_SECONDS
                self._changed.wait_for(lambda: self._hurry or not self._is_open, delay)
            self._hurry = False
            size = 0
            for line in self._lines:
                size += len(line)
                if lines and size > _CHUNK:
                    break
                lines.append(line)
        return lines

    def _settle(self, count: int, error: OSError | None) -> None:
        """Forget `count` lines, which are written; or keep them, since there was an error."""
        with self._changed:
            if self._is_stopped:
                return
            self._cannot_write = error is not None
            fails = error is not None and not self._logged_failure
            if error is None:
                for _ in range(count):
                    self._pending_bytes -= len(self._lines.popleft())
                self._settled += count
                self._changed.notify_all()
            recovers = not self._lines and (self._logged_failure or self._logged_drops)
            dropped = self.dropped - self._reported
            if fails:
                self._logged_failure = True
            elif recovers:
                self._logged_failure = self._logged_drops = False
                self._reported = self.dropped
        fields: dict[str, Any] = {"file": self._path}
        if error is not None and fails:
            fields["reason"] = error.strerror
            self._logger.warn("the audit file cannot be written", fields)
        elif recovers:
            self._logger.info("the audit file is written again", fields | {"dropped": dropped})

    def _append(self, data: bytes) -> None:
        """Append `data`, whole lines, or nothing.

        Raises:
            OSError: the file cannot be opened or written.
        """
        descriptor = self._current_file()
        is_locked = _lock(descriptor)
        if not is_locked and not _APPENDS_AT_ONCE:
            raise OSError(errno.EAGAIN, "another process has locked it")
        try:
            size = os.fstat(descriptor).st_size
            if size and _last_byte(descriptor) != b"\n":
                data = b"\n" + data  # another process was killed while it wrote
            written = 0
            try:
                while written < len(data):
                    written += os.write(descriptor, data[written:])
            except OSError:
                # Unless another program has cut the file, as logrotate's copytruncate does.
                if written and is_locked and os.fstat(descriptor).st_size == size + written:
                    os.ftruncate(descriptor, size)
                raise
        finally:
            if is_locked:
                unlock(descriptor)

    def _current_file(self) -> int:
        """Return the descriptor of the file that the path names now, which may be another one.

        Raises:
            OSError: it cannot be opened, or is no regular file.
        """
        if self._descriptor >= 0:
            opened = os.fstat(self._descriptor)
            with suppress(FileNotFoundError):
                found = os.stat(self._path)  # noqa: PTH116 - not one of many calls on the path
                if (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino):
                    return self._descriptor
            self._leave_file()
        descriptor = open_private(self._path, _FLAGS, follow=True)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file")
        self._descriptor = descriptor
        return descriptor

    def _leave_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock the file against other processes; return False if that takes a second, or is no lock."""
    try:
        return wait_for_lock(descriptor, _LOCK_SECONDS)
    except OSError:
        return False


def _last_byte(descriptor: int) -> bytes:
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1)
