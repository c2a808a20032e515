"""The command line: `serve`, `check` and `call` (spec/cli.md).

`serve` is on the start path of every spawned server, so its arguments are taken apart by hand
(argparse costs 8 ms to import here, a tenth of the start-up) and everything else is imported by the
command that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..server import Server

HELP = """\
usage: foundation-rt COMMAND [ARGUMENT ...]

commands:
  serve [APP] [--config FILE]     serve APP over stdio; without APP, the demo tools
        [--http HOST:PORT]        serve it over HTTP instead (needs the extra `http`)
        [--transport both]        over stdio and HTTP: stdio, http or both
        [--no-auth]               let everybody in who reaches the server over HTTP
        [--workers N]             serve HTTP in N processes
  check [APP] [--config FILE]     load APP and the configuration; print both, or the error
  call APP TOOL [JSON] [--config FILE]
                                  call one tool in process; print its result

APP is FILE.py or a module, with :attribute where it holds several servers.
FILE is a configuration file, .toml or .json.

options:
  --help                          show this and exit
  --version                       show the version and exit

examples:
  foundation-rt serve tools.py
  foundation-rt serve tools.py:server --config production.toml
  foundation-rt serve tools.py --http 127.0.0.1:8000 --no-auth
  foundation-rt check tools.py
  foundation-rt call tools.py forecast '{"city": "Oslo"}'
"""

_USAGE_EXIT = 2
_FAILURE_EXIT = 1

_MAX_WORKERS = 256

# Options with a value, and what that is.
_OPTIONS = {"--config": "a file"}
_SERVE_OPTIONS = {
    **_OPTIONS,
    "--http": "HOST:PORT",
    "--transport": "stdio, http or both",
    "--workers": "a number",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, 1 for a failure, 2 for a wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        _print(HELP, end="")
        return 0 if words else _USAGE_EXIT
    if words[0] == "--version":
        from ..version import __version__

        _print(f"foundation-rt {__version__}")
        return 0
    command = _COMMANDS.get(words[0])
    if command is None:
        return _refuse(f"there is no command {words[0]!r}")
    if "--help" in words or "-h" in words:
        _print(HELP, end="")
        return 0
    try:
        return command(words[1:])
    except _UsageProblem as problem:
        return _refuse(str(problem))
    except UsageError as error:
        _complain(str(error))
        return _FAILURE_EXIT


class _UsageProblem(Exception):
    """The command line itself is wrong."""


def _serve(words: list[str]) -> int:
    line = _take_apart(words, at_most=1, valued=_SERVE_OPTIONS, flags=("--no-auth",))
    transport = line.options.get("--transport", "http" if "--http" in line.options else "stdio")
    if transport not in ("stdio", "http", "both"):
        raise _UsageProblem("--transport is stdio, http or both")
    if transport == "stdio":
        for option in ("--http", "--no-auth", "--workers"):
            if option in line.options:
                raise _UsageProblem(f"{option} goes with --transport http or both")
        from ..server import start_server

        return start_server(_load(line))
    if "--workers" in line.options and transport == "both":
        raise _UsageProblem("--workers goes with --transport http")
    settings = _read_address(line.options.get("--http"))
    if "--no-auth" in line.options:
        settings["no_auth"] = True
    workers = _read_workers(line.options.get("--workers"))
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
        raise _UsageProblem(f"--http is HOST:PORT, not {text!r}")
    settings: dict[str, Any] = {"host": host.strip("[]")} if host else {}
    return settings | ({"port": int(port)} if port else {})


def _read_workers(text: str | None) -> int:
    if text is None:
        return 1
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MAX_WORKERS):
        raise _UsageProblem(f"--workers is a number from 1 to {_MAX_WORKERS}")
    return int(text)


def _check(words: list[str]) -> int:
    line = _take_apart(words, at_most=1)
    from .commands import check

    return check(_load(line))


def _call(words: list[str]) -> int:
    line = _take_apart(words, at_most=3)
    if len(line.positional) < 2:
        raise _UsageProblem("call needs an APP and a TOOL")
    from .commands import call

    arguments = line.positional[2] if len(line.positional) == 3 else "{}"
    return call(_load(line), line.positional[1], arguments)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "check": _check,
    "call": _call,
}


class _CommandLine:
    """What stands after the command: arguments, and options with their values."""

    __slots__ = ("options", "positional")

    def __init__(self) -> None:
        self.positional: list[str] = []
        self.options: dict[str, str] = {}


def _take_apart(
    words: list[str],
    at_most: int,
    valued: Mapping[str, str] = _OPTIONS,
    flags: tuple[str, ...] = (),
) -> _CommandLine:
    line = _CommandLine()
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in valued:
            given = value if equals else next(rest, None)
            if given is None:
                raise _UsageProblem(f"{name} needs {valued[name]}")
            line.options[name] = given
        elif word in flags:
            line.options[word] = ""
        elif word.startswith("-"):
            raise _UsageProblem(f"there is no option {word!r}")
        else:
            line.positional.append(word)
    if len(line.positional) > at_most:
        raise _UsageProblem(f"{line.positional[at_most]!r} is one argument too many")
    return line


def _load(line: _CommandLine) -> Server:
    if not line.positional:
        from ..builtin.demo import demo_server

        server = demo_server()
    else:
        from .apps import load_app

        server = load_app(line.positional[0])
    config = line.options.get("--config")
    if config is not None:
        server.configure(config)
    return server


def _print(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)


def _complain(text: str) -> None:
    sys.stderr.write(f"foundation-rt: {text}\n")


def _refuse(text: str) -> int:
    _complain(f"{text}; see foundation-rt --help")
    return _USAGE_EXIT
