"""The sessions of the handshake mode: one connection each, found by an id that cannot be guessed.

The table belongs to the event loop's thread, and has no timer: its owner calls `expire` at
intervals, and the table itself does before it admits a session. Sessions are kept in the order of
their last use, so `expire` looks only at those that have expired. A principal that has used up its
share gets a new session in exchange for its least recently used one.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from attrs import define, field

from ..base.principal_shares import Limit, Quota
from ..errors import SHARE_USED, JsonRpcErrorCode
from ..protocol.principal import identity_of
from .asgi import HttpRefusal

if TYPE_CHECKING:
    from ..base.clock import Clock
    from ..base.config.settings import ServerConfig
    from ..protocol.principal import Principal

_RETRY_AFTER_SECONDS = b"10"


class SessionContent(Protocol):
    """The content of a session: a connection and its streams."""

    @property
    def is_busy(self) -> bool:
        """Return whether a call runs or a client listens: such a session is not idle (AUTH-17)."""
        ...

    def close(self, reason: str) -> object:
        """End the session, for `reason`."""


T = TypeVar("T", bound=SessionContent)


def session_quota(config: ServerConfig) -> Quota:
    """Return the quota that counts a process's sessions by principal (AUTH-16, RES-15)."""
    limit = Limit(config.http.max_sessions, "sessions", "maxSessions", "too_many_sessions")
    return Quota(config, limit)


def new_session_id() -> str:
    """Return 256 random bits in visible ASCII (AUTH-15)."""
    return token_urlsafe(32)


def session_key_of(session_id: str) -> str:
    """Return the key by which handlers know a session (LIFE-16).

    The id is the client's credential and cannot be found from it; the key of an id is the same in
    every process.
    """
    return sha256(b"foundation-rt session key\n" + session_id.encode()).hexdigest()


@define(eq=False, repr=False)
class _Entry(Generic[T]):
    """One session.

    Attributes:
        owner: the identity that began it, and that alone may use it.
        last_used: in monotonic seconds.
    """

    content: T
    owner: str | None
    last_used: float


@define(eq=False, repr=False)
class SessionTable(Generic[T]):
    """The sessions of one process.

    Args:
        clock: measures how long a session has been idle.
        idle_ms: how long an idle session is kept, in milliseconds.
        quota: counts sessions, including those of other tables of the process.
        gives_way: whether a principal's idle sessions give way to its new ones (RES-15).
    """

    _clock: Clock
    _idle_ms: int
    _quota: Quota
    _gives_way: bool = False
    _entries: dict[str, _Entry[T]] = field(factory=dict, init=False)
    _by_owner: dict[str | None, dict[str, _Entry[T]]] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session_id: str | None) -> bool:
        """Return whether there is such a session, of any principal."""
        return session_id in self._entries

    def __iter__(self) -> Iterator[T]:
        """Iterate over the contents of all sessions there are now."""
        return iter([entry.content for entry in self._entries.values()])

    def check_capacity(self, principal: Principal | None) -> HttpRefusal | None:
        """Expire idle sessions; return a refusal if one more is too many (AUTH-16, RES-15)."""
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

    def add(self, content: T, principal: Principal | None, session_id: str | None = None) -> str:
        """Add a session; the caller has called `check_capacity`.

        Args:
            content: of the session.
            principal: the only one that may use it.
            session_id: its id; by default a new one, of random bits.

        Returns:
            The id of the session.
        """
        owner = identity_of(principal)
        if self._quota.refusal(owner) is not None:
            idle = self._find_idle(owner)
            assert idle is not None
            self.end(idle, "replaced")
        self._quota.take(owner)
        session_id = session_id or new_session_id()
        entry = _Entry(content, owner, self._clock.monotonic())
        self._entries[session_id] = entry
        self._by_owner.setdefault(owner, {})[session_id] = entry
        return session_id

    def get(self, session_id: str | None, principal: Principal | None) -> T | None:
        """Return the content of a session; None if it belongs to another principal (AUTH-14)."""
        entry = None if session_id is None else self._entries.get(session_id)
        if session_id is None or entry is None or entry.owner != identity_of(principal):
            return None
        if self._has_expired(entry) and not entry.content.is_busy:
            self.end(session_id, "session_expired")
            return None
        self._touch(session_id, entry)
        return entry.content

    def touch(self, session_id: str) -> None:
        """Count a session as used now: a response has ended, for instance."""
        entry = self._entries.get(session_id)
        if entry is not None:
            self._touch(session_id, entry)

    def end(self, session_id: str, reason: str) -> None:
        """Close a session, unless it is closed; its id becomes invalid (AUTH-18)."""
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
        """Close the sessions that have been idle for too long; return their number (AUTH-17)."""
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
        """Return the id of the least recently used idle session of `owner`."""
        if not self._gives_way or owner is None:
            return None
        own = self._by_owner.get(owner, {}).items()
        return next((each for each, entry in own if not entry.content.is_busy), None)
