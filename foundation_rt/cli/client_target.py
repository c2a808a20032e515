"""From a TARGET and its options to a client that asks it (CLI-10, CLI-22)."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ..client.client import Client
from ..client.connecting import connect
from ..client.failing.retries import RetryPolicy
from ..client.server_files import usual_places
from ..client.transports.stdio import StdioServer
from ..protocol.revisions import REVISIONS
from .apps import load_app
from .targets import AppTarget, Target, find_listed, find_target
from .words import CommandLine, UsageProblem

if TYPE_CHECKING:
    from ..client.transports.http_server import HttpServer
    from ..server import Server

VALUED_OPTIONS = {
    "--config": "a file",
    "--count": "a number",
    "--header": "NAME: VALUE",
    "--protocol": "a revision",
    "--servers": "a file",
    "--timeout": "a number of seconds",
}
FLAGS = ("--json",)

_PROBE_TIMEOUT = 5.0

_HEADER = re.compile(r"\s*([^\s:]+)\s*:(.*)", re.DOTALL)


@contextmanager
def reach(line: CommandLine, **settings: Any) -> Iterator[Client]:
    """A client of the TARGET, which is the first argument; nothing is started or sent yet.

    Args:
        settings: of `ClientOptions`, as the command needs them.

    Raises:
        UsageProblem: an option is wrong, or does not go with this TARGET.
        UsageError: the TARGET stands for nothing, or cannot be used.
    """
    # A command does once what it is told, and says at once what came of it.
    settings |= {"retries": RetryPolicy(max_attempts=1), **_timeouts(line.option("--timeout"))}
    revision = line.option("--protocol")
    if revision is not None and revision not in REVISIONS:
        raise UsageProblem(f"--protocol is one of {', '.join(REVISIONS)}, not {revision!r}")
    target = _target(line)
    if isinstance(target, AppTarget):
        with _served(target, line.option("--config")) as server:
            yield _client(server, revision, settings)
    else:
        yield _client(target, revision, settings)


def _client(
    target: Server | HttpServer | StdioServer, revision: str | None, settings: Mapping[str, Any]
) -> Client:
    client = connect(target, **settings)
    if revision is None:
        return client
    # What stands on the command line wins over MCP_PROTOCOL_VERSION, which `connect` has read.
    return Client(client.make_channel, evolve(client.options, revision=revision))


def _target(line: CommandLine) -> Target:
    text, listed = line.positional[0], line.option("--servers")
    headers = dict(map(_header, line.options.get("--header", ())))
    if listed is None:
        target = find_target(text, usual_places(Path(), Path.home()), os.environ)
    else:
        target = find_listed(text, Path(listed), os.environ)
    if line.option("--config") is not None and not isinstance(target, AppTarget):
        raise UsageProblem("--config goes with an APP")
    if not headers:
        return target
    if isinstance(target, AppTarget | StdioServer):
        raise UsageProblem("--header goes with a URL")
    return evolve(target, headers=_merged(target.headers, headers.items()))


@contextmanager
def _served(app: AppTarget, config: str | None) -> Iterator[Server]:
    """The application, with its log written out in the end.

    What it prints lands on stderr, as it does over stdio: stdout belongs to the result.
    """
    with redirect_stdout(sys.stderr):
        server = load_app(app.source)
        if config is not None:
            server.configure(config)
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
        raise UsageProblem(f"--timeout is a number of seconds greater than 0, not {text!r}")
    # A server that leaves the first question unanswered needs time for the next one.
    probe = min(_PROBE_TIMEOUT, seconds / 4)
    return {"timeout": seconds, "connect_timeout": seconds, "probe_timeout": probe}


def _header(text: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(text)
    if found is None:  # not repeated: it may be a token without its name
        raise UsageProblem("--header is of the form 'NAME: VALUE'")
    return found[1], found[2].strip()


def _merged(given: Mapping[str, str], more: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The names of headers are the same in any case; what comes later wins."""
    merged = {name.lower(): (name, value) for name, value in (*given.items(), *more)}
    return dict(merged.values())
