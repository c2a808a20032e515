"""Descriptions of the servers that a client can reach; `describe` makes one of a target."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from attrs import field, frozen

from ..errors import UsageError

if TYPE_CHECKING:
    from httpx2 import Auth

    from ..base.mcp_json import ServerEntry
    from .auth.descriptions import Authorization

_INHERITED = (
    *("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"),
    # The way to the network, where there is no other: programs read the proxies in either case.
    *("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("all_proxy", "https_proxy", "http_proxy", "no_proxy"),
    *("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
)
_INHERITED_ON_WINDOWS = (
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "OS", "PATHEXT", "PSMODULEPATH"),
    *("USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP"),
    *("ALLUSERSPROFILE", "PROGRAMDATA", "PUBLIC", "PROGRAMFILES", "PROGRAMFILES(X86)"),
    *("PROGRAMW6432", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMMONPROGRAMW6432"),
    *("PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS", "COMPUTERNAME"),
)
"""Without the first no program there has a network, or even random numbers."""

_is_windows = sys.platform == "win32"  # no constant: each side is tested on every system

_HARMLESS_OPTIONS = ("-y", "--yes", "-P", "-m")
_SHOWN = 80  # characters
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_DICT: Final = Path("mcpServers")
"""Stands for the name of a file in errors about a dict."""


def _words(args: Sequence[str]) -> tuple[str, ...]:
    if isinstance(args, str | bytes):
        raise UsageError("args is a sequence of strings, one for each argument, not a string")
    return tuple(args)


def _is_plain(word: object) -> bool:
    return isinstance(word, str) and "\0" not in word


def is_inherited(name: str) -> bool:
    """Return whether every child gets the variable of this name (CHILD-02)."""
    names = (*_INHERITED, *_INHERITED_ON_WINDOWS) if _is_windows else _INHERITED
    return name in names or name.startswith(("LC_", "XDG_"))


@frozen
class StdioServer:
    """A server that runs as a child process (CHILD-01, CHILD-02).

    Args:
        command: a program: its path, or its name on the `PATH` of its environment.
        args: its arguments, as they are; no shell reads them.
        env: added to the few variables that every child gets.
        cwd: its working directory; None: that of this process.
        shutdown_grace: seconds it has to end after its input was closed, and again after SIGTERM.

    Raises:
        UsageError: an argument is invalid.
    """

    command: str
    # These may hold tokens, so the repr leaves them out.
    args: Sequence[str] = field(default=(), repr=False, converter=_words)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | os.PathLike[str] | None = None
    shutdown_grace: float = 2.0

    def __attrs_post_init__(self) -> None:
        if not all(map(_is_plain, (self.command, *self.args))):
            raise UsageError("a command and its arguments are strings without NUL characters")
        if not self.command:
            raise UsageError("a command is needed to start a server")
        for name, value in (self.env or {}).items():
            if not name or not _is_plain(name) or "=" in name:
                raise UsageError(f"env: no variable can be named {name!r}")
            if not _is_plain(value):
                raise UsageError(f"env: {name} must be a string without NUL characters")
        grace: object = self.shutdown_grace
        if not isinstance(grace, int | float) or not 0 <= grace < math.inf:
            raise UsageError("shutdown_grace is a number of seconds, at least 0")

    @classmethod
    def from_command_line(cls, text: str) -> StdioServer:
        """Return the server of a command line, split into words as a shell does.

        On Windows a backslash is a part of its word.

        Raises:
            UsageError: it is empty, or a quotation does not end.
        """
        words = shlex.shlex(text, posix=True)
        words.whitespace_split, words.commenters = True, ""
        if _is_windows:
            words.escape = ""
        try:
            command, *args = words
        except ValueError as error:
            what = "empty" if not text.strip() else str(error)
            raise UsageError(f"the command line is not usable: {what}") from None
        return cls(command, args)

    @property
    def description(self) -> str:
        """Its program and first argument, for people; no option, which may hold a secret."""
        path = self.command.replace("\\", "/") if _is_windows else self.command
        shown = [path.rpartition("/")[2] or self.command]
        for word in self.args:
            if word in _HARMLESS_OPTIONS:
                continue
            if not word.startswith("-") and "=" not in word and "://" not in word:
                shown.append(word)
            break
        text = " ".join(shown)
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."

    def environment(self) -> dict[str, str]:
        """Return its environment: the variables that programs need, and `env`."""
        inherited = {name: value for name, value in os.environ.items() if is_inherited(name)}
        own = dict(self.env or {})
        if _is_windows:  # where `Path` is `PATH`, as which os.environ has it
            own = {name.upper(): value for name, value in own.items()}
        return inherited | own


@frozen(eq=False, repr=False)
class HttpServer:
    """A server that is reached over HTTP.

    Args:
        url: its MCP endpoint; user and password in it are sent as basic authentication.
        headers: sent with every request, to this server only.
        auth: how the client is authorized: `OAuth` and the like (CAUTH-01), or an `auth` of
            httpx2, for negotiated authentication.
        max_connections: most requests at one time, each on a connection of its own; others wait in
            order (CHTTP-10). Streams that only listen are not counted.

    Raises:
        UsageError: the URL, a header or the number is invalid.
    """

    url: str
    headers: Mapping[str, str] = field(factory=dict)
    auth: Auth | Authorization | None = None
    max_connections: int = 100

    def __attrs_post_init__(self) -> None:
        from .transports.http_headers import check_headers, check_url

        check_url(self.url)
        check_headers(self.headers)
        if self.auth is not None:
            _check_auth(self.auth, self.url, self.headers)
        most: object = self.max_connections
        if type(most) is not int or most < 1:
            raise UsageError(f"max_connections is a whole number, at least 1, not {most!r}")


def _check_auth(auth: object, url: str, headers: Mapping[str, str]) -> None:
    """Raise unless a description of an authorization goes with a server (CAUTH-02)."""
    from .auth.descriptions import is_description
    from .auth.urls import is_loopback

    if not is_description(auth):
        return
    if any(name.lower() == "authorization" for name in headers):
        raise UsageError("auth and the header Authorization exclude each other: give one")
    if "@" in urlsplit(url).netloc:
        raise UsageError("auth and a user in the URL exclude each other: give one")
    if url.lower().startswith("http:") and not is_loopback(url):
        raise UsageError("a token is sent over https only, or to this machine: give an https URL")


def is_url(text: str) -> bool:
    """Return whether a text is a URL; `ftp://host` is one, and is refused later."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://\S*", text) is not None


def describe(
    target: Any,
    headers: Mapping[str, str] | None,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    auth: Auth | Authorization | None = None,
) -> Any:
    """Return the server that a target describes; a target that is no description stays as it is.

    Args:
        target: see `connect`.
        headers: for a URL.
        env: for a command; added to the few variables that every child gets.
        cwd: for a command; the folder it runs in.
        auth: for a URL; how the client is authorized.

    Raises:
        UsageError: it describes none, or `headers`, `env` or `cwd` do not go with it (CLIENT-34).
    """
    if isinstance(target, str):
        target = target.strip()  # as a line of a file has it; with a blank it would be a command
        if is_url(target):
            _refuse_for_no_command(env, cwd)
            return HttpServer(target, headers=dict(headers or {}), auth=auth)
        if target.endswith(".json") and len(target.split()) == 1:
            target = Path(target)
    if headers is not None:
        raise UsageError("headers go with a URL")
    if auth is not None:
        raise UsageError("auth goes with a URL; a HttpServer has its own")
    command = _command(target)
    if command is not None:
        return StdioServer(command[0], command[1:], env=env, cwd=cwd)
    _refuse_for_no_command(env, cwd)
    if isinstance(target, os.PathLike):
        return _only_server(Path(target), None)
    if isinstance(target, Mapping):
        return _only_server(_DICT, target)
    from ..base.mcp_json import ServerEntry

    return server_of(target) if isinstance(target, ServerEntry) else target


def server_of(entry: ServerEntry) -> StdioServer | HttpServer:
    """Return the server that an entry of a file describes.

    Raises:
        ServerFileError: a part of it cannot be used, such as an argument with a NUL in it.
    """
    from ..base.mcp_json import ServerFileError

    try:
        if entry.url is not None:
            return HttpServer(entry.url, headers=entry.headers, auth=_auth_of(entry))
        assert entry.command is not None  # it has one of them
        return StdioServer(entry.command, args=entry.args, env=entry.env, cwd=entry.cwd)
    except UsageError as error:
        raise ServerFileError(f"{entry.place}: {error}") from None


def _auth_of(entry: ServerEntry) -> Authorization | None:
    """Return how a person is logged in to the server of an entry; None if nobody is."""
    given = entry.oauth
    if given is None:
        return None
    from .auth.descriptions import OAuth
    from .auth.stores import FileTokenStore

    port = given.callback_port
    return OAuth(
        scopes=given.scopes,
        client_id=given.client_id,
        client_secret=given.client_secret,
        issuer=given.issuer,
        redirect_uri=None if port is None else f"http://127.0.0.1:{port}/callback",
        store=FileTokenStore(),
    )


def _refuse_for_no_command(env: object, cwd: object) -> None:
    if env is not None or cwd is not None:
        raise UsageError("env and cwd go with a command line; a StdioServer has its own")


def _command(target: Any) -> list[str] | None:
    """Return the words of a command; None if the target is something else."""
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


def path_of_program(command: str) -> str | None:
    """Return the path of the program that a server would be started with; None if there is none."""
    if not _is_windows:
        return shutil.which(command)
    from .transports.windows_command import find_program

    return find_program(command, os.environ, os.getcwd(), os.path.isfile)  # noqa: PTH109


def _refuse_no_program(command: str, args: Sequence[str]) -> None:
    """Raise `UsageError` for two words that are taken for a program in a shell, or by mistake."""
    if _ASSIGNMENT.match(command):
        name = command.partition("=")[0]
        raise UsageError(
            f"{name}=... is no program, and no shell reads the command line: give"
            f" connect(..., env={{{name!r}: ...}}), or begin the line with `env`"
        )
    if command.endswith(".py") and not args and path_of_program(command) is None:
        raise UsageError(
            f"{command} is a file, not a program: connect({f'python {command}'!r}), or"
            f" connect(Path({command!r}))"
        )


def _only_server(path: Path, content: Mapping[str, Any] | None) -> StdioServer | HttpServer:
    """Return the server that a file, or a dict of this form, lists."""
    from ..base.mcp_json import ServerFile, ServerFileError

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
    return server_of(file.entry(name, os.environ))
