"""The sessions of the handshake era: one connection each, found by an id that cannot be guessed.

The table belongs to the event loop's thread. It does not watch the clock: who holds it asks it now
and then to expire what has been idle for too long, which also happens when there is no room.
Sessions stand in the order of their last use, so expiring looks at those alone that have expired.
A principal whose share is used up gets a new session for the one that it has not used for longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from attrs import define, field

from ...errors import JsonRpcErrorCode
from ...limits import SHARE_USED
from ...protocol.principal import identity_of
from ...shares import Limit, Quota
from .refusal import HttpRefusal

if TYPE_CHECKING:
    from ...clock import Clock
    from ...config.settings import ServerConfig
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


def session_quota(config: ServerConfig) -> Quota:
    """Return what counts the sessions of a process, by their principals (AUTH-16, RES-15)."""
    limit = Limit(config.http.max_sessions, "sessions", "maxSessions", "too_many_sessions")
    return Quota(config, limit)


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
        idle_ms: how long one is kept that nobody uses.
        quota: counts sessions, those of other tables of the process as well.
        gives_way: a principal's idle sessions give way to a new one of its own (RES-15).
        new_id: makes the ids.
    """

    _clock: Clock
    _idle_ms: int
    _quota: Quota
    _gives_way: bool = False
    _new_id: Callable[[], str] = new_session_id
    _entries: dict[str, _Entry[T]] = field(factory=dict, init=False)
    _by_owner: dict[str | None, dict[str, _Entry[T]]] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        """What they hold, as they are now."""
        return iter([entry.content for entry in self._entries.values()])

    def make_room(self, principal: Principal | None) -> HttpRefusal | None:
        """Expire what is idle; return why there is no room for one more (AUTH-16, RES-15)."""
        self.expire()
        owner = identity_of(principal)
        refusal = self._quota.refusal(owner)
        if refusal is None or self._find_idle(owner) is not None:
            return None
        details = dict(refusal.details or {})
        reason = details.pop("reason")
        return HttpRefusal(
            429 if reason == SHARE_USED else 503,
            refusal.message,
            JsonRpcErrorCode.INTERNAL_ERROR,
            reason,
            ((b"retry-after", _RETRY_AFTER_SECONDS),),
            {"code": refusal.code.value, "details": {"reason": reason, **details}},
        )

    def add(self, content: T, principal: Principal | None) -> str:
        """The id of a new session; `make_room` has said that there is room."""
        owner = identity_of(principal)
        if self._quota.refusal(owner) is not None:
            idle = self._find_idle(owner)
            assert idle is not None
            self.end(idle, "replaced")
        self._quota.take(owner)
        session_id = self._new_id()
        entry = _Entry(content, owner, self._clock.monotonic())
        self._entries[session_id] = entry
        self._by_owner.setdefault(owner, {})[session_id] = entry
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
        if entry is None:
            return
        own = self._by_owner[entry.owner]
        del own[session_id]
        if not own:
            del self._by_owner[entry.owner]
        self._quota.give_back(entry.owner)
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
        for entries in (self._entries, self._by_owner[entry.owner]):
            entries[session_id] = entries.pop(session_id)

    def _find_idle(self, owner: str | None) -> str | None:
        """Return the session of `owner` that is idle and was used the longest time ago."""
        if not self._gives_way or owner is None:
            return None
        own = self._by_owner.get(owner, {}).items()
        return next((each for each, entry in own if not entry.content.is_busy), None)
