"""A server in the file of a desktop client."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.base.mcp_json import ServerFile
from foundation_rt.cli.client_entries import ClientFile, desktop_clients
from foundation_rt.cli.main import main
from foundation_rt.client.connecting import connect
from foundation_rt.client.targets import server_of
from foundation_rt.errors import UsageError

APP = """
import os
import sys

from foundation_rt import Server

server = Server("My weather", version="1.0.0")


@server.tool
def variables() -> list[str]:
    return [os.environ.get("KEY", ""), *sys.argv[1:]]
"""

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a home directory, change to a project with an APP, and return the former."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (project / "tools.py").write_text(APP)
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    return home


FILES = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "gemini-cli": ".gemini/settings.json",
    "codex": ".codex/config.toml",
}
PROJECT_FILES = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "gemini-cli": ".gemini/settings.json",
    "codex": ".codex/config.toml",
}
MEMBERS = {"vscode": "servers", "codex": "mcp_servers"}


def entries(client: str, path: Path) -> dict[str, Any]:
    text = path.read_text()
    content: Any = tomllib.loads(text) if path.suffix == ".toml" else orjson.loads(text)
    listed: dict[str, Any] = content[MEMBERS.get(client, "mcpServers")]
    return listed


@pytest.mark.rule("CLI-70", "CLI-72")
@pytest.mark.parametrize("client", FILES)
def test_an_app_is_written_with_absolute_paths(home: Path, client: str, capsys: Captured) -> None:
    assert main(["install", client, "tools.py", "--yes", "--", "--db", "x"]) == 0
    out = capsys.readouterr().out
    path = home / FILES[client]
    assert "+" in out and str(path) in out
    program = str(Path("tools.py").absolute())
    entry = entries(client, path)["My-weather"]
    assert entry.pop("type", "stdio") == "stdio"
    args = ["-P", "-m", "foundation_rt", "serve", program, "--", "--db", "x"]
    assert entry == {"command": sys.executable, "args": args}
    assert path.stat().st_mode & 0o777 == 0o600
    assert main(["uninstall", client, "My-weather", "--yes"]) == 0
    assert "My-weather" not in path.read_text()


@pytest.mark.rule("CLI-70")
@pytest.mark.parametrize("client", PROJECT_FILES)
def test_the_file_of_a_project(home: Path, client: str) -> None:
    assert main(["install", client, "tools.py", "--project", "--name", "w", "--yes"]) == 0
    assert list(entries(client, Path(PROJECT_FILES[client]))) == ["w"]


@pytest.mark.rule("CLI-72")
async def test_an_entry_starts_the_server_from_another_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["install", "cursor", "tools:server", "--env", "KEY=k", "--yes", "--", "a"]
    assert main(words) == 0
    monkeypatch.chdir(home)
    server = server_of(ServerFile.read(home / FILES["cursor"]).entry("My-weather", os.environ))
    async with connect(server) as client:
        result = await client.call("variables", {})
    assert result.value() == ["k", "a"]


@pytest.mark.rule("CLI-15", "CLI-72")
def test_urls_and_files_of_servers(home: Path) -> None:
    url = "https://example.com/mcp"
    assert main(["install", "claude-desktop", url, "--yes"]) == 0
    assert main(["install", "vscode", url, "--header", "X-Key: k", "--yes"]) == 0
    for client, member in (("windsurf", "serverUrl"), ("gemini-cli", "httpUrl")):
        assert main(["install", client, url, "--yes"]) == 0
        assert entries(client, home / FILES[client]) == {"example-com": {member: url}}
        assert ServerFile.read(home / FILES[client]).entry("example-com", {}).url == url
    Path("mcp.json").write_text('{"mcpServers": {"a": {"url": "http://localhost:1/mcp"}}}')
    assert main(["install", "codex", "mcp.json", "--name", "all", "--yes"]) == 0
    bridge = {"command": sys.executable, "args": ["-P", "-m", "foundation_rt", "gateway", url]}
    desktop = entries("claude-desktop", home / FILES["claude-desktop"])
    assert desktop == {"example-com": bridge}
    vscode = entries("vscode", home / FILES["vscode"])
    assert vscode["example-com"] == {"type": "http", "url": url, "headers": {"X-Key": "k"}}
    codex = entries("codex", home / FILES["codex"])
    assert codex["all"]["args"][-2:] == ["gateway", str(Path("mcp.json").absolute())]


@pytest.mark.rule("CLI-72")
def test_command_is_written_with_the_path_of_its_program(home: Path) -> None:
    assert main(["install", "cursor", "sh tools.sh", "--yes"]) == 0
    found = entries("cursor", home / FILES["cursor"])
    assert found == {"sh": {"command": shutil.which("sh"), "args": ["tools.sh"]}}


@pytest.mark.rule("CLI-72")
def test_a_path_through_a_folder_above_has_no_dots(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("inner").mkdir()
    source = str(Path("tools.py").absolute())
    monkeypatch.chdir("inner")
    assert main(["install", "cursor", "../tools.py", "--yes"]) == 0
    assert entries("cursor", home / FILES["cursor"])["My-weather"]["args"][-1] == source


@pytest.mark.rule("CLI-23", "CLI-70")
@pytest.mark.parametrize("client", ["cursor", "claude-desktop"])
def test_secrets_of_a_url_are_written_and_not_shown(
    home: Path, client: str, capsys: Captured
) -> None:
    url = "https://me:hush-a@example.com:8443/mcp/?token=hush-b"
    assert main(["install", client, url, "--yes"]) == 0
    written = entries(client, home / FILES[client])["example-com"]
    assert url in (written.get("url"), written.get("args", [""])[-1])
    assert main(["install", client, url.replace("hush-b", "hush-c"), "--yes"]) == 0
    assert main(["uninstall", client, "example-com", "--yes"]) == 0
    out, err = capsys.readouterr()
    assert "https://...@example.com:8443/mcp/?..." in out
    assert "example-com: values that are not shown change" in out
    assert "hush" not in out + err


@pytest.mark.rule("CLI-71")
def test_nothing_is_written_without_consent(home: Path, capsys: Captured) -> None:
    assert main(["install", "cursor", "tools.py", "--env", "KEY=hush-hush"]) == 1
    out, err = capsys.readouterr()
    assert '"My-weather"' in out
    assert "hush-hush" not in out + err
    assert "--yes" in err
    assert not (home / ".cursor").exists()


@pytest.mark.rule("CLI-70", "CLI-71", "CLI-23")
def test_other_entries_comments_and_the_mode_stay(home: Path, capsys: Captured) -> None:
    path = home / FILES["cursor"]
    path.parent.mkdir()
    text = (
        '{\n  // mine\n  "mcpServers": {\n    "a": {"command": "a", "env": {"T": "hush"}}\n  }\n}\n'
    )
    path.write_text(text)
    path.chmod(0o640)
    assert main(["install", "cursor", "tools.py", "--name", "b", "--yes"]) == 0
    assert main(["install", "cursor", "tools.py", "--name", "b"]) == 0  # nothing to write
    assert "already" in capsys.readouterr().out
    assert main(["uninstall", "cursor", "b", "--yes"]) == 0
    assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o640
    assert main(["uninstall", "cursor", "a"]) == 1
    assert "hush" not in "".join(capsys.readouterr())


@pytest.mark.rule("CLI-71")
@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_a_file_that_is_not_valid_is_left_alone(home: Path, client: str, capsys: Captured) -> None:
    path = home / FILES[client]
    path.parent.mkdir()
    path.write_text("{broken = ")
    assert main(["install", client, "tools.py", "--yes"]) == 1
    assert "not valid" in capsys.readouterr().err
    assert path.read_text() == "{broken = "


@pytest.mark.rule("CLI-71")
def test_a_file_that_changes_while_a_person_reads_is_left_alone(home: Path) -> None:
    path = home / FILES["cursor"]
    path.parent.mkdir()
    path.write_text("{}")
    file = ClientFile.read(desktop_clients({}, home)["cursor"], path)
    path.write_text('{"mcpServers": {}}')
    with pytest.raises(UsageError, match="changed meanwhile"):
        file.write("{}")
    assert path.read_text() == '{"mcpServers": {}}'


@pytest.mark.rule("CLI-70", "CLI-71")
@pytest.mark.parametrize("target", ["../dotfiles/mcp.json", "../elsewhere/none.json"])
def test_a_link_stays_a_link(home: Path, target: str) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles/mcp.json").write_text('{"theme": 1}')
    (home / "dotfiles/mcp.json").chmod(0o600)
    path = home / FILES["cursor"]
    path.parent.mkdir()
    path.symlink_to(target)
    assert main(["install", "cursor", "tools.py", "--yes"]) == 0
    assert path.is_symlink() and path.readlink() == Path(target)
    assert list(entries("cursor", path)) == ["My-weather"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.rule("CLI-71")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.symlink_to(path), "cannot be followed"),
        (lambda path: path.mkdir(), "is not a file"),
        (os.mkfifo, "is not a file"),
        (lambda path: path.write_bytes(b'{"a": "\xe9"}'), "no text in UTF-8"),
        (lambda path: path.write_text("[]"), "should hold a JSON object"),
        (lambda path: path.write_text('{"mcpServers": []}'), "should list servers by name"),
    ],
)
def test_what_is_no_file_of_servers_is_refused(
    home: Path, make: Callable[[Path], object], message: str, capsys: Captured
) -> None:
    path = home / FILES["cursor"]
    path.parent.mkdir()
    make(path)
    assert main(["install", "cursor", "tools.py", "--yes"]) == 1
    assert message in capsys.readouterr().err
    assert [each.name for each in path.parent.iterdir()] == ["mcp.json"]
    assert main(["install"]) == 0
    assert message in capsys.readouterr().out


@pytest.mark.rule("CLI-71")
def test_of_processes_that_write_at_once_none_undoes_another(home: Path) -> None:
    path = home / FILES["cursor"]
    client = desktop_clients({}, home)["cursor"]
    barrier, written = threading.Barrier(8), []

    def write(name: str) -> None:
        file = ClientFile.read(client, path)
        barrier.wait()
        try:
            file.write(file.with_entry(name, {"command": name}))
        except UsageError:
            return
        written.append(name)

    threads = [threading.Thread(target=write, args=(f"s{each}",)) for each in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(entries("cursor", path)) == written and len(written) == 1


@pytest.mark.rule("CLI-70")
def test_marks_line_ends_and_blank_lines_stay(home: Path) -> None:
    path = home / FILES["vscode"]
    path.parent.mkdir(parents=True)
    before = b'\xef\xbb\xbf{\r\n\t/* mine */ "servers": {\r\n\t},\r\n}\r\n'
    path.write_bytes(before)
    assert main(["install", "vscode", "http://a/b", "--yes"]) == 0
    assert b'\r\n\t\t"a": {\r\n\t\t\t"type": "http",\r\n' in path.read_bytes()
    assert main(["uninstall", "vscode", "a", "--yes"]) == 0
    assert path.read_bytes() == before
    codex = home / FILES["codex"]
    codex.parent.mkdir()
    codex.write_text('# mine\n[mcp_servers.x]\ncommand = "x" # x\n\n[tools]\nweb = true\n')
    assert main(["install", "codex", "http://a/b", "--yes"]) == 0
    assert codex.read_text() == (
        '# mine\n[mcp_servers.x]\ncommand = "x" # x\n\n[mcp_servers.a]\nurl = "http://a/b"\n\n'
        "[tools]\nweb = true\n"
    )
    codex.write_text('mcp_servers = { x = { command = "x" } }\n')
    assert main(["install", "codex", "http://a/b", "--yes"]) == 0
    assert entries("codex", codex) == {"x": {"command": "x"}, "a": {"url": "http://a/b"}}


@pytest.mark.rule("CLI-70", "CLI-72")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["install", "emacs", "tools.py"], 2, "claude-desktop, claude-code"),
        (["install", "cursor"], 2, "TARGET"),
        (["install", "claude-code", "tools.py"], 2, "--project"),
        (["install", "claude-desktop", "tools.py", "--project"], 2, "--project"),
        (["install", "cursor", "none.py"], 1, "there is no file none.py"),
        (["install", "cursor", "tools.py", "--name", "a b"], 2, "a-b"),
        (["install", "cursor", "tools.py", "--env", "NOT_SET"], 2, "--env NAME: there is no such"),
        (["install", "cursor", "tools.py", "--header", "A: b"], 2, "URL"),
        (["install", "claude-desktop", "http://a/b", "--header", "A: b"], 1, "bridge"),
        (
            ["install", "cursor", "http://a/b", "--env", "A=b"],
            2,
            "--env goes with a server",
        ),
        (["install", "cursor", "empty.json"], 1, "empty.json lists no servers"),
        (["install", "cursor", "there"], 1, "it has a working directory, which entries"),
        (["uninstall", "cursor", "none"], 1, "does not list 'none'"),
        (["uninstall", "cursor"], 2, "CLIENT"),
    ],
)
def test_what_is_wrong_is_said(
    home: Path, words: list[str], code: int, message: str, capsys: Captured
) -> None:
    Path("empty.json").write_text('{"mcpServers": {}}')
    listed = home / FILES["claude-desktop"]
    listed.parent.mkdir(parents=True)
    listed.write_text('{"mcpServers": {"there": {"command": "sh", "cwd": "/"}}}')
    assert main(words) == code
    assert message in capsys.readouterr().err


@pytest.mark.rule("CLI-73")
def test_clients_and_their_files_are_listed(home: Path, capsys: Captured) -> None:
    assert main(["install", "cursor", "tools.py", "--yes"]) == 0
    capsys.readouterr()
    assert main(["install"]) == 0
    out = capsys.readouterr().out
    assert all(client in out for client in {*FILES, *PROJECT_FILES})
    assert "My-weather" in out


def test_help_of_both_commands(capsys: Captured) -> None:
    for command in ("install", "uninstall"):
        assert main([command, "--help"]) == 0
        assert f"usage: foundation-rt {command}" in capsys.readouterr().out


@pytest.mark.rule("CLI-71", "CLI-81")
def test_file_as_it_was_is_kept_beside(home: Path, capsys: Captured) -> None:
    path = home / FILES["cursor"]
    backup = path.with_name("mcp.json.bak")
    assert main(["install", "cursor", "http://a/b", "--yes"]) == 0
    assert not backup.exists()
    path.chmod(0o640)
    for before in (
        path.read_bytes(),
        b'\xef\xbb\xbf{"mcpServers": {"x": {"url": "http://x"}}} // y\n',
    ):
        path.write_bytes(before)
        capsys.readouterr()
        assert main(["install", "cursor", "http://c/d", "--yes"]) == 0
        assert str(backup) in capsys.readouterr().out
        assert backup.read_bytes() == before and backup.stat().st_mode & 0o777 == 0o640


@pytest.mark.rule("CLI-70", "CLI-82")
@pytest.mark.parametrize("there", ["5", "null", '"hush"', "[1]", "true", '{"env": 5}'])
def test_what_stands_in_place_of_an_entry_is_replaced(
    home: Path, there: str, capsys: Captured
) -> None:
    path = home / FILES["cursor"]
    path.parent.mkdir()
    path.write_text(f'{{"mcpServers": {{"n": {there}}}}}')
    assert main(["install", "cursor", "http://a/b", "--name", "n", "--yes"]) == 0
    assert entries("cursor", path) == {"n": {"url": "http://a/b"}}
    path.write_text(f'{{"mcpServers": {{"n": {there}}}}}')
    assert main(["uninstall", "cursor", "n", "--yes"]) == 0
    assert entries("cursor", path) == {}
    assert "hush" not in capsys.readouterr().out
