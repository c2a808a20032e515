"""Throws an exception into a thread's own code, at every place where another thread's could arrive.

`PyThreadState_SetAsyncExc` and signal handlers raise where the interpreter looks for them: when a
function begins, after a call of a function in C, and where a loop begins again. An `Interrupter`
counts these places in the modules it is given and raises at one of them.
"""

from __future__ import annotations

import ctypes
import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_CHECKED = ("RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW")


class Interrupter:
    """Raises `error` at the place number `at` (from 0) within functions that `covers` accepts.

    Attributes:
        place: where it raised, as ``function:line after opcode``; None if it did not.
    """

    def __init__(self, at: int, error: BaseException, covers: Callable[[FrameType], bool]) -> None:
        self.place: str | None = None
        self._left = at
        self._error = error
        self._covers = covers
        self._last: dict[FrameType, str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count, and raise, while this lasts, in this thread."""
        before = sys.gettrace()
        # Python 3.12 has no events of opcodes before a frame wanted them when tracing began.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)
            self._last.clear()

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_back in self._last:
            self._last[frame.f_back] = ""  # a call of a Python function: looked for inside of it
        if self.place is not None or not self._covers(frame):
            return None
        frame.f_trace_opcodes = True
        return self._on_opcode

    def _on_opcode(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "opcode" or self.place is not None:
            return self._on_opcode
        opcode = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        last, self._last[frame] = self._last.get(frame, ""), opcode
        if last in _CHECKED or "JUMP_BACKWARD" in last:
            if self._left == 0:
                self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno} after {last}"
                raise self._error
            self._left -= 1
        return self._on_opcode


def throw_into(ident: int, error: type[BaseException]) -> None:
    """Have `error` raised in the thread `ident`, as soon as it runs code in Python."""
    found = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(ident), ctypes.py_object(error)
    )
    assert found == 1
