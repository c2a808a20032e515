"""Chats in PostgreSQL, for any number of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from attrs import define, field

from ....base.database.errors import DatabaseError
from ....base.database.migrations import migrate_postgres, read_migrations
from ....base.database.postgres import PostgresConnections, Query, Row, Transaction, read_url
from ....base.exact_json import dumps, loads
from ..chat import MAX_DECISIONS
from . import statements
from .interruption import interrupted
from .postgres_workers import WorkerPresence
from .rows import (
    INDEX_PAGE,
    MOST_PURGED,
    PURGE_PAGE,
    TAIL,
    head_row,
    indexed,
    listed_row,
    message_row,
    place_row,
    read_head,
    read_messages,
    read_turn,
    to_blob,
    to_bytes,
    turn_body,
)
from .store import (
    BegunTurn,
    ChatHead,
    ChatTurn,
    Command,
    FencedError,
    Frame,
    ListedChat,
    Place,
    SessionSettings,
    StoredChat,
    StoreEvents,
    UnknownSessionError,
    Writing,
)

MIGRATIONS: Final = read_migrations("foundation_rt.apps.host.sessions", "migrations/postgres")
_APPLICATION: Final = "the chat host"
_STATEMENT_MS = 4_000
_OPERATION_S = 4.0
"""Shorter than a lease: a worker that is stopped keeps nobody from ending its turns for long."""
_CONNECTIONS = 8
_PAGE = 256


class _LeaseLapsed(Exception):
    """This worker counts as dead at the moment."""


def _read_url(url: str) -> dict[str, Any]:
    return read_url(url, "foundation-rt host")


@define(eq=False, repr=False)
class PostgresChatStore:
    """Keeps chats in the tables of one schema, for any number of workers.

    A turn belongs to the worker that has begun it, whose lease it renews by the clock of the
    database. When that has lapsed another worker ends the turn (CHAT-22).

    Args:
        url: ``postgresql://user:password@host:port/database``, or another form that libpq takes.
        settings: of sessions.
        schema: lower-case letters, digits and ``_``; it is made, and its tables with it.
        connect_s: how long an operation waits for a connection.
        now: the Unix time, in ms.
    """

    _parameters: dict[str, Any] = field(alias="url", converter=_read_url)
    _settings: SessionSettings = field(factory=SessionSettings)
    _schema: str = field(default="host", kw_only=True)
    _connect_s: float = field(default=2.0, kw_only=True)
    _now: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000, kw_only=True)
    _connections: PostgresConnections | None = field(default=None, init=False)
    _workers: WorkerPresence | None = field(default=None, init=False)
    is_immediate: bool = field(default=False, init=False)

    async def open(self, events: StoreEvents) -> None:
        """See `ChatStore`."""
        self._connections = PostgresConnections(
            self._parameters,
            self._schema,
            _CONNECTIONS,
            statement_ms=_STATEMENT_MS,
            operation_s=_OPERATION_S,
            connect_s=self._connect_s,
        )
        try:
            await migrate_postgres(self._connections, MIGRATIONS, application=_APPLICATION)
            self._workers = WorkerPresence(self._connections, events, self._interrupt)
            await self._workers.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See `ChatStore`."""
        workers, self._workers = self._workers, None
        if workers is not None:
            await workers.close()
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    @property
    def _open(self) -> tuple[PostgresConnections, WorkerPresence]:
        if self._connections is None or self._workers is None:
            raise DatabaseError("the store of chats is not open")
        return self._connections, self._workers

    async def _commit(self, *queries: Query, then: Sequence[Query] = ()) -> Sequence[Row]:
        """Execute queries in a transaction of their own; return the rows of the first."""

        async def work(transaction: Transaction) -> Sequence[Row]:
            return (await transaction.commit(*queries, then=then))[0]

        return await self._open[0].transact(work)

    async def probe(self) -> None:
        """See `ChatStore`."""
        await self._open[1].renew()

    async def create(self, key: bytes, head: ChatHead) -> None:
        """See `ChatStore`."""
        await self._commit((statements.CREATE, (key, b"[]", *head_row(head)[:-1])))

    async def load(self, key: bytes, principal: str) -> StoredChat | None:
        """See `ChatStore`."""
        [owned] = await self._open[0].read((statements.OWNED, (key, to_blob(principal))))
        return await self._load(key) if owned else None

    async def _load(self, key: bytes) -> StoredChat | None:
        heads, messages, sizes, tail, waiting = await self._open[0].read(
            (statements.HEAD, (key,)),
            (statements.MESSAGES, (key, -1)),
            (statements.SIZES, (key,)),
            (statements.TAIL, (TAIL, key)),
            (statements.WAITING, (key,)),
        )
        if not heads:
            return None
        head = read_head(heads[0])
        return StoredChat(
            head,
            messages=read_messages(messages),
            frames=_frames_of(tail) if head.state.get("streaming") else (),
            sizes=[size for (size,) in sizes],
            waiting=[read_turn(body) for (body,) in waiting],
        )

    async def changes(self, key: bytes, version: int, after: int) -> StoredChat | None:
        """See `ChatStore`."""
        heads, messages, frames, waiting = await self._open[0].read(
            (statements.HEAD, (key,)),
            (statements.MESSAGES, (key, version)),
            (statements.FRAMES_AFTER, (key, after)),
            (statements.WAITING, (key,)),
        )
        if not heads:
            return None
        return StoredChat(
            read_head(heads[0]),
            messages=read_messages(messages),
            frames=_frames_of(frames),
            waiting=[read_turn(body) for (body,) in waiting],
        )

    async def frames(self, key: bytes, after: int, last: int) -> Sequence[Frame]:
        """See `ChatStore`."""
        [rows] = await self._open[0].read((statements.FRAMES, (key, after, last, _PAGE)))
        return _frames_of(rows)

    async def delete(self, key: bytes, principal: str) -> bool:
        """See `ChatStore`."""
        query = (statements.DELETE, (key, to_blob(principal)))
        return bool(await self._commit(query, then=(self._open[1].tell_changed(key),)))

    async def listed(self, principal: str, after: Place | None, most: int) -> Sequence[ListedChat]:
        """See `ChatStore`."""
        parameters = (to_blob(principal), *place_row(after), most)
        [rows] = await self._open[0].read((statements.LISTED, parameters))
        return [listed_row(row) for row in rows]

    async def having(self, keys: Collection[bytes], words: str) -> Collection[bytes]:
        """See `ChatStore`."""
        [rows] = await self._open[0].read((statements.HAVING, ([*keys], to_blob(words))))
        return [bytes(key) for (key,) in rows]

    async def change(
        self, key: bytes, principal: str, title: str | None, is_pinned: bool | None
    ) -> bool:
        """See `ChatStore`."""
        pinned = None if is_pinned is None else int(is_pinned)
        blob = None if title is None else to_blob(title)
        parameters = (blob, pinned, key, to_blob(principal))
        return bool(await self._commit((statements.CHANGE, parameters)))

    async def index(self) -> bool:
        """See `ChatStore`."""
        connections = self._open[0]

        async def set_titles(transaction: Transaction) -> int:
            [rows] = await transaction.ask((statements.UNTITLED, (INDEX_PAGE,)))
            titles = [b"" if body is None else indexed(bytes(body))[1] for _, body in rows]
            ids = [chat for chat, _ in rows]
            await transaction.commit((statements.SET_TITLES, (ids, titles)))
            return len(rows)

        async def set_words(transaction: Transaction) -> int:
            [rows] = await transaction.ask((statements.WORDLESS, (INDEX_PAGE,)))
            words = [indexed(bytes(body))[0] for *_, body in rows]
            chats, positions = [row[0] for row in rows], [row[1] for row in rows]
            await transaction.commit((statements.SET_WORDS, (chats, positions, words)))
            return len(rows)

        found = await connections.transact(set_titles), await connections.transact(set_words)
        return INDEX_PAGE in found

    async def purge(
        self, after: int, before: int, kept: Collection[bytes]
    ) -> tuple[Collection[bytes], int | None]:
        """See `ChatStore`; chats that other workers have connections to stay, too."""
        [rows] = await self._open[0].read((statements.PURGEABLE, (before, after, PURGE_PAGE)))
        idle = [chat for chat, key, is_idle in rows if is_idle and bytes(key) not in kept]
        purge = (statements.PURGE, (idle[:MOST_PURGED], before))
        gone = await self._commit(purge) if idle else ()
        deleted = [bytes(key) for (key,) in gone]
        if len(idle) > MOST_PURGED:
            return deleted, int(idle[MOST_PURGED - 1])
        return deleted, int(rows[-1][0]) if rows else None

    async def submit(self, key: bytes, turn: ChatTurn, settings: SessionSettings, now: int) -> bool:
        """See `ChatStore`."""
        name = turn.message_id.encode()

        async def work(transaction: Transaction) -> bool:
            chats, counts = await transaction.ask(
                (statements.LOCK_RECENT, (key,)),
                (statements.COUNT_TURNS, {"key": key, "name": name}),
            )
            if not chats:
                raise UnknownSessionError
            [(chat, recent, running)] = chats
            [(known, waiting)] = counts
            runs = running is not None and read_turn(running).message_id == turn.message_id
            if known or runs:
                await transaction.rollback()
                return False
            note = {
                "recent": dumps(settings.admit(loads(recent), waiting, now)),
                "now": now,
                "title": to_blob(turn.title),
                "chat": chat,
            }
            await transaction.commit(
                (statements.NOTE_MESSAGE, note),
                (statements.ADD_TURN, (chat, name, turn_body(turn))),
            )
            return True

        return await self._open[0].transact(work)

    async def begin_turn(self, key: bytes) -> BegunTurn | None:
        """See `ChatStore`."""
        connections, workers = self._open
        while True:
            with suppress(_LeaseLapsed):
                return await connections.transact(partial(self._begin_turn, key, workers.id))
            await workers.renew()  # others would end the turn at once

    async def _begin_turn(
        self, key: bytes, worker: str, transaction: Transaction
    ) -> BegunTurn | None:
        lives, chats, turns = await transaction.ask(
            (statements.HOLD_LEASE, (worker,)),
            (statements.LOCK_RUNNING, (key,)),
            (statements.NEXT_TURN, (key,)),
        )
        if not lives:
            raise _LeaseLapsed
        if not chats or (chats[0][2] is None and not turns):
            await transaction.rollback()
            return None
        [(chat, version, running, runs_at)] = chats
        if running is not None:
            await transaction.rollback()
            own = runs_at == worker
            return BegunTurn(read_turn(running), version, is_new=False) if own else None
        [(position, body)] = turns
        turn = read_turn(body)
        await transaction.commit(
            (statements.DROP_TURN, (position,)),
            (statements.RUN, (body, turn.turn_id, worker, chat)),
        )
        return BegunTurn(turn, version, is_new=True)

    async def write(self, key: bytes, writing: Writing) -> int:
        """See `ChatStore`."""
        connections, workers = self._open
        state, ends = to_bytes(writing.state), writing.ends_turn
        messages = [message_row(*each) for each in writing.messages]

        async def work(transaction: Transaction) -> int:
            [rows] = await transaction.ask(
                (
                    statements.WRITE,
                    {
                        "key": key,
                        "fence": writing.fence,
                        "last_seq": writing.last_seq,
                        "first_seq": writing.first_seq,
                        "last_active_at": writing.last_active_at,
                        "state": state,
                        "ends": ends,
                    },
                )
            )
            if not rows:
                raise FencedError
            [(chat, version)] = rows
            queries: list[Query] = []
            if messages:
                columns = [list(column) for column in zip(*messages, strict=True)]
                queries.append((statements.PUT_MESSAGES, (chat, version, *columns)))
            if writing.frames:
                columns = [list(column) for column in zip(*writing.frames, strict=True)]
                queries.append((statements.ADD_EVENTS, (chat, *columns)))
            queries.append((statements.DROP_EVENTS, (chat, writing.first_seq)))
            await transaction.commit(*queries, then=(workers.tell_changed(key),))
            return int(version)

        return await connections.transact(work)

    async def command(self, key: bytes, command: Command) -> bool:
        """See `ChatStore`."""
        return await self._open[1].command(key, command)

    async def is_watched(self, key: bytes, within_ms: int) -> bool:
        """See `ChatStore`."""
        [rows] = await self._open[0].read((statements.IS_WATCHED, (within_ms / 1000, key)))
        return bool(rows and rows[0][0])

    async def decisions(self, principal: str) -> Mapping[str, str]:
        """See `ChatStore`."""
        name = to_blob(principal)
        [rows] = await self._open[0].read((statements.DECISIONS, (name,)))
        return dict(rows)

    async def decide(self, principal: str, subject: str, word: str) -> None:
        """See `ChatStore`."""
        name = to_blob(principal)
        await self._commit(
            (statements.FORGET_DECISION, (name, subject)),
            (statements.DECIDE, (name, subject, word)),
            (statements.DROP_DECISIONS, (name, name, MAX_DECISIONS)),
        )

    async def _interrupt(self, key: bytes) -> None:
        """End the turn of a worker that has died (CHAT-22)."""
        stored = await self._load(key)
        if stored is not None and stored.head.running is not None:
            turn = stored.head.running
            await self.write(key, interrupted(stored, turn, self._settings, self._now()))


def _frames_of(rows: Sequence[tuple[Any, ...]]) -> Sequence[Frame]:
    return [(seq, bytes(frame)) for seq, frame in rows]
