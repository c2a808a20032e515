"""Where the stores of the tests are: one entry for each kind of database."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from foundation_rt.apps.task_server.store import TaskServerStore
from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore
from tests.apps.task_server.stores.elsewhere import StoreElsewhere
from tests.lab.places.services import emptied_postgres_schema

Make = Callable[[], TaskServerStore]
"""A new store, not open yet, on one and the same database each time."""


@frozen
class Database:
    """An empty database of its own, which is gone in the end.

    Attributes:
        make: makes a store.
        make_other: makes a second one, to be open at the same time as the first.
    """

    make: Make
    make_other: Callable[[], Any]


Place = Callable[[], AbstractContextManager[Database]]

_MEMORY = Path("/dev/shm")


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder, in memory where that is possible."""
    return tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)


@contextmanager
def _sqlite(**attributes: Any) -> Iterator[Database]:
    """Yield a file; a second store on it is in another process, as a process opens it once.

    It is in memory where that is possible: what survives a crash is proved elsewhere.

    Args:
        attributes: what to set on each store.
    """

    def make() -> SqliteTaskStore:
        store = SqliteTaskStore(path)
        for name, value in attributes.items():
            setattr(store, name, value)
        return store

    with new_folder() as folder:
        path = Path(folder) / "tasks.db"
        yield Database(make, lambda: StoreElsewhere(path))


@contextmanager
def _sqlite_along_indexes() -> Iterator[Database]:
    """Yield a file whose lists are read as if all conditions were met by many tasks."""
    with _sqlite(few=0) as database:
        yield database


@contextmanager
def _postgres(**attributes: Any) -> Iterator[Database]:
    """Yield a schema; a second store on it has connections of its own.

    Args:
        attributes: what to set on each store.
    """
    with emptied_postgres_schema("task server") as (url, schema):
        from foundation_rt.apps.task_server.stores.postgres import PostgresTaskStore

        def make() -> PostgresTaskStore:
            store = PostgresTaskStore(url, schema=schema)
            for name, value in attributes.items():
                setattr(store, name, value)
            return store

        yield Database(make, make)


@contextmanager
def _postgres_along_indexes() -> Iterator[Database]:
    """Yield a schema whose lists are read as `_sqlite_along_indexes` says."""
    with _postgres(few=0) as database:
        yield database


PLACES: dict[str, Place] = {"postgres": _postgres, "sqlite": _sqlite}
"""By the name of the database."""

PLACES_OF_LISTS: dict[str, Place] = {
    **PLACES,
    "postgres-along-indexes": _postgres_along_indexes,
    "sqlite-along-indexes": _sqlite_along_indexes,
}
"""Where lists are read in different ways."""
