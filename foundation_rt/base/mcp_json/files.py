"""A file of servers, and the usual places of such files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from .entries import EntryReader, ServerEntry
from .json_text import parse_object, read_text
from .problems import ServerFileError


@frozen
class ServerFile:
    """The servers that a file lists.

    Attributes:
        path: of the file.
        entries: by the name of the server, in the order of the file, as they stand there, but for
            `url` (CLI-15).
    """

    path: Path
    entries: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> ServerFile:
        """Read a file; one without servers in it is an empty list (CLI-14).

        Raises:
            ServerFileError: it cannot be read, is too large, or is no JSON object of such a form.
        """
        return cls.of(path, parse_object(path, read_text(path)))

    @classmethod
    def of(cls, path: Path, content: Mapping[str, Any]) -> ServerFile:
        """Return the servers that the object of such a file lists.

        Args:
            path: of the file; for errors, and for the folder of the project.
            content: the object in the file.

        Raises:
            ServerFileError: it has not such a form, or lists a name in both members.
        """
        entries: dict[str, Any] = {}
        for member in ("mcpServers", "servers"):
            listed = content.get(member)
            if listed is None:
                continue
            if not isinstance(listed, dict):
                raise ServerFileError(f"{path}: {member} should be an object, by name of server")
            for name, entry in listed.items():
                if name in entries:
                    raise ServerFileError(f"{path}: {name!r} is in mcpServers and in servers")
                entries[name] = _with_url(entry)
        return cls(path, entries)

    def entry(self, name: str, variables: Mapping[str, str]) -> ServerEntry:
        """Return the server of that name (CLI-15).

        Args:
            name: one of `entries`.
            variables: what `${NAME}` stands for; the environment.

        Raises:
            ServerFileError: the entry says neither how to start nor where to reach it, a member
                cannot be used, or a variable is not set.
        """
        home = _home_of(self.path)
        return EntryReader(self.path, name, self.entries[name], variables, home).read()

    def is_disabled(self, name: str) -> bool:
        """Return whether an entry is left out, also one that could not be used."""
        entry = self.entries[name]
        return isinstance(entry, dict) and entry.get("disabled") is True


_URLS_OF_OTHERS = ("serverUrl", "httpUrl")
"""Members in which Windsurf and Gemini CLI have the URL."""


def _with_url(entry: Any) -> Any:
    """Return an entry with its URL as `url`, however another client calls it (CLI-15)."""
    if not isinstance(entry, dict) or any(entry.get(each) for each in ("command", "url")):
        return entry
    urls = [entry[each] for each in _URLS_OF_OTHERS if each in entry]
    return {**entry, "url": urls[0]} if urls else entry


_OF_FOLDER = ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")


def usual_places(folder: Path, home: Path) -> Iterator[Path]:
    """Yield the usual paths of such files, in the order of search (CLI-13).

    Args:
        folder: the working directory.
        home: of the user.
    """
    for name in _OF_FOLDER:
        yield folder / name
    yield from _places_of(home)


def _places_of(home: Path) -> Iterator[Path]:
    yield home / ".cursor/mcp.json"
    yield claude_desktop_file(home)
    yield settings_folder(home) / "Code/User/mcp.json"
    yield home / ".codeium/windsurf/mcp_config.json"


def settings_folder(home: Path) -> Path:
    """Return the folder in which applications keep the settings of a user on this system."""
    if sys.platform == "darwin":
        return home / "Library/Application Support"
    if sys.platform == "win32":
        return home / (os.environ.get("APPDATA") or "AppData/Roaming")
    return home / (os.environ.get("XDG_CONFIG_HOME") or ".config")


def claude_desktop_file(home: Path) -> Path:
    """Return the file in which Claude Desktop lists servers.

    On Windows it comes as a package (MSIX), which has the folder of settings in one of its own.
    """
    folder = settings_folder(home)
    if sys.platform == "win32":
        local = home / (os.environ.get("LOCALAPPDATA") or "AppData/Local")
        folder = next(iter(sorted(local.glob("Packages/Claude_*/LocalCache/Roaming"))), folder)
    return folder / "Claude/claude_desktop_config.json"


def _home_of(path: Path) -> str | None:
    """Return the home that a file has a usual place of: its entries run there (MCPJSON-16)."""
    with suppress(RuntimeError):  # a user without a home
        home = Path.home()
        if os.path.realpath(path) in map(os.path.realpath, _places_of(home)):
            return str(home)
    return None


def is_at_home() -> bool:
    """Return whether the working directory is the person's home: its files are their own."""
    return os.path.realpath(Path.cwd()) == os.path.realpath(Path.home())


def is_of_folder(place: Path) -> bool:
    """Return whether a usual place is of the working directory, which others may have written."""
    return place.absolute() in {Path.cwd() / name for name in _OF_FOLDER} and not is_at_home()
