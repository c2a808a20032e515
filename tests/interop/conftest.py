"""What the Inspector is given, and what our client must not leave behind."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import tour
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.servers.http_server import serve_http
from tests.lab.servers.process import PATIENCE, command


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Yield the target of a client: `stdio` or `http`, as a test says by its parameters."""
    if request.param == "stdio":
        yield command("serve", str(tour.APP))
    else:
        with serve_http(tour.APP) as server:
            yield [server.url]


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a home directory with a short path, which sockets need."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails a test after which there is a child, a thread or a descriptor more than before."""
    before = ResourceSnapshot.now()
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio-waitpid"):  # its child is reaped; it may not know yet
            thread.join(PATIENCE)
    ResourceSnapshot.now().must_equal(before)
