"""The agreement of the person to what a folder would run (MCPJSON-11 to -15).

A file of servers that lies in the working directory, or that its `.env` names, was perhaps written
by somebody else. Its entries wait until the person has agreed to exactly these. The agreement is a
digest in a file of the user, outside of the folder; an entry that differs has another one.
"""

from __future__ import annotations

import json
import os
import sys
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ...errors import UsageError
from ..files import (
    is_private,
    locked_folder,
    make_private_folder,
    open_private,
    user_folder,
)
from ..logs.redaction import Redactor
from ..shell_words import join
from .files import ServerFile
from .members import MEMBERS
from .problems import NotYetError, ServerFileError
from .variables import fill, variables_in

_LEFT_OUT = {"id", "disabled", *(k for k, v in MEMBERS.items() if "maximum" in v.kind.schema)}
"""Members that change neither what runs nor what it may do."""


@frozen
class WaitingEntry:
    """An entry that the person has to agree to.

    Attributes:
        path: of the file.
        name: of the server.
        members: as they stand in the file, without those that are of no consequence.
        from_folder: the values of `.env` that it takes, by name.
        from_person: the names of the variables of the environment that it takes.
    """

    path: Path
    name: str
    members: Mapping[str, Any] = field(repr=False)
    from_folder: Mapping[str, str] = field(repr=False)
    from_person: tuple[str, ...]

    @property
    def target(self) -> str:
        """The command line with its folder, or the URL, with the values of `.env`."""
        if "url" in self.members:
            return self._filled("url")
        args = [fill(each, self.from_folder) for each in self.members.get("args", ())]
        where = f" (in {self._filled('cwd')})" if "cwd" in self.members else ""
        return join([self._filled("command"), *args]) + where

    @property
    def hidden(self) -> frozenset[str]:
        """The variables of `.env` that are secrets, and go where only secrets do (CLI-84).

        What fills any other member could run something, whatever its name.
        """
        is_secret = Redactor().is_secret
        kept = dict(self.members)
        for member in ("env", "headers", "oauth"):
            texts = kept.get(member, {})
            kept[member] = {key: text for key, text in texts.items() if not is_secret(key)}
        return frozenset(filter(is_secret, self.from_folder.keys() - _taken(kept)))

    def _filled(self, member: str) -> str:
        return fill(self.members[member], self.from_folder)

    @property
    def digest(self) -> str:
        """The same for an entry that starts the same, in the same folder (MCPJSON-12).

        Relative paths are those of the working directory, and `${workspaceFolder}` that of the
        path, so both are in it.
        """
        where = [os.getcwd(), str(self.path.absolute()), self.name]  # noqa: PTH109
        whole = json.dumps([*where, self.members, self.from_folder], sort_keys=True)
        return sha256(whole.encode()).hexdigest()


@frozen
class Agreement:
    """Knows which entries of a file of servers wait for the person.

    Args:
        is_named: the person has named the file: an entry waits only if it takes anything from
            `.env` (MCPJSON-13).
        from_folder: the variables of the folder's `.env`.
        environment: the variables of the process.
    """

    is_named: bool = False
    from_folder: Mapping[str, str] = field(factory=dict, repr=False)
    environment: Mapping[str, str] = field(factory=lambda: os.environ, repr=False)

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables that entries may refer to; those of `.env` are not set in the others."""
        return ChainMap(dict(self.from_folder), dict(self.environment))

    def waiting(self, file: ServerFile, names: Iterable[str] | None = None) -> list[WaitingEntry]:
        """Return the entries that wait, of those named or of all; none that can never start."""
        agreed = _read_record()
        chosen = file.entries if names is None else names
        return [
            each
            for each in (self._asked(file, name) for name in chosen if self._starts(file, name))
            if each is not None and each.digest not in agreed
        ]

    def problem(self, file: ServerFile, name: str) -> str | None:
        """Return why an entry waits, for the state of its server; None if it does not."""
        if not self.waiting(file, [name]):
            return None
        return (
            "waits until you agree to its entry as it is now: start this again at a terminal, or"
            " with --trust"
        )

    def _starts(self, file: ServerFile, name: str) -> bool:
        try:
            with suppress(NotYetError):  # it waits now, so that it is asked about with the others
                file.entry(name, self.variables)
        except ServerFileError:
            return False
        return not file.is_disabled(name)

    def _asked(self, file: ServerFile, name: str) -> WaitingEntry | None:
        """Return the entry, unless nobody but the person has decided it."""
        entry = file.entries[name]
        members = {
            each: entry[each]
            for each in MEMBERS
            if each not in _LEFT_OUT and entry.get(each) is not None
        }
        taken = _taken(members)
        from_folder = {each: self.from_folder[each] for each in taken & self.from_folder.keys()}
        if self.is_named and not from_folder:
            return None
        from_person = tuple(sorted(taken & self.environment.keys() - from_folder.keys()))
        return WaitingEntry(file.path, name, members, from_folder, from_person)


def record_path() -> Path:
    """Return the path of the file with the agreements of the user."""
    return user_folder("state") / "foundation-rt" / "agreed-servers"


def agree(entries: Iterable[WaitingEntry]) -> None:
    """Record that the person has agreed to these entries (MCPJSON-14).

    A line for each is appended, so that processes do not need to know of one another.

    Raises:
        UsageError: the file cannot be written; says why.
    """
    path = record_path()
    lines = "".join(
        f"\n{each.digest} {json.dumps([each.name, str(each.path.absolute())])}" for each in entries
    )
    try:
        make_private_folder(path.parent)
        with locked_folder(path.parent):  # Windows seeks to the end, and writes there afterwards
            descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                if sys.platform != "win32":
                    os.fchmod(descriptor, 0o600)
                os.write(descriptor, f"{lines}\n".encode())
            finally:
                os.close(descriptor)
    except OSError as error:
        raise UsageError(
            f"the agreement cannot be recorded in {path} ({error.strerror}): set XDG_STATE_HOME to"
            " a folder that can be written"
        ) from None


def _read_record() -> set[str]:
    """Return the digests of the record; none if somebody else may have written it."""
    try:
        descriptor = open_private(record_path(), os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            if not is_private(descriptor):
                return set()
            return {line[:64].decode("ascii", "replace") for line in file}
    except OSError:
        return set()


def _taken(members: Mapping[str, Any]) -> set[str]:
    """Return the names of the variables in these members."""
    return set[str]().union(*map(variables_in, _texts(members)))


def _texts(members: Mapping[str, Any]) -> Iterator[str]:
    """Yield the strings in which variables are expanded."""
    for value in members.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from value
        elif isinstance(value, dict):
            yield from (each for each in value.values() if isinstance(each, str))
