"""The command line of a TARGET on Windows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from foundation_rt.cli.targets import TargetError, find_target
from foundation_rt.client import StdioServer

pytestmark = [
    pytest.mark.skipif(sys.platform != "win32", reason="only on Windows"),
    pytest.mark.rule("WIN-51"),
]


def test_backslashes_are_a_part_of_their_words(tmp_path: Path) -> None:
    program = tmp_path / "tool.cmd"
    program.write_text("")
    found = find_target(rf'{tmp_path}\tool "a b" C:\x', [], {})
    assert isinstance(found, StdioServer)
    assert (found.command, found.args) == (str(program.with_suffix("")), ("a b", r"C:\x"))


def test_program_is_not_searched_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tool.exe").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=r"there is no program 'tool'"):
        find_target("tool x", [], {})
    with pytest.raises(TargetError, match=r"there is no program '\.\\nowhere\\tool'"):
        find_target(r".\nowhere\tool x", [], {})
