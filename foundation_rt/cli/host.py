"""The command `foundation-rt host` (spec/host.md)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .args import CommandLine, CommandLineError, parse
from .main import SERVE_FLAGS, read_workers, write_output
from .person import is_terminal

if TYPE_CHECKING:
    from ..coordinator import Coordinator
    from ..host.app import Host
    from ..host.starting import HostParts, ServerList
    from ..server import Server

HELP = """\
usage: foundation-rt host [OPTION ...]

A chat, on a page of this machine, in which a language model uses the tools of your servers.

It prints the URL of the page. Without a key for a model, simple rules choose the tools; without an
mcp.json, the tools are those of a demo server.

options of the chat:
  --servers FILE                  the servers, as desktop clients list them; by default ./mcp.json
  --model PROVIDER:NAME           gemini, openai, anthropic, rules or script:FILE, and its model
  --store STORE                   keep chats in memory (by default), sqlite:FILE or postgresql://...
  --yes                           call tools without asking
  --config FILE                   a configuration file, .toml or .json
  --init                          write mcp.json, .env.example and compose.yaml, and end

options of the address:
  --port N                        the port; by default 3000
  --http HOST:PORT                the address, if others than this machine are to reach it
  --no-auth                       serve everybody who reaches the port, without a token or key
  --workers N                     serve in N processes, with --store postgresql://...
  --gateway                       serve the same servers as one MCP server, at /mcp
  --lock FILE                     with --gateway: withhold there what servers have changed

The environment, and the file .env below it: GEMINI_API_KEY, OPENAI_API_KEY, ANTHROPIC_API_KEY,
LLM_PROVIDER, LLM_MODEL, LLM_BASE_URL, LLM_TOOL_MODE, MCP_JSON_PATH, LOG_LEVEL, PORT,
MAX_TOKEN_COUNT, DEFAULT_TOOL_TIMEOUT_MS. Keys in .env are read again on SIGUSR1.

examples:
  foundation-rt host
  GEMINI_API_KEY=... foundation-rt host --servers mcp.json
  foundation-rt host --model openai:gpt-5 --store sqlite:chats.db
  LLM_BASE_URL=http://127.0.0.1:11434/v1 foundation-rt host --model openai:llama3.2
  foundation-rt host --gateway --port 3000
"""

OPTIONS = {
    "--config": "a file",
    "--http": "HOST:PORT",
    "--lock": "a file",
    "--model": "PROVIDER:NAME",
    "--port": "a number",
    "--servers": "a file",
    "--store": "memory, sqlite:FILE or postgresql://...",
    "--workers": "a number",
}
FLAGS = (*SERVE_FLAGS, "--gateway", "--yes", "--init")
_POSTGRES = ("postgresql://", "postgres://")
_ANYWHERE = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}
"""The hosts of a socket that listens everywhere, and those that a browser here can open."""


def host(arguments: list[str]) -> int:
    """Run the command; return the exit code."""
    line = parse(arguments, OPTIONS, FLAGS, at_most=0)
    if "--init" in line.options:
        from ..host.examples import write_examples

        return write_output(write_examples(Path()).encode())
    workers = read_workers(line.option("--workers"))
    if workers > 1:
        from ..transports.http.worker_processes import keep_workers, worker_place

        if worker_place() is None:
            _refuse_wrong_workers(line)
            return keep_workers(["host", *arguments], workers, passed_on=signal.SIGUSR1)
    return _serve(line)


def _serve(line: CommandLine) -> int:
    from ..transports.http.serve import serve
    from ..transports.http.worker_processes import worker_place

    made = _read(line).assemble(_add_gateway if "--gateway" in line.options else None)
    place = worker_place()
    if place is not None and made.server.load_config().security.state_key is None:
        made.server.override("security", state_key=place.key)
    if is_terminal(sys.stderr):
        from .terminal import log_to_terminal

        log_to_terminal(made.server)
    return serve(
        made.server.runtime,
        place=place,
        on_serving=lambda url: _print_page(made, url),
    )


def _print_page(made: Host, url: str) -> None:
    """Show people where the page is (HOST-08)."""
    base = url.removesuffix(made.server.load_config().http.path).rstrip("/")
    for anywhere, here in _ANYWHERE.items():
        base = base.replace(anywhere, here)
    with suppress(OSError, AttributeError):  # stdout is full, or closed
        sys.stdout.write(f"The chat is at {made.page_url(f'{base}/')}\n")
        sys.stdout.flush()


def _read(line: CommandLine) -> HostParts:
    """Return what the host is made of.

    Raises:
        UsageError: lists every problem, and what to write.
    """
    from ..gateway.settings import SECTION, GatewaySettings
    from ..host.app import make_server
    from ..host.environment import HostEnvironment
    from ..host.settings import SECTION as HOST_SECTION
    from ..host.settings import HostSettings
    from ..host.starting import HostOptions, read_parts
    from .demo_tools import showing_server

    options = HostOptions(
        overrides=_overrides(line), config=line.option("--config"), model=line.option("--model")
    )
    demo = partial(showing_server, {HOST_SECTION: HostSettings, SECTION: GatewaySettings})
    if "--gateway" not in line.options:
        return read_parts(options, HostEnvironment(), demo)
    from ..gateway.app import DEFAULTS

    new_server = partial(make_server, DEFAULTS, {SECTION: GatewaySettings})
    return read_parts(options, HostEnvironment(), demo, new_server)


def _add_gateway(
    server: Server, servers: ServerList, connections: Mapping[str, Any]
) -> Coordinator:
    """Serve the host's servers at its endpoint too (HOST-09)."""
    from ..coordinator import file_identity
    from ..gateway.app import add_gateway
    from ..gateway.source import Source

    identity = file_identity(servers.files[0]) if servers.files else "demo"
    source = Source(servers.read, servers.files, identity)
    return add_gateway(server, source, handlers=connections, guidance=True).coordinator


def _overrides(line: CommandLine) -> dict[str, dict[str, Any]]:
    from .main import read_address

    http = read_address(line.option("--http"))
    port = line.option("--port")
    if port is not None:
        if not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
            raise CommandLineError("--port is a number from 0 to 65535")
        http["port"] = int(port)
    if "--no-auth" in line.options:
        http["no_auth"] = True
    given = {"servers": line.option("--servers"), "store": line.option("--store")}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "--yes" in line.options:
        settings["approve_all"] = True
    lock = line.option("--lock")
    if lock is not None and "--gateway" not in line.options:
        raise CommandLineError("--lock goes with --gateway")
    gateway = {} if lock is None else {"lock": lock}
    sections = (("http", http), ("host", settings), ("gateway", gateway))
    return {name: values for name, values in sections if values}


def _refuse_wrong_workers(line: CommandLine) -> None:
    """Refuse workers that could not start, or do not have the same chats (HOST-14).

    Raises:
        CommandLineError: the store is not one that workers share.
        UsageError: lists every problem of the start.
    """
    variables = dict(os.environ)
    try:
        store = _read(line).settings.store
    finally:  # each worker reads `.env` itself, and again when keys were rotated (HOST-06)
        os.environ.clear()
        os.environ.update(variables)
    if not store.startswith(_POSTGRES):
        raise CommandLineError(
            "--workers needs chats that all workers share: --store postgresql://..."
        )
