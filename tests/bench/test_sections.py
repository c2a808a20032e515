"""Every section of the bench runs to its end."""

from __future__ import annotations

import re
import shutil

import pytest

from bench.__main__ import main
from bench.report import moved
from tests.lab.places.services import need_postgres, need_ps

TABLES = {
    "calls": [
        "in process",
        "hot functions",
        "stdio, one call",
        "stdio, 8 calls",
        "resident memory",
        "cold start",
    ],
    "flat": ["stdio, one call", "moved by more than 15 %"],
    "http": ["HTTP, 2 connections", "open subscriptions"],
    "client": ["stdio, ", "http, ", "importing"],
    "tasks": [f"task server, {place}" for place in ("SQLite", "PostgreSQL")],
    "gateway": ["through the gateway, 2 in flight", "tools/list of 1,000", "four servers"],
    "host": ["chat, a message to", "chat, 3 streaming", "chat, one that is idle", "chat, start"],
    "aacp": ["AACP, one request", "AACP, 500 clients", "AACP, idle agents", "AACP, simulator"],
}


@pytest.mark.parametrize("section", TABLES)
def test_a_section_prints_its_tables(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    need_ps()
    if section == "tasks":
        need_postgres()
    status = main(["--shortest", section])
    printed = capsys.readouterr().out
    assert status in (0, 1)  # 1 says that this machine is busy
    for table in TABLES[section]:
        assert f"\n{table}" in printed


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_call_is_as_short_beside_many_tools_or_calls_and_after_many(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--shortest", "instructions"]) == 0
    printed = capsys.readouterr().out
    to_inline = re.findall(
        r"inline, .*(?:tools|in flight|calls) +[\d.]+ +[\d.]+ +([\d.]+)\n", printed
    )
    assert len(to_inline) == 3
    assert max(map(float, to_inline)) < 1.1
    assert re.search(r"\n  inline, no coroutines +[1-9]", printed)


def test_what_has_moved_is_named_with_both_figures() -> None:
    saved = {"calls": {"a": 1.0, "b": 2.0, "c": 3.0}, "instructions": {"a": 100.0, "b": 100.0}}
    found = {
        "calls": {"a": 1.14, "b": 1.6, "new": 9.0},
        "instructions": {"a": 102.9, "b": 104.0},
    }
    faster, longer = moved(saved, found)
    assert faster.split() == ["calls:", "b", "2.000", "1.600", "-20%"]
    assert longer.split() == ["instructions:", "b", "100.000", "104.000", "+4%"]


def test_an_unknown_section_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shortest", "cals"]) == 2
    assert "cals" in capsys.readouterr().out
