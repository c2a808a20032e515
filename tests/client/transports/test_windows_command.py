"""Command lines of Windows: how programs are found, and what batch files are given."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client import StdioServer, targets
from foundation_rt.client.transports.windows_command import (
    PERCENT,
    batch_line,
    command_line,
    find_program,
)

ENV = {"PATH": r'C:\node;relative;"C:\with space";\no\drive;C:\py', "PATHEXT": ".COM;.EXE;.CMD;.JS"}

ATTACKS = [
    *("plain", "", "a b", "tab\there", "é", "*", "?", "^", "a^&b", "!x!", "(a)", "@echo"),
    *("a=b", "a,b", "a;b", "-y", "@scope/name@1.0", r"C:\folder\file", "C:\\folder\\", "a\\\\"),
    *("&calc", "|more", "<in", ">out", "a&b&&c||d", "`x`", "$x", "'x'", "~", "#"),
    *('"', '""', 'a"b', 'a\\"b', 'a\\\\"b', '"&calc', '"&calc&"', '" & echo pwned & rem "'),
    *('"""&calc', '\\"&calc', '^"&calc', 'a" "b', '"|', ' "', '" ', '\\" \\'),
]
PERCENTS = ["%", "%%", "100%", "%PATH%", "%cd:~,%", '"%PATH%"', "%~dp0", "%1", "%^&calc"]


WORDS = st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"), max_size=20)


def is_there(*files: str):  # type: ignore[no-untyped-def]
    """Return the `is_file` of a disk without regard to case."""
    known = {each.lower() for each in files}
    return lambda path: path.lower() in known


@pytest.mark.rule("WIN-32")
@pytest.mark.parametrize(
    ("command", "files", "found"),
    [
        ("npx", [r"C:\node\npx", r"C:\node\npx.cmd"], r"C:\node\npx.cmd"),
        ("npx", [r"C:\node\npx.cmd", r"C:\node\npx.exe"], r"C:\node\npx.exe"),
        ("npx", [r"C:\py\npx.exe", r"C:\node\npx.ps1"], r"C:\node\npx.ps1"),
        ("npx.cmd", [r"C:\node\npx.cmd"], r"C:\node\npx.cmd"),
        ("uvx", [r"C:\with space\uvx.exe"], r"C:\with space\uvx.exe"),
        ("node.js", [r"C:\node\node.js", r"C:\node\node.js.exe"], r"C:\node\node.js.exe"),
        ("tool", [r"C:\node\tool", r"C:\node\tool.js"], None),
        ("tool", [r"C:\work\tool.cmd", r"C:\work\relative\tool.exe"], None),
        ("tool", [r"\no\drive\tool.exe"], None),
        (r".\tool", [r"C:\work\tool.cmd", r"C:\node\tool.exe"], r"C:\work\tool.cmd"),
        ("bin/tool", [r"C:\work\bin\tool.exe"], r"C:\work\bin\tool.exe"),
        (r"D:\bin\tool", [r"D:\bin\tool"], r"D:\bin\tool"),
        (r"\\host\share\tool.exe", [r"\\host\share\tool.exe"], r"\\host\share\tool.exe"),
        (r"C:\node\npx.cmd. .", [r"C:\node\npx.cmd"], r"C:\node\npx.cmd"),
        ("C:\\node\\npx.cmd .\\", [r"C:\node\npx.cmd"], r"C:\node\npx.cmd"),
    ],
)
def test_program_is_found_as_shells_find_it(
    command: str, files: list[str], found: str | None
) -> None:
    assert find_program(command, ENV, "C:\\work", is_there(*files)) == found
    without = {"PATH": ENV["PATH"]}  # PATHEXT is as usual
    assert find_program(command, without, "C:\\work", is_there(*files)) == found


@pytest.mark.rule("WIN-32", "WIN-36")
def test_program_is_started_by_what_runs_it() -> None:
    disk = is_there(r"C:\node\a.exe", r"C:\node\b.ps1", r"C:\node\c.cmd")
    env = {**ENV, "SYSTEMROOT": r"C:\Win"}
    assert command_line(["a", "x y"], env, "C:\\", disk) == [r"C:\node\a.exe", "x y"]
    for name in "c", r"C:\node\c.cmd.", r"C:\node\c.cmd ", ".\\node\\c.CMD .\\":
        line = command_line([name, "x y"], env, "C:\\", disk)
        assert isinstance(line, str)
        assert line.lower() == r'"c:\node\c.cmd" "x y"'
    shell, *options = command_line(["b", "x"], env, "C:\\", disk)
    assert shell == r"C:\Win\System32\WindowsPowerShell\v1.0\powershell.exe"
    assert options[-3:] == ["-File", r"C:\node\b.ps1", "x"]
    with pytest.raises(FileNotFoundError):
        command_line(["d"], env, "C:\\", disk)


def split(line: str) -> list[str]:
    """Split a line as a program of Windows does, after cmd.exe has filled in the percent signs."""
    line = line.replace("%FOUNDATION_RT_PERCENT%", "%")
    words: list[str] = []
    word, quoted, begun, position = "", False, False, 0
    while position < len(line):
        backslashes = len(line[position:]) - len(line[position:].lstrip("\\"))
        position += backslashes
        if line[position : position + 1] != '"':
            word += "\\" * backslashes
            begun |= backslashes > 0
            if position < len(line):
                if line[position] in " \t" and not quoted:
                    words += [word] * begun
                    word, begun = "", False
                else:
                    word, begun = word + line[position], True
                position += 1
            continue
        word, begun = word + "\\" * (backslashes // 2), True
        if backslashes % 2:
            word += '"'
        elif quoted and line[position + 1 : position + 2] == '"':
            word, position = word + '"', position + 1
        else:
            quoted = not quoted
        position += 1
    return [*words, word] if begun else words


def operators(line: str) -> str:
    """Return the characters that cmd.exe sees outside of quotes and does not take as they are."""
    parts = line.split('"')
    return "".join(each for part in parts[::2] for each in part if each in "&|<>^()%!,;=\t")


@pytest.mark.rule("WIN-33")
@given(st.lists(st.sampled_from([*ATTACKS, *PERCENTS]) | WORDS))
def test_arguments_of_a_batch_file_are_quoted(args: list[str]) -> None:
    line = batch_line(r"C:\100% sure\a&b.cmd", args)
    assert split(line) == [r"C:\100% sure\a&b.cmd", *args]
    assert operators(line) == ""
    assert line.count('"') % 2 == 0
    assert "%" not in line.replace("%FOUNDATION_RT_PERCENT%", "")


@pytest.mark.rule("WIN-33")
@pytest.mark.parametrize("argument", ["a\nb", "\r", "x\r\n&calc", "a\0b", "x" * 8_001])
def test_what_a_batch_file_cannot_be_given_is_refused(argument: str) -> None:
    with pytest.raises(OSError, match="batch file") as caught:
        batch_line(r"C:\a.cmd", [argument])
    assert caught.value.errno == errno.EINVAL


@pytest.mark.skipif(sys.platform != "win32", reason="needs cmd.exe")
@pytest.mark.rule("WIN-33")
def test_cmd_gives_a_program_every_attack_as_it_is(tmp_path: Path) -> None:
    """All but percent signs: the cmd.exe of Wine fills in variables once more, in the file."""
    folder = tmp_path / "a b & c"
    folder.mkdir()
    (folder / "show.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    batch = folder / "show.cmd"
    batch.write_text(f'@"{sys.executable}" "%~dp0show.py" %*\n')
    for attack in ATTACKS:
        shown = subprocess.run(
            batch_line(str(batch), [attack, "end"]),
            shell=True,
            env={**os.environ, **PERCENT},
            stdout=subprocess.PIPE,
            check=True,
        )
        assert json.loads(shown.stdout) == [attack, "end"]


# -- descriptions of servers


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(targets, "_is_windows", True)
    return monkeypatch


@pytest.mark.rule("WIN-34")
def test_environment_has_what_programs_of_windows_need(on_windows: pytest.MonkeyPatch) -> None:
    needed = ("SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "TEMP", "TMP", "PATHEXT")
    for name in (*needed, "COMSPEC"):
        on_windows.setenv(name, name.lower())
    on_windows.setenv("MY_SECRET", "secret")
    found = StdioServer("npx", env={"Path": "x", "key": "y"}).environment()
    assert {name: found[name] for name in needed} == {name: name.lower() for name in needed}
    assert (found["PATH"], found["KEY"]) == ("x", "y")
    assert not {"Path", "key", "MY_SECRET"} & found.keys()


@pytest.mark.rule("WIN-35")
def test_backslash_is_a_part_of_its_word(on_windows: pytest.MonkeyPatch) -> None:
    server = StdioServer.from_command_line(r'"C:\Program Files\x.exe" C:\new\file \\host\share')
    assert server.command == r"C:\Program Files\x.exe"
    assert [*server.args] == [r"C:\new\file", r"\\host\share"]
    assert server.description == r"x.exe C:\new\file"
