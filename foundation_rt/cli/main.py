"""The command line: `serve`, `check`, and the commands of a client (spec/cli.md).

`serve` is on the start path of every spawned server: each command imports what it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .args import CommandLine, CommandLineError, parse

if TYPE_CHECKING:
    from ..server import Server
    from .render import Output

_USAGE_EXIT = 2
_FAILURE_EXIT = 1

_MAX_WORKERS = 256

# Commands of a client, for any server.
_CLIENT_COMMANDS = ("call", "inspect", "ping", "prompt", "read", "tools")

# Options with a value, and the description of the value.
OPTIONS = {"--config": "a file"}
SERVE_OPTIONS = {
    **OPTIONS,
    "--http": "HOST:PORT",
    "--transport": "stdio, http or both",
    "--workers": "a number",
}
SERVE_FLAGS = ("--no-auth",)

_HELP = """\
usage: foundation-rt COMMAND [ARGUMENT ...]

commands for a server of your own, the APP:
  serve [APP] [--config FILE]     serve APP over stdio; without APP, the demo tools
        [--http HOST:PORT]        serve it over HTTP instead (needs the extra `http`)
        [--transport both]        over stdio and HTTP: stdio, http or both
        [--no-auth]               serve every client over HTTP, without a key or token
        [--workers N]             serve HTTP in N processes
  check [APP] [--config FILE]     load APP and the configuration; print both, or the error
  check --portable TARGET         name the tools that Claude, OpenAI or Gemini refuse, and why
  migrate FILE ...                rewrite programs of other libraries; see migrate --help

applications that come with the runtime:
  ask QUESTION                    ask a model that uses your servers; see ask --help
  gateway [FILE | TARGET]         serve the servers of an mcp.json as one; see gateway --help
  host                            chat with a model that uses your servers; see host --help
  openapi FILE|URL                serve an HTTP API as tools, from its document; see openapi --help
  task-server                     serve tasks that agents and people share; see task-server --help

commands for any server, the TARGET:
  tools TARGET                    list its tools
  call TARGET TOOL [ARGUMENT ...] call a tool; print its result
  read TARGET URI                 read a resource
  prompt TARGET NAME [KEY=VALUE ...]
                                  print a prompt, filled in
  ping TARGET [--count N]         measure its round-trip times
  inspect TARGET                  show all its lists, with readable schemas
  gateway status URL              show the servers of a gateway

APP is FILE.py or a module, with :attribute where it holds several servers. What follows `--` at the
end is for its program, which finds it in sys.argv.
TARGET is a URL; or an APP, FILE.py or module:attribute, which is served in memory; or a name in an
mcp.json; or a command line that starts a server, in quotes.
ARGUMENT is KEY=VALUE, read as the tool's schema says; KEY:=JSON; or all of them as one JSON object.
FILE is a configuration file, .toml or .json.

options:
  --json                          print JSON, errors too
  --timeout S                     wait S seconds for a response, by default 60
  --header 'NAME: VALUE'          send this header; for a URL, may be repeated
  --protocol REVISION             use this revision of the protocol and no other
  --servers FILE                  TARGET is a name in this file
  --config FILE                   configure the APP
  --help                          show this and exit
  --version                       show the version and exit

examples:
  foundation-rt serve tools.py
  foundation-rt serve tools.py:server --config production.toml
  foundation-rt serve tools.py -- --db shop.sqlite
  foundation-rt serve tools.py --http 127.0.0.1:8000 --no-auth
  foundation-rt check tools.py
  foundation-rt call tools.py forecast city=Oslo days=3
  foundation-rt call tools.py forecast '{"city": "Oslo"}'
  foundation-rt inspect 'npx -y @modelcontextprotocol/server-everything'
  foundation-rt tools https://example.com/mcp --header "Authorization: Bearer $TOKEN"

exit codes: 0; 1 the tool failed, or the APP cannot be served; 2 the command line is wrong; 3 the
server cannot be reached, or has not sent the result; 4 stdout cannot be written; 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (CLI-06, CLI-20)."""
    given = sys.argv[1:] if arguments is None else arguments
    command, *rest = given or ["--help"]
    if command in ("--help", "-h", "help"):
        return _output().write(_HELP.encode()) or (0 if given else _USAGE_EXIT)
    if command == "--version":
        from ..version import __version__

        return _output().write(f"foundation-rt {__version__}\n".encode())
    if command not in _COMMANDS and command not in _CLIENT_COMMANDS:
        return _refuse(f"there is no command {command!r}")
    options = rest[: rest.index("--")] if "--" in rest else rest
    if ("--help" in options or "-h" in options) and command not in _HAVE_HELP:
        return _output().write(_HELP.encode())
    if command in _CLIENT_COMMANDS:
        from .run import run

        return run(command, rest)
    try:
        return _COMMANDS[command](rest)
    except CommandLineError as error:
        return _refuse(str(error), f"{command} " if command in _HAVE_HELP else "")
    except UsageError as error:
        _output().error(None, str(error))
        return _FAILURE_EXIT


def write_output(data: bytes) -> int:
    """Write to stdout; return the exit code (CLI-30)."""
    return _output().write(data)


def _serve(arguments: list[str]) -> int:
    line = parse(arguments, SERVE_OPTIONS, SERVE_FLAGS, at_most=1, takes_program=True)
    return serve_line(line, lambda over_http: _load(line), ["serve", *arguments])


def serve_line(line: CommandLine, load: Callable[[bool], Server], arguments: list[str]) -> int:
    """Serve as a command line with `SERVE_OPTIONS` says; return the exit code.

    Args:
        line: of the command.
        load: returns the server, given whether clients come over HTTP.
        arguments: the command and its arguments, with which worker processes are started.

    Raises:
        CommandLineError: options do not go together.
        UsageError: the server cannot be served so; says why and what to change.
    """
    transport = line.option("--transport")
    if transport is None:
        transport = "http" if "--http" in line.options else "stdio"
    if transport not in ("stdio", "http", "both"):
        raise CommandLineError("--transport is stdio, http or both")
    if transport == "stdio":
        for option in ("--http", "--no-auth", "--workers"):
            if option in line.options:
                raise CommandLineError(f"{option} goes with --transport http or both")
        from ..server import start_server

        return start_server(load(False))
    if "--workers" in line.options and transport == "both":
        raise CommandLineError("--workers goes with --transport http")
    settings = read_address(line.option("--http"))
    if "--no-auth" in line.options:
        settings["no_auth"] = True
    workers = read_workers(line.option("--workers"))
    if workers > 1:
        from ..transports.http.worker_processes import keep_workers, worker_place

        if worker_place() is None:
            return keep_workers(arguments, workers)
    return serve_over_http(load(True), settings, with_stdio=transport == "both")


def serve_over_http(server: Server, settings: Mapping[str, Any], *, with_stdio: bool) -> int:
    """Serve until a signal comes; return the exit code: 143, 130 or 129.

    Args:
        server: to be served.
        settings: of the section `http`, from the command line.
        with_stdio: serve stdio as well; end of file ends the session of stdio only.

    Raises:
        UsageError: the server cannot be served so; says why and what to change.
    """
    from ..transports.http.serve import make_serving, serve
    from ..transports.http.worker_processes import worker_place

    server.override("http", **settings)
    place = worker_place()
    if place is not None and server.load_config().security.state_key is None:
        server.override("security", state_key=place.key)
    if not with_stdio:
        return serve(server.runtime, place=place)
    from ..transports.stdio.transport import serve as serve_stdio

    return serve_stdio(server.runtime, companion=make_serving(server.runtime))


def read_address(text: str | None) -> dict[str, Any]:
    """Return the settings of `--http HOST:PORT`; each part may be left out."""
    host, colon, port = (text or "").rpartition(":")
    if text and not colon:
        host, port = text, ""
    if port and not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise CommandLineError(f"--http is HOST:PORT, not {text!r}")
    settings: dict[str, Any] = {"host": host.strip("[]")} if host else {}
    return settings | ({"port": int(port)} if port else {})


def read_workers(text: str | None) -> int:
    """Return the number of `--workers`."""
    if text is None:
        return 1
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MAX_WORKERS):
        raise CommandLineError(f"--workers is a number from 1 to {_MAX_WORKERS}")
    return int(text)


def _check(arguments: list[str]) -> int:
    if "--portable" in arguments:
        from .run import run

        given = [each for each in arguments if each != "--portable"]
        return run("check --portable", given)
    line = parse(arguments, OPTIONS, at_most=1, takes_program=True)
    from .check import check

    return _output().write(check(_load(line)))


def _ask(arguments: list[str]) -> int:
    from .ask import ask

    return ask(arguments)


def _gateway(arguments: list[str]) -> int:
    from .gateway import gateway

    return gateway(arguments)


def _migrate(arguments: list[str]) -> int:
    from .migrate import migrate

    return migrate(arguments)


def _host(arguments: list[str]) -> int:
    from .host import host

    return host(arguments)


def _openapi(arguments: list[str]) -> int:
    from .openapi import openapi

    return openapi(arguments)


def _task_server(arguments: list[str]) -> int:
    from .task_server import task_server

    return task_server(arguments)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "check": _check,
    "ask": _ask,
    "gateway": _gateway,
    "host": _host,
    "migrate": _migrate,
    "openapi": _openapi,
    "task-server": _task_server,
}
_HAVE_HELP = frozenset({"ask", "gateway", "host", "migrate", "openapi", "task-server"})
"""The commands with a help of their own."""


def _load(line: CommandLine) -> Server:
    if not line.positional:
        from .demo import demo_server

        if line.program is not None:
            raise CommandLineError("-- goes with an APP: what follows is for its program")
        server = demo_server()
    else:
        from .apps import load_app

        server = load_app(line.positional[0], line.program or ())
    config = line.option("--config")
    if config is not None:
        server.configure(config)
    return server


def _output() -> Output:
    from .render import Output

    return Output(sys.stdout, sys.stderr)


def _refuse(text: str, command: str = "") -> int:
    _output().error(None, f"{text}; see foundation-rt {command}--help")
    return _USAGE_EXIT
