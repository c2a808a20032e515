"""Pipes for tests of what writes to descriptors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe, closed at the end unless the test has closed them."""
    ends = list(os.pipe())
    try:
        yield ends[0], ends[1]
    finally:
        for end in ends:
            try:
                os.close(end)
            except OSError as error:
                assert error.errno == errno.EBADF  # the test closed it


def fill(fd: int, filler: bytes = b".") -> int:
    """Make the pipe behind `fd` full; the number of bytes it took."""
    os.set_blocking(fd, False)
    total = 0
    try:
        while True:
            total += os.write(fd, filler * 4096)
    except BlockingIOError:
        return total
    finally:
        os.set_blocking(fd, True)
