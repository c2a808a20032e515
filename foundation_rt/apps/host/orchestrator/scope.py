"""The values that the parts of one turn share: its events, its time, the services of all turns.

`EventBuffer` lies between the task that makes the events and the generator that yields them. The
time of a turn stands still while a person is asked (TURN-06). `OpenCall` is a call of a tool
without outcome, with the events about it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attrs import define, evolve, field, frozen

from ....base.bounded_dict import BoundedDict
from ..chat import ChatMessage, Role
from ..events import ServerMessage, SessionEventType
from .approvals import Approvals, PendingAnswers
from .observation import TurnObservation
from .pruning import NOTICE, HistoryReader
from .results import json_size
from .settings import OrchestratorSettings
from .skills import OfferedSkills
from .tool_choice import ToolChoice

if TYPE_CHECKING:
    from ...coordinator import Coordinator, ToolRegistryEntry
    from ..llm.service import LLMService
    from .approvals import Subject
    from .histories import ConversationHistories
    from .observation import TurnMetrics


@define(eq=False)
class TurnScope:
    """One turn of one session.

    Attributes:
        events: of the turn, to be yielded.
        clock: the time of the turn.
        reader: of the history.
        model: that the person chose for this turn; "" is that of the configuration.
        ids: of messages and calls of this turn.
    """

    services: TurnServices
    session_id: str
    turn_id: str
    events: EventBuffer
    clock: TurnClock
    observation: TurnObservation
    reader: HistoryReader
    model: str = ""
    ids: set[str] = field(factory=set)

    async def store(self, message: ChatMessage) -> None:
        """Add a message to the history, or replace the one of its id."""
        await self.services.histories.add_message(self.session_id, message)

    async def emit(self, kind: SessionEventType, payload: Mapping[str, Any]) -> None:
        """Put an event when there is room for it."""
        await self.events.put(kind, payload)

    def own_id(self, wanted: str | None) -> str:
        """Return an id that the session does not have yet: the wanted one, or another (TURN-14)."""
        histories = self.services.histories
        is_free = wanted not in self.ids and not histories.knows(self.session_id, wanted or "")
        chosen = wanted if wanted and is_free else self.services.new_id()
        self.ids.add(chosen)
        return chosen

    def stamped(self, message: ChatMessage, **metadata: Any) -> ChatMessage:
        """Return a message with the time and the turn it belongs to."""
        given = {**message.metadata, "turn": self.turn_id, **metadata}
        return evolve(message, created_at=self.services.now_ms(), metadata=given)

    async def say(self, text: str) -> None:
        """Say something in the host's own words; no model reads it (TURN-33)."""
        message = ChatMessage(id=self.own_id(None), role=Role.ASSISTANT, content=text)
        message = self.stamped(message, **{NOTICE: True})
        await self.store(message)
        self.events.push("text", {"content": text, "messageId": message.id, "done": True})


_LIMIT = 64
"""Events that wait; beyond, the model is read no further."""


@define(eq=False)
class EventBuffer:
    """Events in order. A slow reader slows the turn.

    Args:
        turn_id: of all events.
    """

    _turn_id: str
    _events: deque[ServerMessage] = field(factory=deque, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _room: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._room.set()

    @property
    def has_room(self) -> bool:
        """Return whether an event may be put without waiting."""
        return len(self._events) < _LIMIT

    async def put(self, kind: SessionEventType, payload: Mapping[str, Any]) -> None:
        """Put an event when there is room for it; drop it once nobody reads."""
        while not (self.has_room or self._is_closed):
            self._room.clear()
            await self._room.wait()
        self.push(kind, payload)

    def push(self, kind: SessionEventType, payload: Mapping[str, Any]) -> None:
        """Put an event at once, for those whose number is bounded; dropped once nobody reads."""
        if not self._is_closed:
            self._events.append(ServerMessage(kind, payload, self._turn_id))
            self._changed.set()

    def close(self) -> None:
        """Take no further event; whoever waits for room goes on."""
        self._is_closed = True
        self._changed.set()
        self._room.set()

    async def next(self) -> ServerMessage | None:
        """Return the next event; None after the last one."""
        while not self._events:
            if self._is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        event = self._events.popleft()
        self._room.set()
        return event


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


_MOST = 256
"""Readers that are kept; a further session takes the place of the one that is idle the longest."""


@define(eq=False)
class HistoryReaders:
    """Keeps what was read of histories, as long as that is of use."""

    _readers: BoundedDict[str, HistoryReader] = field(
        factory=lambda: BoundedDict(_MOST), init=False
    )

    def of(self, session_id: str) -> HistoryReader:
        """Return the reader of a session."""
        reader = self._readers[session_id] = self._readers.get(session_id) or HistoryReader()
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
        skills: of the servers.
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
    skills: OfferedSkills = field(init=False)
    questions: PendingAnswers[tuple[str, Any]] = field(factory=PendingAnswers)
    new_id: Callable[[], str] = _new_id
    now_ms: Callable[[], int] = _now_ms
    draw: Callable[[], float] = random.random

    @skills.default
    def _skills(self) -> OfferedSkills:
        return OfferedSkills(self.coordinator)

    @property
    def most_tools(self) -> int | None:
        """The most tools of servers that a request may have; None: any number (TURN-85)."""
        most = self.llm.max_tools
        return None if most is None else most - bool(self.skills.all())


def session_key(session_id: str) -> str:
    """Return what servers' connections know of a session: its id is a secret."""
    return sha256(session_id.encode()).hexdigest()


_PAUSE = 0.1
"""Seconds between two events about the progress of one call."""

_MAX_MESSAGE = 500

_MAX_REPEATED = 4096
"""The most bytes of arguments that each event of a call repeats; longer ones are in the first."""


@define(eq=False)
class OpenCall:
    """A call without outcome.

    Attributes:
        message: by which the model asks for it.
        name: of the tool, qualified if it is known.
        arguments: by name.
        entry: of the tool; None if it is not known.
        app: URI of the tool's app; None if it has none.
        is_sent: whether the tool may have run.
        allowed: what the tool was when it was allowed; None if that does not matter.
        decision: of the people who were asked; None if nobody was, or has decided.
        began: time of the loop, in s.
    """

    scope: TurnScope
    message: ChatMessage
    name: str
    arguments: Mapping[str, Any]
    entry: ToolRegistryEntry | None
    app: str | None = None
    is_sent: bool = False
    allowed: Subject | None = None
    decision: str | None = None
    began: float = 0.0
    _shown: int | None = field(default=None, init=False)
    _latest: Callable[[], str] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _next_at: float = field(default=0.0, init=False)
    _progress: Mapping[str, Any] | None = field(default=None, init=False)

    @property
    def call_id(self) -> str:
        """The id of the call, unique in its session."""
        return str(self.message.call_id)

    def processing(self, message: str, **more: Any) -> dict[str, Any]:
        """Return the payload of an event of the call before it has ended."""
        payload: dict[str, Any] = {
            "state": "processing",
            "tool": self.name,
            "message": message[:_MAX_MESSAGE],
            "callId": self.call_id,
        }
        if self.app is not None:
            payload["app"] = self.app
        if self._shown is None or self._shown <= _MAX_REPEATED:
            payload["data"] = {"arguments": dict(self.arguments)}
        if self._shown is None:
            self._shown = json_size(self.arguments)
        return {**payload, **more}

    # -- progress: at most ten events a second, the newest wins, the result never waits (TURN-35)

    def report_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Take the progress of the call."""
        progress = {"progress": done, "total": total, "message": message}
        self._progress = {name: value for name, value in progress.items() if value is not None}
        self._report(lambda: message or f"{self.name} is running")

    def report_log(self, level: str, logger: str | None, data: Any) -> None:
        """Take a log message of the call."""
        self._report(lambda: f"{level}: {data if isinstance(data, str) else repr(data)}")

    def end_reports(self) -> None:
        """Report nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._latest = None
        self._next_at = float("inf")

    def _report(self, message: Callable[[], str]) -> None:
        """Keep the newest report; it is written when it is sent, as most are not."""
        self._latest = message
        if self._timer is None:
            self._send_latest()

    def _send_latest(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._latest is None or self._next_at == float("inf"):
            return
        if loop.time() >= self._next_at and self.scope.events.has_room:
            more = {} if self._progress is None else {"progress": self._progress}
            self.scope.events.push("status", self.processing(self._latest(), **more))
            self._latest = None
            self._next_at = loop.time() + _PAUSE
        else:
            wait = max(self._next_at - loop.time(), _PAUSE / 10)
            self._timer = loop.call_later(wait, self._send_latest)
