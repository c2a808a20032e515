"""Marks of the sessions of one worker that its successor may restore (HTTP-62).

A mark is an empty file, named by a digest of the session's id, in the private folder of the
worker's place. It is made with the session, and removed when the session ends or has state that
would be lost: so what is there when a worker has died are the sessions that have nothing but their
handshake. A file outlives a worker that is killed, and holds nothing that another user could use.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from attrs import define, field


def digest_of(session_id: str) -> str:
    """Return what stands for a session where its id must not stand."""
    return sha256(b"foundation-rt session mark\n" + session_id.encode()).hexdigest()


@define(eq=False, repr=False)
class SessionMarks:
    """The marks of one place; without a folder there are none, and every method does nothing.

    Args:
        folder: is made if it is not there.
    """

    _folder: Path | None
    _inherited: set[str] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._inherited = {each.name for each in self._folder.iterdir()}

    def add(self, digest: str) -> None:
        """Mark a session: it has nothing but its handshake.

        A disk that is full costs the session no more than that it cannot be restored.
        """
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / digest).touch(mode=0o600)

    def remove(self, digest: str) -> None:
        """Remove a mark, if it is there; from any thread."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / digest).unlink(missing_ok=True)

    def take(self, digest: str) -> bool:
        """Return whether a worker that was here before has left the mark; once."""
        if digest not in self._inherited:
            return False
        self._inherited.remove(digest)
        return True

    def forget_inherited(self) -> None:
        """Remove the marks that nothing has asked for: their sessions have been idle for long."""
        inherited, self._inherited = self._inherited, set()
        for digest in inherited:
            self.remove(digest)
