"""Turn the target of `connect` into the description of a server."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError

if TYPE_CHECKING:
    from .transports.http_server import HttpServer
    from .transports.stdio import StdioServer

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_DICT: Final = Path("mcpServers")
"""Stands for the name of a file in errors about a dict."""


def is_url(text: str) -> bool:
    """Return whether a text is a URL; `ftp://host` is one, and is refused later."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://\S*", text) is not None


def describe(
    target: Any,
    headers: Mapping[str, str] | None,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
) -> Any:
    """Return the server that a target describes; a target that is no description stays as it is.

    Args:
        target: see `connect`.
        headers: for a URL.
        env: for a command; added to the few variables that every child gets.
        cwd: for a command; the folder it runs in.

    Raises:
        UsageError: it describes none, or `headers`, `env` or `cwd` do not go with it (CLIENT-34).
    """
    if isinstance(target, str):
        target = target.strip()  # as a line of a file has it; with a blank it would be a command
        if is_url(target):
            from .transports.http_server import HttpServer

            _refuse_for_no_command(env, cwd)
            return HttpServer(target, headers=dict(headers or {}))
        if target.endswith(".json") and len(target.split()) == 1:
            target = Path(target)
    if headers is not None:
        raise UsageError("headers go with a URL")
    command = _command(target)
    if command is not None:
        from .transports.stdio import StdioServer

        return StdioServer(command[0], command[1:], env=env, cwd=cwd)
    _refuse_for_no_command(env, cwd)
    if isinstance(target, os.PathLike):
        return _only_server(Path(target), None)
    return _only_server(_DICT, target) if isinstance(target, Mapping) else target


def _refuse_for_no_command(env: object, cwd: object) -> None:
    if env is not None or cwd is not None:
        raise UsageError("env and cwd go with a command line; a StdioServer has its own")


def _command(target: Any) -> list[str] | None:
    """Return the words of a command; None if the target is something else."""
    from .transports.stdio import StdioServer

    if isinstance(target, str):
        server = StdioServer.from_command_line(target)
        _refuse_no_program(server.command, server.args)
        return [server.command, *server.args]
    if isinstance(target, os.PathLike):
        path = os.fspath(target)
        if path.endswith(".json"):
            return None
        return [sys.executable, path] if path.endswith(".py") else [path]
    if isinstance(target, list | tuple):
        if not target:
            raise UsageError("the list of words is empty: begin with the program")
        return [*target]
    return None


def _refuse_no_program(command: str, args: Sequence[str]) -> None:
    """Raise `UsageError` for two words that are taken for a program in a shell, or by mistake."""
    if _ASSIGNMENT.match(command):
        name = command.partition("=")[0]
        raise UsageError(
            f"{name}=... is no program, and no shell reads the command line: give"
            f" connect(..., env={{{name!r}: ...}}), or begin the line with `env`"
        )
    if command.endswith(".py") and not args and shutil.which(command) is None:
        raise UsageError(
            f"{command} is a file, not a program: connect({f'python {command}'!r}), or"
            f" connect(Path({command!r}))"
        )


def _only_server(path: Path, content: Mapping[str, Any] | None) -> StdioServer | HttpServer:
    """Return the server that a file, or a dict of this form, lists."""
    from .mcp_json import ServerFile, ServerFileError

    if content is not None and ("command" in content or "url" in content):
        content = {"mcpServers": {"the entry": content}}  # one server, taken out of its list
    file = ServerFile.read(path) if content is None else ServerFile.of(path, content)
    if len(file.entries) != 1:
        names = ", ".join(map(repr, sorted(file.entries))) or "no server"
        raise ServerFileError(
            f"{path} lists {names}: give connect the dict of one, as in"
            " config['mcpServers']['name']"
        )
    [name] = file.entries
    return file.server(name, os.environ)
