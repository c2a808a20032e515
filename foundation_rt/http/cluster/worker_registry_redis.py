"""The workers of all hosts, and the sessions that may move between them, in Redis (HTTP-64).

    PREFIXworker:{name}          string: the address of a worker; gone soon after the worker
    PREFIXsession:{digest}       hash: the worker that has the session, and whether it may move
    PREFIXevents:{channel}       channel: announcements for the clients of other groups

A session moves when its worker has gone, to the first worker that is asked for it, unless it has
state. A script decides that, so that two workers cannot take the same session. Marks are written in
the background; while Redis is away, sessions of other hosts cannot be found, and announcements
reach the workers of this host alone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.abort import call_in_loop
from ...base.redis_link import FAILURES, NO_ANSWER, Outage, connect
from .session_seal import WorkerName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis
    from redis.commands.core import AsyncScript

    from ...base.logs.logger import StructuredLogger

ALIVE_MS = 10_000
"""The milliseconds for which a worker that says nothing counts as alive."""

MARK_MS = 24 * 3600 * 1000
"""The milliseconds for which the mark of a session is kept after it was last looked for."""

_BEAT_SECONDS = 2.0
_TIMEOUT_SECONDS = 2.0
_CLOSE_SECONDS = 2.0
_CANCEL_SECONDS = 0.2
_MAX_WRITES = 100_000

_MARK = """
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'moves', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

# Not made anew: a session that has ended stays unknown.
_KEEP = "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'moves', 0) end"

_FORGET = "redis.call('DEL', KEYS[1])"

_FIND = """
local mark, workers, asker, began = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local owner = redis.call('HGET', mark, 'owner') or began
redis.call('PEXPIRE', mark, ARGV[4])
if owner ~= asker and redis.call('EXISTS', workers .. owner) == 1 then return owner end
if redis.call('HGET', mark, 'moves') ~= '1' then return false end
redis.call('HSET', mark, 'owner', asker)
return asker
"""


@define(eq=False, repr=False)
class WorkerRegistry:
    """The view of one worker.

    Args:
        url: the URL of the Redis server; may hold a password, and is never shown.
        logger: logs when Redis fails and works again.
        name: this worker.
        address: the address at which other hosts reach it.
        channel: of the announcements of all workers with one key.
        prefix: the prefix of all keys.
    """

    _url: str
    _logger: StructuredLogger
    _name: WorkerName
    _own_address: tuple[str, int]
    _channel: str
    _prefix: str = "foundation-rt:"
    _redis: Redis = field(init=False)
    _scripts: dict[str, AsyncScript] = field(init=False)
    _writes: asyncio.Queue[tuple[str, str]] = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _outage: Outage = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._redis = connect(self._url, _TIMEOUT_SECONDS, decode_responses=True)
        self._outage = Outage(
            self._logger,
            "the registry of workers in Redis fails: sessions of other hosts cannot be found",
            "the registry of workers in Redis works again",
        )
        texts = {"mark": _MARK, "keep": _KEEP, "forget": _FORGET, "find": _FIND}
        self._scripts = {name: self._redis.register_script(text) for name, text in texts.items()}

    async def start(self, receive: Callable[[str], object]) -> None:
        """Make this worker known; if Redis is away, as soon as it is back.

        Args:
            receive: called with each message that workers of other groups `publish`.
        """
        self._loop = asyncio.get_running_loop()
        self._writes = asyncio.Queue(_MAX_WRITES)
        await self._beat()
        host, port = self._own_address
        self._logger.info("other hosts reach this worker", {"address": f"{host}:{port}"})
        lasting = (self._beat_on(), self._write_on(), self._listen_on(receive))
        self._tasks = [asyncio.create_task(each) for each in lasting]

    async def close(self) -> None:
        """Write what waits, unless that takes too long, and make this worker unknown."""
        with suppress(*FAILURES):  # asyncio's TimeoutError is an OSError
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writes.join()
                await self._redis.delete(self._worker_key(self._name))
        pending = set(self._tasks)
        while pending:
            for task in pending:
                task.cancel()
            # Again, because a cancellation is lost that meets a timeout of the Redis client.
            _, pending = await asyncio.wait(pending, timeout=_CANCEL_SECONDS)
        await self._redis.aclose()

    async def publish(self, message: str) -> bool:
        """Send a message to the workers of all other groups; return False if Redis fails."""
        sent = self._redis.publish(self._events_channel, f"{self._name.group} {message}")
        return await self._outage.answer(sent, "publish") is not None

    def mark(self, digest: str) -> None:
        """Note that a session of this worker may move when the worker has gone."""
        self._write("mark", digest)

    def keep(self, digest: str) -> None:
        """Note that a session may not move any more; from any thread."""
        call_in_loop(self._loop, self._write, "keep", digest)

    def forget(self, digest: str) -> None:
        """Note that a session has ended."""
        self._write("forget", digest)

    async def find_session(self, digest: str, began: WorkerName) -> WorkerName | None:
        """Return the worker that has a session; this one if it is to restore it now.

        Args:
            digest: of the session's id.
            began: the worker that began it.

        Returns:
            None if nobody has it.

        Raises:
            ConnectionError: Redis fails.
        """
        arguments = (f"{self._prefix}worker:", str(self._name), str(began), MARK_MS)
        asked = self._scripts["find"]((self._mark_key(digest),), arguments)
        found = await self._find(asked)
        if found is None:
            return None
        group, _, slot = str(found).partition(":")
        return WorkerName(group, int(slot))

    async def address_of(self, name: WorkerName) -> tuple[str, int] | None:
        """Return the address of a worker; None if it has gone.

        Raises:
            ConnectionError: Redis fails.
        """
        found = await self._find(self._redis.get(self._worker_key(name)))
        if found is None:
            return None
        host, _, port = str(found).rpartition(":")
        return host, int(port)

    async def _find(self, command: Awaitable[Any]) -> Any:
        try:
            found = await command
        except FAILURES as error:
            self._outage.note(error, "find")
            raise ConnectionError("Redis fails") from error
        self._outage.note(None, "find")
        return found

    def _worker_key(self, name: WorkerName) -> str:
        return f"{self._prefix}worker:{name}"

    @property
    def _events_channel(self) -> str:
        return f"{self._prefix}events:{self._channel}"

    def _mark_key(self, digest: str) -> str:
        return f"{self._prefix}session:{digest}"

    async def _beat(self) -> None:
        host, port = self._own_address
        beat = self._redis.set(self._worker_key(self._name), f"{host}:{port}", px=ALIVE_MS)
        await self._outage.answer(beat, "beat")

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            await self._beat()

    def _write(self, script: str, digest: str) -> None:
        with suppress(asyncio.QueueFull):  # such a session is unknown once its worker has gone
            self._writes.put_nowait((script, digest))

    async def _write_on(self) -> None:
        arguments: dict[str, tuple[Any, ...]] = {"mark": (str(self._name), MARK_MS)}
        while True:
            script, digest = await self._writes.get()
            while not await self._perform(script, digest, arguments.get(script, ())):
                await asyncio.sleep(_BEAT_SECONDS)
            self._writes.task_done()

    async def _listen_on(self, receive: Callable[[str], object]) -> None:
        while True:
            try:
                await self._listen(receive)
            except FAILURES as error:
                self._outage.note(error, "listen")
            await asyncio.sleep(_BEAT_SECONDS)

    async def _listen(self, receive: Callable[[str], object]) -> None:
        """Receive messages until Redis fails, or answers no ping: it may vanish without a word."""
        # What answers a subscription or a ping is returned too, so that None means silence alone.
        async with self._redis.pubsub() as channel:
            await channel.subscribe(self._events_channel)
            is_asked = False
            while True:
                found = await channel.get_message(timeout=_TIMEOUT_SECONDS)
                if found is not None:
                    is_asked = False
                    self._outage.note(None, "listen")
                    if found["type"] == "message":
                        self._take(str(found["data"]), receive)
                elif is_asked:
                    raise TimeoutError("no answer to a ping")
                else:
                    is_asked = True
                    await channel.ping()

    def _take(self, message: str, receive: Callable[[str], object]) -> None:
        group, _, announcements = message.partition(" ")
        if group != self._name.group:  # those of this host have a shorter way
            receive(announcements)

    async def _perform(self, script: str, digest: str, arguments: tuple[Any, ...]) -> bool:
        """Run a script; return False if it is to be tried again."""
        try:
            await self._scripts[script]((self._mark_key(digest),), arguments)
        except NO_ANSWER as error:
            self._outage.note(error, "write")
            return False
        except FAILURES as error:  # it would fail again
            self._outage.note(error, "write")
        else:
            self._outage.note(None, "write")
        return True
