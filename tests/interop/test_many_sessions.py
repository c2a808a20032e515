"""Sessions of four clients on four workers, one of which is killed while all have a call."""

from __future__ import annotations

import pytest

from tests.interop.many_sessions import Report, run
from tests.lab.sizes import size

SESSIONS = size(8, 25)


@pytest.mark.rule("HTTP-23", "HTTP-61", "HTTP-62", "HTTP-67", "HTTP-13")
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("client", ["typescript-1", "typescript-2", "python", "ours"])
def test_sessions_on_other_workers_lose_nothing_and_those_on_the_killed_one_come_back(
    client: str,
) -> None:
    report, killed = run(client, SESSIONS)
    assert report == Report(kept=SESSIONS - killed, lost=killed, back=killed)
