"""The command `foundation-rt host` (spec/host.md)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .args import FILES, CliCommand, CommandLine, CommandLineError, Option
from .person import TRUST, settle
from .render import write_output
from .serve import CONFIG, PORTS, WORKERS, http_settings, is_terminal

if TYPE_CHECKING:
    from ..apps.coordinator import CircuitOptions, Coordinator
    from ..apps.coordinator.servers import Source
    from ..apps.host.app import Host
    from ..apps.host.starting import HostParts
    from ..client import ConnectOptions
    from ..server import Server

_POSTGRES = ("postgresql://", "postgres://")


def _host(line: CommandLine) -> int:
    try:
        return _start(line)
    except MissingExtraError as error:
        raise error.also(*host_extras(line)) from None


def host_extras(line: CommandLine) -> list[str]:
    """Return the extras that a host needs, by its arguments and the environment (ERR-11)."""
    from ..apps.host.llm.providers import KEY_VARIABLES

    given = [*line.words, os.environ.get("FOUNDATION_RT_HOST__STORE", "")]
    found = [
        f"host-{provider}"
        for provider, variable in KEY_VARIABLES.items()
        if os.environ.get(variable) or any(each.startswith(provider) for each in given)
    ]
    if any(each.startswith(_POSTGRES) for each in given):
        found.append("postgres")
    return ["host", *found]


def _start(line: CommandLine) -> int:
    if "--init" in line.options:
        from ..apps.host.examples import write_examples

        return write_output(write_examples(Path()).encode())
    workers = line.number("--workers") or 1
    if workers > 1:
        from ..http.cluster.worker_processes import keep_workers, worker_place

        if worker_place() is None:
            _refuse_wrong_workers(line)
            return keep_workers(line.words, workers)
    return _serve(line)


def _serve(line: CommandLine) -> int:
    from ..http.cluster.worker_processes import worker_place
    from ..http.serve import serve

    parts = _read(line)
    place = worker_place()
    if place is None:  # of workers, the process that keeps them has asked
        _settle(parts, line)
    made = parts.assemble(_add_gateway if "--gateway" in line.options else None)
    if place is not None and made.server.load_config().security.state_key is None:
        made.server.override("security", state_key=place.key)
    if is_terminal(sys.stderr):
        from .terminal import log_to_terminal

        log_to_terminal(made.server)
    for note in parts.environment.notes:
        made.server.runtime.logger.warn(note)
    return serve(
        made.server.runtime,
        place=place,
        on_serving=lambda url: _print_page(made, url),
    )


def _settle(parts: HostParts, line: CommandLine) -> None:
    assert parts.servers is not None  # there was no problem
    settle(parts.servers.waiting(), "host", trusts=TRUST in line.options)


def _print_page(made: Host, url: str) -> None:
    """Show people where the page is (HOST-08)."""
    from .terminal import reachable

    base = reachable(url.removesuffix(made.server.load_config().http.path).rstrip("/"))
    with suppress(OSError, AttributeError):  # stdout is full, or closed
        sys.stdout.write(f"The chat is at {made.page_url(f'{base}/')}\n")
        sys.stdout.flush()


def _read(line: CommandLine) -> HostParts:
    """Return what the host is made of.

    Raises:
        UsageError: lists every problem, and what to write.
    """
    from ..apps.gateway.settings import SECTION, GatewaySettings
    from ..apps.host.app import make_server
    from ..apps.host.environment import HostEnvironment
    from ..apps.host.settings import SECTION as HOST_SECTION
    from ..apps.host.settings import HostSettings
    from ..apps.host.starting import HostOptions, read_parts
    from .showing_server import showing_server

    options = HostOptions(
        overrides=_overrides(line), config=line.option("--config"), model=line.option("--model")
    )
    demo = partial(showing_server, {HOST_SECTION: HostSettings, SECTION: GatewaySettings})
    if "--gateway" not in line.options:
        return read_parts(options, HostEnvironment(), demo)
    from ..apps.gateway.app import DEFAULTS

    new_server = partial(make_server, DEFAULTS, {SECTION: GatewaySettings})
    return read_parts(options, HostEnvironment(), demo, new_server)


def _add_gateway(
    server: Server,
    servers: Source,
    connections: ConnectOptions,
    circuits: CircuitOptions,
) -> Coordinator:
    """Serve the host's servers at its endpoint too (HOST-09)."""
    from ..apps.gateway.app import add_gateway

    made = add_gateway(server, servers, handlers=connections, circuits=circuits, guidance=True)
    return made.coordinator


def _overrides(line: CommandLine) -> dict[str, dict[str, Any]]:
    http, port = http_settings(line), line.number("--port")
    if port is not None:
        http["port"] = port
    lock = line.option("--lock")
    if lock is not None and "--gateway" not in line.options:
        raise CommandLineError("--lock goes with --gateway")
    gateway = {} if lock is None else {"lock": lock}
    sections = (("http", http), ("host", chat_settings(line)), ("gateway", gateway))
    return {name: values for name, values in sections if values}


def chat_settings(line: CommandLine) -> dict[str, Any]:
    """Return the settings of the section `host` that the command line names."""
    given = {"servers": line.option("--servers"), "store": line.option("--store")}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return {**settings, "approve_all": True} if "--yes" in line.options else settings


def _refuse_wrong_workers(line: CommandLine) -> None:
    """Refuse workers that could not start, or do not have the same chats (HOST-14).

    Raises:
        CommandLineError: the store is not one that workers share.
        UsageError: lists every problem of the start.
    """
    variables = dict(os.environ)
    try:
        parts = _read(line)
        _settle(parts, line)
        store = parts.settings.store
    finally:  # each worker reads `.env` itself, and again when keys were rotated (HOST-06)
        os.environ.clear()
        os.environ.update(variables)
    if not store.startswith(_POSTGRES):
        raise CommandLineError(
            "--workers needs chats that all workers share: --store postgresql://..."
        )


HOST = CliCommand(
    "host",
    "chat with a model that uses your servers",
    _host,
    (),
    {
        "options of the chat": (
            Option(
                "--servers",
                "the servers, as desktop clients list them; by default ./mcp.json",
                "FILE",
                FILES,
            ),
            Option(
                "--model",
                "gemini, openai, anthropic or rules, and its model",
                "PROVIDER:NAME",
            ),
            Option(
                "--store",
                "memory, sqlite:FILE or postgresql://..., where chats are kept; by default memory",
                "STORE",
            ),
            Option("--yes", "call tools without asking"),
            Option(TRUST, "run the servers of this folder's mcp.json without asking"),
            CONFIG,
            Option("--init", "write mcp.json, .env.example and compose.yaml, and end"),
        ),
        "options of the address": (
            Option("--port", "the port; by default 3000", "N", PORTS),
            Option(
                "--http", "the address, if others than this machine are to reach it", "HOST:PORT"
            ),
            Option("--no-auth", "serve everybody who reaches the port, without a token or key"),
            Option(
                WORKERS.name,
                "with --store postgresql://..., serve in N processes",
                WORKERS.value,
                WORKERS.words,
            ),
            Option("--gateway", "serve the same servers as one MCP server, at /mcp"),
            Option(
                "--lock", "with --gateway: use nothing that servers have changed", "FILE", FILES
            ),
        ),
    },
    about="""\
A chat, on a page of this machine, in which a language model uses the tools of your servers.

It prints the URL of the page. Without a key for a model, tools are called as commands; without an
mcp.json, the tools are those of a demo server.""",
    notes="""\
The environment, and the file .env below it: GEMINI_API_KEY, OPENAI_API_KEY, ANTHROPIC_API_KEY,
LLM_PROVIDER, LLM_MODEL, LLM_BASE_URL, LLM_TOOL_MODE, MCP_JSON_PATH, LOG_LEVEL, PORT,
MAX_TOKEN_COUNT, DEFAULT_TOOL_TIMEOUT_MS. Nothing else in .env counts but as ${NAME} in mcp.json.
Keys in .env are read again when it has changed.

examples:
  foundation-rt host
  GEMINI_API_KEY=... foundation-rt host --servers mcp.json
  foundation-rt host --model openai:gpt-5 --store sqlite:chats.db
  LLM_BASE_URL=http://127.0.0.1:11434/v1 foundation-rt host --model openai:qwen3
  foundation-rt host --gateway --port 3000""",
)
