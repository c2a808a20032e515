"""Help for tests of SQLite: a thread that is held, and a disk that is soon full."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 60.0


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
        pytest.skip("may not mount a file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
