"""The clients that `install` writes entries for: where their files are, and what they hold.

Paths and members are those that the clients document: `mcpServers` of Claude Desktop, Claude Code
and Cursor, `servers` of VS Code with a `type`, `mcp_servers` of Codex in TOML.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from ..client.targets import HttpServer, StdioServer


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
        headers_member: of an entry with a URL.
    """

    title: str
    user_path: Path | None
    project_path: Path | None
    member: str = "mcpServers"
    names_type: bool = False
    reaches_urls: bool = True
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
            return {**kind, "url": server.url, **headers}
        kind = {"type": "stdio"} if self.names_type else {}
        env = {"env": dict(server.env)} if server.env else {}
        return {**kind, "command": server.command, "args": [*server.args], **env}


def desktop_clients(variables: Mapping[str, str]) -> Mapping[str, DesktopClient]:
    """Return the clients, by the name on the command line.

    Args:
        variables: of the environment: `CODEX_HOME`, and `XDG_CONFIG_HOME` where it is not macOS.
    """
    if sys.platform == "darwin":
        settings = Path("Library/Application Support")
    else:
        settings = Path(variables.get("XDG_CONFIG_HOME") or ".config")
    codex = Path(variables.get("CODEX_HOME") or ".codex")
    return {
        "claude-desktop": DesktopClient(
            "Claude Desktop",
            settings / "Claude/claude_desktop_config.json",
            None,
            reaches_urls=False,
        ),
        # Its file in the home directory holds its state, and it writes that at any time.
        "claude-code": DesktopClient("Claude Code", None, Path(".mcp.json"), names_type=True),
        "cursor": DesktopClient("Cursor", Path(".cursor/mcp.json"), Path(".cursor/mcp.json")),
        "vscode": DesktopClient(
            "VS Code",
            settings / "Code/User/mcp.json",
            Path(".vscode/mcp.json"),
            member="servers",
            names_type=True,
        ),
        "codex": DesktopClient(
            "Codex",
            codex / "config.toml",
            Path(".codex/config.toml"),
            member="mcp_servers",
            headers_member="http_headers",
        ),
    }
