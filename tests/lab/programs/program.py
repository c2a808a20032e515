"""Programs that tests start and end as people do: their output in a file, their end by a signal.

On Windows the output goes through a pipe, since Python does not start under Wine with a file as its
output; and nothing but a console asks a program to end, so there it is terminated.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.servers import fork_server

ROOT = Path(__file__).parents[3]
_PATIENCE = 120.0


@contextmanager
def program(
    source: str, *arguments: object, says: str | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program of Python, given as source text, until the end of the block, which kills it.

    Args:
        arguments: its own.
        says: its first line of output, which is waited for.
    """
    words = [sys.executable, "-c", source, *map(str, arguments)]
    pipe = subprocess.PIPE
    with fork_server.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            assert says is None or process.stdout.readline() == f"{says}\n"
            yield process
        finally:
            process.kill()


def run_source(
    source: str, *arguments: object, succeeds: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a program of Python, given as source text, in a new interpreter to its end.

    Args:
        arguments: its own.
        succeeds: whether its exit code has to be 0.
    """
    words = [sys.executable, "-c", source, *map(str, arguments)]
    done = subprocess.run(words, input="", capture_output=True, text=True, timeout=_PATIENCE)
    assert done.returncode == 0 or not succeeds, done.stderr
    return done


def home_at(folder: Path) -> dict[str, str]:
    """Return the variables by which a folder is the home of a program, and has what it keeps."""
    return dict.fromkeys(("HOME", "USERPROFILE", "XDG_STATE_HOME"), str(folder))


def output_file(path: Path) -> int:
    """Return a descriptor for what a program writes, which is appended to a file; close it."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if sys.platform != "win32":
        return file
    ours, theirs = os.pipe()
    threading.Thread(target=_copy, args=(ours, file), daemon=True).start()
    return theirs


def _copy(source: int, target: int) -> None:
    while data := os.read(source, 65_536):
        os.write(target, data)
    os.close(source)
    os.close(target)


def end(process: subprocess.Popen[Any], patience: float) -> None:
    """End a program with SIGTERM; fail unless it ends as it should, within `patience` seconds."""
    process.send_signal(signal.SIGTERM)
    code = process.wait(patience)
    assert sys.platform == "win32" or code == 128 + signal.SIGTERM, code
