"""Every worker of every run tries the same examples, whatever modules it has loaded before."""

from __future__ import annotations

import subprocess
import sys

from tests.bounds import ROOT

DRAWING = """
import importlib, sys
import tests.conftest
for name in sys.argv[1:]:
    importlib.import_module(name)
from hypothesis import given, settings, strategies as st

@given(st.lists(st.integers() | st.text() | st.floats()))
@settings(max_examples=200, database=None, derandomize=True)
def show(drawn):
    print(ascii(drawn))

show()
"""


def drawn_with(*modules: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", DRAWING, *modules],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


def test_two_workers_draw_the_same() -> None:
    drawn = drawn_with()
    assert len(drawn.splitlines()) >= 200
    assert drawn_with("foundation_rt.protocol", "foundation_rt.base.config.settings") == drawn
