"""PostgreSQL on the event loop that Windows uses."""

from __future__ import annotations

import asyncio

import pytest

from foundation_rt import UsageError
from foundation_rt.base.database.postgres import PostgresConnections, read_url


@pytest.mark.rule("WIN-41")
async def test_postgres_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = type(asyncio.get_running_loop())
    monkeypatch.setattr(asyncio, "ProactorEventLoop", loop, raising=False)
    connections = PostgresConnections(read_url("postgresql://localhost/x"), schema="app", size=1)
    with pytest.raises(UsageError, match="use SQLite"):
        await connections.connect()
