"""Help for tests of SQLite: a table, a thread that is held, and a disk that is soon full."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 60.0


def make_table(connection: sqlite3.Connection, alone: bool) -> None:
    """Prepare a file: it has a table `t` of numbers."""
    connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, x BLOB) STRICT")


def inserting(n: int, length: int = 0) -> Callable[[sqlite3.Connection], int]:
    """Return the operation that inserts a number, and so many bytes."""

    def operation(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO t VALUES (?, zeroblob(?))", (n, length))
        return n

    return operation


class Pause:
    """Holds the thread of a database, so that what is asked meanwhile waits together."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, connection: Any) -> None:
        self.begun.set()
        assert self.go_on.wait(PATIENCE)


@contextmanager
def a_small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of 1 MiB; skip the test where this is not possible."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode:
        import pytest  # not above: it takes processes that tests start longer than their start

        pytest.skip("may not mount a file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
