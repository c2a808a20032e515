"""What operators see of the gateway."""

from __future__ import annotations

import os
import pty
import select

import pytest

from foundation_rt.apps.gateway.status import problems_of, table_of, text_table
from tests.lab.servers.process import PATIENCE, ServerProcess, command, environment

STATUS = {
    "problem": None,
    "servers": [
        {"id": "notes", "state": "ready", "revision": "2026-07-28", "tools": 3, "calls": 12},
        {
            "id": "dead",
            "state": "failed",
            "reason": "it ended",
            "lastError": "first line\nsecond " + "x" * 100,
            "withheld": [{"kind": "tools", "identifier": "add", "reason": "changed"}],
        },
        {"id": "bad", "state": "failed", "reason": "NOTES_TOKEN is not set", "lastError": None},
    ],
}


@pytest.mark.rule("GATE-40")
def test_table_has_a_line_for_each_server() -> None:
    lines = text_table(table_of(STATUS)).splitlines()
    assert len(lines) == 4
    assert lines[1].split() == ["notes", "ready", "2026-07-28", "3", "-", "12", "-", "-"]
    assert "first line second xxx" in lines[2]
    assert lines[2].endswith("...")
    assert lines[3].endswith("NOTES_TOKEN is not set")


@pytest.mark.rule("GATE-40")
def test_problems_stand_below_the_table() -> None:
    assert problems_of(STATUS) == [
        "dead: it ended",
        "dead: tools 'add' is changed: withheld until it is accepted",
        "bad: NOTES_TOKEN is not set",
    ]
    assert problems_of({"problem": "it lists nothing"}) == ["it lists nothing"]


@pytest.mark.rule("GATE-41")
def test_terminal_shows_the_servers_when_they_are_ready() -> None:
    ours, theirs = pty.openpty()
    with ServerProcess(
        command("gateway", "--demo"), environment(), stderr=(theirs, None)
    ) as process:
        shown = b""
        while b"demo    ready" not in shown:
            assert select.select([ours], [], [], PATIENCE)[0], shown
            shown += os.read(ours, 65_536)
        assert b"SERVER" in shown
        process.close_input()
        assert process.wait() == 0
    os.close(ours)
