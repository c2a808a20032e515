"""The workers that share a schema: who lives, what they ask of each other, what has changed.

A worker renews its lease in the table `worker`. Another one that finds it lapsed removes it, and
ends the turns of workers that are no longer in the table. It does so only when it has renewed its
own lease without a break for as long as a lease lasts: after an outage of the database every lease
has lapsed, and living workers are given the time to say that they live.

Changes are told by NOTIFY, with the key of the chat alone. Who misses one finds it in the table,
where it looks for the chats that are open in it each time that it renews its lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import uuid4

from attrs import define, field

from ....base.database.errors import DatabaseError
from ....base.database.postgres import Listener, PostgresConnections, Query, Row, Transaction
from ....base.exact_json import dumps, loads
from ..chat import chat_label
from . import statements
from .store import Command, StoreEvents

_LOG = logging.getLogger("foundation_rt.host.sessions")

LEASE_S = 6.0
RENEW_S = 1.5
_LOCK_MS = 1_000
"""The longest wait for a row that a worker which was stopped keeps locked."""
_ANSWER_S = 8.0
_LOOK_FOR_ANSWER_S = 1.0
_CHANGED, _COMMAND, _ANSWERED = "e", "c", "a"


@define(eq=False, repr=False)
class WorkerPresence:
    """This worker among the others of a schema.

    Args:
        connections: to the schema.
        events: what this worker does for others.
        interrupt: ends the turn of a chat whose worker has died.

    Attributes:
        id: of this worker; another one after it was taken for dead.
    """

    _connections: PostgresConnections
    _events: StoreEvents
    _interrupt: Callable[[bytes], Awaitable[None]]
    id: str = field(factory=lambda: uuid4().hex, init=False)
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _answering: set[asyncio.Task[None]] = field(factory=set, init=False)
    _asked: dict[str, asyncio.Event] = field(factory=dict, init=False)
    # Since when the lease was renewed without a break, in the time of the loop.
    _lives_since: float = field(default=0.0, init=False)
    _renewed_at: float = field(default=0.0, init=False)

    @property
    def _channel(self) -> str:
        return f"{self._connections.schema}.chats"

    async def start(self) -> None:
        """Join the others, listen to them, and renew the lease from now on."""
        await self._join()
        loop = asyncio.get_running_loop()
        self._lives_since = self._renewed_at = loop.time()
        listener = Listener(self._connections, f'"{self._channel}"', self._hear)
        self._tasks = [loop.create_task(listener.run()), loop.create_task(self._live())]

    async def close(self) -> None:
        """Leave the others."""
        tasks = [*self._tasks, *self._answering]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        with suppress(DatabaseError):
            await self._do((statements.LEAVE, (self.id,)))

    # -- the lease --------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self.renew()
                await self._look_after_others()
                await self._catch_up()
            except DatabaseError:  # the store is away: the lease is renewed when it is back
                continue
            except Exception:
                _LOG.exception("the lease of a worker was not renewed")

    async def renew(self) -> None:
        """Renew the lease, or join again after this worker was taken for dead.

        Its turns are ended by others then; it learns that from the table.
        """
        loop = asyncio.get_running_loop()
        rows = await self._do((statements.RENEW, (LEASE_S, self.id)))
        if not rows:
            self.id = uuid4().hex
            await self._join()
        now = loop.time()
        if not rows or now - self._renewed_at > LEASE_S:
            self._lives_since = now
        self._renewed_at = now

    async def _join(self) -> None:
        await self._do((statements.JOIN, (self.id, LEASE_S)))

    async def _look_after_others(self) -> None:
        """End the turns of workers that have died (CHAT-22)."""
        # First: one that was stopped in a transaction holds the row of its chat against whatever
        # else is done here, so that this worker's own lease would seem to have had a break each
        # time.
        await self._connections.end_stalled_transactions(LEASE_S)
        if asyncio.get_running_loop().time() - self._lives_since < LEASE_S:
            return
        await self._do((statements.BURY, ()))
        await self._do((statements.DROP_COMMANDS, ()))
        [orphans] = await self._connections.read((statements.ORPHANS, ()))
        for (key,) in orphans:
            try:
                await self._interrupt(bytes(key))
            except DatabaseError:
                raise
            except Exception:  # another worker was faster, or the chat was deleted
                fields = {"chat": chat_label(bytes(key).hex())}
                _LOG.info("a turn of a dead worker was ended elsewhere", extra={"fields": fields})

    # -- changes ----------------------------------------------------------------------------------

    def tell_changed(self, key: bytes) -> Query:
        """Return the query that tells others of a change, for after its commit."""
        return (statements.NOTIFY, (self._channel, _CHANGED + key.hex()))

    def _hear(self, payload: str | None) -> None:
        if payload is None:
            self._spawn(self._catch_up)
        elif payload.startswith(_CHANGED):
            self._events.changed(bytes.fromhex(payload[1:]))
        elif payload == _COMMAND + self.id:
            self._spawn(self._take_commands)
        elif payload.startswith(_ANSWERED) and (asked := self._asked.get(payload[1:])):
            asked.set()

    async def _catch_up(self) -> None:
        """Look for what was not heard of, and say which chats are watched here.

        Of chats whose turns run elsewhere that is said each time, of others once in a while: for
        as long as they are watched nobody purges them.
        """
        await self._take_commands()
        known = self._events.watched()
        if not known:
            return
        keys = list(known)
        [rows] = await self._connections.read((statements.VERSIONS, (keys,)))
        found = {bytes(key): (version, turn_id) for key, version, turn_id, _ in rows}
        watched = [bytes(key) for key, *_, is_known in rows if not is_known]
        for key, (version, turn_id) in known.items():
            stored = found.get(key)
            if turn_id is not None:
                is_same = stored is not None and stored[1] == turn_id
            else:
                is_same = stored is not None and stored[0] == version
                if stored is not None and stored[1] is not None:
                    watched.append(key)
            if not is_same:
                self._events.changed(key)
        if watched:
            await self._do((statements.WATCH, (watched,)))

    # -- commands ---------------------------------------------------------------------------------

    async def command(self, key: bytes, command: Command) -> bool:
        """Have the worker of a chat do something; return its answer, False if there is none."""
        [rows] = await self._connections.read((statements.RUNS_AT, (key,)))
        worker = rows[0][0] if rows else None
        if worker is None or worker == self.id:
            return False
        name = uuid4().hex
        answered = self._asked[name] = asyncio.Event()
        try:
            tell: Query = (statements.NOTIFY, (self._channel, _COMMAND + worker))
            await self._do((statements.ASK, (name, worker, key, dumps(command))), tell)
            return await self._wait_for_answer(name, answered)
        finally:
            del self._asked[name]
            with suppress(DatabaseError):
                await self._do((statements.DROP_COMMAND, (name,)))

    async def _wait_for_answer(self, name: str, answered: asyncio.Event) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ANSWER_S
        while loop.time() < deadline:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_FOR_ANSWER_S):
                    await answered.wait()
            answered.clear()
            [rows] = await self._connections.read((statements.READ_ANSWER, (name,)))
            if not rows or rows[0][0] is not None:
                return bool(rows and rows[0][0])
        return False

    async def _take_commands(self) -> None:
        for name, key, body in await self._do((statements.TAKE, (self.id,))):
            answer = await self._events.command(bytes(key), loads(body))
            tell: Query = (statements.NOTIFY, (self._channel, _ANSWERED + name))
            await self._do((statements.ANSWER, (answer, name)), tell)

    # -- small things -----------------------------------------------------------------------------

    async def _do(self, query: Query, *then: Query) -> list[Row]:
        """Execute and commit one query, and queries that follow it; return its rows."""

        async def work(transaction: Transaction) -> list[Row]:
            [rows] = await transaction.commit(query, then=then)
            return rows

        return await self._connections.transact(work, lock_ms=_LOCK_MS)

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            with suppress(DatabaseError):  # it is done with the next renewal
                await work()

        task = asyncio.get_running_loop().create_task(whole())
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
