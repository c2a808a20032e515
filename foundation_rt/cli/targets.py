"""The TARGET of a command line, and a client of it (spec/cli.md, CLI-10, CLI-22).

A word could name several things. It names the first that it can, in the order of `find_target`;
if it can name none, the error lists what was tried.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve, frozen

from ..base.mcp_json import Agreement, ServerFile, is_of_folder, usual_places
from ..base.shell_words import quote
from ..client.client import Client
from ..client.connecting import connect
from ..client.resilience.retries import RetryPolicy
from ..client.targets import HttpServer, StdioServer, is_url, path_of_program, server_of
from ..errors import UsageError
from ..protocol.revisions import REVISIONS
from .args import FILES, Argument, CommandLine, CommandLineError, Option
from .person import TRUST, settle
from .serve import CONFIG, TRACEBACK, load_program
from .server_loading import refuse_folder

if TYPE_CHECKING:
    from ..server import Server

_FILE_APP = re.compile(r"(.+\.py)(?::[^\W\d]\w*)?", re.DOTALL)
_MODULE_APP = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")

# `NAME=value`, `--token=value`, `scheme://`, `user:password@host`, `host/path?query`.
_MAY_BE_SECRET = re.compile(r"[=?]|://|:.*@", re.DOTALL)

TARGET = Argument(
    "TARGET",
    "a URL; or an APP, FILE.py or module:attribute, which is served in memory; or a name in an"
    " mcp.json; or a command line that starts a server, in quotes",
    FILES,
)
HEADER = Option("--header", "send this header to a URL; may be repeated", "'NAME: VALUE'")
JSON = Option("--json", "print JSON, errors too")
PROTOCOL = Option(
    "--protocol", "use this revision of the protocol and no other", "REVISION", (*REVISIONS,)
)
TIMEOUT = Option("--timeout", "wait S seconds for a response, by default 60", "S")
TARGET_OPTIONS: Mapping[str, Sequence[Option]] = {
    "options of the server": (
        Option("--servers", "TARGET is a name in this file", "FILE", FILES),
        Option(
            "--env",
            "set this variable of a command, or pass ours on; may be repeated",
            "NAME[=VALUE]",
        ),
        HEADER,
        PROTOCOL,
        TIMEOUT,
        CONFIG,
        TRACEBACK,
        Option(
            TRUST,
            "run the server that an mcp.json of this folder lists by this name, without asking",
        ),
    ),
    "options of the output": (JSON,),
}

_PROBE_TIMEOUT = 5.0

_HEADER = re.compile(r"\s*([^\s:]+)\s*:(.*)", re.DOTALL)


class TargetError(UsageError):
    """A TARGET is no server; the message lists what was tried."""


@frozen
class AppTarget:
    """An application of this runtime: `FILE.py[:attribute]` or `module:attribute`."""

    source: str


Target: TypeAlias = "HttpServer | StdioServer | AppTarget"


@contextmanager
def reach(
    line: CommandLine, log_as: Callable[[bytes], bytes] | None = None, **settings: Any
) -> Iterator[Client]:
    """Yield a client of the TARGET, which is the first argument; nothing is started or sent yet.

    Args:
        line: of the command.
        log_as: writes the log of an APP, as `Server.log_as` has it; None for JSON.
        settings: of `connect`, for the command.

    Raises:
        CommandLineError: an option is wrong, or does not fit this TARGET.
        UsageError: the TARGET is no server, or cannot be used.
    """
    # A command does its work once, and reports a failure at once.
    settings |= {"retries": RetryPolicy(max_attempts=1), **_timeouts(line.option("--timeout"))}
    revision = line.option("--protocol")
    target = target_of(line)
    if isinstance(target, AppTarget):
        with _served(line, log_as) as server:
            yield _client(server, revision, settings)
    else:
        yield _client(target, revision, settings)


def _client(
    target: Server | HttpServer | StdioServer, revision: str | None, settings: Mapping[str, Any]
) -> Client:
    client = connect(target, **settings)
    if revision is None:
        return client
    # The command line wins over MCP_PROTOCOL_VERSION, which `connect` has read.
    options = evolve(client.options, revision=revision)
    return Client(client.make_transport, options, client.handlers)


def target_of(line: CommandLine) -> Target:
    """Return the TARGET, the first argument, with headers and variables of the command line.

    Raises:
        CommandLineError: an option does not fit this TARGET.
        UsageError: the TARGET is no server, or cannot be used.
    """
    headers, variables = read_headers(line), read_variables(line)
    target = named_target(line, line.positional[0])
    if not isinstance(target, AppTarget):
        line.refuse_app_options()
    if variables:
        if not isinstance(target, StdioServer):
            raise CommandLineError("--env goes with a command")
        target = evolve(target, env={**(target.env or {}), **variables})
    if headers:
        if isinstance(target, AppTarget | StdioServer):
            raise CommandLineError("--header goes with a URL")
        target = evolve(target, headers=_merged(target.headers, headers.items()))
    return with_login(target) if isinstance(target, HttpServer) else target


def with_login(server: HttpServer) -> HttpServer:
    """Return a server with what `login` has stored for it, if it goes with that (CLI-104)."""
    if server.auth is not None or any(name.lower() == "authorization" for name in server.headers):
        return server
    from .login import login_of

    login = login_of(server.url)
    try:
        return evolve(server, auth=login)
    except UsageError:  # it has a user of its own, or is reached without TLS
        return server


@contextmanager
def _served(line: CommandLine, log_as: Callable[[bytes], bytes] | None) -> Iterator[Server]:
    """Yield the application; write its log to the end.

    Its own output goes to stderr, as over stdio: stdout belongs to the result.
    """
    with redirect_stdout(sys.stderr):
        server = load_program(line)
        if log_as is not None:
            server.log_as(log_as)
        runtime = server.runtime
        try:
            yield server
        finally:
            runtime.close_logs(1.0)


def _timeouts(text: str | None) -> dict[str, float]:
    if text is None:
        return {}
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds < math.inf):
        raise CommandLineError(f"--timeout is a number of seconds greater than 0, not {text!r}")
    # A server that does not answer the first request needs time for the next one.
    probe = min(_PROBE_TIMEOUT, seconds / 4)
    return {"timeout": seconds, "connect_timeout": seconds, "probe_timeout": probe}


def read_variables(line: CommandLine) -> dict[str, str]:
    """Return the variables of `--env`, by name (CLI-79).

    Raises:
        CommandLineError: one that should be this environment's is not set.
    """
    found = {}
    for each in line.options.get("--env", ()):
        name, has_value, value = each.partition("=")
        if not has_value and name not in os.environ:
            # The word may be a value without its name, so it is not repeated.
            raise CommandLineError("--env NAME: there is no such environment variable")
        found[name] = value if has_value else os.environ[name]
    return found


def read_headers(line: CommandLine) -> dict[str, str]:
    """Return the headers of `--header`, by name.

    Raises:
        CommandLineError: one is not of the form `NAME: VALUE`.
    """
    return dict(map(_header, line.options.get("--header", ())))


def _header(text: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(text)
    if found is None:  # not in the message: it may be a token without its name
        raise CommandLineError("--header is of the form 'NAME: VALUE'")
    return found[1], found[2].strip()


def _merged(given: Mapping[str, str], more: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return all headers; of equal names, in any case, the last one wins."""
    merged = {name.lower(): (name, value) for name, value in (*given.items(), *more)}
    return dict(merged.values())


def named_target(line: CommandLine, text: str) -> Target:
    """Return what a word of the command line names: in the file of `--servers`, if it is given."""
    listed = line.option("--servers")
    if listed is not None:
        return find_listed(text, Path(listed), os.environ)
    places = usual_places(Path(), Path.home())
    return find_target(text, places, os.environ, trusts=TRUST in line.options)


def find_target(
    text: str, places: Iterable[Path], variables: Mapping[str, str], *, trusts: bool = False
) -> Target:
    """Return the target: a URL, an application, a name in a file, or a command line (CLI-10).

    Args:
        text: as it was given.
        places: paths of files of servers; those that do not exist are skipped.
        variables: the environment, which the files can refer to.
        trusts: the person agrees to an entry of a file in the working directory unasked (CLI-84).

    Raises:
        TargetError: it is none of them.
        ServerFileError: a file cannot be read, or its entry of that name cannot be used.
        UsageError: it is a URL of another scheme than HTTP, or the person has not agreed.
    """
    # Stripped: a blank would make it a command, and a message would show its secrets.
    if is_url(text.strip()):
        return HttpServer(text.strip())
    if _is_app(text):
        return AppTarget(text)
    files = [ServerFile.read(place) for place in places if os.path.isfile(place)]  # noqa: PTH113
    for file in files:
        if text in file.entries:
            found = server_of(file.entry(text, variables))
            if is_of_folder(file.path):
                command = f"tools {quote(text)}"
                settle(Agreement().waiting(file, [text]), command, trusts=trusts)
            return found
    return _command(text, files)


def find_listed(name: str, path: Path, variables: Mapping[str, str]) -> HttpServer | StdioServer:
    """Return the server of that name in this file (CLI-12).

    Raises:
        TargetError: the file lists no such server.
        ServerFileError: the file cannot be read, or its entry cannot be used.
    """
    file = ServerFile.read(path)
    if name not in file.entries:
        raise TargetError(f"{path} lists {_names(file)}, not {_shown(name)}")
    return server_of(file.entry(name, variables))


def app_file(text: str) -> str | None:
    """Return the file that an application is named by, `FILE.py` or `FILE.py:attribute`."""
    found = _FILE_APP.fullmatch(text)
    return None if found is None else found[1]


def _is_app(text: str) -> bool:
    """Return whether this is an application by its form.

    A file that exists may have any name. One that does not is a command line if it has several
    words: `python tools.py`.
    """
    file = app_file(text)
    if file is not None:
        return len(text.split()) == 1 or os.path.isfile(file)  # noqa: PTH113
    return _MODULE_APP.fullmatch(text) is not None


def _command(text: str, files: list[ServerFile]) -> StdioServer:
    try:
        server = StdioServer.from_command_line(text)
    except UsageError as error:
        raise TargetError(f"{_shown(text)} is no server: {error}") from None
    if path_of_program(server.command) is None:
        refuse_folder(text)
        tried = [f"{file.path} lists {_names(file)}" for file in files]
        tried = tried or ["no file of servers was found (mcp.json, or --servers FILE)"]
        tried.append(f"there is no program {_shown(server.command)}")
        tried.append("variables are set by --env NAME=VALUE, or in an mcp.json")
        tried.append("a URL has http:// or https://, an application is FILE.py or module:attribute")
        raise TargetError(f"{_shown(text)} is no server: {'; '.join(tried)}")
    return server


def _shown(text: str) -> str:
    """Return the first word, if it can hold no secret: no value, no user, no query (CLI-23)."""
    first, *more = text.split(maxsplit=1) or [""]
    if _MAY_BE_SECRET.search(first):
        return "'...'"
    shown = repr(f"{first} ..." if more else text)
    return shown.replace("\\\\", "\\")  # paths of Windows as they are


def _names(file: ServerFile) -> str:
    return ", ".join(map(repr, sorted(file.entries))) or "no servers"
