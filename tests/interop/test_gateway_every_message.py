"""Every message that comes through the gateway is what the official types of its revision say.

The tests of `test_every_message`, unchanged, with the gateway before the server: in each revision
of the client, before a server of either mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.test_every_message import (
    APP,
    ProcessClient,
    test_in_the_handshake_mode,
    test_in_the_stateless_mode,
)
from tests.interop.test_gateway import bridge
from tests.lab.servers.process import ServerProcess, command, environment

__all__ = ["test_in_the_handshake_mode", "test_in_the_stateless_mode"]


LACKS = {
    "2025-11-25": frozenset[str](),
    # A server of the stateless mode has no way to say that a user is done with a page.
    "2026-07-28": frozenset({"notifications/elicitation/complete"}),
}


@pytest.fixture(params=[*LACKS])
def connect(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[str], ProcessClient]]:
    """Start a gateway before the server and speak a revision with it."""
    words = bridge(tmp_path, command("serve", str(APP)))
    env = {**environment(), "MCP_PROTOCOL_VERSION": request.param}
    with ServerProcess(words, env) as gateway:
        yield lambda revision: ProcessClient(gateway, revision, LACKS[request.param])
