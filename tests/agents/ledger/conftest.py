"""Fixtures of the tests of durable coordinators."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from foundation_rt.base.clock import ManualClock
from tests.lab.agents.coordinators import CoordinatorHarness, harness_of


@pytest.fixture
def harness(clock: ManualClock) -> AbstractAsyncContextManager[CoordinatorHarness]:
    """Return a harness of coordinators in virtual time."""
    return harness_of(clock)
