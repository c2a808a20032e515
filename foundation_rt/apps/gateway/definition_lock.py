"""The lock file: a hash of each definition, so that none changes unseen (`--lock`, GATE-31).

A server that was looked at and trusted may change its descriptions later, and with them what a
model does. With a lock, the definitions of a server are recorded when it is listed first. From
then on a definition that is new or differs is withheld: it is in no list and cannot be used,
until an operator has accepted it. All that models and clients see of a server before it is called
is a definition: also its instructions, and the guidance that a chat reads.

The file is JSON, one line for each definition, so that a version control system shows a change.
Where clients get different definitions of one name (GATE-52), it has the hash of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
from attrs import define, field, frozen

from ...base.exact_json import dumps, loads
from ...base.files import replacing
from ...errors import UsageError

VERSION: Final = 1
MAX_LOCK_BYTES: Final = 64 * 1024 * 1024

KINDS: Final = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "resourceTemplates": "uriTemplate",
    "skills": "uri",
    "instructions": "name",
    "guidance": "name",
}
"""The kinds of definitions, and the member that identifies one."""

Hashes = dict[str, dict[str, list[str]]]
"""By kind and identifier, the hashes of its definitions."""

Lists = Mapping[str, Iterable[Mapping[str, Any]]]
"""By kind, the definitions of one server."""


class LockFileError(UsageError):
    """The lock file cannot be read or written; the message says why, and what to change."""


@frozen
class Withheld:
    """A definition that is not the recorded one.

    Attributes:
        server: the id of its server.
        kind: one of `KINDS`.
        identifier: its name or URI.
        reason: "changed" or "new".
    """

    server: str
    kind: str
    identifier: str
    reason: str


@define(eq=False)
class DefinitionLock:
    """The recorded definitions of all servers; in memory, with the text of a file."""

    servers: dict[str, Hashes] = field(factory=dict)

    @classmethod
    def parse(cls, text: bytes) -> DefinitionLock:
        """Return the lock that `to_bytes` wrote.

        Raises:
            LockFileError: it is no lock file, or that of a newer release.
        """
        try:
            content = loads(text)
        except orjson.JSONDecodeError as error:
            raise LockFileError(f"it is not JSON: {error}") from None
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise LockFileError(f"it is no lock file of version {VERSION}")
        servers: Any = content.get("servers")
        if not _is_nested(servers, 3):
            raise LockFileError("`servers` is not an object of servers, kinds and hashes")
        known = {
            server: {
                kind: {name: [each] if isinstance(each, str) else each for name, each in of.items()}
                for kind, of in kinds.items()
            }
            for server, kinds in servers.items()
        }
        return cls(known)

    def to_bytes(self) -> bytes:
        """Return the text of the file; equal locks have equal texts."""
        servers = {
            server: {
                kind: {name: each[0] if len(each) == 1 else each for name, each in of.items()}
                for kind, of in kinds.items()
            }
            for server, kinds in self.servers.items()
        }
        content = {"version": VERSION, "servers": servers}
        return dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"

    def check(self, server: str, kind: str, definition: Mapping[str, Any]) -> Withheld | None:
        """Return why a definition is withheld; None if it is recorded.

        Args:
            server: its id; of one that is not recorded yet, nothing is withheld.
            kind: one of `KINDS`.
            definition: of this kind.
        """
        if server not in self.servers:
            return None
        recorded = self.servers[server].get(kind, {})
        identifier = str(definition.get(KINDS[kind]))
        if hash_of(definition) in recorded.get(identifier, ()):
            return None
        reason = "changed" if identifier in recorded else "new"
        return Withheld(server, kind, identifier, reason)

    def record(self, server: str, lists: Lists) -> None:
        """Record the definitions of a server, instead of those that were recorded before."""
        self.servers[server] = {}
        self.add(server, lists)

    def add(self, server: str, lists: Lists) -> None:
        """Record definitions of a server beside those that other clients get (GATE-52)."""
        known = self.servers.setdefault(server, {})
        for kind, definitions in lists.items():
            for each in definitions:
                hashes = known.setdefault(kind, {}).setdefault(str(each.get(KINDS[kind])), [])
                found = hash_of(each)
                if found not in hashes:
                    hashes.append(found)
                    hashes.sort()


def hash_of(definition: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a definition, the same for every order of its members."""
    canonical = dumps(definition, option=orjson.OPT_SORT_KEYS)
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def read_lock(path: Path) -> DefinitionLock | None:
    """Return the lock in a file; None if there is no file.

    Raises:
        LockFileError: it cannot be read, or is no lock file.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_LOCK_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LockFileError(f"{path}: {error.strerror}") from None
    if len(text) > MAX_LOCK_BYTES:
        raise LockFileError(f"{path} is larger than {MAX_LOCK_BYTES} bytes")
    try:
        return DefinitionLock.parse(text)
    except LockFileError as error:
        raise LockFileError(f"{path}: {error}; remove it to record all definitions anew") from None


def write_lock(path: Path, lock: DefinitionLock) -> None:
    """Replace the file as a whole, so that a reader never sees half of it.

    Raises:
        LockFileError: it cannot be written.
    """
    try:
        with replacing(path) as file:
            file.write(lock.to_bytes())
    except OSError as error:
        raise LockFileError(f"{path} cannot be written: {error.strerror}") from None


def _is_nested(value: object, depth: int) -> bool:
    """Return whether a value is objects of objects of hashes, `depth` objects deep."""
    if depth == 0:
        hashes = value if isinstance(value, list) and value else [value]
        return all(isinstance(each, str) for each in hashes)
    return isinstance(value, dict) and all(_is_nested(each, depth - 1) for each in value.values())
