"""The isolation of standard input and output: only the protocol uses them (PROC-01).

The real input and output are moved to descriptors of their own that no child process inherits.
Then 0 reads as empty and 1 is a copy of 2, so the output of a `print` in a tool or at the import of
a program, and that of a child process, goes to stderr. No flag of a descriptor is changed: the
parent process shares them.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TextIO

_CLOSING_SECONDS = 0.1
"""The time in which a descriptor without a call under way is closed, on Windows."""


class ProtocolDescriptors:
    """The descriptors of the protocol.

    Attributes:
        input: reads what the client writes.
        output: writes what the client reads.
    """

    def __init__(self, input: int, output: int) -> None:
        self.input = input
        self.output = output

    def restore(self) -> None:
        """Give 0 and 1 back: nothing was served."""
        _flush(sys.stdout)
        _point(0, self.input)
        _point(1, self.output)

    def close(self) -> None:
        """Close both descriptors; 0 and 1 stay redirected.

        Restoring 1 would let code that still prints, such as a tool's thread, write to a client
        that reads to the end.
        """
        for descriptor in self.input, self.output:
            _close(descriptor)
        for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
            if not _flush(stream):
                # The interpreter flushes again at exit, and a failure would change the exit code.
                _point(descriptor, os.open(os.devnull, os.O_WRONLY))


def isolate() -> ProtocolDescriptors:
    """Move the protocol away from descriptors 0 and 1."""
    # Fill closed descriptors first: a duplicate would otherwise take one of their numbers.
    if not _is_open(0):
        _point(0, os.open(os.devnull, os.O_RDONLY))
    if not _is_open(1):
        _point(1, _closed_pipe())
    if not _is_open(2):
        _point(2, os.open(os.devnull, os.O_WRONLY))
    descriptors = ProtocolDescriptors(os.dup(0), os.dup(1))
    _point(0, os.open(os.devnull, os.O_RDONLY))
    os.dup2(2, 1)
    _flush(sys.stdout)  # what was printed and not yet written
    if hasattr(sys.stdout, "reconfigure") and not sys.stdout.closed:
        # The output of a tool appears at once, as on a terminal.
        sys.stdout.reconfigure(line_buffering=True)
    if sys.platform == "win32":
        for stream in sys.stdout, sys.stderr:
            if hasattr(stream, "reconfigure") and not stream.closed:
                # A code page has few characters, and the log beside it is UTF-8 (WIN-04).
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return descriptors


def _close(descriptor: int) -> None:
    """Close a descriptor; on Windows once the call on it that is under way in a thread has ended.

    There closing waits for that call, which may wait for the client. So a thread closes it.
    """
    if sys.platform == "win32":
        closing = threading.Thread(target=os.close, args=(descriptor,), daemon=True)
        closing.start()
        closing.join(_CLOSING_SECONDS)
    else:
        os.close(descriptor)


def _flush(stream: TextIO | None) -> bool:
    """Flush `stream`, which may be closed; return whether it has nothing left to write."""
    try:
        if stream is not None:
            stream.flush()
    except ValueError:
        pass  # closed, and therefore empty
    except OSError:
        return False
    return True


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _point(descriptor: int, target: int) -> None:
    """Make `descriptor` a copy of `target`, and close `target`; both may be the same number."""
    if target != descriptor:
        os.dup2(target, descriptor)
        os.close(target)
    else:
        os.set_inheritable(descriptor, True)


def _closed_pipe() -> int:
    """Return the write end of a pipe without a reader: without an output there is no client."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer
