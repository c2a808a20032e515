"""The command line: `serve`, `check`, and the commands of a client (spec/cli.md).

`serve` is on the start path of every spawned server: each command imports what it needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError, UsageError
from .args import CommandLine, CommandLineError, Valued, parse

if TYPE_CHECKING:
    from typing import TextIO

    from ..kernel.stdio.descriptors import ProtocolDescriptors
    from ..server import Server
    from .render import Output

_USAGE_EXIT = 2
_FAILURE_EXIT = 1

_MAX_WORKERS = 256

# Commands of a client, for any server.
CLIENT_COMMANDS = ("call", "inspect", "ping", "prompt", "read", "tools")

# Options with a value, as `parse` has them.
OPTIONS = {"--config": "a file"}
SERVE_OPTIONS: Valued = {
    **OPTIONS,
    "--http": "HOST:PORT",
    "--transport": ("stdio", "http", "both"),
    "--workers": "a number",
}
SERVE_FLAGS = ("--no-auth",)
PROGRAM_FLAGS = ("--traceback",)
"""Of the commands that load a program (CLI-57)."""
CHECK_FLAGS = ("--all", "--json", *PROGRAM_FLAGS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (CLI-06, CLI-20, CLI-55)."""
    given = sys.argv[1:] if arguments is None else arguments
    command, *rest = given or ["--help"]
    if command == "help" and rest:  # as `COMMAND --help`
        command, rest = rest[0], [*rest[1:], "--help"]
    if command in ("--help", "-h", "help"):
        return _help("") or (0 if given else _USAGE_EXIT)
    if command == "--version":
        from ..version import __version__

        return _output().write(f"foundation-rt {__version__}\n".encode())
    if command not in COMMANDS and command not in CLIENT_COMMANDS:
        return _refuse_command(command)
    own = rest[: rest.index("--")] if "--" in rest else rest
    if "--help" in own or "-h" in own:
        return _help(command)
    if command in CLIENT_COMMANDS:
        from .run import run

        return run(command, rest)
    try:
        return COMMANDS[command](rest)
    except CommandLineError as error:
        return _refuse(str(error), f"{command} ")
    except UsageError as error:
        return _fail(error, own)


def _help(command: str) -> int:
    from .help_texts import fitted, help_text

    text = help_text(command)
    if _is_terminal(sys.stdout):
        from shutil import get_terminal_size

        text = fitted(text, get_terminal_size().columns)
    return _output().write(text.encode())


def write_output(data: bytes) -> int:
    """Write to stdout; return the exit code (CLI-30)."""
    return _output().write(data)


def _serve(arguments: list[str]) -> int:
    flags = (*SERVE_FLAGS, *PROGRAM_FLAGS)
    line = parse(arguments, SERVE_OPTIONS, flags, at_most=1, takes_program=True)
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
    if transport == "stdio":
        for option in ("--http", "--no-auth", "--workers"):
            if option in line.options:
                raise CommandLineError(f"{option} goes with --transport http or both")
        is_watched = _is_terminal(sys.stdin) and _is_terminal(sys.stderr)
        server, descriptors = load_isolated(lambda: load(False))
        if is_watched:
            from .terminal import greet_over_stdio, log_to_terminal

            log_to_terminal(server)
            greet_over_stdio(server, arguments)
        from ..kernel.stdio.transport import serve

        return serve(server.runtime, descriptors=descriptors)
    if "--workers" in line.options and transport == "both":
        raise CommandLineError("--workers goes with --transport http")
    settings = read_address(line.option("--http"))
    if "--no-auth" in line.options:
        settings["no_auth"] = True
    workers = read_workers(line.option("--workers"))
    try:
        if workers > 1:
            from ..http.cluster.worker_processes import keep_workers, worker_place

            if worker_place() is None:
                return keep_workers(arguments, workers)
    except MissingExtraError as error:
        raise error.also(*load(True).load_config().extras()) from None
    if transport == "http":
        return serve_over_http(load(True), settings)
    server, descriptors = load_isolated(lambda: load(True))
    return serve_over_http(server, settings, descriptors)


def load_isolated(load: Callable[[], Server]) -> tuple[Server, ProtocolDescriptors]:
    """Isolate stdin and stdout, then load a program, which may print (PROC-01).

    Args:
        load: returns the server. If it raises, stdin and stdout are as they were.
    """
    from ..kernel.stdio.descriptors import isolate

    descriptors = isolate()
    try:
        return load(), descriptors
    except BaseException:
        descriptors.restore()
        raise


def serve_over_http(
    server: Server, settings: Mapping[str, Any], descriptors: ProtocolDescriptors | None = None
) -> int:
    """Serve until a signal comes; return the exit code: 143, 130 or 129.

    Args:
        server: to be served.
        settings: of the section `http`, from the command line.
        descriptors: of stdio, which is served as well; its end of file ends its session only.

    Raises:
        UsageError: the server cannot be served so; says why and what to change.
    """
    try:
        from ..http.cluster.worker_processes import worker_place
        from ..http.serve import make_serving, serve
    except MissingExtraError as error:
        raise error.also(*server.load_config().extras()) from None
    greet = None
    if _is_terminal(sys.stderr) and (descriptors is None or os.isatty(descriptors.input)):
        from .terminal import greet_over_http, log_to_terminal

        log_to_terminal(server)
        greet = partial(greet_over_http, server)
    server.override("http", **settings)
    place = worker_place()
    if place is not None and place.slot > 0:
        greet = None  # one worker speaks for all
    if place is not None and server.load_config().security.state_key is None:
        server.override("security", state_key=place.key)
    if descriptors is None:
        return serve(server.runtime, place=place, on_serving=greet)
    from ..kernel.stdio.transport import serve as serve_stdio

    companion = make_serving(server.runtime)
    companion.on_serving = greet
    return serve_stdio(server.runtime, descriptors=descriptors, companion=companion)


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person is at a stream; one that is closed is None."""
    return stream is not None and stream.isatty()


def read_address(text: str | None) -> dict[str, Any]:
    """Return the settings of `--http HOST:PORT`; each part may be left out (CLI-07)."""
    host, colon, port = (text or "").rpartition(":")
    if text and (text.endswith("]") or not (colon or text.isdecimal())):
        host, port = text, ""
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise CommandLineError(f"an IPv6 address stands in brackets: --http [{text}]")
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
    line = parse(arguments, OPTIONS, CHECK_FLAGS, at_most=1, takes_program=True)
    from .check import check
    from .render import Output

    output = Output(sys.stdout, sys.stderr, as_json="--json" in line.options)
    return output.result(*check(_load(line), whole="--all" in line.options))


def _agents(arguments: list[str]) -> int:
    from .agents import agents

    return agents(arguments)


def _ask(arguments: list[str]) -> int:
    from .ask import ask

    return ask(arguments)


def _completion(arguments: list[str]) -> int:
    from .completion import completion

    return completion(arguments)


def _dev(arguments: list[str]) -> int:
    from .dev import dev

    return dev(arguments)


def _gateway(arguments: list[str]) -> int:
    from .gateway import gateway

    return gateway(arguments)


def _install(arguments: list[str]) -> int:
    from .install import install

    return install(arguments)


def _uninstall(arguments: list[str]) -> int:
    from .install import uninstall

    return uninstall(arguments)


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


COMMANDS: Mapping[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "check": _check,
    "agents": _agents,
    "ask": _ask,
    "completion": _completion,
    "dev": _dev,
    "gateway": _gateway,
    "host": _host,
    "install": _install,
    "migrate": _migrate,
    "openapi": _openapi,
    "task-server": _task_server,
    "uninstall": _uninstall,
}


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


def _fail(error: UsageError, arguments: Sequence[str]) -> int:
    """Write an error that has ended a command, as its arguments ask (CLI-57)."""
    from .program_errors import as_json, describe_problem
    from .render import Output

    output = Output(sys.stdout, sys.stderr, as_json="--json" in arguments)
    output.error(as_json(error), describe_problem(error, with_traceback="--traceback" in arguments))
    return _FAILURE_EXIT


def _refuse_command(word: str) -> int:
    from .nearest import LONGEST_SHOWN, did_you_mean

    near = did_you_mean(word, (*COMMANDS, *CLIENT_COMMANDS, "help"))
    return _refuse(f"there is no command {word[:LONGEST_SHOWN]!r}{near}", "")


def _refuse(text: str, command: str) -> int:
    _output().error(None, f"{text}; see foundation-rt {command}--help")
    return _USAGE_EXIT
