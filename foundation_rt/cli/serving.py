"""`foundation-rt serve` over HTTP: alone, beside stdio, as one of several (spec/cli.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..transports.http.serve import make_serving, serve
from ..transports.http.workers import shared_state_key

if TYPE_CHECKING:
    from ..server import Server


def serve_over_http(server: Server, settings: Mapping[str, Any], *, with_stdio: bool) -> int:
    """Serve until a signal comes; return the exit code: 143, 130 or 129.

    Args:
        settings: of the section `http`, from the command line.
        with_stdio: over stdio as well; when its client leaves, that ends its session alone.

    Raises:
        UsageError: the server cannot be served so; says why and what to change.
    """
    server.override("http", **settings)
    key = shared_state_key()
    if key is not None and server.load_config().security.state_key is None:
        server.override("security", state_key=key)
    if not with_stdio:
        return serve(server.runtime, shares_port=key is not None)
    from ..transports.stdio.transport import serve as serve_stdio

    return serve_stdio(server.runtime, companion=make_serving(server.runtime))
