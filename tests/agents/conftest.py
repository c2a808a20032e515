"""What failing assertions of the shared suites show is as detailed as in a test module."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.agents.stores.contract",
    "tests.agents.stores.schedule_contract",
    "tests.agents.stores.beside_memory",
)
