"""Fixtures of the tests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.checks.leaks import ResourceSnapshot


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Check that the test has left no descriptor, thread or child."""
    before = ResourceSnapshot.now()
    yield
    ResourceSnapshot.now().must_equal(before)
