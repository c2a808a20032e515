"""The command `foundation-rt serve`, and what all commands that serve have in common (CLI-01).

Imported with every spawned server: it imports what it needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option

if TYPE_CHECKING:
    from typing import TextIO

    from ..kernel.stdio.descriptors import ProtocolDescriptors
    from ..server import Server

PORTS = range(65_536)

APP = Argument(
    "APP",
    "FILE.py or a module, with :attribute where it holds several servers; what follows `--` at the"
    " end is for its program, which finds it in sys.argv",
    FILES,
    "?",
)
CONFIG = Option("--config", "a configuration file, .toml or .json", "FILE", FILES)
TRACEBACK = Option("--traceback", "show the whole traceback if the program cannot be loaded")
"""Of the commands that load a program (CLI-57)."""

WORKERS = Option("--workers", "serve HTTP in N processes", "N", range(1, 257))
TRANSPORT_OPTIONS = (
    Option("--http", "serve over HTTP at this address or port (extra `http`)", "HOST:PORT"),
    Option(
        "--transport",
        "stdio, http or both; by default stdio, with --http http",
        "TRANSPORT",
        ("stdio", "http", "both"),
    ),
    Option("--no-auth", "serve every client over HTTP, without a key or token"),
)


def _serve(line: CommandLine) -> int:
    return serve_line(line, lambda over_http: load_program(line))


SERVE = CliCommand(
    "serve",
    "serve it over stdio or HTTP; without APP, the demo tools",
    _serve,
    (APP,),
    {
        "options of the program": (CONFIG, TRACEBACK),
        "options of the transport": (*TRANSPORT_OPTIONS, WORKERS),
    },
    takes_program=True,
    about="""\
Serve a program of yours: over stdio, as desktop clients start it, or over HTTP. Without APP, the
demo tools echo, sleep and health are served.""",
    notes="""\
examples:
  foundation-rt serve tools.py
  foundation-rt serve tools.py:server --config production.toml
  foundation-rt serve package.tools -- --db shop.sqlite
  foundation-rt serve tools.py --http 127.0.0.1:8000 --no-auth
  foundation-rt serve tools.py --http :8000 --workers 4 --config production.toml

exit codes: 0; 1 the APP cannot be served; 2 the command line is wrong; 130 interrupted""",
)


def serve_line(line: CommandLine, load: Callable[[bool], Server]) -> int:
    """Serve as the options of `TRANSPORT_OPTIONS` say; return the exit code.

    Args:
        line: the arguments of the command.
        load: returns the server, given whether clients come over HTTP.

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
        is_watched = is_terminal(sys.stdin) and is_terminal(sys.stderr)
        server, descriptors = load_isolated(lambda: load(False))
        if is_watched:
            from .terminal import greet_over_stdio, log_to_terminal

            log_to_terminal(server)
            greet_over_stdio(server, line.words)
        from ..kernel.stdio.transport import serve

        return serve(server.stdio_runtime, descriptors=descriptors)
    if "--workers" in line.options and transport == "both":
        raise CommandLineError("--workers goes with --transport http")
    settings = http_settings(line)
    workers = line.number("--workers") or 1
    try:
        if workers > 1:
            from ..http.cluster.worker_processes import keep_workers, worker_place

            if worker_place() is None:
                return keep_workers(line.words, workers)
    except MissingExtraError as error:
        raise error.also("http-full", *load(True).load_config().extras()) from None
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
    if is_terminal(sys.stderr) and (descriptors is None or os.isatty(descriptors.input)):
        from .terminal import greet_over_http, log_to_terminal

        log_to_terminal(server)
        greet = partial(greet_over_http, server)
    server.override("http", **settings)
    place = worker_place()
    if place is not None and place.slot > 0:
        greet = None  # one worker speaks for all
    config = server.load_config()
    # A key of this start alone would end all logins with it (AUTHZ-04).
    needs_own = config.authorization.url is not None
    if place is not None and config.security.state_key is None and not needs_own:
        server.override("security", state_key=place.key)
    if descriptors is None:
        return serve(server.runtime, place=place, on_serving=greet)
    from ..kernel.stdio.transport import serve as serve_stdio

    companion = make_serving(server.runtime)
    companion.on_serving = greet
    return serve_stdio(server.runtime, descriptors=descriptors, companion=companion)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person is at a stream; one that is closed is None."""
    return stream is not None and stream.isatty()


def http_settings(line: CommandLine) -> dict[str, Any]:
    """Return the settings of `--no-auth` and `--http HOST:PORT`, whose parts may each be missing.

    Raises:
        CommandLineError: there is no such address (CLI-07).
    """
    text = line.option("--http")
    host, colon, port = (text or "").rpartition(":")
    if text and (text.endswith("]") or not (colon or text.isdecimal())):
        host, port = text, ""
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise CommandLineError(f"an IPv6 address stands in brackets: --http [{text}]")
    if port and not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise CommandLineError(f"--http is HOST:PORT, not {text!r}")
    settings: dict[str, Any] = {"no_auth": True} if "--no-auth" in line.options else {}
    if host:
        settings["host"] = host.strip("[]")
    if port:
        settings["port"] = int(port)
    return settings


def load_program(line: CommandLine) -> Server:
    """Return the server of the APP, or the demo server; configured by `--config`.

    Raises:
        CommandLineError: `--` goes with an APP.
        UsageError: the APP cannot be loaded, or configured.
    """
    if not line.positional:
        from .demo import demo_server

        line.refuse_program()
        server = demo_server()
    else:
        from .server_loading import load_app

        server = load_app(line.positional[0], line.program or ())
    return configured(server, line)


def configured(server: Server, line: CommandLine) -> Server:
    """Return the server with the settings of the file that `--config` names."""
    config = line.option("--config")
    if config is not None:
        server.configure(config)
    return server
