"""Metrics of OpenTelemetry: what a program that has set up an SDK reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from foundation_rt import ToolError
from foundation_rt.features import otel_metrics
from foundation_rt.testing import ManualClock, TestClient
from tests.lab.apps.observed import PATIENCE, call_everything, converse, make_server

Points = dict[str, list[tuple[dict[str, Any], Any]]]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(otel_metrics.metrics, "get_meter", _meter_of(provider))
    yield reader
    provider.shutdown()


def _meter_of(provider: MeterProvider) -> Any:
    """Return the API's function for a provider: a process can set its own one only once."""

    def get_meter(name: str, version: str, given: api.MeterProvider | None) -> api.Meter:
        return provider.get_meter(name, version)

    return get_meter


def points(reader: InMemoryMetricReader) -> Points:
    """Return the data of every metric, by its name."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: [(dict(point.attributes or {}), point) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


CONFIG = {"telemetry": {"otel_metrics": True}}


@pytest.mark.rule("OPS-42", "OPS-45")
def test_calls_are_recorded_by_the_conventions(reader: InMemoryMetricReader) -> None:
    converse(make_server(CONFIG), call_everything)
    found = points(reader)["mcp.server.operation.duration"]
    kinds = {
        (
            attributes["mcp.method.name"],
            attributes.get("gen_ai.tool.name", attributes.get("gen_ai.prompt.name")),
            attributes.get("error.type"),
        )
        for attributes, _ in found
    }
    assert kinds == {
        ("tools/call", "add", None),
        ("tools/call", "add", "tool_error"),
        ("tools/call", "fails", "tool_error"),
        ("tools/call", "other", "tool_error"),
        ("resources/read", None, None),
        ("resources/read", None, "NOT_FOUND"),
        ("prompts/get", "review", None),
        ("completion/complete", None, None),
    }
    assert all(attributes["mcp.protocol.version"] for attributes, _ in found)


@pytest.mark.rule("OPS-42")
def test_call_that_ends_early_is_recorded_with_its_transport(
    reader: InMemoryMetricReader,
) -> None:
    server = make_server(CONFIG)

    @server.tool(timeout_ms=1)
    async def hangs() -> None:
        await asyncio.Event().wait()

    async def talk(client: TestClient) -> None:
        client.connection.session.transport_type = "stdio"
        with pytest.raises(ToolError):
            await client.call("hangs")

    converse(server, talk)
    [(attributes, _)] = points(reader)["mcp.server.operation.duration"]
    assert (attributes["error.type"], attributes["network.transport"]) == ("timeout", "pipe")


@pytest.mark.rule("OPS-43")
def test_sessions_are_recorded_when_they_end(reader: InMemoryMetricReader) -> None:
    clock = ManualClock()

    async def wait(client: TestClient) -> None:
        clock.advance(3)

    converse(make_server(CONFIG), wait, clock)
    [(_, point)] = points(reader)["mcp.server.session.duration"]
    assert (point.count, point.sum) == (1, 3)


@pytest.mark.rule("OPS-44")
def test_the_metrics_of_the_application_are_recorded_too(reader: InMemoryMetricReader) -> None:
    server = make_server(CONFIG)
    made = server.metrics.counter("mcp_made_total", "Made.", labels=["kind"])
    length = server.metrics.histogram("mcp_length_seconds", "Length.", buckets=[1, 2])
    level = server.metrics.gauge("mcp_level", "Level.")
    server.metrics.gauge("mcp_depth", "Depth.", labels=["queue"], read=lambda: {"a": 4})
    made.add(5, kind="early")  # before the start, so it is not counted

    async def work(client: TestClient) -> None:
        made.add(2, kind="a")
        length.observe(1.5)
        level.set(7)
        server.metrics.counter("mcp_late_total", "Late.").add()
        found = await asyncio.to_thread(points, reader)
        assert [(kind, point.value) for kind, point in found["mcp_made"]] == [({"kind": "a"}, 2)]
        [(_, durations)] = found["mcp_length"]
        assert (durations.sum, durations.explicit_bounds) == (1.5, (1, 2))
        assert [point.value for _, point in found["mcp_level"]] == [7]
        assert [(of, point.value) for of, point in found["mcp_depth"]] == [({"queue": "a"}, 4)]
        assert [point.value for _, point in found["mcp_late"]] == [1]

    async def main() -> None:
        async with asyncio.timeout(PATIENCE), TestClient(server) as client:
            await work(client)

    asyncio.run(main())
