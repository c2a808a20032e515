"""Files that list servers as desktop clients write them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.mcp_json import (
    ServerFile,
    ServerFileError,
    claude_desktop_file,
    usual_places,
)
from foundation_rt.base.mcp_json.json_text import MAX_FILE_BYTES
from foundation_rt.client.targets import HttpServer, StdioServer, server_of

WHERE = {"HOME": "/home/ann", "TOKEN": "hush-hush", "EMPTY": ""}


def listed(folder: Path, entry: Any, name: str = "weather") -> ServerFile:
    """Write a file with one server in it."""
    path = folder / "mcp.json"
    path.write_bytes(orjson.dumps({"mcpServers": {name: entry}}))
    return ServerFile.read(path)


def server(folder: Path, entry: Any) -> StdioServer | HttpServer:
    return server_of(listed(folder, entry).entry("weather", WHERE))


def refusal(folder: Path, entry: Any) -> str:
    with pytest.raises(ServerFileError) as raised:
        server(folder, entry)
    said = str(raised.value)
    assert str(folder / "mcp.json") in said
    assert "'weather'" in said
    return said


# -- files


@pytest.mark.rule("CLI-14")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"mcpServers": {"a": {}, "b": {}}}', ["a", "b"]),
        ('{"servers": {"a": {}}, "inputs": []}', ["a"]),
        ('{"servers": {"c": 1}, "mcpServers": {"a": 2, "b": 3}}', ["a", "b", "c"]),
        ("{}", []),
        ('{"mcpServers": null, "globalShortcut": ""}', []),
        ('\ufeff{"mcpServers": {"a": {}}}', ["a"]),
        ('{// for a\n"mcpServers": {"a": {"command": "b", /* c\n */}, },}', ["a"]),
        (
            '{"mcpServers": {"http://a/*": {"url": "//b", "args": [",]", "\\",}", ], }}}',
            ["http://a/*"],
        ),
    ],
)
def test_a_file_lists_servers_by_name(tmp_path: Path, text: str, names: list[str]) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text, "utf-8")
    assert list(ServerFile.read(path).entries) == names


@pytest.mark.rule("CLI-14")
def test_comments_leave_strings_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "b//c", "args": ["/*", ",]", "*/"],}}}')
    assert ServerFile.read(path).entries["a"] == {"command": "b//c", "args": ["/*", ",]", "*/"]}


@pytest.mark.rule("CLI-14", "MCPJSON-07")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b'{\n  "a": 1\n  "b": 2\n}', "line 3 column 3"),
        (b'{ // x\n  "a": 1 /* y\n */ "b": 2\n}', "line 3 column 5"),
        (b"[]", "should hold a JSON object"),
        (b"\xff", "is no text in UTF-8, from byte 0 on"),
        (b'{"mcpServers": []}', "mcpServers should be an object"),
        (b'{"servers": []}', "servers should be an object"),
        (b'{"servers": {"a": 1}, "mcpServers": {"a": 2}}', "'a' is in mcpServers and in servers"),
        (b'{"mcpServers": [1]}', "mcpServers should be an object"),
        (b'{"mcpServers": {"a": {}, "a": {}}}', "'a' is there twice in the object at line 1"),
        (b'{ // x\n "servers": {"b": {}, "a": [{\n "c": 1,\n "c": 1}]}}', "line 2 column 29"),
        (b"[" * 100_000, "is not valid JSON"),
        (rb'{"mcpServers": {"a": {"command": "C:\Users\x"}}}', r"write \\ for each backslash"),
        (b" " * (MAX_FILE_BYTES + 1), f"is larger than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_a_file_that_says_nothing_usable_is_named(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content)
    with pytest.raises(ServerFileError) as raised:
        ServerFile.read(path)
    assert str(raised.value).startswith(str(path))
    assert said in str(raised.value)


@pytest.mark.rule("CLI-14")
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.json", tmp_path, Path("a\0b")):
        with pytest.raises(ServerFileError, match="cannot be read"):
            ServerFile.read(path)


@pytest.mark.rule("CLI-14")
@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:/*\\\n a1').map(str.encode))
def test_whatever_is_in_a_file_it_is_a_list_or_an_error(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(data)
    try:
        ServerFile.read(path)
    except ServerFileError as error:
        assert str(path) in str(error)


@pytest.mark.rule("CLI-13", "CLI-105")
@pytest.mark.parametrize(
    ("system", "variables", "settings"),
    [
        ("linux", {}, "home/.config"),
        ("linux", {"XDG_CONFIG_HOME": "own"}, "home/own"),
        ("darwin", {}, "home/Library/Application Support"),
        ("win32", {}, "home/AppData/Roaming"),
        ("win32", {"APPDATA": "roaming"}, "home/roaming"),
    ],
)
def test_the_usual_places(
    monkeypatch: pytest.MonkeyPatch, system: str, variables: dict[str, str], settings: str
) -> None:
    for name in ("APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", system)
    assert [*usual_places(Path("project"), Path("home"))] == [
        Path("project/mcp.json"),
        Path("project/.mcp.json"),
        Path("project/.vscode/mcp.json"),
        Path("project/.cursor/mcp.json"),
        Path("home/.cursor/mcp.json"),
        Path(settings, "Claude/claude_desktop_config.json"),
        Path(settings, "Code/User/mcp.json"),
        Path("home/.codeium/windsurf/mcp_config.json"),
    ]


@pytest.mark.rule("WIN-42")
def test_file_of_a_packaged_claude_desktop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = Path("Claude/claude_desktop_config.json")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("APPDATA", str(tmp_path / "Roaming"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert claude_desktop_file(tmp_path) == tmp_path / "Roaming" / name
    (tmp_path / "Local/Packages/Claude_other").mkdir(parents=True)  # it has not been started
    assert claude_desktop_file(tmp_path) == tmp_path / "Roaming" / name
    own = tmp_path / "Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming"
    own.mkdir(parents=True)
    assert claude_desktop_file(tmp_path) == own / name


# -- entries


@pytest.mark.rule("CLI-15")
def test_an_entry_with_a_command_is_a_process(tmp_path: Path) -> None:
    found = server(
        tmp_path,
        {
            "type": "stdio",
            "command": "uvx",
            "args": ["some-server", "--home", "${HOME}"],
            "env": {"API_KEY": "${TOKEN}", "LEVEL": "${LEVEL:-warn}"},
            "cwd": "${workspaceFolder}/data",
            "disabled": False,
            "autoApprove": ["*"],
        },
    )
    assert isinstance(found, StdioServer)
    assert found.command == "uvx"
    assert list(found.args) == ["some-server", "--home", "/home/ann"]
    assert found.env == {"API_KEY": "hush-hush", "LEVEL": "warn"}
    assert found.cwd == f"{tmp_path}/data"


@pytest.mark.rule("CLI-15")
@pytest.mark.parametrize("kind", [None, "http", "streamable-http", "streamableHttp", "sse"])
def test_an_entry_with_a_url_is_over_http(tmp_path: Path, kind: str | None) -> None:
    entry = {"type": kind, "url": "https://${HOST:-example.com}/mcp"}
    found = server(tmp_path, {**entry, "headers": {"Authorization": "Bearer ${env:TOKEN}"}})
    assert isinstance(found, HttpServer)
    assert found.url == "https://example.com/mcp"
    assert dict(found.headers) == {"Authorization": "Bearer hush-hush"}


@pytest.mark.rule("CLI-15")
def test_members_that_are_null_are_not_there(tmp_path: Path) -> None:
    found = server(
        tmp_path,
        {"command": "a", "args": None, "env": None, "cwd": None, "url": None, "envFile": None},
    )
    assert isinstance(found, StdioServer)
    assert (list(found.args), found.cwd) == ([], None)


@pytest.mark.rule("CLI-26")
@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${HOME}/x", "/home/ann/x"),
        ("${env:HOME}", "/home/ann"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b}", "a:-b"),
        ("${HOME:-x}${HOME}", "/home/ann/home/ann"),
        ("$HOME ${ $${", "$HOME ${ $${"),
        ("{HOME}", "{HOME}"),
    ],
)
def test_variables_stand_for_those_of_the_environment(
    tmp_path: Path, text: str, expanded: str
) -> None:
    found = server(tmp_path, {"command": "a", "args": [text]})
    assert isinstance(found, StdioServer)
    assert list(found.args) == [expanded]


@pytest.mark.rule("CLI-26")
def test_expanded_variable_is_not_expanded_again(tmp_path: Path) -> None:
    file = listed(tmp_path, {"command": "a", "args": ["${A}"]})
    found = server_of(file.entry("weather", {"A": "${B}", "B": "x"}))
    assert isinstance(found, StdioServer)
    assert list(found.args) == ["${B}"]


@pytest.mark.rule("CLI-26")
@pytest.mark.parametrize("folder", [".vscode", ".cursor"])
def test_the_folder_of_a_project_is_above_that_of_an_editor(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    found = server(tmp_path / folder, {"command": "${workspaceFolder}/a"})
    assert isinstance(found, StdioServer)
    assert found.command == f"{tmp_path}/a"


@pytest.mark.rule("CLI-26")
def test_variables_of_editors_have_values(tmp_path: Path) -> None:
    words = ["${workspaceFolderBasename}", "${userHome}${/}x", "a${pathSeparator}b"]
    found = server(tmp_path, {"command": "a", "args": words})
    assert isinstance(found, StdioServer)
    assert list(found.args) == [tmp_path.name, str(Path.home() / "x"), f"a{os.sep}b"]


@pytest.mark.rule("CLI-100")
def test_folder_of_a_workspace_is_found_by_its_name(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    words = ["${workspaceFolder:here}/a", "${workspaceFolder:there}"]
    found = server(tmp_path / "here", {"command": "a", "args": words})
    assert isinstance(found, StdioServer)
    assert list(found.args) == [f"{tmp_path / 'here'}/a", str(tmp_path / "there")]
    for name in ("nowhere", "..", "", "there/../here"):
        with pytest.raises(ServerFileError, match="is called so"):
            server(tmp_path / "here", {"command": f"${{workspaceFolder:{name}}}"})


@pytest.mark.rule("CLI-27")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (5, "should be an object"),
        ({}, 'needs either "command" or "url"'),
        ({"command": "a", "url": "http://a"}, 'needs either "command" or "url"'),
        ({"command": 5}, '"command" should be a string'),
        ({"command": ""}, '"command" should be a string'),
        ({"command": "a", "type": "http"}, '"type" should be stdio'),
        ({"command": "a", "type": ["x"]}, '"type" should be stdio'),
        ({"url": "http://a", "type": "stdio"}, '"type" should be http or sse or'),
        ({"command": "a", "args": "b"}, '"args" should be a list of strings'),
        ({"command": "a", "args": [5]}, '"args" should be a list of strings'),
        ({"command": "a", "args": ["\0"]}, "NUL"),
        ({"command": "a", "env": ["b"]}, '"env" should be an object of strings'),
        (
            {"command": "a", "env": {"PORT": 8080}},
            "the value of 'PORT' should be a string: put it in quotes",
        ),
        ({"endpoint": "http://a"}, 'write "url" instead of "endpoint"'),
        ({"command": "a", "cwd": 5}, '"cwd" should be a string'),
        ({"command": "a", "envFile": ".env"}, '"envFile" is not read'),
        ({"command": "a", "args": ["${NONE}"]}, "the environment variable NONE; it is not set"),
        ({"command": "a", "args": ["${input:key}"]}, "${input:key}, which stands for nothing"),
        ({"command": "a", "args": ["${}"]}, "${}, which stands for nothing"),
        ({"url": 5}, '"url" should be a string'),
        ({"url": "ftp://a"}, "server 'weather'"),
        ({"url": "http://a", "headers": {"A": 5}}, "the value of 'A' should be a string"),
    ],
)
def test_an_entry_that_cannot_be_used_says_where(tmp_path: Path, entry: Any, said: str) -> None:
    assert said in refusal(tmp_path, entry)


@pytest.mark.rule("CLI-23")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "a", "env": {"A": "hush-hush", "B": 5}},
        {"command": "a", "env": {"A": "hush-hush", "B": "${NONE}"}},
        {"command": "a", "env": {"A=": "hush-hush"}},
        {"command": "a", "env": {"A": "hush-hush\0"}},
        {"url": "http://a", "headers": {"A": "hush-hush", "B": ["hush-hush"]}},
        {"url": "http://a", "headers": {"A": "hush-hush\n"}},
        {"url": "http://a", "headers": {"A b": "hush-hush"}},
        {"url": "http://a", "headers": {"A": "${TOKEN}\0"}},
    ],
)
def test_no_refusal_repeats_a_secret(tmp_path: Path, entry: Any) -> None:
    assert "hush-hush" not in refusal(tmp_path, entry)


@pytest.mark.rule("CLI-27")
@given(
    st.dictionaries(
        st.sampled_from(["type", "command", "url", "args", "env", "headers", "cwd", "envFile"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=8)
        | st.sampled_from(["stdio", "http", "http://a", "${A}", "${HOME}"])
        | st.lists(st.text(max_size=4), max_size=2)
        | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
    )
)
def test_whatever_an_entry_says_it_is_a_server_or_an_error(entry: Any) -> None:
    file = ServerFile(Path(os.devnull), {"weather": entry})
    try:
        server_of(file.entry("weather", WHERE))
    except ServerFileError as error:
        assert "'weather'" in str(error)
