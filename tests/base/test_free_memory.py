"""An idle process gives back what it no longer uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc only")

FRAGMENTED = """
from foundation_rt.base.free_memory import _resident, give_back

assert give_back(0) == 0  # nothing was used yet
kept = [bytes(100_000) for _ in range(1000)]
del kept[:-1]  # the last one keeps all before it from the end of the heap
before = _resident()
level = give_back(0)
assert level < before - 50_000_000, (level, before)
assert give_back(level) == level
"""


@pytest.mark.rule("PROC-18")
def test_free_memory_is_given_back_once() -> None:
    done = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
