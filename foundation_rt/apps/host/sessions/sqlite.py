"""Chats in a SQLite file, for one process."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import define, field

from ....base.database.migrations import migrate_sqlite, read_migrations
from ....base.database.sqlite import SqliteDatabase
from ....errors import UsageError
from ..chat import MAX_DECISIONS
from .errors import FencedError, UnknownSessionError
from .interruption import interrupted
from .rows import (
    HEAD_COLUMNS,
    INDEX_PAGE,
    MOST_PURGED,
    PURGE_PAGE,
    TAIL,
    admit,
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
    Frame,
    ListedChat,
    Place,
    SessionSettings,
    StoredChat,
    StoreEvents,
    SubmitLimits,
    Writing,
)

MIGRATIONS: Final = read_migrations("foundation_rt.apps.host.sessions", "migrations/sqlite")
_APPLICATION: Final = "the chat host"
_APPLICATION_ID: Final = 0x46524348  # "FRCH"
_PAGE = 256


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
    _database: SqliteDatabase = field(init=False)
    is_immediate: bool = field(default=False, init=False)

    @_database.default
    def _its_database(self) -> SqliteDatabase:
        return SqliteDatabase(self.path, private=True, prepare=self._prepare)

    def _prepare(self, connection: sqlite3.Connection, alone: bool) -> None:
        if not alone:
            raise UsageError(
                f"{self._database.path} is used by another process: stop it, or let several"
                " workers use PostgreSQL"
            )
        migrate_sqlite(
            connection,
            self._database.path,
            MIGRATIONS,
            application=_APPLICATION,
            application_id=_APPLICATION_ID,
        )

    async def open(self, events: StoreEvents) -> None:
        """See `ChatStore`."""
        await self._database.open()
        try:
            while await self._database.write(self._interrupt_one, alone=True):
                pass
        except BaseException:
            await self._database.close()
            raise

    async def close(self) -> None:
        """See `ChatStore`."""
        await self._database.close()

    async def probe(self) -> None:
        """See `ChatStore`."""
        await self._database.write(partial(_probe, self._now()))

    async def create(self, key: bytes, head: ChatHead) -> None:
        """See `ChatStore`."""
        await self._database.write(partial(_create, key, head))

    async def load(self, key: bytes, principal: str) -> StoredChat | None:
        """See `ChatStore`."""
        return await self._database.read(partial(_load, key, principal))

    async def changes(self, key: bytes, version: int, after: int) -> StoredChat | None:
        """See `ChatStore`."""
        return await self._database.read(partial(_changes, key, version, after))

    async def frames(self, key: bytes, after: int, last: int) -> Sequence[Frame]:
        """See `ChatStore`."""
        return await self._database.read(partial(_frames, key, after, last))

    async def delete(self, key: bytes, principal: str) -> bool:
        """See `ChatStore`."""
        return await self._database.write(partial(_delete, key, principal))

    async def listed(self, principal: str, after: Place | None, most: int) -> Sequence[ListedChat]:
        """See `ChatStore`."""
        return await self._database.read(partial(_listed, principal, after, most))

    async def having(self, keys: Collection[bytes], words: str) -> Collection[bytes]:
        """See `ChatStore`; one at a time, so that others wait for none of them for long."""
        has = partial(_has, to_blob(words))
        return [key for key in keys if await self._database.read(partial(has, key))]

    async def change(
        self, key: bytes, principal: str, title: str | None, is_pinned: bool | None
    ) -> bool:
        """See `ChatStore`."""
        return await self._database.write(partial(_change, key, principal, title, is_pinned))

    async def index(self) -> bool:
        """See `ChatStore`."""
        return await self._database.write(_index)

    async def purge(
        self, after: int, before: int, kept: Collection[bytes]
    ) -> tuple[Collection[bytes], int | None]:
        """See `ChatStore`."""
        return await self._database.write(partial(_purge, after, before, kept))

    async def submit(self, key: bytes, turn: ChatTurn, limits: SubmitLimits) -> bool:
        """See `ChatStore`."""
        return await self._database.write(partial(_submit, key, turn, limits))

    async def begin_turn(self, key: bytes) -> BegunTurn | None:
        """See `ChatStore`."""
        return await self._database.write(partial(_begin_turn, key))

    async def write(self, key: bytes, writing: Writing) -> int:
        """See `ChatStore`."""
        return await self._database.write(partial(_write, key, writing))

    async def command(self, key: bytes, command: Command) -> bool:
        """See `ChatStore`; there is no other worker."""
        return False

    async def is_watched(self, key: bytes, within_ms: int) -> bool:
        """See `ChatStore`; there is no other worker."""
        return False

    async def decisions(self, principal: str) -> Mapping[str, str]:
        """See `ChatStore`."""
        return await self._database.read(partial(_decisions, principal))

    async def decide(self, principal: str, subject: str, word: str) -> None:
        """See `ChatStore`."""
        await self._database.write(partial(_decide, principal, subject, word))

    def _interrupt_one(self, connection: sqlite3.Connection) -> bool:
        """End the turn of one chat in which one runs; return whether there was one."""
        query = f"SELECT id, key, {HEAD_COLUMNS} FROM chat WHERE running IS NOT NULL LIMIT 1"
        row = connection.execute(query).fetchone()
        if row is None:
            return False
        stored = _whole(connection, row[0], read_head(row[2:]))
        turn = stored.head.running
        assert turn is not None
        _write(row[1], interrupted(stored, turn, self._settings, self._now()), connection)
        return True


# -- operations, in the thread of the database ----------------------------------------------------


def _probe(now: int, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO probe (id, at) VALUES (1, ?)", (now,))


def _create(key: bytes, head: ChatHead, connection: sqlite3.Connection) -> None:
    connection.execute(
        f"INSERT INTO chat (key, recent, {HEAD_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (key, b"[]", *head_row(head)),
    )


def _find(key: bytes, connection: sqlite3.Connection) -> tuple[int, ChatHead] | None:
    query = f"SELECT id, {HEAD_COLUMNS} FROM chat WHERE key = ?"
    row = connection.execute(query, (key,)).fetchone()
    return None if row is None else (row[0], read_head(row[1:]))


def _owned(key: bytes, principal: str, connection: sqlite3.Connection) -> int | None:
    query = "SELECT id FROM chat WHERE key = ? AND principal = ?"
    row = connection.execute(query, (key, to_blob(principal))).fetchone()
    return None if row is None else row[0]


def _load(key: bytes, principal: str, connection: sqlite3.Connection) -> StoredChat | None:
    if _owned(key, principal, connection) is None:
        return None
    found = _find(key, connection)
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
    key: bytes, version: int, after: int, connection: sqlite3.Connection
) -> StoredChat | None:
    found = _find(key, connection)
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


def _frames(key: bytes, after: int, last: int, connection: sqlite3.Connection) -> Sequence[Frame]:
    return connection.execute(
        "SELECT seq, frame FROM chat_event WHERE chat = (SELECT id FROM chat WHERE key = ?)"
        " AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
        (key, after, last, _PAGE),
    ).fetchall()


def _delete(key: bytes, principal: str, connection: sqlite3.Connection) -> bool:
    chat = _owned(key, principal, connection)
    if chat is None:
        return False
    _delete_chat(chat, connection)
    return True


def _delete_chat(chat: int, connection: sqlite3.Connection) -> None:
    for table in ("chat_message", "chat_event", "chat_turn"):
        connection.execute(f"DELETE FROM {table} WHERE chat = ?", (chat,))
    connection.execute("DELETE FROM chat WHERE id = ?", (chat,))


def _listed(
    principal: str, after: Place | None, most: int, connection: sqlite3.Connection
) -> Sequence[ListedChat]:
    rows = connection.execute(
        "SELECT key, title, said_at, is_pinned FROM chat WHERE principal = ? AND said_at NOT NULL"
        " AND (is_pinned, said_at, key) < (?, ?, ?)"
        " ORDER BY is_pinned DESC, said_at DESC, key DESC LIMIT ?",
        (to_blob(principal), *place_row(after), most),
    )
    return [listed_row(row) for row in rows]


def _has(words: bytes, key: bytes, connection: sqlite3.Connection) -> bool:
    query = (
        "SELECT 1 FROM chat_message WHERE chat = (SELECT id FROM chat WHERE key = ?)"
        " AND instr(words, ?) LIMIT 1"
    )
    return connection.execute(query, (key, words)).fetchone() is not None


def _change(
    key: bytes,
    principal: str,
    title: str | None,
    is_pinned: bool | None,
    connection: sqlite3.Connection,
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
    after: int, before: int, kept: Collection[bytes], connection: sqlite3.Connection
) -> tuple[Collection[bytes], int | None]:
    query = (
        "SELECT id, key, last_active_at < ? AND running IS NULL FROM chat WHERE id > ?"
        " ORDER BY id LIMIT ?"
    )
    rows = connection.execute(query, (before, after, PURGE_PAGE)).fetchall()
    deleted: list[bytes] = []
    for chat, key, is_idle in rows:
        if is_idle and key not in kept:
            _delete_chat(chat, connection)
            deleted.append(key)
        if len(deleted) == MOST_PURGED:
            return deleted, int(chat)
    return deleted, int(rows[-1][0]) if rows else None


def _submit(
    key: bytes, turn: ChatTurn, limits: SubmitLimits, connection: sqlite3.Connection
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
            admit(recent, waiting, limits),
            limits.now,
            limits.now,
            to_blob(turn.title),
            chat,
        ),
    )
    connection.execute(
        "INSERT INTO chat_turn (chat, message_id, body) VALUES (?, ?, ?)",
        (chat, name, turn_body(turn)),
    )
    return True


def _begin_turn(key: bytes, connection: sqlite3.Connection) -> BegunTurn | None:
    found = _find(key, connection)
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


def _write(key: bytes, writing: Writing, connection: sqlite3.Connection) -> int:
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


def _decisions(principal: str, connection: sqlite3.Connection) -> Mapping[str, str]:
    query = "SELECT subject, word FROM decision WHERE principal = ?"
    return dict(connection.execute(query, (to_blob(principal),)))


def _decide(principal: str, subject: str, word: str, connection: sqlite3.Connection) -> None:
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
