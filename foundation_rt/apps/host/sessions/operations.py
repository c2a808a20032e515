"""The operations of chats, once for both databases.

An operation is a generator. It yields its statements in steps, is sent the rows of each, and
returns the answer. It may be run again from the start, so it changes nothing but the database.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from attrs import define, field, frozen

from ....base.exact_json import dumps, loads
from ..chat import MAX_DECISIONS
from . import statements
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
    ChatStore,
    ChatTurn,
    FencedError,
    Frame,
    ListedChat,
    Place,
    SessionSettings,
    StoredChat,
    UnknownSessionError,
    Writing,
)

P = ParamSpec("P")
T = TypeVar("T")

Query = tuple[str, Sequence[object] | Mapping[str, object]]
_PAGE = 256


@frozen
class ForEach:
    """A statement for each of some rows; there may be none."""

    statement: str
    rows: Sequence[tuple[object, ...]]


@frozen
class StatementStep:
    """Statements that are executed together.

    Attributes:
        queries: they; of an operation that reads, all of one step see one snapshot.
        commits: nothing follows them in their transaction, which without such a step is undone.
        changed: the key of a chat: other workers are told of it after the commit.
    """

    queries: Sequence[Query | ForEach]
    commits: bool = False
    changed: bytes | None = None


Steps = Generator[StatementStep, list[list[Any]], T]


def ask(*queries: Query) -> StatementStep:
    """Return a step after which others follow."""
    return StatementStep(queries)


def commit(*queries: Query | ForEach, changed: bytes | None = None) -> StatementStep:
    """Return the last step of an operation that writes."""
    return StatementStep(queries, commits=True, changed=changed)


def _create(key: bytes, head: ChatHead) -> Steps[None]:
    yield commit((statements.CREATE, (key, b"[]", *head_row(head))))


def _load(key: bytes, principal: str) -> Steps[StoredChat | None]:
    [owned] = yield ask((statements.OWNED, (key, to_blob(principal))))
    return (yield from load(key)) if owned else None


def load(key: bytes) -> Steps[StoredChat | None]:
    """Read a whole chat."""
    heads, messages, sizes, tail, waiting = yield ask(
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


def _changes(key: bytes, version: int, after: int) -> Steps[StoredChat | None]:
    heads, messages, frames, waiting = yield ask(
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


def _frames(key: bytes, after: int, last: int) -> Steps[Sequence[Frame]]:
    [rows] = yield ask((statements.FRAMES, (key, after, last, _PAGE)))
    return _frames_of(rows)


def _frames_of(rows: Sequence[tuple[Any, ...]]) -> Sequence[Frame]:
    return [(seq, bytes(frame)) for seq, frame in rows]


def _delete(key: bytes, principal: str) -> Steps[bool]:
    [gone] = yield commit((statements.DELETE, (key, to_blob(principal))), changed=key)
    return bool(gone)


def _listed(principal: str, after: Place | None, most: int) -> Steps[Sequence[ListedChat]]:
    [rows] = yield ask((statements.LISTED, (to_blob(principal), *place_row(after), most)))
    return [listed_row(row) for row in rows]


def _change(key: bytes, principal: str, title: str | None, is_pinned: bool | None) -> Steps[bool]:
    pinned = None if is_pinned is None else int(is_pinned)
    blob = None if title is None else to_blob(title)
    [changed] = yield commit((statements.CHANGE, (blob, pinned, key, to_blob(principal))))
    return bool(changed)


def _set_titles() -> Steps[int]:
    [rows] = yield ask((statements.UNTITLED, (INDEX_PAGE,)))
    titles = [(chat, b"" if body is None else indexed(bytes(body))[1]) for chat, body in rows]
    yield commit(ForEach(statements.SET_TITLES, titles))
    return len(rows)


def _set_words() -> Steps[int]:
    [rows] = yield ask((statements.WORDLESS, (INDEX_PAGE,)))
    words = [(chat, position, indexed(bytes(body))[0]) for chat, position, body in rows]
    yield commit(ForEach(statements.SET_WORDS, words))
    return len(rows)


def _purge(
    after: int, before: int, kept: Collection[bytes]
) -> Steps[tuple[Collection[bytes], int | None]]:
    [rows] = yield ask((statements.PURGEABLE, (before, after, PURGE_PAGE)))
    idle = [chat for chat, key, is_idle in rows if is_idle and bytes(key) not in kept]
    gone = yield commit(*((statements.PURGE, (chat, before)) for chat in idle[:MOST_PURGED]))
    deleted = [bytes(key) for found in gone for (key,) in found]
    if len(idle) > MOST_PURGED:
        return deleted, int(idle[MOST_PURGED - 1])
    return deleted, int(rows[-1][0]) if rows else None


def _submit(key: bytes, turn: ChatTurn, settings: SessionSettings, now: int) -> Steps[bool]:
    name = turn.message_id.encode()
    chats, counts = yield ask(
        (statements.LOCK_RECENT, (key,)),
        (statements.COUNT_TURNS, {"key": key, "name": name}),
    )
    if not chats:
        raise UnknownSessionError
    [(chat, recent, running)] = chats
    [(known, waiting)] = counts
    if known or (running is not None and read_turn(running).message_id == turn.message_id):
        return False
    note = {
        "recent": dumps(settings.admit(loads(recent), waiting, now)),
        "now": now,
        "title": to_blob(turn.title),
        "chat": chat,
    }
    yield commit(
        (statements.NOTE_MESSAGE, note), (statements.ADD_TURN, (chat, name, turn_body(turn)))
    )
    return True


class LeaseLapsedError(Exception):
    """This worker counts as dead at the moment."""


def begin_turn(key: bytes, worker: str | None) -> Steps[BegunTurn | None]:
    """Let the next waiting turn run at a worker; there is one alone without an id.

    Raises:
        LeaseLapsedError: others would end the turn at once.
    """
    lease = [] if worker is None else [(statements.HOLD_LEASE, (worker,))]
    *leases, chats, turns = yield ask(
        *lease, (statements.LOCK_RUNNING, (key,)), (statements.NEXT_TURN, (key,))
    )
    if [] in leases:
        raise LeaseLapsedError
    if not chats:
        return None
    [(chat, version, running, runs_at)] = chats
    if running is not None:
        own = runs_at == worker
        return BegunTurn(read_turn(running), version, is_new=False) if own else None
    if not turns:
        return None
    [(position, body)] = turns
    turn = read_turn(body)
    run = {"running": body, "turn_id": turn.turn_id, "worker": worker, "chat": chat}
    yield commit((statements.DROP_TURN, (position,)), (statements.RUN, run))
    return BegunTurn(turn, version, is_new=True)


def write(key: bytes, writing: Writing) -> Steps[int]:
    """Store a change of a chat."""
    head = {
        "key": key,
        "fence": writing.fence,
        "last_seq": writing.last_seq,
        "first_seq": writing.first_seq,
        "last_active_at": writing.last_active_at,
        "state": to_bytes(writing.state),
        "ends": writing.ends_turn,
    }
    messages = [message_row(*each) for each in writing.messages]
    [rows] = yield ask((statements.WRITE, head))
    if not rows:
        raise FencedError
    [(chat, version)] = rows
    yield commit(
        ForEach(statements.PUT_MESSAGES, [(chat, version, *each) for each in messages]),
        ForEach(statements.ADD_EVENTS, [(chat, *each) for each in writing.frames]),
        (statements.DROP_EVENTS, (chat, writing.first_seq)),
        changed=key,
    )
    return int(version)


def _decisions(principal: str) -> Steps[Mapping[str, str]]:
    [rows] = yield ask((statements.DECISIONS, (to_blob(principal),)))
    return dict(rows)


def _decide(principal: str, subject: str, word: str) -> Steps[None]:
    name = to_blob(principal)
    yield commit(
        (statements.FORGET_DECISION, (name, subject)),
        (statements.DECIDE, (name, subject, word)),
        (statements.DROP_DECISIONS, (name, name, MAX_DECISIONS)),
    )


# -- the store ------------------------------------------------------------------------------------

Method = Callable[Concatenate["DatabaseChatStore", P], Coroutine[Any, Any, T]]


def _reading(operation: Callable[P, Steps[T]]) -> Method[P, T]:
    """Return the method of `ChatStore` that performs an operation that only reads."""

    async def method(store: DatabaseChatStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.read(lambda: operation(*args, **kwargs))

    return method


def _writing(operation: Callable[P, Steps[T]]) -> Method[P, T]:
    """Return the method of `ChatStore` that performs an operation that may write."""

    async def method(store: DatabaseChatStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.transact(lambda: operation(*args, **kwargs))

    return method


@define(eq=False, repr=False)
class DatabaseChatStore(ChatStore):
    """The base of the stores in a database; see `ChatStore`."""

    is_immediate: bool = field(default=False, init=False)

    @abstractmethod
    async def read(self, operation: Callable[[], Steps[T]]) -> T:
        """Perform an operation that changes nothing."""

    @abstractmethod
    async def transact(self, operation: Callable[[], Steps[T]]) -> T:
        """Perform an operation in a transaction."""

    create = _writing(_create)
    load = _reading(_load)
    changes = _reading(_changes)
    frames = _reading(_frames)
    delete = _writing(_delete)
    listed = _reading(_listed)
    change = _writing(_change)
    purge = _writing(_purge)
    submit = _writing(_submit)
    write = _writing(write)
    decisions = _reading(_decisions)
    decide = _writing(_decide)

    async def index(self) -> bool:
        """See `ChatStore`."""
        return INDEX_PAGE in (await self.transact(_set_titles), await self.transact(_set_words))
