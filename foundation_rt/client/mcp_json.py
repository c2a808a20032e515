"""Files that list servers as desktop clients write them: `mcpServers`, or `servers` (spec/cli.md).

Such files are shared by several clients, so unknown members are ignored. The members that start or
reach a server are used exactly or refused. The values of `env` and
`headers` are secrets as a rule: no message repeats one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, frozen

from ..errors import UsageError
from .targets import HttpServer, StdioServer

MAX_FILE_BYTES = 1024 * 1024
"""A list of servers is written by hand. What is longer is some other file."""

_STRING = r'"(?:\\.|[^"\\])*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)

_OVER_HTTP = ("http", "sse", "streamable-http", "streamableHttp")


class ServerFileError(UsageError):
    """A file of servers, or what it says of one, cannot be used; the message says why."""


@frozen
class ServerFile:
    """The servers that a file lists.

    Attributes:
        path: of the file.
        entries: by the name of the server, as it stands there.
    """

    path: Path
    entries: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> ServerFile:
        """Read a file; one without servers in it is an empty list (CLI-14).

        Raises:
            ServerFileError: it cannot be read, is too large, or is no JSON object of such a form.
        """
        return cls.of(path, _parse(path, _read_text(path)))

    @classmethod
    def of(cls, path: Path, content: Mapping[str, Any]) -> ServerFile:
        """Return what the object of such a file lists.

        Args:
            path: of the file; for errors, and for the folder of the project.
            content: the object in the file.

        Raises:
            ServerFileError: it has not such a form.
        """
        entries: dict[str, Any] = {}
        for member in ("servers", "mcpServers"):
            listed = content.get(member) or {}
            if not isinstance(listed, dict):
                raise ServerFileError(f"{path}: {member} should be an object, by name of server")
            entries |= listed
        return cls(path, entries)

    def server(self, name: str, variables: Mapping[str, str]) -> StdioServer | HttpServer:
        """Return the server of that name (CLI-15).

        Args:
            name: one of `entries`.
            variables: what `${NAME}` stands for; the environment.

        Raises:
            ServerFileError: the entry says neither how to start nor where to reach it, or a
                variable is not set.
        """
        return _Entry(self.path, name, self.entries[name], variables).server()


@define(eq=False, repr=False)
class _Entry:
    """One server of a file, read member by member."""

    path: Path
    name: str
    members: Any
    variables: Mapping[str, str]

    def server(self) -> StdioServer | HttpServer:
        if not isinstance(self.members, dict):
            raise self.refusal("should be an object")
        command, url, kind = map(self.members.get, ("command", "url", "type"))
        if (command is None) == (url is None):
            raise self.refusal('needs either "command" or "url"')
        over_http = url is not None
        known = _OVER_HTTP if over_http else ("stdio",)
        if kind is not None and kind not in known:
            raise self.refusal(f'"type" should be {" or ".join(known)}')
        try:
            return self.http() if over_http else self.stdio()
        except ServerFileError:
            raise
        except UsageError as error:  # such as an argument with a NUL in it
            raise self.refusal(str(error)) from None

    def http(self) -> HttpServer:
        return HttpServer(self.text("url"), headers=self.texts("headers"))

    def stdio(self) -> StdioServer:
        if self.members.get("envFile") is not None:
            raise self.refusal('"envFile" is not read: put its variables into "env"')
        cwd = None if self.members.get("cwd") is None else self.text("cwd")
        env = self.texts("env")
        return StdioServer(self.text("command"), args=self.arguments(), env=env, cwd=cwd)

    def text(self, member: str) -> str:
        value = self.members[member]
        if not isinstance(value, str) or not value:
            raise self.refusal(f'"{member}" should be a string')
        return self.expand(value, member)

    def arguments(self) -> tuple[str, ...]:
        values = self.members.get("args") or []
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise self.refusal('"args" should be a list of strings')
        return tuple(self.expand(value, "args") for value in values)

    def texts(self, member: str) -> dict[str, str]:
        values = self.members.get(member) or {}
        if not isinstance(values, dict):
            raise self.refusal(f'"{member}" should be an object of strings')
        for key, value in values.items():
            if not isinstance(value, str):
                raise self.refusal(f'"{member}": the value of {key!r} should be a string')
        return {key: self.expand(value, member) for key, value in values.items()}

    def expand(self, text: str, member: str) -> str:
        return _VARIABLE.sub(lambda found: self.variable(found[1], member), text)

    def variable(self, expression: str, member: str) -> str:
        """Return the value of `${expression}`; a default also replaces an empty value."""
        if expression == "workspaceFolder":
            return str(self.folder())
        read = _VARIABLE_NAME.fullmatch(expression)
        if read is None:
            raise self.refusal(f'"{member}" has ${{{expression}}}, which stands for nothing here')
        name, default = read.groups()
        value = self.variables.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise self.refusal(f'"{member}" needs the environment variable {name}; it is not set')
        return value

    def folder(self) -> Path:
        """Return the project folder of a file: editors keep theirs in a folder below it."""
        parent = self.path.absolute().parent
        return parent.parent if parent.name in (".vscode", ".cursor") else parent

    def refusal(self, problem: str) -> ServerFileError:
        return ServerFileError(f"{self.path}, server {self.name!r}: {problem}")


def usual_places(folder: Path, home: Path) -> Iterator[Path]:
    """Yield the usual paths of such files, in the order of search (CLI-13).

    Args:
        folder: the working directory.
        home: of the user.
    """
    for name in ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"):
        yield folder / name
    yield home / ".cursor" / "mcp.json"
    desktop = "Claude/claude_desktop_config.json"
    yield home / ".config" / desktop
    yield home / "Library" / "Application Support" / desktop  # macOS


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ServerFileError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
        return content.decode("utf-8-sig")  # editors on Windows put a BOM first
    except UnicodeDecodeError as error:
        raise ServerFileError(f"{path} is no text in UTF-8, from byte {error.start} on") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ServerFileError(f"{path} cannot be read: {reason}") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    """Return the object in the file; comments and trailing commas are allowed."""
    for noise in (_COMMENT, _LAST_COMMA):
        text = noise.sub(_blank, text)
    try:
        # Not orjson: of two servers of one name it keeps the last without a word.
        content = json.loads(text, object_pairs_hook=_refuse_doubles)
    except (ValueError, RecursionError) as error:
        raise ServerFileError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ServerFileError(f"{path} should hold a JSON object")
    return content


def _blank(found: re.Match[str]) -> str:
    """Return a string as it is, else blanks, so that errors name the right place."""
    text = found[0]
    return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return members
