"""A server that wants tokens, and its authorization server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.login.oauth_world import World, running_world


@pytest.fixture
def world() -> Iterator[World]:
    with running_world() as it:
        yield it
