"""Every test of the contract runs on every store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.task_server.stores.places import PLACES, Make

pytest.register_assert_rewrite("tests.task_server.stores.support")


@pytest.fixture(params=PLACES)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Yield a maker of stores on one empty database."""
    with PLACES[request.param]() as make:
        yield make
