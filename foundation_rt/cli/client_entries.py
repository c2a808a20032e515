"""The files of clients that `install` writes to: where they are, and what they hold (CLI-70).

Paths and members are those that the clients document: `mcpServers` of most, `servers` of VS Code
with a `type`, `mcp_servers` of Codex in TOML. Windsurf and Gemini CLI have other names for a URL.

Only the entry of that server changes; comments and all else stay as they are. The file is replaced
as a whole, so that a client never reads a part of it.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from ..base.files import locked_folder, replacing
from ..base.mcp_json import claude_desktop_file, settings_folder
from ..base.mcp_json.editing import remove_member, set_member
from ..base.mcp_json.json_text import parse_object, read_text
from ..client.targets import HttpServer, StdioServer
from ..errors import MissingExtraError, UsageError

_OWNER_ONLY = 0o600  # entries may hold tokens


@frozen
class ClientFile:
    """A file of a client, as it was read.

    Attributes:
        client: whose file it is.
        path: absolute; a link is followed.
        text: empty if there is no such file.
        entries: the servers in it, by name.
    """

    client: DesktopClient
    path: Path
    text: str
    entries: Mapping[str, Any]

    @classmethod
    def read(cls, client: DesktopClient, path: Path) -> ClientFile:
        """Read a file.

        Raises:
            UsageError: it cannot be read, or is not of the form of the client's files.
        """
        with suppress(RuntimeError):  # Python 3.13 returns a link of a circle instead
            path = path.resolve()
        if path.is_symlink():
            raise UsageError(f"{path} cannot be followed: it is a link in a circle")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a file")
        text = read_text(path) if path.exists() else ""
        content = _parse(client, path, text)
        entries = content.get(client.member, {})
        if not isinstance(entries, Mapping):
            raise UsageError(f"{path}: {client.member} should list servers by name")
        return cls(client, path, text, dict(entries))

    def with_entry(self, name: str, entry: Mapping[str, Any]) -> str:
        """Return the text of the file with this entry."""
        if not self.client.is_toml:
            return set_member(self.text, self.client.member, name, entry)
        tomlkit = _tomlkit()
        document = tomlkit.parse(self.text)
        if self.client.member not in document:
            document[self.client.member] = tomlkit.table(is_super_table=True)
        listed = document[self.client.member]
        if isinstance(listed, tomlkit.items.InlineTable):
            listed[name] = entry
        else:
            table = tomlkit.item(entry)
            if [*document][-1] != self.client.member:
                table.add(tomlkit.nl())  # before the table that follows
            listed[name] = table
        return str(tomlkit.dumps(document))

    def without_entry(self, name: str) -> str:
        """Return the text of the file without this entry, which is there."""
        if not self.client.is_toml:
            return remove_member(self.text, self.client.member, name)
        tomlkit = _tomlkit()
        document = tomlkit.parse(self.text)
        del document[self.client.member][name]
        return str(tomlkit.dumps(document))

    def write(self, text: str) -> Path | None:
        """Replace the file; of several processes one writes, and the others fail.

        Returns:
            the path of a copy of the file as it was; None if there was none.

        Raises:
            UsageError: the file has changed since it was read, or cannot be written.
        """
        _parse(self.client, self.path, text)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked_folder(self.path.parent):
                if ClientFile.read(self.client, self.path).text != self.text:
                    problem = "has changed meanwhile; nothing was written: try again"
                    raise UsageError(f"{self.path} {problem}")
                return _replace(self.path, text)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from None


def _parse(client: DesktopClient, path: Path, text: str) -> Mapping[str, Any]:
    if not client.is_toml:
        return parse_object(path, text) if text.strip() else {}
    tomlkit = _tomlkit()
    try:
        content: Mapping[str, Any] = tomlkit.parse(text).unwrap()
    except tomlkit.exceptions.TOMLKitError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    return content


def _tomlkit() -> ModuleType:
    try:
        import tomlkit
        import tomlkit.exceptions
        import tomlkit.items
    except ModuleNotFoundError as error:
        if error.name != "tomlkit":
            raise
        raise MissingExtraError("The file of this client, which is TOML,", "cli") from None
    return tomlkit


def _replace(path: Path, text: str) -> Path | None:
    """Replace a file; return the path of its copy, which replaces the copy before (CLI-81)."""
    if not path.exists():
        _put(path, text.encode(), _OWNER_ONLY)
        return None
    mode, old = path.stat().st_mode & 0o777, path.read_bytes()
    backup = path.with_name(f"{path.name}.bak")
    _put(backup, old, mode)
    mark = codecs.BOM_UTF8 if old.startswith(codecs.BOM_UTF8) else b""
    _put(path, mark + text.encode(), mode)
    return backup


def _put(path: Path, content: bytes, mode: int) -> None:
    with replacing(path, mode=mode) as file:
        file.write(content)


@frozen
class DesktopClient:
    """A client that starts or reaches servers which a file of its own lists.

    Attributes:
        title: its name, for people.
        user_path: of the file of the person, below the home directory; None where it has none.
        project_path: of the file of a project, below its folder; None where it has none.
        member: of that file, in which servers are listed by name.
        names_type: an entry has a `type`.
        reaches_urls: an entry may be a URL; otherwise a bridge has to be started for it.
        url_member: of an entry with a URL.
        headers_member: of such an entry.
    """

    title: str
    user_path: Path | None
    project_path: Path | None
    member: str = "mcpServers"
    names_type: bool = False
    reaches_urls: bool = True
    url_member: str = "url"
    headers_member: str = "headers"

    def path(self, *, in_project: bool) -> Path | None:
        """Return the path of its file, absolute, or None if it has no such file."""
        if in_project:
            return None if self.project_path is None else Path.cwd() / self.project_path
        return None if self.user_path is None else Path.home() / self.user_path

    @property
    def is_toml(self) -> bool:
        """Its file is TOML; otherwise JSON with comments."""
        return self.member == "mcp_servers"

    def entry(self, server: StdioServer | HttpServer) -> dict[str, Any]:
        """Return the entry of a server, as its file has it."""
        if isinstance(server, HttpServer):
            kind = {"type": "http"} if self.names_type else {}
            headers = {self.headers_member: dict(server.headers)} if server.headers else {}
            return {**kind, self.url_member: server.url, **headers}
        kind = {"type": "stdio"} if self.names_type else {}
        env = {"env": dict(server.env)} if server.env else {}
        return {**kind, "command": server.command, "args": [*server.args], **env}


def desktop_clients(variables: Mapping[str, str], home: Path) -> Mapping[str, DesktopClient]:
    """Return the clients, by the name on the command line.

    Args:
        variables: of the environment: `CODEX_HOME`.
        home: of the user.
    """
    codex = Path(variables.get("CODEX_HOME") or ".codex")
    return {
        "claude-desktop": DesktopClient(
            "Claude Desktop",
            claude_desktop_file(home),
            None,
            reaches_urls=False,
        ),
        # Its file in the home directory holds its state, and it writes that at any time.
        "claude-code": DesktopClient("Claude Code", None, Path(".mcp.json"), names_type=True),
        "cursor": DesktopClient("Cursor", Path(".cursor/mcp.json"), Path(".cursor/mcp.json")),
        "vscode": DesktopClient(
            "VS Code",
            settings_folder(home) / "Code/User/mcp.json",
            Path(".vscode/mcp.json"),
            member="servers",
            names_type=True,
        ),
        "windsurf": DesktopClient(
            "Windsurf",
            Path(".codeium/windsurf/mcp_config.json"),
            None,
            url_member="serverUrl",
        ),
        "gemini-cli": DesktopClient(
            "Gemini CLI",
            Path(".gemini/settings.json"),
            Path(".gemini/settings.json"),
            url_member="httpUrl",
        ),
        "codex": DesktopClient(
            "Codex",
            codex / "config.toml",
            Path(".codex/config.toml"),
            member="mcp_servers",
            headers_member="http_headers",
        ),
    }
