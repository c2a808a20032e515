"""What the Inspector is given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import tour
from tests.support.http_server import serve_http
from tests.support.process import command


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What it is told to connect to; `stdio` or `http`, as a test says by its parameters."""
    if request.param == "stdio":
        yield command("serve", str(tour.APP))
    else:
        with serve_http(tour.APP) as server:
            yield [server.url]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home directory with a short path, for sockets have to have one."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
