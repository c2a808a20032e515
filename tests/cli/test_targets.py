"""The TARGET of a command line, among its possible meanings."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import orjson
import pytest

from foundation_rt.base.mcp_json import ServerFileError, usual_places
from foundation_rt.cli.targets import AppTarget, Target, TargetError, find_listed, find_target
from foundation_rt.client.targets import HttpServer, StdioServer
from foundation_rt.errors import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def find(text: str) -> Target:
    home = Path("home")
    return find_target(text, usual_places(Path(), home), os.environ, trusts=True)


def write(path: str, *names: str, key: str = "mcpServers") -> None:
    """Write a file of servers; each has its own name as its argument."""
    entries = {name: {"command": sys.executable, "args": [path, name]} for name in names}
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(orjson.dumps({key: entries}))


def refusal(text: str) -> str:
    with pytest.raises(TargetError) as raised:
        find(text)
    return str(raised.value)


@pytest.mark.rule("CLI-10")
@pytest.mark.parametrize("url", ["http://localhost:8000/mcp", "HTTPS://example.com/a?b=c"])
def test_a_url_is_a_server_over_http(url: str) -> None:
    found = find(url)
    assert isinstance(found, HttpServer)
    assert found.url == url


@pytest.mark.rule("CLI-10")
@pytest.mark.parametrize("url", ["ftp://example.com", "ws://a", "stdio://x.py"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="http://host/path or https://host/path"):
        find(url)


@pytest.mark.rule("CLI-10")
@pytest.mark.parametrize(
    "text",
    [
        "tools.py",
        "./a/tools.py",
        "nowhere.py:server",
        "tools:server",
        "package.tools:server",
        "ünïcode:server",
        "my tools.py",
        "my tools.py:server",
    ],
)
def test_an_application_is_known_by_its_form(text: str) -> None:
    Path("my tools.py").touch()
    write("mcp.json", "tools.py", "tools:server")
    assert find(text) == AppTarget(text)


@pytest.mark.rule("CLI-10")
def test_several_words_that_end_in_py_are_a_command_line() -> None:
    found = find(shlex.join([sys.executable, "tools.py"]))
    assert isinstance(found, StdioServer)
    assert (found.command, list(found.args)) == (sys.executable, ["tools.py"])


@pytest.mark.rule("CLI-10", "CLI-13")
@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("mcp.json", "mcpServers"),
        (".mcp.json", "mcpServers"),
        (".vscode/mcp.json", "servers"),
        (".cursor/mcp.json", "mcpServers"),
        ("home/.config/Claude/claude_desktop_config.json", "mcpServers"),
    ],
)
def test_a_name_is_found_in_the_usual_places(path: str, key: str) -> None:
    write(path, "my server", key=key)
    found = find("my server")
    assert isinstance(found, StdioServer)
    assert list(found.args) == [path, "my server"]


@pytest.mark.rule("CLI-10", "CLI-13")
def test_of_equal_names_the_first_counts_and_names_before_programs() -> None:
    program = "sh"
    write("home/.cursor/mcp.json", program, "other")
    write("mcp.json", program)
    found, other = find(program), find("other")
    assert isinstance(found, StdioServer) and isinstance(other, StdioServer)
    assert list(found.args) == ["mcp.json", program]
    assert list(other.args) == ["home/.cursor/mcp.json", "other"]


@pytest.mark.rule("CLI-10")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sh", ["sh"]),
        ("sh -c 'a b' \"$HOME\" a\\ b", ["sh", "-c", "a b", "$HOME", "a b"]),
        ("/bin/sh x; y | z", ["/bin/sh", "x;", "y", "|", "z"]),
    ],
)
def test_other_target_is_a_command_line(text: str, words: list[str]) -> None:
    found = find(text)
    assert isinstance(found, StdioServer)
    assert [found.command, *found.args] == words


@pytest.mark.rule("CLI-11")
def test_unknown_target_lists_what_was_tried() -> None:
    assert "no file of servers was found" in refusal("no-such-program x")
    write("mcp.json", "weather", "places")
    write(".mcp.json")
    message = refusal("wether")
    assert "'wether' is no server" in message
    assert "mcp.json lists 'places', 'weather'" in message
    assert ".mcp.json lists no servers" in message
    assert "there is no program 'wether'" in message
    assert "http://" in message and "FILE.py" in message


@pytest.mark.rule("CLI-11")
@pytest.mark.parametrize("text", ["", "   ", "'a", "a\0b", "./nowhere", "x" * 10_000, "a\n"])
def test_target_without_a_program_is_refused(text: str) -> None:
    assert repr(text) in refusal(text)


@pytest.mark.rule("CLI-11", "CLI-23")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nosuch --token=hunter2", "'nosuch ...'"),
        ("nosuch 'hunter2", "'nosuch ...'"),
        ("@scope/nosuch hunter2", "'@scope/nosuch ...'"),
        ("TOKEN=hunter2 sh", "'...'"),
        ("--token=hunter2", "'...'"),
        ("somebody:hunter2@example.com/mcp", "'...'"),
        ("example.com/mcp?hunter2", "'...'"),
        ("postgres://somebody:hunter2@host and more", "'...'"),
    ],
)
def test_refusal_of_a_target_hides_possible_secrets(text: str, shown: str) -> None:
    write("mcp.json", "weather")
    message = refusal(text)
    assert message.startswith(f"{shown} is no ")
    with pytest.raises(TargetError) as raised:
        find_listed(text, Path("mcp.json"), os.environ)
    assert str(raised.value).endswith(f"not {shown}")
    assert "hunter2" not in message + str(raised.value)


@pytest.mark.rule("CLI-10", "CLI-23")
@pytest.mark.parametrize("blank", [" ", "\n", "\t "])
def test_blanks_around_a_url_make_it_no_command_line(blank: str) -> None:
    found = find(f"{blank}https://example.com/mcp{blank}")
    assert isinstance(found, HttpServer)
    assert found.url == "https://example.com/mcp"


@pytest.mark.rule("CLI-13")
def test_a_file_that_cannot_be_read_might_have_the_name() -> None:
    Path("mcp.json").write_text("{")
    with pytest.raises(ServerFileError, match="not valid JSON"):
        find("sh")
    assert find("tools.py") == AppTarget("tools.py")


@pytest.mark.rule("CLI-12")
def test_target_is_a_name_if_a_file_is_given() -> None:
    write("mine.json", "weather", "tools.py", "http://a")
    for name in ("weather", "tools.py", "http://a"):
        found = find_listed(name, Path("mine.json"), os.environ)
        assert isinstance(found, StdioServer)
        assert list(found.args) == ["mine.json", name]
    with pytest.raises(TargetError, match=r"mine.json lists .*, not 'sh'"):
        find_listed("sh", Path("mine.json"), os.environ)
    with pytest.raises(ServerFileError, match="cannot be read"):
        find_listed("sh", Path("nowhere.json"), os.environ)


@pytest.mark.rule("CLI-11", "CLIENT-38")
def test_a_command_line_that_begins_with_a_variable_says_where_it_goes() -> None:
    with pytest.raises(TargetError, match="env NAME=VALUE") as caught:
        find_target("TOKEN=verysecret python x.py", [], {})
    assert "verysecret" not in str(caught.value)
