"""The command line of a TARGET on Windows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from foundation_rt.cli.server_loading import split_app
from foundation_rt.cli.targets import TargetError, app_file, find_target
from foundation_rt.client import StdioServer

pytestmark = pytest.mark.rule("WIN-51")
on_windows = pytest.mark.skipif(sys.platform != "win32", reason="only on Windows")


@pytest.mark.parametrize("name", [r"C:\my tools\app.py", "C:app.py", r"\\host\share\app.py"])
@pytest.mark.parametrize("attribute", [None, "server"])
def test_colon_of_a_drive_begins_no_attribute(name: str, attribute: str | None) -> None:
    target = name if attribute is None else f"{name}:{attribute}"
    assert app_file(target) == name
    assert split_app(target) == (name, attribute)


@on_windows
def test_backslashes_are_a_part_of_their_words(tmp_path: Path) -> None:
    program = tmp_path / "tool.cmd"
    program.write_text("")
    found = find_target(rf'{tmp_path}\tool "a b" C:\x', [], {})
    assert isinstance(found, StdioServer)
    assert (found.command, found.args) == (str(program.with_suffix("")), ("a b", r"C:\x"))


@on_windows
def test_program_is_not_searched_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tool.exe").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=r"there is no program 'tool'"):
        find_target("tool x", [], {})
    with pytest.raises(TargetError, match=r"there is no program '\.\\nowhere\\tool'"):
        find_target(r".\nowhere\tool x", [], {})
