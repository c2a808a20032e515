"""Our ends of the pipes of a process, on POSIX: one `poll` waits for them and for its end."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Collection
from typing import Any

CHUNK = 262_144


def input_pipe() -> tuple[int, int]:
    """Return a descriptor that a process may read, and our end."""
    return os.pipe()


def output_pipe() -> tuple[int, int]:
    """Return a descriptor that a process may write, and our end."""
    ours, theirs = os.pipe()
    return theirs, ours


class Ends:
    """Waits for descriptors of ours, and for the end of a process (by its pidfd).

    Args:
        process: it has started.
        ours: descriptors of ours alone; they no longer block.
    """

    def __init__(self, process: subprocess.Popen[Any], ours: Collection[int]) -> None:
        self._pidfd: int | None = os.pidfd_open(process.pid)
        for end in ours:
            os.set_blocking(end, False)

    def wait(
        self, reads: Collection[int], write: int | None, timeout: float
    ) -> tuple[set[int], bool, bool]:
        """Wait for the next event, `timeout` seconds at most.

        Returns:
            The ends of `reads` that have bytes or have ended; whether `write` takes bytes; whether
            the process has ended, which is reported once.
        """
        poll = select.poll()
        for end in {*reads, write, self._pidfd} - {None}:
            wanted = (end != write and select.POLLIN) | (end == write and select.POLLOUT)
            poll.register(end, wanted | (end in reads and select.POLLIN))
        ready = dict(poll.poll(timeout * 1000))
        takes = write is not None and bool(ready.get(write, 0) & ~select.POLLIN)
        ended = self._pidfd is not None and self._pidfd in ready
        if ended:
            self.close()
        return {end for end in reads if end in ready}, takes, ended

    def read(self, end: int) -> bytes | None:
        """Return the bytes that are there: none, or None at the end of the file."""
        try:
            return os.read(end, CHUNK) or None
        except BlockingIOError:
            return b""
        except OSError:  # a terminal that was hung up, a socket that was reset
            return None

    def write(self, end: int, data: bytes) -> int:
        """Send what can be sent of `data` without waiting; return the number of bytes.

        Raises:
            BrokenPipeError: nobody can read them.
        """
        try:
            return os.write(end, data[:CHUNK])
        except BlockingIOError:
            return 0

    def close_end(self, end: int) -> None:
        """Close one of our ends."""
        os.close(end)

    def close(self) -> None:
        """Wait no longer for the end of the process."""
        descriptor, self._pidfd = self._pidfd, None
        if descriptor is not None:
            os.close(descriptor)
