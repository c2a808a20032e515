"""The command `top`, against real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.support.http_server import HttpServerProcess, serve_http
from tests.support.process import run

APP = """
from foundation_rt import Server

server = Server("shop")


@server.tool
def order(item: str) -> str:
    return item
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(APP)
    return path


@pytest.fixture
def measured(app: Path) -> Iterator[HttpServerProcess]:
    with serve_http(app, "--no-auth", settings={"telemetry.metrics": True}) as server:
        yield server


@pytest.mark.rule("CLI-74", "CLI-76")
def test_calls_and_times_come_from_the_metrics(measured: HttpServerProcess) -> None:
    run("call", measured.url, "order", "item=tea").check_returncode()
    done = run("top", measured.url, "--count", "2", "--interval", "0.1", "--json")
    first, second = orjson.loads(done.stdout)["samples"]
    assert first["calls"][0]["name"] == "order"
    assert first["calls"][0]["outcomes"] == {"success": 1}
    assert first["calls"][0]["p95Ms"] > 0
    assert first["seconds"] is None
    assert second["calls"][0]["recent"] == 0
    assert second["state"]["maxConcurrentExecutions"] > 0
    shown = run("top", measured.url)
    assert "order" in shown.stdout
    assert "P95 MS" in shown.stdout
    assert "slots 0 of" in shown.stdout


@pytest.mark.rule("CLI-74")
def test_without_metrics_the_health_tool_is_called(app: Path) -> None:
    with serve_http(app, "--no-auth") as server:
        done = run("top", server.url, "--json")
    (sample,) = orjson.loads(done.stdout)["samples"]
    assert sample["calls"] is None
    assert sample["state"]["status"] == "healthy"


@pytest.mark.rule("CLI-74")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interval", "0"], "--interval is a number of seconds"),
        (["--interval", "soon"], "--interval is a number of seconds"),
        (["--count", "0"], "--count is a number"),
    ],
)
def test_wrong_options(measured: HttpServerProcess, words: list[str], message: str) -> None:
    done = run("top", measured.url, *words)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.rule("CLI-74", "CLI-20")
def test_a_server_that_is_none_of_ours_or_none_at_all(app: Path) -> None:
    done = run("top", str(app))
    assert (done.returncode, "top needs a URL" in done.stderr) == (2, True)
    done = run("top", "http://127.0.0.1:9/mcp")
    assert done.returncode == 3
