"""The command line: `serve`, `check`, and the commands that ask a server (spec/cli.md).

`serve` is on the start path of every spawned server: everything else is imported by the command
that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .words import CommandLine, UsageProblem, take_apart

if TYPE_CHECKING:
    from ..server import Server
    from .output import Output

_USAGE_EXIT = 2
_FAILURE_EXIT = 1

_MAX_WORKERS = 256

# What asks a server, as a client of it.
_CLIENT_COMMANDS = ("call", "inspect", "ping", "prompt", "read", "tools")

# Options with a value, and what that is.
_OPTIONS = {"--config": "a file"}
_SERVE_OPTIONS = {
    **_OPTIONS,
    "--http": "HOST:PORT",
    "--transport": "stdio, http or both",
    "--workers": "a number",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (CLI-06, CLI-20)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        return _print_help() or (0 if words else _USAGE_EXIT)
    if words[0] == "--version":
        from ..version import __version__

        return _output().write(f"foundation-rt {__version__}\n".encode())
    if words[0] not in _COMMANDS and words[0] not in _CLIENT_COMMANDS:
        return _refuse(f"there is no command {words[0]!r}")
    if "--help" in words or "-h" in words:
        return _print_help()
    if words[0] in _CLIENT_COMMANDS:
        from .client_run import run

        return run(words[0], words[1:])
    try:
        return _COMMANDS[words[0]](words[1:])
    except UsageProblem as problem:
        return _refuse(str(problem))
    except UsageError as error:
        _complain(str(error))
        return _FAILURE_EXIT


def _serve(words: list[str]) -> int:
    line = take_apart(words, _SERVE_OPTIONS, flags=("--no-auth",), at_most=1)
    transport = line.option("--transport")
    if transport is None:
        transport = "http" if "--http" in line.options else "stdio"
    if transport not in ("stdio", "http", "both"):
        raise UsageProblem("--transport is stdio, http or both")
    if transport == "stdio":
        for option in ("--http", "--no-auth", "--workers"):
            if option in line.options:
                raise UsageProblem(f"{option} goes with --transport http or both")
        from ..server import start_server

        return start_server(_load(line))
    if "--workers" in line.options and transport == "both":
        raise UsageProblem("--workers goes with --transport http")
    settings = _read_address(line.option("--http"))
    if "--no-auth" in line.options:
        settings["no_auth"] = True
    workers = _read_workers(line.option("--workers"))
    if workers > 1:
        from ..transports.http.workers import is_worker, keep_workers

        if not is_worker():
            return keep_workers(["serve", *words], workers)
    from .serving import serve_over_http

    return serve_over_http(_load(line), settings, with_stdio=transport == "both")


def _read_address(text: str | None) -> dict[str, Any]:
    """The settings that `--http HOST:PORT` stands for; each part may be left out."""
    host, colon, port = (text or "").rpartition(":")
    if text and not colon:
        host, port = text, ""
    if port and not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise UsageProblem(f"--http is HOST:PORT, not {text!r}")
    settings: dict[str, Any] = {"host": host.strip("[]")} if host else {}
    return settings | ({"port": int(port)} if port else {})


def _read_workers(text: str | None) -> int:
    if text is None:
        return 1
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MAX_WORKERS):
        raise UsageProblem(f"--workers is a number from 1 to {_MAX_WORKERS}")
    return int(text)


def _check(words: list[str]) -> int:
    line = take_apart(words, _OPTIONS, at_most=1)
    from .check import check

    return _output().write(check(_load(line)))


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "check": _check,
}


def _load(line: CommandLine) -> Server:
    if not line.positional:
        from .demo import demo_server

        server = demo_server()
    else:
        from .apps import load_app

        server = load_app(line.positional[0])
    config = line.option("--config")
    if config is not None:
        server.configure(config)
    return server


def _output() -> Output:
    from .output import Output

    return Output(sys.stdout, sys.stderr)


def _print_help() -> int:
    from .help import HELP

    return _output().write(HELP.encode())


def _complain(text: str) -> None:
    _output().error(None, text)


def _refuse(text: str) -> int:
    _complain(f"{text}; see foundation-rt --help")
    return _USAGE_EXIT
