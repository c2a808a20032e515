"""The work of code as the number of its calls, which is the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any
from unittest import mock

from foundation_rt.base.jsonschema import codegen


@contextmanager
def generations() -> Iterator[list[str]]:
    """Note the code of checks that is generated."""
    noted: list[str] = []

    def execute(code: str, names: dict[str, Any]) -> None:
        noted.append(code)
        exec(code, names)

    with mock.patch.object(codegen, "exec", execute, create=True):
        yield noted


class CallCounter:
    """Counts the calls of Python and C functions made inside its `with` block.

    The garbage collector is off there: its callbacks, of hypothesis for one, are calls as well.

    Attributes:
        calls: the number of calls.
        called: the Python functions among them, as (file, name).
    """

    def __init__(self) -> None:
        self.calls = 0
        self.called: set[tuple[str, str]] = set()
        self._before: Any = None
        self._collects = True

    def __enter__(self) -> CallCounter:
        self._collects = gc.isenabled()
        gc.disable()
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.setprofile(self._before)
        if self._collects:
            gc.enable()

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.called.add((frame.f_code.co_filename, frame.f_code.co_name))
        self.calls += event in ("call", "c_call")
