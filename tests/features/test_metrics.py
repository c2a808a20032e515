"""What Prometheus is told, and that nobody can make it long."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from foundation_rt import Server
from foundation_rt.base.config.feature_sections import RateLimitSection, TelemetrySection
from foundation_rt.base.config.settings import ResourcesSection, ServerConfig
from foundation_rt.features.composition import ServerOptions
from foundation_rt.features.metrics import Metrics
from foundation_rt.kernel.effects import CallCompleted, ClientConnected, ClientDisconnected, Log
from foundation_rt.kernel.execution_limits import ResourceManager
from foundation_rt.testing import TestClient
from foundation_rt.version import __version__
from tests.lab.apps.observed import PATIENCE, call_everything, make_server
from tests.lab.servers.core import make_core
from tests.lab.servers.process import environment

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(metrics: Metrics) -> Series:
    """Every sample, by name and labels."""
    content_type, text = metrics.render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name.removeprefix("foundation_rt_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def of(found: Series, sample: str, /, **labels: str) -> float | None:
    return found.get((sample, frozenset(labels.items())))


def talk_to(server: Server, *talks: Any) -> Metrics:
    """Return the metrics of a server after a conversation."""
    import asyncio

    async def main() -> None:
        async with asyncio.timeout(PATIENCE), TestClient(server) as client:
            for talk in talks:
                await talk(client)

    asyncio.run(main())
    metrics = server.runtime.metrics
    assert metrics is not None
    return metrics


@pytest.mark.rule("OPS-14")
def test_calls_are_counted_by_method_name_and_outcome() -> None:
    server = make_server({"telemetry": {"metrics": True}})
    found = series(talk_to(server, call_everything))
    calls = {dict(labels)["name"]: 0.0 for name, labels in found if name == "calls_total"}
    assert calls.keys() == {"add", "fails", "other", "", "review"}

    def count(method: str, name: str, outcome: str) -> float | None:
        return of(found, "calls_total", method=method, name=name, outcome=outcome)

    assert count("tools/call", "add", "success") == 1
    assert count("tools/call", "add", "tool_error") == 1
    assert count("tools/call", "fails", "tool_error") == 3
    assert count("tools/call", "other", "tool_error") == 1
    assert count("resources/read", "", "success") == 1
    assert count("resources/read", "", "tool_error") == 1
    assert count("prompts/get", "review", "success") == 1
    assert count("completion/complete", "", "success") == 1
    counted = of(found, "call_duration_seconds_count", method="tools/call", name="add")
    assert counted == 2


@pytest.mark.rule("OPS-14")
def test_the_process_is_measured() -> None:
    config = ServerConfig(
        telemetry=TelemetrySection(metrics=True),
        resources=ResourcesSection(max_concurrent_executions=7),
    )
    server = Server(options=ServerOptions(config=config))
    slot = server.runtime.resources.try_acquire_slot()
    assert slot is not None
    found = series(talk_to(server))
    assert of(found, "slots") == 7
    assert of(found, "slots_in_use") == 1
    assert (of(found, "resident_memory_bytes") or 0) > 1_000_000
    assert of(found, "event_loop_delay_seconds") is not None
    assert of(found, "info", version=__version__) == 1


@pytest.mark.rule("OPS-14")
def test_sessions_are_counted_while_they_last() -> None:
    server = make_server({"telemetry": {"metrics": True}})
    seen = []

    async def look(client: TestClient) -> None:
        assert server.runtime.metrics is not None
        seen.append(of(series(server.runtime.metrics), "sessions", transport="memory"))
        async with TestClient(server):
            seen.append(of(series(server.runtime.metrics), "sessions", transport="memory"))

    metrics = talk_to(server, look)
    assert seen == [1, 2]
    assert of(series(metrics), "sessions", transport="memory") == 0


@pytest.mark.rule("OPS-14")
def test_rejections_are_counted_by_reason() -> None:
    config = ServerConfig(
        telemetry=TelemetrySection(metrics=True),
        resources=ResourcesSection(max_concurrent_executions=1),
        rate_limit=RateLimitSection(per_key=4),
    )
    server = make_server()
    server._options.config = config

    async def talk(client: TestClient) -> None:
        params = {"name": "add", "arguments": {"a": 1, "b": 1}}
        slot = server.runtime.resources.try_acquire_slot()
        assert slot is not None
        for _ in range(2):
            await client.request("tools/call", params)
        slot.release()
        for _ in range(3):
            await client.request("tools/call", params)
        await client.request("tools/call", {"name": "nowhere", "arguments": {}})

    found = series(talk_to(server, talk))
    assert of(found, "rejections_total", reason="concurrency_limit") == 2
    assert of(found, "rejections_total", reason="rate_limit") == 2
    assert sum(value for (name, _), value in found.items() if name == "rejections_total") == 4


@pytest.mark.rule("OPS-14")
def test_without_metrics_nothing_is_counted() -> None:
    assert make_server().runtime.metrics is None


# -- counting by itself


def make_metrics(*names: str) -> Metrics:
    resources = ResourceManager(ServerConfig(), lambda: 0)
    return Metrics(resources, lambda method, name: name in names)


def completed(name: str, seconds: float = 0.0, method: str | None = None) -> CallCompleted:
    fields = {"outcome": "success", "durationMs": seconds * 1000}
    named = {"toolName": name} if method is None else {"method": method, "name": name}
    return CallCompleted("info", "", fields | named)


SESSION = make_core().session


@pytest.mark.rule("OPS-14")
@given(seconds=st.lists(st.floats(0, 400), max_size=30))
def test_histogram_holds_every_call_once(seconds: list[float]) -> None:
    metrics = make_metrics("tool")
    for each in seconds:
        metrics.observe(SESSION, completed("tool", each))
    found = series(metrics)
    labels = {"method": "tools/call", "name": "tool"}
    buckets = {
        dict(key)["le"]: value for (name, key), value in found.items() if name.endswith("_bucket")
    }
    if not seconds:
        assert buckets == {}
        return
    assert of(found, "call_duration_seconds_count", **labels) == len(seconds)
    total = of(found, "call_duration_seconds_sum", **labels)
    assert total == pytest.approx(sum(seconds))
    measured = [each * 1000 / 1000 for each in seconds]  # as a record tells it: in ms
    for bound, count in buckets.items():
        assert count == sum(each <= float(bound) for each in measured)


@pytest.mark.rule("OPS-15")
def test_unregistered_names_share_one_series() -> None:
    metrics = make_metrics("known")
    for number in range(50):
        metrics.observe(SESSION, completed(f"unknown{number}"))
        metrics.observe(SESSION, completed(f"data://{number}", method="resources/read"))
        metrics.observe(SESSION, completed(f"unknown{number}", method="prompts/get"))
    metrics.observe(SESSION, completed("known"))
    calls = [dict(labels) for sample, labels in series(metrics) if sample == "calls_total"]
    names = {(labels["method"], labels["name"]) for labels in calls}
    assert names == {
        ("tools/call", "other"),
        ("tools/call", "known"),
        ("resources/read", ""),
        ("prompts/get", "other"),
    }


@pytest.mark.rule("OPS-15")
def test_number_of_series_is_bounded_as_tools_come_and_go() -> None:
    names = [f"tool{number}" for number in range(1_100)]
    metrics = make_metrics(*names)
    for name in [*names, names[0], names[-1]]:
        metrics.observe(SESSION, completed(name))
    found = series(metrics)
    calls = {dict(key)["name"]: value for (name, key), value in found.items() if "calls" in name}
    assert len(calls) == 1_001
    assert (calls["tool0"], calls["other"]) == (2, 101)


@pytest.mark.rule("OPS-15")
def test_name_is_written_so_that_it_can_be_read_back() -> None:
    name = 'a"b\\c\nd é'
    metrics = make_metrics(name)
    metrics.observe(SESSION, completed(name))
    assert (
        of(series(metrics), "calls_total", method="tools/call", name=name, outcome="success") == 1
    )


@pytest.mark.rule("OPS-14")
def test_threads_count_together() -> None:
    metrics = make_metrics("tool")

    def work() -> None:
        for _ in range(2_000):
            metrics.observe(SESSION, ClientConnected("info", "", {}))
            metrics.observe(SESSION, completed("tool"))
            metrics.observe(SESSION, ClientDisconnected("info", "", {}))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.render()  # may be asked for while others count
    found = series(metrics)
    counted = of(found, "calls_total", method="tools/call", name="tool", outcome="success")
    assert counted == 8_000
    assert of(found, "sessions", transport=SESSION.transport_type) == 0


@pytest.mark.rule("OPS-14")
def test_other_records_are_not_counted() -> None:
    metrics = make_metrics()
    before = metrics.render()
    metrics.observe(SESSION, Log("info", "", {}))  # type: ignore[arg-type]
    assert metrics.render() == before


MISSING = """
import sys
sys.modules["{module}"] = None  # as if it were not installed
from foundation_rt import Server
from foundation_rt.errors import MissingExtraError
try:
    Server("s", config={{"telemetry": {{"{setting}": True}}}}).runtime
except MissingExtraError as error:
    assert "foundation-rt[{extra}]" in str(error), error
else:
    raise AssertionError("it started")
Server("s").runtime
"""


@pytest.mark.rule("OPS-19")
@pytest.mark.parametrize(
    ("module", "setting", "extra"),
    [("prometheus_client", "metrics", "metrics"), ("opentelemetry", "tracing", "otel")],
)
def test_without_the_extra_a_server_that_needs_it_does_not_start(
    module: str, setting: str, extra: str
) -> None:
    script = MISSING.format(module=module, setting=setting, extra=extra)
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True, timeout=PATIENCE)
