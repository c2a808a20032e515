"""The public conformance suite finds nothing to complain of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.support.http_server import serve_http

SERVER = Path(__file__).parent / "server.py"


@pytest.mark.parametrize(("revision", "checks"), [("2025-11-25", 83), ("2026-07-28", 196)])
def test_every_check_of_our_server_succeeds(revision: str, checks: int) -> None:
    with serve_http(SERVER) as server:
        score = suite.run_server(server.url, revision)
    assert score.complaints == ()
    assert (score.passed, score.total) == (checks, checks)


@pytest.mark.parametrize(("revision", "checks"), [("2025-11-25", 20), ("2026-07-28", 63)])
def test_every_check_of_our_client_succeeds(revision: str, checks: int) -> None:
    score = suite.run_client(revision)
    assert score.complaints == ()
    assert (score.passed, score.total) == (checks, checks)
