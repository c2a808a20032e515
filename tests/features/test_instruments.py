"""Metrics of an application: what is counted, refused, bounded, and not counted at all."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from foundation_rt import RegistrationError, Server, UsageError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import TelemetrySection
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.composition import ServerOptions
from foundation_rt.features.instruments import MAX_SERIES, OTHER
from tests.lab.servers.asgi import visit
from tests.lab.servers.process import environment

PATIENCE = 60.0
LONG = 20_000

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def make_server(metrics: bool = True) -> tuple[Server, MemorySink]:
    """Return a server that has been started, with metrics."""
    config = ServerConfig(
        telemetry=TelemetrySection(metrics=metrics), http=HttpSection(no_auth=True)
    )
    sink = MemorySink()
    logger = StructuredLogger(sink, ManualClock())
    server = Server(options=ServerOptions(config=config, logger=logger, clock=ManualClock()))
    assert server.runtime.config is config
    return server, sink


def parsed(text: bytes) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if not sample.name.startswith("foundation_rt_")
    }


def rendered(server: Server) -> Series:
    """Return the samples of the application."""
    assert server.runtime.metrics is not None
    return parsed(server.runtime.metrics.render()[1])


def of(found: Series, sample: str, /, **labels: str) -> float | None:
    return found.get((sample, frozenset(labels.items())))


@pytest.mark.rule("OPS-31")
def test_each_kind_is_shown_with_its_labels() -> None:
    server, _ = make_server()
    inserted = server.metrics.counter("mcp_tasks_inserted_total", "Tasks inserted.")
    calls = server.metrics.counter("mcp_calls_total", "Calls.", labels=("tool", "result"))
    jobs = server.metrics.gauge("mcp_jobs", "Jobs.", labels=["status"])
    seconds = server.metrics.histogram("mcp_job_seconds", "How long.", buckets=(0.5, 2))
    inserted.add(5000)
    inserted.add()
    calls.add(tool="list", result="success")
    calls.add(2, result="error", tool="list")
    jobs.set(3, status="RUNNING")
    jobs.set(1, status="RUNNING")
    for each in (0.5, 1.0, 9):
        seconds.observe(each)
    assert rendered(server) == {
        ("mcp_tasks_inserted_total", frozenset()): 5001,
        ("mcp_calls_total", frozenset({("tool", "list"), ("result", "success")})): 1,
        ("mcp_calls_total", frozenset({("tool", "list"), ("result", "error")})): 2,
        ("mcp_jobs", frozenset({("status", "RUNNING")})): 1,
        ("mcp_job_seconds_bucket", frozenset({("le", "0.5")})): 1,
        ("mcp_job_seconds_bucket", frozenset({("le", "2.0")})): 2,
        ("mcp_job_seconds_bucket", frozenset({("le", "+Inf")})): 3,
        ("mcp_job_seconds_count", frozenset()): 3,
        ("mcp_job_seconds_sum", frozenset()): 10.5,
    }


@pytest.mark.rule("OPS-31")
def test_instrument_made_before_the_start_counts_from_the_start_on() -> None:
    server = Server("s", config={"telemetry": {"metrics": True}})
    counter = server.metrics.counter("early_total", "Made early.")
    counter.add(5)
    assert server.runtime.metrics is not None
    counter.add(2)
    assert rendered(server) == {("early_total", frozenset()): 2}


@pytest.mark.rule("OPS-31")
def test_without_metrics_nothing_is_counted() -> None:
    server, _ = make_server(metrics=False)
    counter = server.metrics.counter("a_total", "A.", labels=("x",))
    gauge = server.metrics.gauge("b", "B.", read=lambda: 1 / 0)
    seconds = server.metrics.histogram("c_seconds", "C.")
    counter.add(-1, nonsense="y")
    gauge.set(1)
    seconds.observe(-1)
    assert [each.snapshot() for each in server.metrics.all()] == [[], [], []]


NOT_IMPORTED = """
import sys
from foundation_rt import Server
server = Server("s")
jobs = server.metrics.gauge("jobs", "Jobs.", read=lambda: 1)
counter = server.metrics.counter("a_total", "A.")
server.runtime
counter.add()
loaded = {"prometheus_client", "asyncio", "foundation_rt.features.metrics"} & set(sys.modules)
assert not loaded, loaded
"""


@pytest.mark.rule("OPS-31")
def test_without_metrics_the_client_library_is_not_imported() -> None:
    command = [sys.executable, "-c", NOT_IMPORTED]
    subprocess.run(command, env=environment(), check=True, timeout=PATIENCE)


@pytest.mark.rule("OPS-31")
@pytest.mark.parametrize(
    "name",
    [
        *("", "a b", "1a", "ä", "a-b", "a:b", "__a", "foundation_rt_mine", "x" * 129, None),
        *("a_total", "a_count", "a_sum", "a_bucket", "a_created", "taken"),
    ],
)
def test_name_that_cannot_be_used_is_refused(name: Any) -> None:
    metrics = Server("s").metrics
    metrics.counter("taken_total", "Taken.")
    with pytest.raises(RegistrationError, match=r"^metric "):
        metrics.gauge(name, "Never made.")
    assert len(metrics.all()) == 1


@pytest.mark.rule("OPS-31")
@pytest.mark.parametrize(
    "labels",
    ["text", ("a", "a"), ("__a",), ("a b",), (1,), ("le",), tuple("abcdefghi")],
)
def test_labels_that_cannot_be_used_are_refused(labels: Any) -> None:
    with pytest.raises(RegistrationError, match=r"^metric 'a_seconds': "):
        Server("s").metrics.histogram("a_seconds", "A.", labels=labels)


@pytest.mark.rule("OPS-31")
def test_counter_and_histogram_have_the_suffix_of_their_kind() -> None:
    metrics = Server("s").metrics
    with pytest.raises(RegistrationError, match="the label worker is that of the process"):
        metrics.gauge("tasks", "Tasks.", labels=("worker",))
    with pytest.raises(RegistrationError, match="ends in _total"):
        metrics.counter("tasks", "Tasks.")
    with pytest.raises(RegistrationError, match="ends in _seconds"):
        metrics.histogram("job_ms", "How long.")
    for buckets in ((), (2, 1), (1, 1), (0, 1), (1, float("inf")), range(1, 66)):
        with pytest.raises(RegistrationError, match="rise, in seconds"):
            metrics.histogram("job_seconds", "How long.", buckets=buckets)


@pytest.mark.rule("OPS-31")
def test_wrong_labels_and_numbers_are_usage_errors() -> None:
    server, _ = make_server()
    counter = server.metrics.counter("a_total", "A.", labels=("x", "y"))
    gauge = server.metrics.gauge("b", "B.")
    seconds = server.metrics.histogram("c_seconds", "C.")
    called = server.metrics.gauge("d", "D.", read=lambda: 1, timeout_ms=LONG)
    for wrong in (
        lambda: counter.add(x="1"),
        lambda: counter.add(x="1", z="2"),
        lambda: counter.add(x="1", y="2", z="3"),
        lambda: counter.add(-1, x="1", y="2"),
        lambda: counter.add(float("nan"), x="1", y="2"),
        lambda: counter.add(10**400, x="1", y="2"),
        lambda: gauge.set("many"),  # type: ignore[arg-type]
        lambda: gauge.set(1, x="1"),
        lambda: seconds.observe(-0.1),
        lambda: seconds.observe(float("inf")),
        lambda: called.set(1),
    ):
        with pytest.raises(UsageError, match=r"^metric "):
            wrong()
    assert rendered(server) == {("d", frozenset()): 1}


@pytest.mark.rule("OPS-32")
def test_number_of_series_is_bounded() -> None:
    server, _ = make_server()
    counter = server.metrics.counter("a_total", "A.", labels=("x", "y"))
    gauge = server.metrics.gauge("b", "B.", labels=("x",))
    seconds = server.metrics.histogram("c_seconds", "C.", labels=("x",), buckets=(1,))
    for number in range(MAX_SERIES + 50):
        counter.add(x=number, y="same")
        gauge.set(number, x=number)
        seconds.observe(0.5, x=number)
    counter.add(x=0, y="same")
    gauge.set(99, x=0)
    found = rendered(server)
    assert of(found, "a_total", x=OTHER, y=OTHER) == 50
    assert of(found, "a_total", x="0", y="same") == 2
    assert of(found, "b", x="0") == 99
    assert of(found, "b", x=str(MAX_SERIES)) is None
    assert of(found, "c_seconds_count", x=OTHER) == 50
    names = [name for name, _ in found]
    assert {name: names.count(name) for name in ("a_total", "b", "c_seconds_count")} == {
        "a_total": MAX_SERIES + 1,
        "b": MAX_SERIES,
        "c_seconds_count": MAX_SERIES + 1,
    }


@pytest.mark.rule("OPS-32")
@given(value=st.text())
def test_any_value_of_a_label_can_be_read_back(value: str) -> None:
    server, _ = make_server()
    counter = server.metrics.counter("a_total", 'Any "text" \\ \n \ud800.', labels=("x",))
    counter.add(x=value)
    shown = value.encode("utf-8", "replace").decode()[:128]
    assert of(rendered(server), "a_total", x=shown) == 1


@pytest.mark.rule("OPS-31")
def test_threads_count_together() -> None:
    server, _ = make_server()
    counter = server.metrics.counter("a_total", "A.", labels=("x",))
    seconds = server.metrics.histogram("b_seconds", "B.")

    def work() -> None:
        for number in range(2_000):
            counter.add(x=number % 3)
            seconds.observe(0.1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        rendered(server)
    found = rendered(server)
    assert sum(value for (name, _), value in found.items() if name == "a_total") == 8_000
    assert of(found, "b_seconds_count") == 8_000


@pytest.mark.rule("OPS-31")
def test_forked_child_can_count_although_another_thread_counted() -> None:
    server, _ = make_server()
    counter = server.metrics.counter("a_total", "A.")
    with server.metrics.lock:
        child = os.fork()
        if child == 0:
            counter.add()
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- gauges with a callback


def over_http(server: Server) -> Series:
    """Return the samples of the application, as HTTP serves them."""

    async def scenario() -> Series:
        app = server.asgi_app()
        answer = await visit(app, "GET", "/metrics", headers={"host": "127.0.0.1"}).finish()
        assert answer.status == 200
        await app.stop(5)
        return parsed(answer.body)

    return asyncio.run(scenario())


def jobs() -> Mapping[Any, Any]:
    return {"PENDING": 2, ("RUNNING",): 1}


async def jobs_later() -> Mapping[Any, Any]:
    await asyncio.sleep(0)
    return jobs()


@pytest.mark.rule("OPS-33")
@pytest.mark.parametrize("read", [jobs, jobs_later])
def test_callback_is_asked_when_the_metrics_are_read(read: Any) -> None:
    server, _ = make_server()
    server.metrics.gauge("mcp_jobs", "Jobs.", labels=("status",), read=read, timeout_ms=LONG)
    expected = {
        ("mcp_jobs", frozenset({("status", "PENDING")})): 2,
        ("mcp_jobs", frozenset({("status", "RUNNING")})): 1,
    }
    assert over_http(server) == expected
    assert rendered(server) == expected


@pytest.mark.rule("OPS-33")
@pytest.mark.parametrize("found", [None, "many", [1], {("a", "b"): 1}, {"a": "many"}, 10**400])
@pytest.mark.parametrize("labels", [(), ("status",)])
def test_callback_that_returns_no_number_hides_its_gauge_alone(labels: Any, found: Any) -> None:
    server, sink = make_server()
    server.metrics.gauge("bad", "Bad.", labels=labels, read=lambda: found, timeout_ms=LONG)
    server.metrics.gauge("good", "Good.", read=lambda: 5, timeout_ms=LONG)
    assert over_http(server) == rendered(server) == {("good", frozenset()): 5}
    failures = [line for line in sink.lines if "the callback of metric bad" in line["message"]]
    assert len(failures) == 1


@pytest.mark.rule("OPS-33")
def test_slow_callback_does_not_keep_the_others() -> None:
    server, sink = make_server()
    go = threading.Event()
    server.metrics.gauge("slow", "Slow.", read=lambda: go.wait(PATIENCE), timeout_ms=1)
    server.metrics.gauge("raises", "Raises.", read=lambda: 1 / 0, timeout_ms=LONG)
    server.metrics.gauge("good", "Good.", read=lambda: 5, timeout_ms=LONG)
    try:
        assert over_http(server) == rendered(server) == {("good", frozenset()): 5}
    finally:
        go.set()
    assert sorted(line["message"] for line in sink.lines if "metric" in line["message"]) == [
        "the callback of metric raises failed",
        "the callback of metric slow takes too long",
    ]


@pytest.mark.rule("OPS-32", "OPS-33")
def test_series_of_a_callback_are_bounded() -> None:
    server, _ = make_server()
    many = {str(number): number for number in range(MAX_SERIES + 50)}
    server.metrics.gauge("many", "Many.", labels=("x",), read=lambda: many, timeout_ms=LONG)
    assert len(rendered(server)) == MAX_SERIES
