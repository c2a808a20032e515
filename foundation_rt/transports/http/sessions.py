"""The sessions of the handshake era: one connection each, found by an id that cannot be guessed.

The table belongs to the event loop's thread. It does not watch the clock: who holds it asks it now
and then to expire what has been idle for too long, which also happens when there is no room.
Sessions stand in the order of their last use, so expiring looks at those alone that have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from attrs import define, field

from ...protocol.principal import identity_of
from .refusal import HttpRefusal

if TYPE_CHECKING:
    from ...clock import Clock
    from ...protocol.principal import Principal

_RETRY_AFTER_SECONDS = b"10"


class Held(Protocol):
    """What a session holds: a connection and what belongs to it."""

    @property
    def is_busy(self) -> bool:
        """Whether something runs or somebody listens: then the session is not idle (AUTH-17)."""
        ...

    def close(self, reason: str) -> object:
        """The session is no more, for `reason`."""


T = TypeVar("T", bound=Held)


def new_session_id() -> str:
    """256 random bits in visible ASCII (AUTH-15)."""
    return token_urlsafe(32)


@define(eq=False, repr=False)
class _Entry(Generic[T]):
    """One session.

    Attributes:
        owner: the identity of who began it, and alone may use it.
        last_used: monotonic seconds.
    """

    content: T
    owner: str | None
    last_used: float


@define(eq=False, repr=False)
class SessionTable(Generic[T]):
    """The sessions of one process.

    Args:
        clock: says how long a session has been idle.
        max_sessions: how many there may be.
        idle_ms: how long one is kept that nobody uses.
        new_id: makes the ids.
    """

    _clock: Clock
    _max_sessions: int
    _idle_ms: int
    _new_id: Callable[[], str] = new_session_id
    _entries: dict[str, _Entry[T]] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        """What they hold, as they are now."""
        return iter([entry.content for entry in self._entries.values()])

    def make_room(self) -> HttpRefusal | None:
        """Expire what is idle; return why there is no room even so (AUTH-16)."""
        self.expire()
        if len(self._entries) < self._max_sessions:
            return None
        return HttpRefusal(
            503,
            "Service unavailable: there are as many sessions as the server allows",
            reason="too_many_sessions",
            headers=((b"retry-after", _RETRY_AFTER_SECONDS),),
        )

    def add(self, content: T, principal: Principal | None) -> str:
        """The id of a new session; `make_room` has said that there is room."""
        session_id = self._new_id()
        self._entries[session_id] = _Entry(content, identity_of(principal), self._clock.monotonic())
        return session_id

    def get(self, session_id: str | None, principal: Principal | None) -> T | None:
        """What the session holds; None as well if it is another principal's (AUTH-14)."""
        entry = None if session_id is None else self._entries.get(session_id)
        if session_id is None or entry is None or entry.owner != identity_of(principal):
            return None
        if self._has_expired(entry) and not entry.content.is_busy:
            self.end(session_id, "session_expired")
            return None
        self._touch(session_id, entry)
        return entry.content

    def touch(self, session_id: str) -> None:
        """The session was in use until now: a response has ended, for instance."""
        entry = self._entries.get(session_id)
        if entry is not None:
            self._touch(session_id, entry)

    def end(self, session_id: str, reason: str) -> None:
        """Close a session, if nobody has yet; its id is nobody's from now on (AUTH-18)."""
        entry = self._entries.pop(session_id, None)
        if entry is not None:
            entry.content.close(reason)

    def end_all(self, reason: str) -> None:
        """Close every session."""
        for session_id in [*self._entries]:
            self.end(session_id, reason)

    def expire(self) -> int:
        """Close what has been idle for too long; return how many that were (AUTH-17)."""
        expired = 0
        for session_id, entry in [*self._idle_longest()]:
            if entry.content.is_busy:
                self._touch(session_id, entry)
            else:
                self.end(session_id, "session_expired")
                expired += 1
        return expired

    def _idle_longest(self) -> Iterator[tuple[str, _Entry[T]]]:
        for session_id, entry in self._entries.items():
            if not self._has_expired(entry):
                return
            yield session_id, entry

    def _has_expired(self, entry: _Entry[T]) -> bool:
        return (self._clock.monotonic() - entry.last_used) * 1000 >= self._idle_ms

    def _touch(self, session_id: str, entry: _Entry[T]) -> None:
        entry.last_used = self._clock.monotonic()
        self._entries[session_id] = self._entries.pop(session_id)
