"""A server over HTTP, or a gateway, in a process of its own.

`serve_http(APP)` starts `foundation-rt serve APP --http` on a free port and waits until it accepts
connections. The process is gone when the `with` block is left, however the test ended; after a test
that went well it has to end as it should.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from random import SystemRandom

from attrs import frozen

from .process import ServerProcess, app_file, command, environment


@frozen(eq=False)
class HttpServerProcess:
    """A server that listens.

    Attributes:
        url: its MCP endpoint.
        process: the process, with its log.
    """

    url: str
    process: ServerProcess


@contextmanager
def serve_http(
    app: str | Path, *words: str, settings: Mapping[str, object] | None = None
) -> Iterator[HttpServerProcess]:
    """Serve an application over HTTP.

    Args:
        app: the file that holds the server, or its source text.
        words: further arguments of `foundation-rt serve`; without any, `--no-auth`.
        settings: configuration by environment, as in `http.max_sessions`.
    """
    given = ("--http", "127.0.0.1:0", *(words or ("--no-auth",)))
    env = environment(settings)
    with app_file(app) as file, _listening("serve", str(file), *given, env=env) as server:
        yield server


@contextmanager
def serve_gateway(
    *words: str, env: Mapping[str, str] | None = None, options: tuple[str, ...] = ("--no-auth",)
) -> Iterator[HttpServerProcess]:
    """Serve a gateway over HTTP.

    Args:
        words: its FILE or TARGET, and options.
        env: added to the environment.
        options: of serving.
    """
    given = ("gateway", *words, "--http", "127.0.0.1:0", *options)
    with _listening(*given, env={**environment(), **(env or {})}) as server:
        yield server


@contextmanager
def _listening(*words: str, env: Mapping[str, str]) -> Iterator[HttpServerProcess]:
    with ServerProcess(command(*words), env) as process:
        yield HttpServerProcess(str(process.record(message="serving over HTTP")["url"]), process)
        if process.exit_code is None:
            process.terminate()


_LOWEST, _BELOW = 11_000, 32_768
"""Ports that the system does not choose itself: one that it has chosen it may give away again."""

_ports = cycle(SystemRandom().sample(range(_LOWEST, _BELOW), _BELOW - _LOWEST))


def free_port() -> int:
    """Return a port that nothing listens on now, each time another one."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", next(_ports))) as found:
            return int(found.getsockname()[1])


@contextmanager
def serve_workers(
    app: str | Path, count: int, *words: str, settings: Mapping[str, object] | None = None
) -> Iterator[tuple[ServerProcess, str]]:
    """Serve an application in `count` workers; yield their supervisor and their URL.

    Args:
        app: the file that holds the server, or its source text.
        count: the number of workers.
        words: further arguments of `foundation-rt serve`; without any, `--no-auth`.
        settings: configuration by environment, as in `http.max_sessions`.
    """
    port = free_port()
    given = ("--http", f"127.0.0.1:{port}", "--workers", str(count), *(words or ("--no-auth",)))
    with (
        app_file(app) as file,
        ServerProcess(command("serve", str(file), *given), environment(settings)) as process,
    ):
        process.wait_until(
            lambda: len(process.records_with(message="serving over HTTP")) == count, "all serve"
        )
        yield process, f"http://127.0.0.1:{port}/mcp"
