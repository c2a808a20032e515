"""What is refused on Windows."""

from __future__ import annotations

import sys

import pytest

from foundation_rt.errors import UsageError
from foundation_rt.http.cluster.worker_processes import keep_workers


@pytest.mark.rule("WIN-06")
def test_workers_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UsageError, match="leave it out, or start several servers"):
        keep_workers(["serve"], 2)
