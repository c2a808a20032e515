"""Where the stores of the tests are: one entry for each kind of database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from foundation_rt.task_server.store import TaskServerStore

Make = Callable[[], TaskServerStore]
"""A new store, not open yet, on one and the same database each time."""

Place = Callable[[], AbstractContextManager[Make]]
"""A database of its own, empty, which is gone in the end."""

PLACES: dict[str, Place] = {}
"""By the name of the database."""
