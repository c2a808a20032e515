"""The counts of the project: a call stays as short as it is, and code is counted right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.counts import (
    CEILINGS,
    above,
    calls_of,
    frames_of,
    inline_call,
    kernel_lines,
    lines_of_code,
    loaded_files,
    report,
)
from tests.test_purity import entries, largest_circle


def test_call_of_an_inline_tool_has_few_frames_and_calls() -> None:
    seen = inline_call()
    before, after = calls_of(seen["events"])
    assert frames_of(seen["stack"]) <= 9
    assert 0 < before <= 36
    assert 0 < after <= 40
    assert sum(map(lines_of_code, loaded_files(seen))) <= 9_000


def test_newcomer_reads_little() -> None:
    # Windows takes the last 250: `kernel/stdio/windows*.py`, and what chooses them.
    assert kernel_lines() <= 5_620
    assert len(entries()) <= 15


def test_no_circle_of_imports_is_large() -> None:
    assert largest_circle() <= 8


def test_blanks_comments_and_docstrings_are_no_code(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text('"""A\nmodule."""\n\n# why\nX = (\n    1,  # one\n)\n"""What X is."""\n')
    assert lines_of_code(path) == 3


def test_report_has_a_row_for_each_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.counts.largest_circle", lambda: 1)  # reads two thousand files
    text = report({"package": (7, 70), "tests": (8, 80)})
    parts = (
        "kernel",
        "loaded",
        "package",
        "tests",
        "frames",
        "calls",
        "circle",
        "words",
        "entries",
    )
    assert all(part in text for part in parts)


def test_what_is_above_its_ceiling_is_named() -> None:
    files, lines = CEILINGS["package"]
    assert not above({"package": (files, lines)})
    assert above({"package": (files, lines + 1)}) == [
        f"package: {lines + 1:,} lines, more than {lines:,}"
    ]
