"""The command `foundation-rt gateway` (spec/gateway.md)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client.targets import HttpServer
from ..errors import MissingExtraError
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option
from .person import TRUST, settle
from .serve import CONFIG, TRACEBACK, TRANSPORT_OPTIONS, is_terminal, serve_line
from .targets import (
    HEADER,
    JSON,
    PROTOCOL,
    TIMEOUT,
    AppTarget,
    named_target,
    read_headers,
    with_login,
)

if TYPE_CHECKING:
    from ..apps.coordinator.servers import Source
    from ..client.client import Client
    from ..server import Server
    from .live_view import LiveView
    from .run import Answer

_DEFAULT_URL = "http://127.0.0.1:8000/mcp"


def _gateway(line: CommandLine) -> int:
    sources: list[Source] = []
    try:
        return serve_line(line, lambda over_http: _load(line, sources))
    except MissingExtraError as error:
        plans = [plan for source in sources for plan in source.read().values()]
        has_url = any(getattr(plan.target, "url", None) for plan in plans)
        raise error.also(*(["client"] if has_url else ())) from None


def _load(line: CommandLine, sources: list[Source]) -> Server:
    """Return the gateway; note the source of its servers."""
    from ..apps.gateway.app import create_gateway

    source = _source(line)
    sources.append(source)
    return create_gateway(
        source,
        _overrides(line, source),
        config=line.option("--config"),
        on_started=_show_servers if is_terminal(sys.stderr) else None,
    )


def _show_servers(status: Mapping[str, Any]) -> None:
    """Show people at a terminal which servers there are (GATE-41)."""
    from ..apps.gateway.status import problems_of, table_of, text_table

    with suppress(OSError):  # the terminal has been closed
        sys.stderr.write(text_table(table_of(status)))
        sys.stderr.writelines(f"{problem}\n" for problem in problems_of(status))
        sys.stderr.flush()


def _source(line: CommandLine) -> Source:
    """Return the servers of the gateway: of FILE, of TARGET, or of the usual places."""
    source, is_app = _source_of(line)
    if not is_app:
        line.refuse_program()
    return source


def _source_of(line: CommandLine) -> tuple[Source, bool]:
    """Return the servers of the gateway, and whether they are an APP."""
    from ..apps.gateway.source import NoServersError, file_source, places_source, single_source
    from ..base.mcp_json import usual_places

    if "--demo" in line.options:
        if line.positional:
            raise CommandLineError("--demo goes without a FILE or TARGET")
        from .showing_server import showing_server

        return single_source("demo", showing_server()), False
    if not line.positional:
        try:
            source = places_source([*usual_places(Path(), Path.home())])
        except NoServersError as error:
            raise CommandLineError(str(error)) from None
        settle(source.waiting(), "gateway", trusts=TRUST in line.options)
        return source, False
    text = line.positional[0]
    if text.endswith(".json") and len(text.split()) == 1:
        return file_source(Path(text)), False
    target: Any = named_target(line, text)
    is_app = isinstance(target, AppTarget)
    if is_app:
        from .server_loading import load_app

        target = load_app(target.source, line.program or ())
    elif isinstance(target, HttpServer):
        target = with_login(target)
    return single_source(None, target), is_app


def _overrides(line: CommandLine, source: Source) -> dict[str, dict[str, Any]]:
    given = {name: line.option(f"--{name}") for name in ("prefix", "expose", "lock")}
    if source.is_bridge:
        given["prefix"] = given["prefix"] or "never"
    settings = {name: value for name, value in given.items() if value is not None}
    return {"gateway": settings} if settings else {}


def _status(line: CommandLine) -> int:
    """Show the servers of a gateway, which says so in a resource."""
    from .run import ClientCommand, run

    line.positional = line.positional or [_DEFAULT_URL]
    return run(ClientCommand(_show_status, frozenset({"resources"})), line)


async def _show_status(client: Client, line: CommandLine, view: LiveView | None) -> Answer:
    from ..apps.gateway.status import COLUMNS, URI, problems_of, table_of
    from ..base.exact_json import loads
    from .render import Heading, Paragraph, Part, Table
    from .run import Answer

    result = await client.read_resource(URI)
    status = loads(result.wire["contents"][0]["text"])
    page: list[Part] = [Heading("SERVERS"), Table([COLUMNS, *table_of(status)], has_head=True)]
    page += [Paragraph(problem) for problem in problems_of(status)]
    return Answer(status, page)


def _accept(line: CommandLine) -> int:
    from ..apps.gateway.acceptance import accept
    from ..apps.gateway.app import read_settings
    from .render import Output
    from .run import FAILURE_EXIT

    settings = read_settings(line.option("--config"))
    path = line.option("--lock") or settings.lock
    if path is None:
        raise CommandLineError("accept needs --lock FILE")
    result = accept(
        _source(line),
        Path(path),
        line.options.get("--server"),
        read_headers(line),
        settings.start_wait_ms,
    )
    output = Output(sys.stdout, sys.stderr)
    for problem in result.missing:
        output.error(None, f"not accepted: {problem}")
    written = output.write("".join(f"{line}\n" for line in result.recorded).encode())
    return written or (FAILURE_EXIT if result.missing else 0)


_LOCK = Option(
    "--lock", "withhold definitions that have changed since they were recorded", "FILE", FILES
)
_SOURCES = Argument(
    "FILE | TARGET",
    "FILE lists servers, as desktop clients write it (mcp.json). Without it, the files of the usual"
    " places are merged: ./mcp.json, ./.mcp.json, .vscode/mcp.json, .cursor/mcp.json and those of"
    " desktop clients; what those of this folder list runs after you have agreed to it. TARGET is"
    " one server, whose names are kept: a URL, an APP, a name in these files, or a command line in"
    " quotes",
    FILES,
    "?",
)
_OF_SERVERS = (
    Option("--demo", "serve the built-in demo server"),
    Option(TRUST, "run what the files of this folder list, without asking"),
    _LOCK,
    CONFIG,
    TRACEBACK,
)
_NOTES = """\
examples:
  foundation-rt gateway mcp.json
  foundation-rt gateway mcp.json --http 127.0.0.1:8000 --no-auth
  foundation-rt gateway "uvx some-server" --http 127.0.0.1:8000
  foundation-rt gateway https://example.com/mcp
  foundation-rt gateway --demo
  foundation-rt gateway accept mcp.json --lock mcp.lock --server notes"""

GATEWAY = CliCommand(
    "gateway",
    "serve the servers of an mcp.json as one",
    _gateway,
    (_SOURCES,),
    {
        "options of the servers": (
            Option(
                "--prefix",
                "always or never: begin names of tools and prompts with their server's",
                "WHEN",
                ("always", "never"),
            ),
            Option(
                "--expose",
                "all or search: list all tools, or three with which they are found and called",
                "WHICH",
                ("all", "search"),
            ),
            *_OF_SERVERS,
        ),
        "options of serving": TRANSPORT_OPTIONS,
    },
    takes_program=True,
    about="""\
One server in front of many: the servers of a file, or one server over another transport. It serves
over stdio unless --http or --transport says otherwise.""",
    notes=_NOTES,
    within=(
        CliCommand(
            "gateway status",
            "show the servers of a gateway that runs at URL",
            _status,
            (Argument("URL", f"its address, by default {_DEFAULT_URL}", count="?"),),
            {"options": (HEADER, PROTOCOL, TIMEOUT, JSON)},
            usage_exit=2,
        ),
        CliCommand(
            "gateway accept",
            "record the definitions of the servers in the lock file",
            _accept,
            (_SOURCES,),
            {
                "options of accept": (
                    Option(
                        "--server",
                        "accept the definitions of this server alone; may be repeated",
                        "NAME",
                    ),
                    Option(
                        "--header",
                        "accept what servers list for a client with this header, which"
                        " `headersFrom` of their entries names; may be repeated",
                        "'NAME: VALUE'",
                    ),
                ),
                "options of the servers": _OF_SERVERS,
            },
            notes=_NOTES,
        ),
    ),
)
