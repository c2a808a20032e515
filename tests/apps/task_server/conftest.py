"""What tests of the task server have in common."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.apps.task_server.stores.support")
