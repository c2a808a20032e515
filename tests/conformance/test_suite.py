"""The public conformance suite finds nothing to complain of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.support.http_server import serve_http

SERVER = Path(__file__).parent / "server.py"


@pytest.mark.parametrize(("revision", "checks"), [("2025-11-25", 83), ("2026-07-28", 196)])
def test_every_check_succeeds(revision: str, checks: int, tmp_path: Path) -> None:
    with serve_http(SERVER) as server:
        score = suite.run(server.url, revision, tmp_path)
    assert score.complaints == ()
    assert (score.passed, score.total) == (checks, checks)
