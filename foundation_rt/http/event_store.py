"""The events of sessions' streams, kept for clients that lost their connection.

An event's id names its stream and its place in it, so a client gets the later events of its own
stream, and none of another (RESUME-01, RESUME-02). Writing returns at once: the id is computed
locally, and a remote store is updated in the background.

The store is bounded, by the number and bytes of each session's events and by their age; the oldest
are dropped first. A stream with missing events is not resumed: a gap would look like a response
that never came (RESUME-03).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from attrs import define, field, frozen

from ..base.exact_json import compact

if TYPE_CHECKING:
    from ..base.clock import Clock

MAX_SESSION_BYTES = 16 * 1024 * 1024
"""The most bytes of messages that are kept of one session."""

MAX_STORE_BYTES = 256 * 1024 * 1024
"""The most bytes of messages that a process keeps of all sessions."""

_EVENT_BYTES = 200  # the memory of one event besides its message

_EVENT_ID = re.compile(r"([0-9a-f]{16})-([1-9][0-9]{0,14}|0)")


@frozen(eq=False)
class StoredEvent:
    """One event of a stream; `line` is the message, or empty."""

    event_id: str
    line: bytes


@frozen(eq=False)
class Replay:
    """The events of a stream after a given one.

    Attributes:
        stream_id: the id of the stream.
        events: the events, in their order.
        ended: whether the stream has ended.
    """

    stream_id: str
    events: Sequence[StoredEvent]
    ended: bool


@frozen
class SessionRecord:
    """The part of a session that another process needs to resume its streams.

    Attributes:
        owner: the `identity_of` the session's principal; None without authentication.
        revision: the name of the negotiated revision.
    """

    owner: str | None
    revision: str


class EventStore(Protocol):
    """Keeps events. Belongs to one event loop; only `replay` and `find` wait."""

    async def start(self) -> None:
        """Start the store, before any other call."""
        ...

    async def close(self) -> None:
        """Finish writing, and close the store."""
        ...

    def open(self, session_id: str, record: SessionRecord) -> None:
        """Keep the record of a session."""
        ...

    async def find(self, session_id: str) -> SessionRecord | None:
        """Return the record of a session of any process; None if it is unknown."""
        ...

    def begin(self, session_id: str) -> StreamLog:
        """Return the log of a new stream."""
        ...

    async def replay(
        self, session_id: str, last_event_id: str, *, whole: bool = True
    ) -> Replay | None:
        """Return the events of a stream after `last_event_id`; None if they are not known.

        Args:
            session_id: the session of the stream.
            last_event_id: the id of an event of the stream.
            whole: whether to return None if only the last of these events are still kept.
        """
        ...

    def put(self, session_id: str, stream_id: str, place: int, line: bytes) -> None:
        """Keep the event at `place` of a stream, unless its session has ended."""
        ...

    def end_stream(self, session_id: str, stream_id: str) -> None:
        """Note that a stream has ended."""
        ...

    def forget(self, session_id: str) -> None:
        """Drop the record and all events of a session that has ended."""
        ...


def new_stream_id() -> str:
    """Return an id that is unique within a session, across processes."""
    return token_hex(8)


def event_id(stream_id: str, place: int) -> str:
    """Return the id of the event at `place`, counted from 0, of a stream."""
    return f"{stream_id}-{place}"


def parse_event_id(text: str) -> tuple[str, int] | None:
    """Return the stream and the place that an id names; None if it is malformed."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


@define(eq=False, repr=False)
class _Stream:
    """One stream; `lost` counts the first events that are no longer kept."""

    lines: deque[bytes] = field(factory=deque)
    lost: int = 0
    ended: bool = False


@define(eq=False, repr=False)
class _Session:
    """The events of one session; `order` lists their times and streams, the oldest first."""

    record: SessionRecord
    streams: dict[str, _Stream] = field(factory=dict)
    order: deque[tuple[float, str]] = field(factory=deque)
    size: int = 0


@define(eq=False, repr=False)
class StreamLog:
    """The log of one stream, for its writer."""

    _store: EventStore
    _session_id: str
    stream_id: str = field(factory=new_stream_id)
    _place: int = field(default=0, init=False)

    def record(self, line: bytes) -> str:
        """Keep one message, or an empty one (`b""`), as the next event; return the event's id."""
        place = self._place
        self._place += 1
        self._store.put(self._session_id, self.stream_id, place, line)
        return event_id(self.stream_id, place)

    def end(self) -> None:
        """Note that the stream has ended."""
        self._store.end_stream(self._session_id, self.stream_id)

    def is_last(self, place: int) -> bool:
        """Return whether the stream has no event after `place`."""
        return place == self._place - 1


@define(eq=False, repr=False)
class MemoryEventStore:
    """Keeps events in this process.

    Args:
        clock: measures their age.
        max_events: the most events of one session.
        ttl_ms: how long an event is kept, in milliseconds.
        max_session_bytes: the most bytes of one session.
        max_bytes: the most bytes of all sessions.
    """

    _clock: Clock
    _max_events: int
    _ttl_ms: int
    _max_session_bytes: int = MAX_SESSION_BYTES
    _max_bytes: int = MAX_STORE_BYTES
    _sessions: dict[str, _Session] = field(factory=dict, init=False)
    # The sessions that have events, in the order of their last ones.
    _filled: dict[str, _Session] = field(factory=dict, init=False)
    _size: int = field(default=0, init=False)
    _swept: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._swept = self._clock.monotonic()

    @property
    def size(self) -> int:
        """Return the memory of all events, in bytes."""
        return self._size

    async def start(self) -> None:
        """Do nothing: there is nothing to start."""

    async def close(self) -> None:
        """Forget everything."""
        self._sessions.clear()
        self._filled.clear()
        self._size = 0

    def open(self, session_id: str, record: SessionRecord) -> None:
        """Keep the record of a session; its events are kept from now on."""
        self._sessions[session_id] = _Session(record)

    async def find(self, session_id: str) -> SessionRecord | None:
        """Return the record of a session; None if it is unknown."""
        session = self._sessions.get(session_id)
        return None if session is None else session.record

    def begin(self, session_id: str) -> StreamLog:
        """Return the log of a new stream."""
        log = StreamLog(self, session_id)
        session = self._sessions.get(session_id)
        if session is not None:
            session.streams[log.stream_id] = _Stream()
        return log

    async def replay(
        self, session_id: str, last_event_id: str, *, whole: bool = True
    ) -> Replay | None:
        """Return the events of a stream after `last_event_id`; None if they are not known."""
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
        """Drop the record and all events of a session."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._filled.pop(session_id, None)
            self._size -= session.size

    def put(self, session_id: str, stream_id: str, place: int, line: bytes) -> None:
        """Keep one event, and drop the oldest ones beyond the bounds."""
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
        """Note that a stream has ended."""
        session = self._sessions.get(session_id)
        stream = None if session is None else session.streams.get(stream_id)
        if session is None or stream is None:
            return
        stream.ended = True
        if not stream.lines:
            del session.streams[stream_id]

    def _sweep(self) -> None:
        """Drop the expired events of all sessions, once per `ttl_ms`."""
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
        # The number of missing events is kept as long as further ones may come.
        stream.lost += 1
        if not stream.lines and stream.ended:
            del session.streams[stream_id]
        if not session.order:
            del self._filled[session_id]

    def _account(self, session: _Session, size: int) -> None:
        session.size += size
        self._size += size
