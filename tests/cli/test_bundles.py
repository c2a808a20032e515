"""A bundle of anybody, installed for a desktop client."""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.cli.bundles import archive, installing
from foundation_rt.cli.main import main
from foundation_rt.version import __version__
from tests.lab.programs.terminal import Terminal

GUIDE = Path(__file__).parents[2] / "spec/guide/packages.md"

PROGRAM = """
import os, sys

print(sys.argv[1:], os.environ.get("TOKEN"))
"""
USER_CONFIG = {
    "token": {"type": "string", "title": "Token", "sensitive": True, "required": True},
    "limit": {"type": "number", "default": 3, "min": 1, "max": 9},
    "loud": {"type": "boolean", "default": False},
    "folders": {"type": "directory", "multiple": True},
    "note": {"type": "string"},
}
CONFIG = {
    "command": "sh",
    "args": ["${__dirname}${/}main.py", "${user_config.folders}", "--note=${user_config.note}"],
    "env": {
        "TOKEN": "${user_config.token}",
        "LIMIT": "${user_config.limit}",
        "LOUD": "${user_config.loud}",
        "NOTE": "${user_config.note}",
        "AT": "${HOME}",
    },
    "platform_overrides": {"win32": {"command": "other"}},
}

Captured = pytest.CaptureFixture[str]


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "manifest_version": "0.3",
        "name": "Any body's",
        "version": "2.0.0",
        "author": {"name": "A"},
        "server": {"type": "python", "entry_point": "main.py", "mcp_config": CONFIG},
        "user_config": USER_CONFIG,
        "unknown": 1,
        **changes,
    }


def write(path: Path, files: Mapping[str, bytes | str] | None = None, **changes: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("manifest.json", orjson.dumps(manifest(**changes)))
        for name, content in (files or {"main.py": PROGRAM, "inner/a.txt": "a"}).items():
            bundle.writestr(name, content)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Change to an empty folder, and return the home directory."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MY_TOKEN", "hush")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    yield home


def unpacked(home: Path) -> list[str]:
    root = home / ".local/share/foundation-rt/bundles"
    return sorted(str(each.relative_to(root)) for each in root.rglob("*") if each.is_file())


def install(*words: str) -> int:
    return main(["install", "cursor", "--bundle", "x.mcpb", "--yes", *words])


def entry(home: Path) -> dict[str, Any]:
    [found] = orjson.loads((home / ".cursor/mcp.json").read_bytes())["mcpServers"].values()
    assert isinstance(found, dict)
    return found


TOKEN = ("--set-env", "token=MY_TOKEN")


@pytest.mark.rule("PKG-09", "PKG-11", "PKG-12")
def test_bundle_is_unpacked_and_started_with_its_values(home: Path, capsys: Captured) -> None:
    path = write(Path("x.mcpb"))
    digest = archive.Bundle.read(path).digest[:16]
    for name in ("one", "two"):
        Path(name).mkdir()
    folders = [str(Path(name).absolute()) for name in ("one", "two")]
    words = ["--set", "folders=one", "--set", f"folders={folders[1]}", "--set", "limit=9"]
    assert install(*TOKEN, *words) == 0
    out = capsys.readouterr().out
    assert "Any body's 2.0.0: 3 files" in out and "hush" not in out
    folder = f"Any-body-s/{digest}"
    assert unpacked(home) == [
        f"{folder}/{each}" for each in ("inner/a.txt", "main.py", "manifest.json")
    ]
    root = home / ".local/share/foundation-rt/bundles" / folder
    assert root.stat().st_mode & 0o777 == 0o700
    found = entry(home)
    assert found["args"] == [f"{root}/main.py", *folders]
    assert found["command"].endswith("/sh")
    assert found["env"] == {"TOKEN": "hush", "LIMIT": "9", "LOUD": "false", "AT": str(home)}
    (root / "main.py").write_text("changed by its owner")
    assert install(*TOKEN, *words) == 0
    assert "already" in capsys.readouterr().out
    assert (root / "main.py").read_text() == "changed by its owner"


@pytest.mark.rule("PKG-01", "PKG-09")
def test_commands_of_the_guide_run_as_they_are_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    guide = GUIDE.read_text()
    [program] = re.findall("```python\n(.*?)```", guide, re.DOTALL)
    Path("tools.py").write_text(program)
    Path("requirements.txt").write_text(f"foundation-rt=={__version__}\n")
    Path("uv").write_text("")
    Path("uv").chmod(0o700)
    monkeypatch.setenv("PATH", str(Path.cwd()), prepend=os.pathsep)
    for name, value in re.findall(r"^export (\w+)=(.+)$", guide, re.MULTILINE):
        monkeypatch.setenv(name, value)
    commands = re.findall("^foundation-rt (.*)$", guide, re.MULTILINE)
    for command in (commands[0], f"{commands[-1]} --yes"):
        assert main(shlex.split(command)) == 0
    assert entry(home)["env"] == {"WEATHER_KEY": "...", "WEATHER_UNITS": "imperial"}


@pytest.mark.rule("PKG-09", "PKG-11")
def test_program_of_a_bundle_runs_from_its_folder(home: Path, capsys: Captured) -> None:
    server = {"mcp_config": {**CONFIG, "command": "${__dirname}/bin/run"}}
    path = write(Path("x.mcpb"), {"bin/": "", "bin/run": PROGRAM, "main.py": ""}, server=server)
    root = home / ".local/share/foundation-rt/bundles/Any-body-s"
    root.mkdir(parents=True)
    folder = root / archive.Bundle.read(path).digest[:16]
    folder.write_text("in its place")
    assert install(*TOKEN) in (1, 2)
    assert f"{folder} cannot be made" in capsys.readouterr().err
    folder.unlink()
    root.rmdir()
    root.write_text("in the place of all")
    assert install(*TOKEN) in (1, 2)
    assert f"{folder} cannot be written" in capsys.readouterr().err
    assert not (home / ".cursor/mcp.json").exists()
    root.unlink()
    assert install(*TOKEN) == 0
    assert entry(home)["command"] == f"{folder}/bin/run"
    assert (folder / "bin/run").read_text() == PROGRAM


@pytest.mark.rule("PKG-09", "CLI-71")
def test_nothing_is_unpacked_before_a_person_agreed(home: Path, capsys: Captured) -> None:
    write(Path("x.mcpb"))
    assert main(["install", "cursor", "--bundle", "x.mcpb", *TOKEN]) == 1
    assert not (home / ".local").exists() and not (home / ".cursor").exists()


@pytest.mark.rule("PKG-12", "PKG-16", "CLI-23")
def test_question_shows_what_the_author_wrote(home: Path, capsys: Captured) -> None:
    env = {**CONFIG["env"], "LD_PRELOAD": "${user_config.lib}", "PATH": "/evil"}
    options = {
        **USER_CONFIG,
        "lib": {"type": "string", "default": "evil.so"},
        "note": {"type": "string", "default": ""},
    }
    server = {"mcp_config": {**CONFIG, "env": env}}
    write(Path("x.mcpb"), server=server, user_config=options)
    assert install(*TOKEN, "--set", "limit=4", "--env", "PATH=mine") == 0
    out = capsys.readouterr().out
    for name, shown in {"LD_PRELOAD": "evil.so", "AT": str(home), "LOUD": "false"}.items():
        assert f'"{name}": "{shown}"' in out
    assert all(f'"{name}": "..."' in out for name in ("TOKEN", "LIMIT", "PATH"))
    assert "NOTE" not in entry(home)["env"]


@pytest.mark.rule("PKG-12", "PKG-15")
def test_values_are_checked_and_secrets_stay_off_the_command_line(
    home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Path("x.mcpb"))
    for words, said in {
        (): "needs token: --set-env token=VARIABLE",
        ("--set", "token=hush"): "token is a secret",
        ("--set", "hush"): "--set is NAME=VALUE",
        ("--set-env", "token=NO_SUCH"): "there is no such variable",
        (*TOKEN, "--set", "limt=1"): "did you mean limit?",
        (*TOKEN, "--set", "limit=10"): "limit takes a number from 1 to 9",
        (*TOKEN, "--set", "limit=nan"): "limit takes a number",
        (*TOKEN, "--set", "limit=x"): "limit takes a number",
        (*TOKEN, "--set", "limit=1", "--set", "limit=2"): "limit takes one value",
        (*TOKEN, "--set", "loud=yes"): "loud takes true or false",
        (*TOKEN, "--set", "folders=none"): "folders takes a directory that is there",
        (*TOKEN, "--header", "A: b"): "--header goes with a URL",
        (*TOKEN, "tools.py"): "or a bundle with --bundle",
    }.items():
        assert install(*words) == 2
        err = " ".join(capsys.readouterr().err.split())
        assert said in err and "hush" not in err
    asked = []

    def answer(question: str, *, hidden: bool) -> str:
        asked.append((question, hidden))
        return "typed"

    monkeypatch.setattr(installing, "ask_value", answer)
    assert install() == 0
    assert asked == [("token (Token): ", True)]
    assert entry(home)["env"]["TOKEN"] == "typed"


@pytest.mark.rule("PKG-15")
@pytest.mark.parametrize("sensitive", [True, False])
def test_input_that_ends_at_the_question_for_a_value_is_no_answer(
    home: Path, sensitive: bool
) -> None:
    asked = {"type": "string", "title": "Token", "sensitive": sensitive, "required": True}
    write(Path("x.mcpb"), user_config={**USER_CONFIG, "token": asked})
    with Terminal("install", "cursor", "--bundle", "x.mcpb", cwd=Path.cwd()) as terminal:
        terminal.wait_for("token (Token): ")
        terminal.type("\x04")
        assert terminal.exit_code() == 2
        form = "--set-env token=VARIABLE" if sensitive else "--set token=VALUE"
        assert f"the bundle needs token: {form}" in " ".join(terminal.text.split())
        assert "Traceback" not in terminal.text


@pytest.mark.rule("PKG-11")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": 3}, "/name must be string"),
        ({"server": {}}, "mcp_config"),
        ({"server": {"mcp_config": {"command": "sh", "args": "x"}}}, "/args must be array"),
        ({"server": {"mcp_config": {"command": "sh", "args": ["${x}"]}}}, "${x} in its manifest"),
        (
            {"server": {"mcp_config": {"command": "sh", "args": ["${user_config.x}"]}}},
            "no user_config 'x'",
        ),
        ({"server": {"mcp_config": {"command": "no-such-program"}}}, "not on the PATH"),
        ({"user_config": {"token": {"type": "x"}}}, "/user_config/token/type"),
        (
            {"user_config": {**USER_CONFIG, "x": {"type": "string", "default": "${x}"}}},
            "${x} in its manifest",
        ),
        ({"name": "x" * (2 << 20)}, "manifest.json is larger"),
    ],
)
def test_bad_manifest_is_refused(
    home: Path, changes: dict[str, Any], said: str, capsys: Captured
) -> None:
    write(Path("x.mcpb"), **changes)
    assert install(*TOKEN) in (1, 2)
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (home / ".local").exists() and not (home / ".cursor").exists()


def link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.rule("PKG-10")
@pytest.mark.parametrize(
    "name",
    [
        *("../x", "a/../../x", "/etc/x", "C:/x", "a\\..\\..\\x", "a//b", "./a", "a/nul.txt"),
        *("x:stream", "a\x00b"),
    ],
)
def test_path_that_leads_elsewhere_is_refused(home: Path, name: str, capsys: Captured) -> None:
    path = write(Path("x.mcpb"), {"0" * len(name): "x"})
    path.write_bytes(path.read_bytes().replace(b"0" * len(name), name.encode()))
    assert install(*TOKEN) == 1
    assert "is no bundle" in capsys.readouterr().err
    assert not (home / ".local").exists()


@pytest.mark.rule("PKG-10", "PKG-18")
def test_hostile_archives_write_nothing(
    home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("x.mcpb")

    def said() -> str:
        assert install(*TOKEN) == 1
        assert not (home / ".cursor").exists()
        assert unpacked(home) == []
        return capsys.readouterr().err

    path.write_bytes(b"no zip")
    assert "is no bundle" in said()
    path.unlink()
    assert "cannot be read" in said()
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr("a", "a")
    assert "it has no manifest.json" in said()
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr("manifest.json", "{")
    assert "its manifest.json is not valid JSON" in said()
    with zipfile.ZipFile(write(path), "a") as bundle:
        bundle.writestr(link("etc"), "/etc")
    assert "'etc' in it is a link" in said()
    write(path, {"a.txt": "1", "A.TXT": "2"})
    assert "twice" in said()
    write(path, {"A": "1", "a/b/c": "2"})
    assert "'a' in it is a file and a folder" in said()
    for name in ("x" * 256, "\u00e9" * 128, "x/" * 600 + "x"):
        write(path, {name: "1"})
        assert "too long" in said()
    noise = os.urandom(1000)  # which no compression changes
    content = write(path, {"a.txt": noise}).read_bytes()
    path.write_bytes(content.replace(noise[500:510], bytes(10)))
    assert "cannot be unpacked" in said()
    monkeypatch.setattr(archive, "MAX_UNPACKED", 1 << 20)
    write(path, {"bomb": bytes(2 << 20)})
    assert "MiB together" in said()
    monkeypatch.setattr(archive, "MAX_ENTRIES", 2)
    write(path)
    assert "more than 2 files" in said()
    monkeypatch.setattr(archive, "MAX_ARCHIVE", 100)
    assert "larger than" in said()


@pytest.mark.rule("PKG-10")
def test_file_with_a_false_size_is_no_bomb(
    home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(Path("x.mcpb"), {"bomb": bytes(8 << 20)})
    size = (8 << 20).to_bytes(4, "little")
    content = path.read_bytes()
    assert content.count(size) == 2
    path.write_bytes(content.replace(size, (10).to_bytes(4, "little")))
    assert install(*TOKEN) == 1
    assert "cannot be unpacked" in capsys.readouterr().err
    assert unpacked(home) == []
