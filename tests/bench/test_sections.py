"""Every section of the bench runs to its end."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from tests.support.services import need_postgres

TABLES = {
    "calls": [
        "in process",
        "hot functions",
        "stdio, one call",
        "stdio, 8 calls",
        "resident memory",
        "cold start",
    ],
    "http": ["HTTP, 2 connections", "open subscriptions"],
    "client": ["stdio, ", "http, ", "importing"],
    "tasks": [f"task server, {place}" for place in ("SQLite", "PostgreSQL")],
    "gateway": ["through the gateway, 2 in flight", "tools/list of 1,000", "four servers"],
    "host": ["chat, a message to", "chat, 3 streaming", "chat, one that is idle", "chat, start"],
    "aacp": ["AACP, one request", "AACP, 500 clients", "AACP, idle agents", "AACP, simulator"],
}


@pytest.mark.parametrize("section", TABLES)
def test_a_section_prints_its_tables(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    if section == "tasks":
        need_postgres()
    status = main(["--shortest", section])
    printed = capsys.readouterr().out
    assert status in (0, 1)  # 1 says that this machine is busy
    for table in TABLES[section]:
        assert f"\n{table}" in printed


def test_an_unknown_section_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shortest", "cals"]) == 2
    assert "cals" in capsys.readouterr().out
