"""While stdio serves, descriptor 1 belongs to the protocol alone (PROC-01).

The real input and output are moved to descriptors of their own that no child process inherits.
Then 0 reads as empty and 1 goes where 2 goes: a `print` in a tool, and a child that writes to its
standard output, land on stderr. No flag of a descriptor is changed: the parent shares them.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from attrs import define


@define
class ProtocolDescriptors:
    """Where the protocol is spoken.

    Attributes:
        input: reads what the client writes.
        output: writes what the client reads.
    """

    input: int
    output: int

    def close(self) -> None:
        """Say goodbye to the client; 0 and 1 stay where they are.

        Giving 1 back would let whatever still prints, a thread of a tool for one, write to a
        client that reads on to the end.
        """
        os.close(self.input)
        os.close(self.output)
        for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
            if not _flush(stream):
                # The interpreter tries once more at exit, and its failure would be the exit code.
                _point(descriptor, os.open(os.devnull, os.O_WRONLY))


def isolate() -> ProtocolDescriptors:
    """Move the protocol away from descriptors 0 and 1."""
    _flush(sys.stdout)  # what was printed before the protocol began belongs to the old 1
    # Holes first: a duplicate would otherwise land in one and be taken for what belongs there.
    if not _is_open(0):
        _point(0, os.open(os.devnull, os.O_RDONLY))
    if not _is_open(1):
        _point(1, _closed_pipe())
    if not _is_open(2):
        _point(2, os.open(os.devnull, os.O_WRONLY))
    descriptors = ProtocolDescriptors(os.dup(0), os.dup(1))
    _point(0, os.open(os.devnull, os.O_RDONLY))
    os.dup2(2, 1)
    if hasattr(sys.stdout, "reconfigure") and not sys.stdout.closed:
        # What a tool prints should be seen when it is printed, as on a terminal.
        sys.stdout.reconfigure(line_buffering=True)
    return descriptors


def _flush(stream: TextIO | None) -> bool:
    """Return whether `stream` holds nothing any more; it may be closed, or its reader gone."""
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
    """Make `descriptor` what `target` is, whichever number that got."""
    if target != descriptor:
        os.dup2(target, descriptor)
        os.close(target)
    else:
        os.set_inheritable(descriptor, True)


def _closed_pipe() -> int:
    """A pipe nobody reads: a process started without an output has lost its client already."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer
