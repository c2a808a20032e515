"""Work as a number: how many calls something makes, instead of how long it takes."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any


class CallCounter:
    """Counts the calls of Python and C functions made inside its `with` block.

    Attributes:
        calls: how many there were.
        called: where the Python functions among them are defined, as (file, name).
    """

    def __init__(self) -> None:
        self.calls = 0
        self.called: set[tuple[str, str]] = set()
        self._before: Any = None

    def __enter__(self) -> CallCounter:
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

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.called.add((frame.f_code.co_filename, frame.f_code.co_name))
        self.calls += event in ("call", "c_call")
