"""The services that all turns share."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attrs import define, field, frozen

from .approvals import Approvals, PendingAnswers
from .pruning import HistoryReader
from .settings import OrchestratorSettings
from .tool_choice import ToolChoice

if TYPE_CHECKING:
    from ...coordinator import Coordinator
    from ..llm.service import LLMService
    from .histories import ConversationHistories
    from .observation import TurnMetrics


_MOST = 256
"""Readers that are kept; a further session takes the place of the one that is idle the longest."""


@define(eq=False)
class HistoryReaders:
    """Keeps what was read of histories, as long as that is of use."""

    _readers: dict[str, HistoryReader] = field(factory=dict, init=False)

    def of(self, session_id: str) -> HistoryReader:
        """Return the reader of a session."""
        reader = self._readers.pop(session_id, None) or HistoryReader()
        self._readers[session_id] = reader  # the newest is the last
        if len(self._readers) > _MOST:
            del self._readers[next(iter(self._readers))]
        return reader

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self._readers.pop(session_id, None)


def _new_id() -> str:
    return uuid4().hex


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@frozen(eq=False, kw_only=True)
class TurnServices:
    """The collaborators of all turns.

    Attributes:
        readers: of the histories.
        choice: of the tools of a request.
        questions: of servers, that wait for a person: action and content.
        new_id: makes ids of messages, calls and questions.
        now_ms: returns the Unix time, in ms.
        draw: returns a random number from 0 to 1, for delays.
    """

    llm: LLMService
    coordinator: Coordinator
    histories: ConversationHistories
    settings: OrchestratorSettings
    approvals: Approvals
    metrics: TurnMetrics | None = None
    readers: HistoryReaders = field(factory=HistoryReaders)
    choice: ToolChoice = field(factory=ToolChoice)
    questions: PendingAnswers[tuple[str, Any]] = field(factory=PendingAnswers)
    new_id: Callable[[], str] = _new_id
    now_ms: Callable[[], int] = _now_ms
    draw: Callable[[], float] = random.random


def session_key(session_id: str) -> str:
    """Return what servers' connections know of a session: its id is a secret."""
    return sha256(session_id.encode()).hexdigest()
