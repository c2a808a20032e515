"""Readiness checks of an application: what `/readyz` and the `health` tool make of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from foundation_rt import RegistrationError, Server, UsageError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.composition import ServerOptions
from foundation_rt.features.typed.tool_signature import add_tool
from foundation_rt.testing import TestClient
from tests.lab.servers.asgi import visit
from tests.lab.waiting import block_until

LONG = 20_000


class Bench:
    """A server with a clock by hand, and its log."""

    def __init__(self) -> None:
        self.clock, self.sink = ManualClock(), MemorySink()
        options = ServerOptions(
            config=ServerConfig(http=HttpSection(no_auth=True)),
            logger=StructuredLogger(self.sink, self.clock),
            clock=self.clock,
        )
        self.server = Server(options=options)

    def log(self) -> list[str]:
        """Return the messages about checks."""
        messages = [line["message"] for line in self.sink.lines]
        return [message for message in messages if message.startswith("readiness")]

    def ready(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of one `/readyz`."""

        async def scenario() -> tuple[int, dict[str, Any]]:
            app = self.server.asgi_app()
            await app.start()
            answer = await visit(app, "GET", "/readyz").finish()
            await app.stop(5)
            return answer.status, answer.json

        return asyncio.run(scenario())

    def health(self) -> dict[str, Any]:
        """Return what the `health` tool returns where no loop is late."""

        async def scenario() -> dict[str, Any]:
            async with TestClient(self.server) as client:
                self.server.runtime.resources.event_loop_delay = lambda: 0.0
                report: dict[str, Any] = await client.call("health")
                return report

        return asyncio.run(scenario())


def failing() -> None:
    raise ConnectionError("postgresql://app:hunter2@10.0.0.1/tasks refused")


async def failing_later() -> None:
    failing()


async def fine() -> bool:
    return True


@pytest.mark.rule("HEALTH-02", "HEALTH-03")
def test_server_whose_checks_succeed_is_ready() -> None:
    bench = Bench()
    bench.server.readiness_check("database", timeout_ms=LONG)(lambda: None)
    bench.server.readiness_check("queue", timeout_ms=LONG)(fine)
    assert bench.ready() == (200, {"status": "ok"})
    report = bench.health()
    assert report["checks"] == {"database": "ok", "queue": "ok"}
    assert report["status"] == "healthy"
    assert bench.log() == []


@pytest.mark.rule("HEALTH-02", "HEALTH-03")
@pytest.mark.parametrize(
    "check", [failing, failing_later, lambda: False, lambda: "no", fine.__call__]
)
def test_failing_check_is_named_and_its_reason_is_only_logged(check: Callable[[], Any]) -> None:
    bench = Bench()
    bench.server.readiness_check("queue", timeout_ms=LONG)(fine)
    bench.server.readiness_check("database", timeout_ms=LONG)(check)
    expected = {"status": "not_ready", "failing": ["database"]}
    assert bench.ready() == (503, expected)
    report = bench.health()
    assert report["checks"] == {"queue": "ok", "database": "failed"}
    assert report["status"] == "unhealthy"
    assert bench.log() == ["readiness check 'database' failed"]
    assert "hunter2" not in str(bench.sink.lines)


@pytest.mark.rule("HEALTH-02", "HEALTH-03")
def test_check_that_hangs_is_a_timeout_and_recovers() -> None:
    bench, go = Bench(), threading.Event()
    bench.server.readiness_check("slow", timeout_ms=1)(lambda: go.wait(LONG))
    try:
        assert bench.ready() == (503, {"status": "not_ready", "failing": ["slow"]})
        assert bench.health()["checks"] == {"slow": "timeout"}
    finally:
        go.set()
    block_until(lambda: bench.health()["status"] == "healthy", "the check recovers")
    assert bench.ready() == (200, {"status": "ok"})
    slow = "readiness check 'slow'"
    assert bench.log() == [f"{slow} takes too long", f"{slow} has recovered"]


@pytest.mark.rule("HEALTH-02", "HEALTH-04")
def test_check_heals_without_a_restart() -> None:
    bench, away = Bench(), [True]

    @bench.server.readiness_check("database", timeout_ms=LONG)
    async def database() -> None:
        if away[0]:
            failing()

    assert bench.ready()[0] == 503
    away[0] = False
    assert bench.ready()[0] == 503
    bench.clock.advance(1)
    assert bench.ready()[0] == 200


@pytest.mark.rule("HEALTH-04")
def test_storm_of_probes_runs_a_check_once() -> None:
    bench, runs = Bench(), []
    bench.server.readiness_check("database", timeout_ms=LONG)(lambda: runs.append(1))

    async def storm() -> set[int]:
        app = bench.server.asgi_app()
        await app.start()
        visits = [visit(app, "GET", "/readyz").finish() for _ in range(500)]
        statuses = {answer.status for answer in await asyncio.gather(*visits)}
        await app.stop(5)
        return statuses

    assert asyncio.run(storm()) == {200}
    assert runs == [1]


@pytest.mark.rule("HEALTH-04")
def test_check_is_not_run_before_the_start_or_under_overload() -> None:
    bench, runs = Bench(), []
    bench.server.readiness_check("database")(lambda: runs.append(1))

    async def scenario() -> None:
        app = bench.server.asgi_app()
        assert (await visit(app, "GET", "/readyz").finish()).json == {"status": "starting"}
        await app.start()
        resources = bench.server.runtime.resources
        for _ in range(3):
            resources.record_rejection()
        assert (await visit(app, "GET", "/readyz").finish()).json == {"status": "overloaded"}
        app.begin_stop()
        assert (await visit(app, "GET", "/readyz").finish()).json == {"status": "stopping"}
        await app.stop(5)

    asyncio.run(scenario())
    assert runs == []


@pytest.mark.rule("HEALTH-03")
def test_health_of_the_author_is_left_alone() -> None:
    from foundation_rt.kernel.registry.tools import ToolRegistry

    registry = ToolRegistry()
    add_tool(registry, lambda: "mine", object, name="health")
    server = Server(options=ServerOptions(tool_registry=registry))
    server.readiness_check("database")(failing)

    async def scenario() -> None:
        async with TestClient(server) as client:
            assert await client.call("health") == "mine"

    asyncio.run(scenario())


@pytest.mark.rule("HEALTH-02")
def test_check_that_cannot_be_registered_is_refused() -> None:
    server = Server("s")
    server.readiness_check("taken")(fine)
    for name in ("taken", "", "Upper", "a b", "x" * 65, None, 5):
        with pytest.raises(RegistrationError, match=r"^readiness check"):
            server.readiness_check(name)(fine)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is not a function"):
        server.readiness_check("database")(5)  # type: ignore[type-var]
    with pytest.raises(UsageError, match="timeout_ms"):
        server.readiness_check("database", timeout_ms=0)(fine)
    assert server.runtime.checks is not None
    with pytest.raises(UsageError, match="before the server is started"):
        server.readiness_check("late")
