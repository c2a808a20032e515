"""The events of streams in Redis, where every process of a server finds them.

Writing returns at once; one task does it in the background, in order and in batches. While Redis
is unreachable, writes wait, up to a bound. The writer of a stream numbers its events, so a replay
notices a gap where an event was never written or was dropped.

    PREFIX{sha256 of the session's id}          hash: its owner; of each stream the next place,
                                                the number of kept events, whether it has ended
    PREFIX{sha256 of the session's id}:events   stream: the events of all streams of the session

Scripts keep the bounds and times, by the clock of the Redis server. Needs the extra `redis`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..base.exact_json import compact
from ..base.redis_link import FAILURES, Outage, connect
from .event_store import (
    MAX_SESSION_BYTES,
    Replay,
    SessionRecord,
    StoredEvent,
    StreamLog,
    event_id,
    parse_event_id,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.commands.core import AsyncScript

    from ..base.logs.logger import StructuredLogger

MAX_BACKLOG_BYTES = 64 * 1024 * 1024
"""The most bytes that wait to be written; later events are not kept."""

_BATCH = 100  # events in one round trip
_RETRY_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_WRITE_BYTES = 500  # the memory of one write besides its message

_APPEND = """
local events, session = KEYS[1], KEYS[2]
local stream, place, line, owner, revision = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_events, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
local ttl_ms, session_ttl_ms = tonumber(ARGV[8]), tonumber(ARGV[9])
local now = redis.call('TIME')
local oldest_ms = now[1] * 1000 + math.floor(now[2] / 1000) - ttl_ms

redis.call('XADD', events, '*', 's', stream, 'n', place, 'd', line)
redis.call('HSET', session, 'revision', revision, 'next:' .. stream, place + 1)
if owner ~= '' then redis.call('HSET', session, 'owner', owner) end
redis.call('HINCRBY', session, 'kept:' .. stream, 1)
local size = redis.call('HINCRBY', session, 'size', #line)

while true do
    local first = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
    if not first then break end
    local age = tonumber(string.match(first[1], '^%d+'))
    if redis.call('XLEN', events) <= max_events and size <= max_bytes and age > oldest_ms then
        break
    end
    local of = first[2][2]
    redis.call('XDEL', events, first[1])
    size = redis.call('HINCRBY', session, 'size', 0 - #first[2][6])
    local kept = redis.call('HINCRBY', session, 'kept:' .. of, -1)
    if kept <= 0 and redis.call('HEXISTS', session, 'ended:' .. of) == 1 then
        redis.call('HDEL', session, 'kept:' .. of, 'next:' .. of, 'ended:' .. of)
    end
end
redis.call('PEXPIRE', events, ttl_ms)
redis.call('PEXPIRE', session, session_ttl_ms)
"""

_END = """
local session, stream = KEYS[1], ARGV[1]
if tonumber(redis.call('HGET', session, 'kept:' .. stream) or '0') > 0 then
    redis.call('HSET', session, 'ended:' .. stream, 1)
else
    redis.call('HDEL', session, 'kept:' .. stream, 'next:' .. stream)
end
"""

_FORGET = "redis.call('DEL', KEYS[1], KEYS[2])"

_REPLAY = """
local events, session, stream, first = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local whole = ARGV[3] == '1'
local next_place = redis.call('HGET', session, 'next:' .. stream)
if not next_place then return false end
local found, expected = {}, first
for _, entry in ipairs(redis.call('XRANGE', events, '-', '+')) do
    -- An event that was written twice, since the first write was not confirmed, counts once.
    local place = tonumber(entry[2][4])
    if entry[2][2] == stream and (place == expected or (place > expected and not whole)) then
        if place ~= expected then found, first = {}, place end
        found[#found + 1] = entry[2][6]
        expected = place + 1
    end
end
if not whole and #found == 0 then first, expected = next_place, tonumber(next_place) end
if expected ~= tonumber(next_place) then return false end
return {redis.call('HEXISTS', session, 'ended:' .. stream), found, first}
"""


@define(eq=False, repr=False)
class _Write:
    """One write that waits."""

    script: AsyncScript
    keys: tuple[str, ...]
    arguments: tuple[Any, ...]
    size: int


@define(eq=False, repr=False)
class RedisEventStore:
    """Keeps events in Redis.

    Args:
        url: the URL of the Redis server; may hold a password, and is never shown.
        logger: logs when Redis fails and works again.
        max_events: the most events of one session.
        ttl_ms: how long an event is kept, in milliseconds.
        session_ttl_ms: how long an inactive session is remembered, in milliseconds.
        prefix: the prefix of all keys.
        max_session_bytes: the most bytes of one session's messages.
        max_backlog_bytes: the most bytes that wait to be written.
    """

    _url: str
    _logger: StructuredLogger
    _max_events: int
    _ttl_ms: int
    _session_ttl_ms: int
    _prefix: str = "foundation-rt:"
    _max_session_bytes: int = MAX_SESSION_BYTES
    _max_backlog_bytes: int = MAX_BACKLOG_BYTES
    _records: dict[str, SessionRecord] = field(factory=dict, init=False)
    _logs: dict[str, dict[str, StreamLog]] = field(factory=dict, init=False)
    _backlog: deque[_Write] = field(factory=deque, init=False)
    _backlog_bytes: int = field(default=0, init=False)
    _redis: Redis = field(init=False)
    _append: AsyncScript = field(init=False)
    _end: AsyncScript = field(init=False)
    _forget: AsyncScript = field(init=False)
    _replay: AsyncScript = field(init=False)
    _writer: asyncio.Task[None] | None = field(default=None, init=False)
    _has_writes: asyncio.Event = field(factory=asyncio.Event, init=False)
    # Set when no write waits, or the last attempt to write has failed.
    _settled: asyncio.Event = field(factory=asyncio.Event, init=False)
    _outage: Outage = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._redis = connect(self._url, _TIMEOUT_SECONDS)
        self._outage = Outage(
            self._logger,
            "the event store in Redis fails: streams cannot be resumed meanwhile",
            "the event store in Redis works again",
        )
        self._append, self._end, self._forget, self._replay = map(
            self._redis.register_script, (_APPEND, _END, _FORGET, _REPLAY)
        )

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that wait to be written."""
        return self._backlog_bytes

    async def start(self) -> None:
        """Start to write in the background, as soon as the Redis server is reachable."""
        self._settled.set()
        self._writer = asyncio.create_task(self._write_on())

    async def close(self) -> None:
        """Finish the waiting writes, unless that takes too long, and disconnect."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._settled.wait()
        if self._writer is not None:
            self._writer.cancel()
            with suppress(asyncio.CancelledError):
                await self._writer
            await self._redis.aclose()

    def open(self, session_id: str, record: SessionRecord) -> None:
        """Keep the record of a session; it is written with each event."""
        self._records[session_id] = record

    async def find(self, session_id: str) -> SessionRecord | None:
        """Return the record of a session of any process; None if unknown or if Redis fails."""
        record = self._records.get(session_id)
        if record is not None:
            return record
        try:
            owner, revision = await self._redis.hmget(
                self.keys(session_id)[1], ["owner", "revision"]
            )
        except FAILURES as error:
            self._outage.note(error)
            return None
        if revision is None:
            return None
        return SessionRecord(_text(owner), _text(revision) or "")

    def begin(self, session_id: str) -> StreamLog:
        """Return the log of a new stream."""
        log = StreamLog(self, session_id)
        if session_id in self._records:
            self._logs.setdefault(session_id, {})[log.stream_id] = log
        return log

    async def replay(
        self, session_id: str, last_event_id: str, *, whole: bool = True
    ) -> Replay | None:
        """Return the events of a stream after `last_event_id`; None if they are not known."""
        named = parse_event_id(last_event_id)
        if named is None:
            return None
        stream_id, place = named
        log = self._logs.get(session_id, {}).get(stream_id)
        if log is not None and log.is_last(place):
            return Replay(stream_id, (), False)
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._settled.wait()
            if self._backlog:
                return None
            keys, arguments = self.keys(session_id), (stream_id, place + 1, int(whole))
            found = await self._replay(keys, arguments)
        except FAILURES as error:
            self._outage.note(error)
            return None
        if found is None:
            return None
        ended, lines, first = found
        events = [
            StoredEvent(event_id(stream_id, int(first) + i), line) for i, line in enumerate(lines)
        ]
        return Replay(stream_id, events, bool(ended))

    def forget(self, session_id: str) -> None:
        """Drop the record and all events of a session."""
        if self._records.pop(session_id, None) is not None:
            self._logs.pop(session_id, None)
            self._enqueue(self._forget, self.keys(session_id), (), 0)

    def put(self, session_id: str, stream_id: str, place: int, line: bytes) -> None:
        """Keep one event, unless its session has ended."""
        record = self._records.get(session_id)
        if record is None:
            return
        arguments = (
            *(stream_id, place, compact(line), record.owner or "", record.revision),
            *(self._max_events, self._max_session_bytes, self._ttl_ms, self._session_ttl_ms),
        )
        self._enqueue(self._append, self.keys(session_id), arguments, len(line))

    def end_stream(self, session_id: str, stream_id: str) -> None:
        """Note that a stream has ended."""
        if self._logs.get(session_id, {}).pop(stream_id, None) is not None:
            self._enqueue(self._end, self.keys(session_id)[1:], (stream_id,), 0)

    def keys(self, session_id: str) -> tuple[str, str]:
        """Return the keys of a session's events and of its record (RESUME-06)."""
        # The id gives access to the session, and keys are shown in many places. The braces make a
        # cluster keep both keys on one node.
        session = f"{self._prefix}{{{sha256(session_id.encode()).hexdigest()}}}"
        return f"{session}:events", session

    def _enqueue(
        self, script: AsyncScript, keys: tuple[str, ...], arguments: tuple[Any, ...], size: int
    ) -> None:
        size += _WRITE_BYTES
        if self._backlog_bytes + size > self._max_backlog_bytes:
            return
        self._backlog.append(_Write(script, keys, arguments, size))
        self._backlog_bytes += size
        self._settled.clear()
        self._has_writes.set()

    async def _write_on(self) -> None:
        while True:
            await self._has_writes.wait()
            self._has_writes.clear()
            while self._backlog:
                await self._write_batch()
            self._settled.set()

    async def _write_batch(self) -> None:
        """Write the first batch; it stays in the backlog until that has succeeded."""
        batch = [self._backlog[i] for i in range(min(_BATCH, len(self._backlog)))]
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for each in batch:
                    await each.script(each.keys, each.arguments, pipeline)
                results = await pipeline.execute(raise_on_error=False)
        except FAILURES as error:
            self._outage.note(error)
            self._settled.set()
            await asyncio.sleep(_RETRY_SECONDS)
            return
        except Exception as error:
            results = [error]
        for each in batch:
            self._backlog.popleft()
            self._backlog_bytes -= each.size
        # A write that Redis refuses, or that cannot be sent at all, would fail again: it is lost.
        self._outage.note(next((each for each in results if isinstance(each, Exception)), None))


def _text(value: Any) -> str | None:
    return None if value is None else str(value, "utf-8")
