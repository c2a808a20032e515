"""The registry of workers while Redis is away."""

from __future__ import annotations

import pytest

from foundation_rt.clock import ManualClock
from foundation_rt.logs.logger import MemorySink, StructuredLogger
from foundation_rt.transports.http import worker_registry_redis
from foundation_rt.transports.http.session_seal import WorkerName
from foundation_rt.transports.http.worker_registry_redis import WorkerRegistry
from tests.support.http_server import free_port


@pytest.mark.rule("HTTP-69")
async def test_sessions_of_other_groups_do_not_exist_while_redis_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_registry_redis, "_CLOSE_SECONDS", 0.0)
    sink = MemorySink()
    logger = StructuredLogger(sink, ManualClock(), "info")
    url = f"redis://:hidden@127.0.0.1:{free_port()}/0"
    name = WorkerName("0123456789ab", 0)
    registry = WorkerRegistry(url, logger, name, ("127.0.0.1", 7000))
    await registry.start()
    registry.mark("digest")
    registry.keep("digest")
    registry.forget("digest")
    assert await registry.find_session("digest", WorkerName("other", 1)) is None
    assert await registry.address_of(name) is None
    await registry.close()
    failing = [each for each in sink.lines if each["level"] == "warn"]
    assert [each["message"] for each in failing] == [
        "the registry of workers in Redis fails: sessions of other hosts are unknown"
    ]
    assert "hidden" not in repr(sink.lines)
