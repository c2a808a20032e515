"""Stores for tests of sessions: one test, every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation_rt.apps.host.sessions.memory import MemoryChatStore
from foundation_rt.apps.host.sessions.sqlite import SqliteChatStore
from tests.apps.host.sessions.support import NewStore
from tests.lab.places.services import emptied_postgres_schema


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewStore]:
    """Return what makes a store; those in a database have the same place each time."""
    if request.param == "memory":
        yield MemoryChatStore
    elif request.param == "sqlite":
        yield lambda settings: SqliteChatStore(tmp_path / "chats.db", settings)
    else:
        from foundation_rt.apps.host.sessions.postgres import PostgresChatStore

        with emptied_postgres_schema("host sessions") as (url, schema):
            yield lambda settings: PostgresChatStore(url, settings, schema=schema)
