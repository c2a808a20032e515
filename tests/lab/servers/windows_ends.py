"""Our ends of the pipes of a process, on Windows: overlapped, as nothing polls pipes there.

An end is a handle. A read that has begun is kept until it has bytes, so one piece is read ahead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any

if sys.platform == "win32":
    import _winapi
    import msvcrt
    from asyncio.windows_utils import pipe

    CHUNK = 262_144
    _INCOMPLETE = 996  # ERROR_IO_INCOMPLETE

    def input_pipe() -> tuple[int, int]:
        """Return a descriptor that a process may read, and our end."""
        theirs, ours = pipe(duplex=True, overlapped=(False, True))
        return msvcrt.open_osfhandle(theirs, os.O_RDONLY), ours

    def output_pipe() -> tuple[int, int]:
        """Return a descriptor that a process may write, and our end."""
        ours, theirs = pipe(overlapped=(True, False))
        return msvcrt.open_osfhandle(theirs, 0), ours

    class Ends:
        """Waits for handles of ours, and for the end of a process.

        Args:
            process: it has started.
            ours: handles that were made to be overlapped.
        """

        def __init__(self, process: subprocess.Popen[Any], ours: Collection[int]) -> None:
            self._process: subprocess.Popen[Any] | None = process
            self._pending: dict[int, _winapi.Overlapped | None] = {}  # None: an end that has ended

        def wait(
            self, reads: Collection[int], write: int | None, timeout: float
        ) -> tuple[set[int], bool, bool]:
            """Wait for the next event, `timeout` seconds at most.

            Returns:
                The ends of `reads` that have bytes or have ended; whether `write` takes bytes;
                whether the process has ended, which is reported once.
            """
            for end in set(reads) - self._pending.keys():
                self._begin_read(end)
            waited = {*reads, write} - {None}
            events = [each.event for end in waited if (each := self._pending.get(end)) is not None]
            if len(events) < len(waited):
                timeout = 0.0
            if self._process is not None:
                events.append(int(self._process._handle))
            if events:
                _winapi.WaitForMultipleObjects(events, False, int(timeout * 1000))
            ended = self._process is not None and self._process.poll() is not None
            if ended:
                self.close()
            return {end for end in reads if self._is_ready(end)}, self._is_ready(write), ended

        def read(self, end: int) -> bytes | None:
            """Return the bytes that are there: none, or None at the end of the file."""
            if end not in self._pending:
                self._begin_read(end)
            begun = self._pending[end]
            if begun is None:
                return None
            try:
                _, error = begun.GetOverlappedResult(False)
            except BrokenPipeError:
                self._pending[end] = None
                return None
            if error == _INCOMPLETE:
                return b""
            del self._pending[end]
            return bytes(begun.getbuffer() or b"")

        def write(self, end: int, data: bytes) -> int:
            """Send what can be sent of `data` without waiting; return the number of bytes.

            What was not sent has to come first the next time: the system has it already.

            Raises:
                BrokenPipeError: nobody can read them.
            """
            begun = self._pending.pop(end, None)
            if begun is None:
                begun, _ = _winapi.WriteFile(end, data[:CHUNK], overlapped=True)
            sent, error = begun.GetOverlappedResult(False)
            if error == _INCOMPLETE:
                self._pending[end] = begun
                return 0
            return sent

        def close_end(self, end: int) -> None:
            """Close one of our ends."""
            begun = self._pending.pop(end, None)
            if begun is not None:
                begun.cancel()
                with suppress(OSError):
                    begun.GetOverlappedResult(True)
            _winapi.CloseHandle(end)

        def close(self) -> None:
            """Wait no longer for the end of the process."""
            self._process = None

        def _begin_read(self, end: int) -> None:
            try:
                self._pending[end], _ = _winapi.ReadFile(end, CHUNK, overlapped=True)
            except BrokenPipeError:
                self._pending[end] = None

        def _is_ready(self, end: int | None) -> bool:
            if end is None:
                return False
            begun = self._pending.get(end)
            return (
                begun is None
                or _winapi.WaitForSingleObject(begun.event, 0) == _winapi.WAIT_OBJECT_0
            )
