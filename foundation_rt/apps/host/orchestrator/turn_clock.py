"""The time of a turn, which stands still while a person is asked (TURN-06)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from attrs import define, field


@define(eq=False)
class TurnClock:
    """Ends the block it is entered for with a `TimeoutError` when the time is over.

    Args:
        seconds: for the turn.
    """

    _seconds: float
    _timeout: asyncio.Timeout = field(init=False)
    _holds: int = field(default=0, init=False)
    _left: float = field(default=0.0, init=False)
    _runs: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._timeout = asyncio.timeout(self._seconds)

    async def __aenter__(self) -> TurnClock:
        await self._timeout.__aenter__()
        self._runs = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runs = False
        await self._timeout.__aexit__(kind, error, traceback)

    @property
    def is_over(self) -> bool:
        """Return whether the time has ended the block."""
        return self._timeout.expired()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no time pass within the block."""
        loop = asyncio.get_running_loop()
        when = self._timeout.when()
        if self._runs and when is not None and not self.is_over:
            self._left = when - loop.time()
            self._timeout.reschedule(None)
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if self._runs and self._holds == 0 and not self.is_over:
                self._timeout.reschedule(loop.time() + self._left)
