"""The fixture `mcp_client` of pytest: a client of the server under test (EMBED-08, EMBED-09).

pytest imports this module in every run of its environment, so it imports nothing of the runtime
before a test asks for the fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..client.blocking import BlockingClient
    from ..server import Server

_HOW = 'mcp_server = FILE.py in the configuration of pytest, or @pytest.mark.mcp_server("FILE.py")'


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the configuration file."""
    parser.addini("mcp_server", "the server of mcp_client: FILE.py or module, or either:attribute")


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker."""
    text = "the server of mcp_client: FILE.py or module, or either:attribute, or a Server"
    config.addinivalue_line("markers", f"mcp_server(app): {text}")


@pytest.fixture
def mcp_client(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BlockingClient]:
    """Return a client, connected in memory to the server that the marker or `mcp_server` names."""
    from ..client.blocking import connect

    with connect(_server(request, monkeypatch)) as client:
        yield client


def _server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    mark = request.node.get_closest_marker("mcp_server")
    app = request.config.getini("mcp_server") if mark is None else mark.args and mark.args[0]
    if mark is not None and (mark.kwargs or len(mark.args) > 1):
        pytest.fail("the marker mcp_server takes the server alone", pytrace=False)
    if not app:
        pytest.fail(f"mcp_client needs a server: {_HOW}", pytrace=False)
    if not isinstance(app, str):
        server: Server = app
        return server
    from .server_loading import load_app, split_app

    folder = request.config.rootpath if mark is None else request.path.parent
    monkeypatch.setattr(sys, "argv", sys.argv)  # loading an application changes it
    source, attribute = split_app(app)
    if source.endswith(".py"):
        source = _importable(folder / source, monkeypatch)
    return load_app(source if attribute is None else f"{source}:{attribute}")


def _importable(file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name by which tests import the file too: there is one copy of its objects."""
    file = file.resolve()
    if not file.is_file():
        pytest.fail(f"mcp_client: there is no file {file}; {_HOW}", pytrace=False)
    monkeypatch.syspath_prepend(file.parent)
    imported = getattr(sys.modules.get(file.stem), "__file__", None)
    if file.stem in sys.modules and (imported is None or Path(imported).resolve() != file):
        advice = f"rename {file.name}, or name it as a module of a package"
        pytest.fail(f"mcp_client: another module {file.stem} is imported: {advice}", pytrace=False)
    return file.stem
