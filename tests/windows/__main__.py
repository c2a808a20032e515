"""The tests on Windows, under Wine: `python -m tests.windows [arguments of pytest]`.

Without arguments: those of `chosen.TESTS`. What cannot run there is in `chosen.NEEDS`; the run
names it with the reason, and ends with how many tests ran and were skipped.
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.windows import place
from tests.windows.chosen import NEEDS, TESTS

PROCESSES = 2


def main(words: list[str]) -> int:
    """Run the tests; return the exit code: that of pytest, and 0 where there is no Wine."""
    started = time.monotonic()
    try:
        place.make()
    except place.NotMade as reason:
        print(f"Windows: not run: {reason}")
        return 0
    print(f"Windows: Wine and Python are ready after {time.monotonic() - started:.0f} s")
    words = words or [f"--numprocesses={PROCESSES}", "--dist=worksteal", *TESTS]
    for test, need in NEEDS.items():
        print(f"Windows: left out: {test}: {need}")
    try:
        for line in place.run_python("-m", "pytest", "-rs", *words):
            print(line.decode(errors="replace").rstrip("\r\n"), flush=True)
    except subprocess.CalledProcessError as error:
        return error.returncode
    finally:
        print(f"Windows: {time.monotonic() - started:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
