"""Task servers in processes of their own, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.task_server.app.servers import STORES, Database
from tests.lab.places.services import postgres_database


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Yield an empty database."""
    if request.param == "sqlite":
        yield Database(f"sqlite:{tmp_path / 'tasks.db'}")
    else:
        with postgres_database() as url:
            yield Database(url)
