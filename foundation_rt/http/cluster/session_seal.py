"""Ids that say which worker made them, and that no client can read or make (HTTP-60).

The id of a session is sealed with AES-256-GCM, under a key that is derived from
`security.state_key`. It names the worker that began the session, and has the client's description
from the handshake, if that is small enough: with it another worker can restore the session
(HTTP-62). The seal is bound to the principal: for another one the id is an unknown one. The id of a
task is 256 random bits, followed by a seal that names the worker alone.

Pure functions over a key and its random nonces; imported only where there are several workers.
"""

from __future__ import annotations

import hmac
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...base.exact_json import dumps, loads
from ...base.shown import Shown
from ...protocol.peer import describe_peer
from ...protocol.principal import identity_of
from ...protocol.revisions import HANDSHAKE_REVISIONS, REVISIONS
from ..seal import Seal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...protocol.peer import Peer
    from ...protocol.principal import Principal

MAX_ID_LENGTH = 1024
"""Characters of an id. What a client says about itself is left out of a longer one."""

_KEY_PURPOSE = b"foundation-rt worker ids 1\n"
_SESSION = b"session\n"
_TASK = b"task\n"
_EVENTS = b"events\n"
_CHANNEL_PURPOSE = b"foundation-rt channel of workers 1\n"


@frozen
class WorkerName:
    """The name of a place for workers: a worker that has ended is followed by another one.

    Attributes:
        group: the workers that one process has started; random.
        slot: the place among them, from 0.
    """

    group: str
    slot: int

    def __str__(self) -> str:
        return f"{self.group}:{self.slot}"


@frozen(eq=False, repr=False)
class SealedSession(Shown):
    """The content of a session's id.

    Args:
        owner: the worker that began the session.
        described: the client, as it is sealed; empty if that was too long.
    """

    owner: WorkerName
    _described: Sequence[Any]

    @property
    def peer(self) -> Peer | None:
        """Return the client, as `initialize` described it; None if that was too long."""
        return _read_peer(*self._described) if self._described else None


@define(eq=False, repr=False)
class IdSeal:
    """Makes and reads ids.

    Args:
        state_key: `security.state_key`, in hexadecimal.
    """

    _state_key: str
    _sealing: Seal = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._sealing = Seal(self._state_key, _KEY_PURPOSE)

    def session_id(
        self, owner: WorkerName, principal: Principal | None, peer: Peer | None = None
    ) -> str:
        """Return the id of a new session of `principal`, of at most `MAX_ID_LENGTH` characters."""
        bound = _SESSION + (identity_of(principal) or "").encode()
        named = [owner.group, owner.slot]
        if peer is not None:
            described = [peer.revision.name, peer.name, peer.version, _declared(peer)]
            sealed = self._sealing.seal(dumps([*named, *described]), bound)
            if len(sealed) <= MAX_ID_LENGTH:
                return sealed
        return self._sealing.seal(dumps(named), bound)

    def read_session(self, session_id: str, principal: Principal | None) -> SealedSession | None:
        """Return the content of an id; None if it was not sealed for `principal` with this key."""
        if len(session_id) > MAX_ID_LENGTH:
            return None
        content = self._open(session_id, _SESSION + (identity_of(principal) or "").encode())
        if content is None:
            return None
        return SealedSession(WorkerName(*content[:2]), content[2:])

    def task_id(self, owner: WorkerName) -> str:
        """Return the id of a new task (TASK-10)."""
        return f"{token_urlsafe()}.{self._sealing.seal(dumps([owner.group, owner.slot]), _TASK)}"

    def read_task(self, task_id: str) -> WorkerName | None:
        """Return the worker that made a task; None if none with this key did."""
        if len(task_id) > MAX_ID_LENGTH:
            return None
        content = self._open(task_id.partition(".")[2], _TASK)
        return None if content is None else WorkerName(*content)

    def seal_events(self, announcements: bytes) -> bytes:
        """Return a list of announcements, as JSON, sealed for other workers (SUB-18)."""
        return self._sealing.seal(announcements, _EVENTS).encode()

    def read_events(self, message: str) -> list[Any] | None:
        """Return the announcements of a message; None if it was not sealed with this key."""
        return self._open(message, _EVENTS)

    @property
    def channel(self) -> str:
        """The name of the channel of all workers with this key, from which the key is not found."""
        return hmac.digest(bytes.fromhex(self._state_key), _CHANNEL_PURPOSE, "sha256").hex()

    def _open(self, text: str, bound: bytes) -> list[Any] | None:
        content = self._sealing.open(text, bound)
        if content is None:
            return None
        found: list[Any] = loads(content)
        return found


def _declared(peer: Peer) -> dict[str, dict[str, Any]]:
    """Return the capabilities that are kept of a client, as it would declare them."""
    declared: dict[str, dict[str, Any]] = {}
    for path in sorted(peer.capabilities):
        part = declared
        for name in path:
            part = part.setdefault(name, {})
    return declared


def _read_peer(
    revision: str, name: str | None, version: str | None, declared: dict[str, Any]
) -> Peer | None:
    if revision not in HANDSHAKE_REVISIONS:
        return None  # that of a server of another version, which has the same key
    info = {"name": name, "version": version}
    return describe_peer(REVISIONS[revision], declared, info).retain()
