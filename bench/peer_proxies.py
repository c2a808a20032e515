"""The proxies of PyPI beside the gateway, each in a virtual environment of its own.

One that cannot be installed or started is a gap with a name: the others are measured without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from bench.over_http import Server
from bench.peers.environments import FOLDER, NotInstalledError, install_python
from bench.report import say


@frozen
class Peer:
    """A proxy: its package, what runs it, and how it reaches a server.

    Attributes:
        module: is run, with `options`, in which {} is the port; the server comes last.
        behind: `http` or `stdio`: the server is a URL or a command line.
    """

    package: str
    module: str
    options: str
    behind: str


PEERS = (
    Peer("fastmcp", "bench.fastmcp_proxy", "{}", "http"),
    Peer("fastmcp", "bench.fastmcp_proxy", "{}", "stdio"),
    Peer("mcp-proxy", "mcp_proxy", "--log-level ERROR --port {} --", "stdio"),
)


@contextmanager
def running(peer: Peer, where: str) -> Iterator[Server | None]:
    """Yield the proxy, running before a server; None, and say why, if it cannot be had."""
    try:
        python = install_python(FOLDER / f"python-{peer.package}", (peer.package,))
        address = f"{peer.options} {where}"
        server = Server.spawn(peer.package, ["-m", peer.module], address, python)
    except (NotInstalledError, RuntimeError, OSError) as error:
        say(f"  {peer.package} before {peer.behind}: not measured, {error}")
        yield None
        return
    try:
        yield server
    finally:
        server.stop()
