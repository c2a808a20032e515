"""What was said in the streams of sessions, kept for clients that lost their connection.

An event's id names its stream and its place in it, so that a client is told what its own stream
said after that, and nothing of another (RESUME-01, RESUME-02). Writing returns at once: the id is
known without asking anybody, and a store that lies elsewhere is brought up to date behind it.

What is kept is bounded, by number and bytes of each session and by time; the oldest goes first.
A stream of which something is missing is not resumed: a gap would look like an answer that never
came (RESUME-03).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from attrs import define, field, frozen

from ...protocol.jsonrpc import compact

if TYPE_CHECKING:
    from ...clock import Clock

MAX_SESSION_BYTES = 16 * 1024 * 1024
"""Most bytes of messages that are kept of one session."""

MAX_STORE_BYTES = 256 * 1024 * 1024
"""Most bytes of messages that a process keeps of all sessions."""

_EVENT_BYTES = 200  # what keeping one event takes besides its message

_EVENT_ID = re.compile(r"([0-9a-f]{16})-([1-9][0-9]{0,14}|0)")


@frozen(eq=False)
class StoredEvent:
    """One event of a stream; `line` is the message, or empty."""

    event_id: str
    line: bytes


@frozen(eq=False)
class Replay:
    """What a stream said after an event.

    Attributes:
        ended: nothing more will be said there.
    """

    stream_id: str
    events: Sequence[StoredEvent]
    ended: bool


@frozen
class SessionRecord:
    """What another process has to know of a session in order to resume its streams.

    Attributes:
        owner: the `identity_of` whose it is; None where nobody has to say who he is.
        revision: name of the revision that was agreed on.
    """

    owner: str | None
    revision: str


class Trail(Protocol):
    """The record of one stream, for who says something there."""

    stream_id: str

    def record(self, line: bytes) -> str:
        """Keep one message, or nothing (`b""`), as the next event; return the event's id."""
        ...

    def end(self) -> None:
        """Nothing follows any more."""
        ...


class EventStore(Protocol):
    """Where events are kept. Belongs to one event loop; only `replay` and `find` wait."""

    async def start(self) -> None:
        """Begin; to be called before anything else."""
        ...

    async def close(self) -> None:
        """Bring to an end what is being written."""
        ...

    def open(self, session_id: str, record: SessionRecord) -> None:
        """Keep what is to be known of a session."""
        ...

    async def find(self, session_id: str) -> SessionRecord | None:
        """What is known of a session, in whatever process it lives."""
        ...

    def begin(self, session_id: str) -> Trail:
        """The trail of a new stream."""
        ...

    async def replay(
        self, session_id: str, last_event_id: str, *, whole: bool = True
    ) -> Replay | None:
        """What the stream of `last_event_id` said after it; None if it cannot be told.

        Args:
            whole: it is not told either if only the end of it is still kept.
        """
        ...

    def forget(self, session_id: str) -> None:
        """The session is over: nothing of it is kept."""
        ...


def new_stream_id() -> str:
    """Unique within a session, whichever process makes it."""
    return token_hex(8)


def event_id(stream_id: str, place: int) -> str:
    """The id of the event at `place`, from 0, of a stream."""
    return f"{stream_id}-{place}"


def parse_event_id(text: str) -> tuple[str, int] | None:
    """Stream and place that an id names; None if it is none of ours."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


@define(eq=False, repr=False)
class _Stream:
    """One stream; `lost` is how many of its first events are no longer kept."""

    lines: deque[bytes] = field(factory=deque)
    lost: int = 0
    ended: bool = False


@define(eq=False, repr=False)
class _Session:
    """All that is kept of one session; `order` has its events oldest first: when, and where."""

    record: SessionRecord
    streams: dict[str, _Stream] = field(factory=dict)
    order: deque[tuple[float, str]] = field(factory=deque)
    size: int = 0


@define(eq=False, repr=False)
class MemoryTrail:
    """A stream whose events a `MemoryEventStore` keeps."""

    _store: MemoryEventStore
    _session_id: str
    stream_id: str = field(factory=new_stream_id)
    _place: int = field(default=0, init=False)

    def record(self, line: bytes) -> str:
        """Keep `line` as the next event; return its id."""
        place = self._place
        self._place += 1
        self._store.put(self._session_id, self.stream_id, line)
        return event_id(self.stream_id, place)

    def end(self) -> None:
        """Nothing follows any more."""
        self._store.end_stream(self._session_id, self.stream_id)


@define(eq=False, repr=False)
class MemoryEventStore:
    """Keeps events in this process.

    Args:
        clock: says how old they are.
        max_events: of one session.
        ttl_ms: how long one is kept.
        max_session_bytes: of one session.
        max_bytes: of all.
    """

    _clock: Clock
    _max_events: int
    _ttl_ms: int
    _max_session_bytes: int = MAX_SESSION_BYTES
    _max_bytes: int = MAX_STORE_BYTES
    _sessions: dict[str, _Session] = field(factory=dict, init=False)
    # Those that have events; the one that said something last is the last.
    _filled: dict[str, _Session] = field(factory=dict, init=False)
    _size: int = field(default=0, init=False)
    _swept: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._swept = self._clock.monotonic()

    @property
    def size(self) -> int:
        """Bytes that all events take, with what it takes to keep them."""
        return self._size

    async def start(self) -> None:
        """Nothing has to begin."""

    async def close(self) -> None:
        """Forget everything."""
        self._sessions.clear()
        self._filled.clear()
        self._size = 0

    def open(self, session_id: str, record: SessionRecord) -> None:
        """Keep what is to be known of a session; before this nothing of it is kept."""
        self._sessions[session_id] = _Session(record)

    async def find(self, session_id: str) -> SessionRecord | None:
        """What is known of a session."""
        session = self._sessions.get(session_id)
        return None if session is None else session.record

    def begin(self, session_id: str) -> MemoryTrail:
        """The trail of a new stream."""
        trail = MemoryTrail(self, session_id)
        session = self._sessions.get(session_id)
        if session is not None:
            session.streams[trail.stream_id] = _Stream()
        return trail

    async def replay(
        self, session_id: str, last_event_id: str, *, whole: bool = True
    ) -> Replay | None:
        """What the stream of `last_event_id` said after it; None if it cannot be told."""
        named = parse_event_id(last_event_id)
        session = self._sessions.get(session_id)
        if named is None or session is None:
            return None
        self._drop_expired(session_id, session)
        stream_id, place = named
        stream = session.streams.get(stream_id)
        first = place + 1
        if stream is not None and not whole:
            first = max(first, stream.lost)
        if stream is None or not stream.lost <= first <= stream.lost + len(stream.lines):
            return None
        lines = list(stream.lines)[first - stream.lost :]
        events = [StoredEvent(event_id(stream_id, first + i), each) for i, each in enumerate(lines)]
        return Replay(stream_id, events, stream.ended)

    def forget(self, session_id: str) -> None:
        """Keep nothing of a session any longer."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._filled.pop(session_id, None)
            self._size -= session.size

    def put(self, session_id: str, stream_id: str, line: bytes) -> None:
        """Keep one event, and let go of what is beyond the bounds."""
        session = self._sessions.get(session_id)
        if session is None or stream_id not in session.streams:
            return
        session.streams[stream_id].lines.append(compact(line))
        session.order.append((self._clock.monotonic(), stream_id))
        self._account(session, len(line) + _EVENT_BYTES)
        self._filled.pop(session_id, None)
        self._filled[session_id] = session
        while len(session.order) > self._max_events or session.size > self._max_session_bytes:
            self._drop_oldest(session_id, session)
        while self._size > self._max_bytes:
            self._drop_oldest(*next(iter(self._filled.items())))
        self._sweep()

    def end_stream(self, session_id: str, stream_id: str) -> None:
        """Nothing follows in that stream."""
        session = self._sessions.get(session_id)
        stream = None if session is None else session.streams.get(stream_id)
        if session is None or stream is None:
            return
        stream.ended = True
        if not stream.lines:
            del session.streams[stream_id]

    def _sweep(self) -> None:
        """Drop what has expired in any session, once in the time that an event is kept."""
        if self._clock.monotonic() - self._swept >= self._ttl_ms / 1000:
            self._swept = self._clock.monotonic()
            for session_id, session in [*self._filled.items()]:
                self._drop_expired(session_id, session)

    def _drop_expired(self, session_id: str, session: _Session) -> None:
        oldest = self._clock.monotonic() - self._ttl_ms / 1000
        while session.order and session.order[0][0] <= oldest:
            self._drop_oldest(session_id, session)

    def _drop_oldest(self, session_id: str, session: _Session) -> None:
        _, stream_id = session.order.popleft()
        stream = session.streams[stream_id]
        self._account(session, -len(stream.lines.popleft()) - _EVENT_BYTES)
        # As long as something may follow, it is remembered how much is missing.
        stream.lost += 1
        if not stream.lines and stream.ended:
            del session.streams[stream_id]
        if not session.order:
            del self._filled[session_id]

    def _account(self, session: _Session, size: int) -> None:
        session.size += size
        self._size += size
