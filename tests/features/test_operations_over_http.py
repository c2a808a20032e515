"""What HTTP adds: the path for Prometheus, and refusals in the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from foundation_rt import Server
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AuditSection, TelemetrySection
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.composition import ServerOptions
from tests.lab.servers.asgi import JSON_HEADERS, META, REVISION, request, visit

KEY = "0123456789abcdef-key"
AUTHORIZED = {"host": "127.0.0.1", "x-api-key": KEY}


def serve(
    *, metrics: bool = True, categories: tuple[Any, ...] = ("SECURITY",)
) -> tuple[Any, MemorySink]:
    """Run an application behind a key; yield it with its log."""
    config = ServerConfig(
        http=HttpSection(api_keys=(f"alice:{KEY}",)),
        audit=AuditSection(enabled=True, categories=categories),
        telemetry=TelemetrySection(metrics=metrics),
    )
    sink = MemorySink()
    logger = StructuredLogger(sink, ManualClock(), "error")
    server = Server(options=ServerOptions(config=config, logger=logger))
    server.tool(lambda: 1, name="one")  # type: ignore[call-overload]
    return server.asgi_app(), sink


async def call_one(app: Any) -> None:
    """Call the tool, in the stateless mode."""
    head = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": "one"}
    params = {"name": "one", "arguments": {}, "_meta": META}
    message = orjson.dumps(request("tools/call", params))
    headers = JSON_HEADERS | AUTHORIZED | head
    answer = await visit(app, "POST", headers=headers, body=message).finish()
    assert answer.status == 200, answer.body


@pytest.mark.rule("OPS-27")
async def test_prometheus_reads_what_was_counted() -> None:
    app, _ = serve()
    await call_one(app)
    answer = await visit(app, "GET", "/metrics", headers=AUTHORIZED).finish()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    counted = b'calls_total{method="tools/call",name="one",outcome="success"} 1.0'
    assert counted in answer.body
    await app.stop(5)


@pytest.mark.rule("OPS-27")
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"host": "127.0.0.1"}, 401),
        ("GET", {"host": "evil.example", "x-api-key": KEY}, 421),
        ("POST", AUTHORIZED, 405),
    ],
)
async def test_metrics_are_refused_to_others(
    method: str, headers: dict[str, str], status: int
) -> None:
    app, _ = serve()
    answer = await visit(app, method, "/metrics", headers=headers).finish()
    assert answer.status == status
    assert b"foundation_rt_calls" not in answer.body
    await app.stop(5)


@pytest.mark.rule("OPS-27")
async def test_without_metrics_there_is_no_such_path() -> None:
    app, _ = serve(metrics=False)
    assert (await visit(app, "GET", "/metrics", headers=AUTHORIZED).finish()).status == 404


@pytest.mark.rule("OPS-26")
@pytest.mark.parametrize(
    ("headers", "event_type"),
    [
        ({"host": "127.0.0.1"}, "AUTHENTICATION_FAILED"),
        ({"host": "127.0.0.1", "x-api-key": "guessed-0123456789"}, "AUTHENTICATION_FAILED"),
        ({"host": "evil.example", "x-api-key": KEY}, "ACCESS_DENIED"),
        (AUTHORIZED | {"origin": "https://evil.example"}, "ACCESS_DENIED"),
    ],
)
async def test_refused_http_request_is_recorded(headers: dict[str, str], event_type: str) -> None:
    app, sink = serve()
    await visit(app, "POST", "/mcp", headers=headers).finish()
    [line] = sink.lines
    assert (line["eventType"], line["category"]) == (event_type, "SECURITY")
    assert line["success"] is False
    assert line["metadata"].keys() == {"reason", "path", "address"}
    assert line["metadata"]["path"] == "/mcp"
    assert "guessed" not in str(line)


@pytest.mark.rule("OPS-11")
async def test_record_names_the_principal() -> None:
    app, sink = serve(categories=("TOOL",))
    await call_one(app)
    assert [(line["eventType"], line["subject"]) for line in sink.lines] == [
        ("TOOL_INVOCATION_START", "key:alice"),
        ("TOOL_INVOCATION_COMPLETED", "key:alice"),
    ]
    assert {line["transport"] for line in sink.lines} == {"http"}
    await app.stop(5)


@pytest.mark.rule("OPS-20")
async def test_start_that_fails_after_the_hooks_leaves_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = ServerConfig(http=HttpSection(no_auth=True))
    server = Server(options=ServerOptions(config=config))
    life = []

    @server.lifespan
    async def hook(server: Server) -> AsyncIterator[None]:
        life.append("entered")
        yield
        life.append("left")

    app = server.asgi_app()

    async def fail(self: Any) -> None:
        raise OSError("no sockets")

    monkeypatch.setattr(type(app), "_make_service", fail)
    with pytest.raises(OSError, match="no sockets"):
        await app.start()
    assert life == ["entered", "left"]
