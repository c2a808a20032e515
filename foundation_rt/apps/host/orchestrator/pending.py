"""Approvals and questions that wait for a person; the first answer counts (TURN-24)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from attrs import define, field

Answer = TypeVar("Answer")


@define(eq=False)
class PendingAnswer(Generic[Answer]):
    """One thing that waits for a person."""

    _future: asyncio.Future[Answer]

    async def within(self, seconds: float) -> Answer | None:
        """Return the answer of a person; None if there is none in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._future
        except TimeoutError:
            return None


@define(eq=False)
class PendingAnswers(Generic[Answer]):
    """The answers that are waited for, by session and id."""

    _waiting: dict[tuple[str, str], tuple[asyncio.Future[Answer], Collection[Answer]]] = field(
        factory=dict, init=False
    )

    @contextmanager
    def opened(
        self, session_id: str, wanted: str, answers: Collection[Answer] = ()
    ) -> Iterator[PendingAnswer[Answer]]:
        """Take answers to one thing within the block: any, or one of `answers`."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[session_id, wanted] = future, answers
        try:
            yield PendingAnswer(future)
        finally:
            del self._waiting[session_id, wanted]

    def settle(self, session_id: str, wanted: str, answer: Answer) -> bool:
        """Give an answer; return whether it counts: something waits for it, and it is the first."""
        future, answers = self._waiting.get((session_id, wanted), (None, ()))
        if future is None or future.done() or (answers and answer not in answers):
            return False
        future.set_result(answer)
        return True
