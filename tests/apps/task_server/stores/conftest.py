"""Every test of the contract runs on every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apps.task_server.stores.places import PLACES, Database, Make


@pytest.fixture(params=PLACES)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Yield an empty database."""
    with PLACES[request.param]() as database:
        yield database


@pytest.fixture
def make(database: Database) -> Make:
    """Return what makes a store on it."""
    return database.make


@pytest.fixture
def make_other(database: Database) -> Callable[[], Any]:
    """Return what makes a second store, to be open at the same time."""
    return database.make_other
