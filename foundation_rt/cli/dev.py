"""The command `foundation-rt dev` (spec/dev.md)."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.http_client.values import readable_url
from ..errors import UsageError
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option
from .person import TRUST
from .serve import CONFIG, PORTS, is_terminal
from .targets import AppTarget, app_file, named_target, with_login
from .terminal import has_colours, paint

if TYPE_CHECKING:
    from ..apps.dev.file_watch import WatchedFiles
    from ..apps.dev.front import DevTarget, Front
    from ..apps.dev.terminal import Styled
    from ..client import HttpServer, StdioServer

DEFAULT_PORT = 7300


def _dev(line: CommandLine) -> int:
    target = _read_target(line)
    from ..apps.dev.front import create_front
    from ..apps.dev.terminal import Terminal
    from ..http.serve import serve

    port = line.number("--port")
    front = create_front(target, {"port": _free_port() if port is None else port})
    write = _writer()
    front.journal.listeners.append(Terminal(write, many=target.kind == "file").take)
    return serve(
        front.server.runtime,
        on_serving=lambda url: _announce(front, url, write, opens="--open" in line.options),
    )


def _announce(
    front: Front, url: str, write: Callable[[list[Styled]], object], *, opens: bool
) -> None:
    """Tell where the page is (DEV-40)."""
    front.url = url
    page = front.page_url()
    write([("foundation-rt dev", "bold"), (f"  {front.target.shown}", None)])
    write([("  Page      ", "dim"), (page, "cyan")])
    write(
        [("  Endpoint  ", "dim"), (url, None), ("  (Authorization: Bearer, see the page)", "dim")]
    )
    write([("  Stop      ", "dim"), ("Ctrl-C", None)])
    if opens:
        webbrowser.open(page)


def _writer() -> Callable[[list[Styled]], object]:
    """Return what writes a line to stdout, in colour on a terminal (NO_COLOR turns it off)."""
    output = sys.stdout
    is_coloured = is_terminal(output) and has_colours()

    def shown(text: str, style: str | None) -> str:
        return paint(text, style, coloured=is_coloured) if style else text

    def write(line: list[Styled]) -> None:
        with suppress(OSError, AttributeError, ValueError):  # stdout is full, or closed
            output.write("".join(shown(*each) for each in line) + "\n")
            output.flush()

    return write


def _free_port() -> int:
    """Return the default port, or one that is free."""
    try:
        with socket.create_server(("127.0.0.1", DEFAULT_PORT)):
            return DEFAULT_PORT
    except OSError:
        return 0


def _read_target(line: CommandLine) -> DevTarget:
    """Return what is developed.

    Raises:
        CommandLineError: options do not go with it.
        UsageError: it is no server, or a file is not there.
    """
    from ..apps.coordinator.servers import Source
    from ..apps.dev.front import DevTarget
    from ..apps.gateway.source import file_source, single_source

    text = line.positional[0] if line.positional else None
    extra = _extra_files(line.options.get("--watch", []))
    if text is not None and text.endswith(".json") and len(text.split()) == 1:
        line.refuse_app_options()
        return DevTarget(text, "file", file_source(Path(text)), _watch(extra))
    if text is None:
        line.refuse_app_options()
        found: Any = AppTarget("")
    else:
        found = named_target(line, text)
    from ..client import HttpServer

    if isinstance(found, AppTarget):
        shown = found.source or "demo tools"
        server, files = _program(found.source, line)
        source = single_source(_server_id(shown), server)
        serve = _serve_words(found.source, line) if found.source else None
        source = Source(source.read, (), f"dev {found.source}")
        return DevTarget(shown, "program", source, _watch(extra, files), serve)
    line.refuse_app_options()
    if isinstance(found, HttpServer):
        kind, shown, found = "url", readable_url(found.url), with_login(found)
    else:
        kind, shown = "command", found.description
    source = Source(single_source("server", found).read, (), f"dev {text}")
    return DevTarget(shown, kind, source, _watch(extra))


def _program(source: str, line: CommandLine) -> tuple[StdioServer, WatchedFiles]:
    """Return the child process of an APP, and its files."""
    from ..apps.dev.file_watch import WatchedFiles
    from ..client import StdioServer

    config = line.option("--config")
    words = ["-P", "-m", "foundation_rt.cli.dev_program"]
    words += [source] if source else []
    words += ["--config", config] if config is not None else []
    words += ["--", *line.program] if line.program else []
    # Its output is a pipe: without this, what it prints would come when it ends.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    named = frozenset({Path(config).absolute()} if config is not None else ())
    named_file = app_file(source)
    if named_file is not None:
        file = Path(named_file).absolute()
        if not file.is_file():
            raise UsageError(f"there is no file {file}: write it first, or correct its name")
        watched = WatchedFiles((file.parent,), named | {file})
    else:
        watched = WatchedFiles((Path.cwd(),) if source else (), named)
    return StdioServer(sys.executable, words, env=environment), watched


def _serve_words(source: str, line: CommandLine) -> tuple[str, tuple[str, ...]]:
    """Return the command that serves an APP over stdio, for the file of a desktop client."""
    config = line.option("--config")
    words = ["serve", source]
    file = app_file(source)
    if file is not None:
        words = ["serve", f"{Path(file).absolute()}{source.removeprefix(file)}"]
    words += ["--config", str(Path(config).absolute())] if config is not None else []
    words += ["--", *line.program] if line.program else []
    script = Path(sys.executable).with_name("foundation-rt")
    if script.is_file():
        return str(script), tuple(words)
    return sys.executable, ("-P", "-m", "foundation_rt", *words)


def _server_id(shown: str) -> str:
    """Return an id for the server of an APP: the name of its file or module."""
    source = Path(app_file(shown) or shown.partition(":")[0])
    name = source.name.removesuffix(".py").rpartition(".")[2]
    cleaned = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)
    return cleaned.strip("-")[:32] or "server"


def _extra_files(given: list[str]) -> WatchedFiles:
    """Return the files and folders of `--watch`."""
    from ..apps.dev.file_watch import WatchedFiles

    paths = [Path(each).absolute() for each in given]
    for path in paths:
        if not path.exists():
            raise CommandLineError(f"--watch: there is no {path}")
    folders = tuple(path for path in paths if path.is_dir())
    return WatchedFiles(folders, frozenset(path for path in paths if not path.is_dir()))


def _watch(
    extra: WatchedFiles, own: WatchedFiles | None = None
) -> Callable[[str, StdioServer | HttpServer], WatchedFiles]:
    """Return a function that returns the files of a server."""
    from ..apps.dev.file_watch import WatchedFiles

    def files(server_id: str, launch: StdioServer | HttpServer) -> WatchedFiles:
        found = own if own is not None else _named_files(launch)
        return WatchedFiles(
            (*found.folders, *extra.folders), found.files | extra.files, found.suffixes
        )

    return files


def _named_files(launch: StdioServer | HttpServer) -> WatchedFiles:
    """Return the source files that a command names, and those beside them."""
    from ..apps.dev.file_watch import SUFFIXES, WatchedFiles
    from ..client import StdioServer

    if not isinstance(launch, StdioServer):
        return WatchedFiles()
    folder = Path(launch.cwd or Path.cwd()).absolute()
    words = [app_file(word) or word for word in launch.args]
    named = [folder / word for word in words if word.endswith(SUFFIXES)]
    found = [path for path in named if path.is_file()]
    return WatchedFiles(tuple({path.parent: None for path in found}), frozenset(found))


DEV = CliCommand(
    "dev",
    "serve it with a page, restarted on change",
    _dev,
    (
        Argument(
            "TARGET",
            "an APP, FILE.py or module:attribute; or an mcp.json, whose servers are served"
            " together; or a command line in quotes; or a name in an mcp.json; or a URL. Without"
            " it, demo tools are served",
            FILES,
            "?",
        ),
    ),
    {
        "options": (
            Option(
                "--port",
                f"the port; by default {DEFAULT_PORT}, or any if that is taken",
                "N",
                PORTS,
            ),
            Option("--open", "open the page in a browser"),
            Option(
                "--watch",
                "restart when this file changes too, or a source file in this folder; may be"
                " repeated",
                "PATH",
                FILES,
            ),
            CONFIG,
            Option(
                TRUST,
                "run the server that an mcp.json of this folder lists by this name, without asking",
            ),
        )
    },
    takes_program=True,
    about="""\
Serve a program on this machine while you write it. It is restarted when its files change; clients
keep their sessions. A page shows its tools, calls, logs and messages; its address is printed.

What follows `--` is for the program of an APP, which finds it in sys.argv.""",
    notes="""\
examples:
  foundation-rt dev tools.py
  foundation-rt dev tools.py --open -- --db shop.sqlite
  foundation-rt dev "npx -y @modelcontextprotocol/server-everything"
  foundation-rt dev mcp.json""",
)
