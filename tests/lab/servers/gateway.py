"""A gateway over HTTP in a process of its own.

`serve_gateway("mcp.json")` starts `foundation-rt gateway ... --http` on a free port, as
`tests.lab.servers.http_server` does it for a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from .http_server import HttpServerProcess
from .process import ServerProcess, command, environment


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
    serve = command("gateway", *words, "--http", "127.0.0.1:0", *options)
    with ServerProcess(serve, {**environment(), **(env or {})}) as process:
        yield HttpServerProcess(str(process.record(message="serving over HTTP")["url"]), process)
        if process.exit_code is None:
            process.terminate()
