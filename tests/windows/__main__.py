"""The tests on Windows, under Wine: `python -m tests.windows [arguments of pytest]`.

Without arguments: those of `chosen.TESTS`. What cannot run there is in `chosen.NEEDS`; the run
names it with the reason, and ends with how many tests ran and were skipped. What has failed is run
once more, alone, and both runs are shown: beside other work Wine takes many seconds for what takes
milliseconds elsewhere. What fails twice has failed.
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.windows import place
from tests.windows.chosen import NEEDS, TESTS

PROCESSES = 2
_SOME_FAILED = 1
"""The exit code of pytest."""


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
        code, failed = _run(*words)
        if code == _SOME_FAILED and failed:
            print("Windows: once more, alone, what has failed:")
            code, _ = _run("--numprocesses=0", *failed)
    finally:
        print(f"Windows: {time.monotonic() - started:.0f} s in all")
    return code


def _run(*words: str) -> tuple[int, list[str]]:
    """Run pytest, and show what it writes; return its exit code, and the tests that failed."""
    failed: list[str] = []
    try:
        for line in place.run_python("-m", "pytest", "-rsfE", *words):
            text = line.decode(errors="replace").rstrip("\r\n")
            print(text, flush=True)
            kind, _, rest = text.partition(" ")
            if kind in ("FAILED", "ERROR"):
                failed.append(rest.partition(" - ")[0])
    except subprocess.CalledProcessError as error:
        return error.returncode, failed
    return 0, failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
