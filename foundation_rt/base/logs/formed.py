"""Log lines in a form for people (LOG-41)."""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from .logger import StderrSink


class FormedSink(StderrSink):
    """Writes log lines in a form for people, to a terminal (LOG-41).

    Args:
        form: returns the text of a line of JSON, with its newline; empty for none. It never raises.
        capacity: as of `StderrSink`, as is `clock`.
    """

    __slots__ = ("_form",)

    def __init__(
        self, form: Callable[[bytes], bytes], capacity: int, *, clock: Clock | None = None
    ) -> None:
        super().__init__(capacity, clock=clock)
        self._form = form

    def write(self, line: bytes) -> None:
        """Write one line in the other form."""
        formed = self._form(line)
        if formed:
            self._writer.write(formed)
