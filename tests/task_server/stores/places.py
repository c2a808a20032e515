"""Where the stores of the tests are: one entry for each kind of database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from foundation_rt.task_server.store import TaskServerStore
from tests.support.services import postgres_schema

Make = Callable[[], TaskServerStore]
"""A new store, not open yet, on one and the same database each time."""

Place = Callable[[], AbstractContextManager[Make]]
"""A database of its own, empty, which is gone in the end."""


@contextmanager
def _postgres() -> Iterator[Make]:
    with postgres_schema() as (url, schema):
        from foundation_rt.task_server.stores.postgres import PostgresTaskStore

        yield lambda: PostgresTaskStore(url, schema=schema)


PLACES: dict[str, Place] = {"postgres": _postgres}
"""By the name of the database."""
