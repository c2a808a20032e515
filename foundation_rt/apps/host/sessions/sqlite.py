"""Chats in a SQLite file, for one process."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from attrs import define, field

from ....base.database.migrations import migrate_sqlite, read_migrations
from ....base.database.sqlite import SqliteDatabase
from ....base.exact_json import dumps, loads
from ....errors import UsageError
from ..chat import MAX_DECISIONS
from .interruption import interrupted
from .rows import (
    HEAD_COLUMNS,
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

MIGRATIONS: Final = read_migrations("foundation_rt.apps.host.sessions", "migrations/sqlite")
_APPLICATION: Final = "the chat host"
_APPLICATION_ID: Final = 0x46524348  # "FRCH"
_PAGE = 256


# -- operations, in the thread of the database ----------------------------------------------------


def _probe(connection: sqlite3.Connection, now: int) -> None:
    connection.execute("INSERT OR REPLACE INTO probe (id, at) VALUES (1, ?)", (now,))


def _create(connection: sqlite3.Connection, key: bytes, head: ChatHead) -> None:
    connection.execute(
        f"INSERT INTO chat (key, recent, {HEAD_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (key, b"[]", *head_row(head)),
    )


def _find(connection: sqlite3.Connection, key: bytes) -> tuple[int, ChatHead] | None:
    query = f"SELECT id, {HEAD_COLUMNS} FROM chat WHERE key = ?"
    row = connection.execute(query, (key,)).fetchone()
    return None if row is None else (row[0], read_head(row[1:]))


def _owned(connection: sqlite3.Connection, key: bytes, principal: str) -> int | None:
    query = "SELECT id FROM chat WHERE key = ? AND principal = ?"
    row = connection.execute(query, (key, to_blob(principal))).fetchone()
    return None if row is None else row[0]


def _load(connection: sqlite3.Connection, key: bytes, principal: str) -> StoredChat | None:
    if _owned(connection, key, principal) is None:
        return None
    found = _find(connection, key)
    return None if found is None else _whole(connection, *found)


def _whole(connection: sqlite3.Connection, chat: int, head: ChatHead) -> StoredChat:
    messages = connection.execute(
        "SELECT position, body FROM chat_message WHERE chat = ? ORDER BY position", (chat,)
    )
    sizes = connection.execute(
        "SELECT length(frame) FROM chat_event WHERE chat = ? ORDER BY seq", (chat,)
    )
    return StoredChat(
        head,
        messages=read_messages(messages),
        frames=_tail(connection, chat, head),
        sizes=[size for (size,) in sizes],
        waiting=_waiting(connection, chat),
    )


def _tail(connection: sqlite3.Connection, chat: int, head: ChatHead) -> Sequence[Frame]:
    """Return the events that may complete texts which are streamed."""
    if not head.state.get("streaming"):
        return ()
    query = "SELECT seq, frame FROM chat_event WHERE chat = ? AND seq > ? ORDER BY seq"
    return connection.execute(query, (chat, head.last_seq - TAIL)).fetchall()


def _waiting(connection: sqlite3.Connection, chat: int) -> Sequence[ChatTurn]:
    query = "SELECT body FROM chat_turn WHERE chat = ? ORDER BY position"
    return [read_turn(body) for (body,) in connection.execute(query, (chat,))]


def _changes(
    connection: sqlite3.Connection, key: bytes, version: int, after: int
) -> StoredChat | None:
    found = _find(connection, key)
    if found is None:
        return None
    chat, head = found
    messages = connection.execute(
        "SELECT position, body FROM chat_message WHERE chat = ? AND version > ? ORDER BY position",
        (chat, version),
    )
    frames = connection.execute(
        "SELECT seq, frame FROM chat_event WHERE chat = ? AND seq > ? ORDER BY seq", (chat, after)
    )
    return StoredChat(
        head,
        messages=read_messages(messages),
        frames=frames.fetchall(),
        waiting=_waiting(connection, chat),
    )


def _frames(connection: sqlite3.Connection, key: bytes, after: int, last: int) -> Sequence[Frame]:
    return connection.execute(
        "SELECT seq, frame FROM chat_event WHERE chat = (SELECT id FROM chat WHERE key = ?)"
        " AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
        (key, after, last, _PAGE),
    ).fetchall()


def _delete(connection: sqlite3.Connection, key: bytes, principal: str) -> bool:
    chat = _owned(connection, key, principal)
    if chat is None:
        return False
    _delete_chat(connection, chat)
    return True


def _delete_chat(connection: sqlite3.Connection, chat: int) -> None:
    for table in ("chat_message", "chat_event", "chat_turn"):
        connection.execute(f"DELETE FROM {table} WHERE chat = ?", (chat,))
    connection.execute("DELETE FROM chat WHERE id = ?", (chat,))


def _listed(
    connection: sqlite3.Connection, principal: str, after: Place | None, most: int
) -> Sequence[ListedChat]:
    rows = connection.execute(
        "SELECT key, title, said_at, is_pinned FROM chat WHERE principal = ? AND said_at NOT NULL"
        " AND (is_pinned, said_at, key) < (?, ?, ?)"
        " ORDER BY is_pinned DESC, said_at DESC, key DESC LIMIT ?",
        (to_blob(principal), *place_row(after), most),
    )
    return [listed_row(row) for row in rows]


def _has(connection: sqlite3.Connection, key: bytes, words: bytes) -> bool:
    query = (
        "SELECT 1 FROM chat_message WHERE chat = (SELECT id FROM chat WHERE key = ?)"
        " AND instr(words, ?) LIMIT 1"
    )
    return connection.execute(query, (key, words)).fetchone() is not None


def _change(
    connection: sqlite3.Connection,
    key: bytes,
    principal: str,
    title: str | None,
    is_pinned: bool | None,
) -> bool:
    changed = connection.execute(
        "UPDATE chat SET title = coalesce(?, title), is_pinned = coalesce(?, is_pinned)"
        " WHERE key = ? AND principal = ?",
        (None if title is None else to_blob(title), is_pinned, key, to_blob(principal)),
    )
    return changed.rowcount == 1


def _index(connection: sqlite3.Connection) -> bool:
    untitled = connection.execute(
        "SELECT id, (SELECT body FROM chat_message WHERE chat = chat.id ORDER BY position LIMIT 1)"
        " FROM chat WHERE said_at NOT NULL AND title IS NULL LIMIT ?",
        (INDEX_PAGE,),
    ).fetchall()
    connection.executemany(
        "UPDATE chat SET title = ? WHERE id = ?",
        [(b"" if body is None else indexed(body)[1], chat) for chat, body in untitled],
    )
    wordless = connection.execute(
        "SELECT chat, position, body FROM chat_message WHERE words IS NULL LIMIT ?", (INDEX_PAGE,)
    ).fetchall()
    connection.executemany(
        "UPDATE chat_message SET words = ? WHERE chat = ? AND position = ?",
        [(indexed(body)[0], chat, position) for chat, position, body in wordless],
    )
    return INDEX_PAGE in (len(untitled), len(wordless))


def _purge(
    connection: sqlite3.Connection, after: int, before: int, kept: Collection[bytes]
) -> tuple[Collection[bytes], int | None]:
    query = (
        "SELECT id, key, last_active_at < ? AND running IS NULL FROM chat WHERE id > ?"
        " ORDER BY id LIMIT ?"
    )
    rows = connection.execute(query, (before, after, PURGE_PAGE)).fetchall()
    deleted: list[bytes] = []
    for chat, key, is_idle in rows:
        if is_idle and key not in kept:
            _delete_chat(connection, chat)
            deleted.append(key)
        if len(deleted) == MOST_PURGED:
            return deleted, int(chat)
    return deleted, int(rows[-1][0]) if rows else None


def _submit(
    connection: sqlite3.Connection, key: bytes, turn: ChatTurn, settings: SessionSettings, now: int
) -> bool:
    query = "SELECT id, recent, running FROM chat WHERE key = ?"
    row = connection.execute(query, (key,)).fetchone()
    if row is None:
        raise UnknownSessionError
    chat, recent, running = row
    name = turn.message_id.encode()
    if running is not None and read_turn(running).message_id == turn.message_id:
        return False
    [known, waiting, waits] = connection.execute(
        "SELECT (SELECT count(*) FROM chat_message WHERE chat = :chat AND id = :name),"
        " (SELECT count(*) FROM chat_turn WHERE chat = :chat),"
        " (SELECT count(*) FROM chat_turn WHERE chat = :chat AND message_id = :name)",
        {"chat": chat, "name": name},
    ).fetchone()
    if known or waits:
        return False
    connection.execute(
        "UPDATE chat SET recent = ?, last_active_at = ?, said_at = ?, title = coalesce(title, ?)"
        " WHERE id = ?",
        (
            dumps(settings.admit(loads(recent), waiting, now)),
            now,
            now,
            to_blob(turn.title),
            chat,
        ),
    )
    connection.execute(
        "INSERT INTO chat_turn (chat, message_id, body) VALUES (?, ?, ?)",
        (chat, name, turn_body(turn)),
    )
    return True


def _begin_turn(connection: sqlite3.Connection, key: bytes) -> BegunTurn | None:
    found = _find(connection, key)
    if found is None:
        return None
    chat, head = found
    if head.running is not None:
        return BegunTurn(head.running, head.version, is_new=False)
    query = "SELECT position, body FROM chat_turn WHERE chat = ? ORDER BY position LIMIT 1"
    row = connection.execute(query, (chat,)).fetchone()
    if row is None:
        return None
    connection.execute("DELETE FROM chat_turn WHERE position = ?", (row[0],))
    connection.execute("UPDATE chat SET running = ? WHERE id = ?", (row[1], chat))
    return BegunTurn(read_turn(row[1]), head.version, is_new=True)


def _write(connection: sqlite3.Connection, key: bytes, writing: Writing) -> int:
    row = connection.execute(
        "SELECT id, version, running, first_seq FROM chat WHERE key = ?", (key,)
    ).fetchone()
    if row is None:
        raise FencedError
    chat, version, running, first_seq = row
    if (None if running is None else read_turn(running).turn_id) != writing.fence:
        raise FencedError
    version += 1
    _write_lists(connection, chat, version, writing)
    if writing.first_seq > first_seq:
        connection.execute(
            "DELETE FROM chat_event WHERE chat = ? AND seq < ?", (chat, writing.first_seq)
        )
    changed: tuple[Any, ...] = (
        writing.last_seq,
        writing.first_seq,
        writing.last_active_at,
        to_bytes(writing.state),
        version,
        None if writing.ends_turn else running,
        chat,
    )
    connection.execute(
        "UPDATE chat SET last_seq = ?, first_seq = ?, last_active_at = ?, state = ?, version = ?,"
        " running = ? WHERE id = ?",
        changed,
    )
    return int(version)


def _write_lists(connection: sqlite3.Connection, chat: int, version: int, writing: Writing) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO chat_message (chat, position, id, body, words, version)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [(chat, *message_row(*each), version) for each in writing.messages],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO chat_event (chat, seq, frame) VALUES (?, ?, ?)",
        [(chat, seq, frame) for seq, frame in writing.frames],
    )


def _decisions(connection: sqlite3.Connection, principal: str) -> Mapping[str, str]:
    query = "SELECT subject, word FROM decision WHERE principal = ?"
    return dict(connection.execute(query, (to_blob(principal),)))


def _decide(connection: sqlite3.Connection, principal: str, subject: str, word: str) -> None:
    name = to_blob(principal)
    connection.execute(
        "INSERT OR REPLACE INTO decision (principal, subject, word) VALUES (?, ?, ?)",
        (name, subject, word),
    )
    connection.execute(
        "DELETE FROM decision WHERE principal = :name AND position NOT IN (SELECT position FROM"
        " decision WHERE principal = :name ORDER BY position DESC LIMIT :most)",
        {"name": name, "most": MAX_DECISIONS},
    )


# -- the store ------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    run: Callable[[SqliteDatabase, Callable[[sqlite3.Connection], T]], Coroutine[Any, Any, T]],
    operation: Callable[Concatenate[sqlite3.Connection, P], T],
) -> Callable[Concatenate[SqliteChatStore, P], Coroutine[Any, Any, T]]:
    """Return a method of the store that runs an operation in the thread of its database."""

    async def method(store: SqliteChatStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run(store.database, lambda file: operation(file, *args, **kwargs))

    return method


@define(eq=False)
class SqliteChatStore:
    """Keeps chats in one file, with mode 0600, in a folder with mode 0700.

    One process uses it. Turns that ran when the one before it died are ended when it is opened.

    Args:
        path: of the file.
        settings: of sessions.
        now: the Unix time, in ms.
    """

    path: str | os.PathLike[str]
    _settings: SessionSettings = field(factory=SessionSettings)
    _now: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000, kw_only=True)
    database: SqliteDatabase = field(init=False)
    is_immediate: bool = field(default=False, init=False)

    @database.default
    def _its_database(self) -> SqliteDatabase:
        return SqliteDatabase(self.path, private=True, prepare=self._prepare)

    def _prepare(self, connection: sqlite3.Connection, alone: bool) -> None:
        if not alone:
            raise UsageError(
                f"{self.database.path} is used by another process: stop it, or let several"
                " workers use PostgreSQL"
            )
        migrate_sqlite(
            connection,
            self.database.path,
            MIGRATIONS,
            application=_APPLICATION,
            application_id=_APPLICATION_ID,
        )

    async def open(self, events: StoreEvents) -> None:
        """See `ChatStore`."""
        await self.database.open()
        try:
            while await self.database.write(self._interrupt_one, alone=True):
                pass
        except BaseException:
            await self.database.close()
            raise

    async def close(self) -> None:
        """See `ChatStore`."""
        await self.database.close()

    async def probe(self) -> None:
        """See `ChatStore`."""
        await self.database.write(partial(_probe, now=self._now()))

    create = _method(SqliteDatabase.write, _create)
    load = _method(SqliteDatabase.read, _load)
    changes = _method(SqliteDatabase.read, _changes)
    frames = _method(SqliteDatabase.read, _frames)
    delete = _method(SqliteDatabase.write, _delete)
    listed = _method(SqliteDatabase.read, _listed)
    change = _method(SqliteDatabase.write, _change)
    index = _method(SqliteDatabase.write, _index)
    purge = _method(SqliteDatabase.write, _purge)
    submit = _method(SqliteDatabase.write, _submit)
    begin_turn = _method(SqliteDatabase.write, _begin_turn)
    write = _method(SqliteDatabase.write, _write)
    decisions = _method(SqliteDatabase.read, _decisions)
    decide = _method(SqliteDatabase.write, _decide)

    async def having(self, keys: Collection[bytes], words: str) -> Collection[bytes]:
        """See `ChatStore`; one at a time, so that others wait for none of them for long."""
        has = _method(SqliteDatabase.read, _has)
        return [key for key in keys if await has(self, key, to_blob(words))]

    async def command(self, key: bytes, command: Command) -> bool:
        """See `ChatStore`; there is no other worker."""
        return False

    async def is_watched(self, key: bytes, within_ms: int) -> bool:
        """See `ChatStore`; there is no other worker."""
        return False

    def _interrupt_one(self, connection: sqlite3.Connection) -> bool:
        """End the turn of one chat in which one runs; return whether there was one."""
        query = f"SELECT id, key, {HEAD_COLUMNS} FROM chat WHERE running IS NOT NULL LIMIT 1"
        row = connection.execute(query).fetchone()
        if row is None:
            return False
        stored = _whole(connection, row[0], read_head(row[2:]))
        turn = stored.head.running
        assert turn is not None
        _write(connection, row[1], interrupted(stored, turn, self._settings, self._now()))
        return True
