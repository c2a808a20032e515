"""What names a server, and which way leads to it; nothing is started or sent here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.base.mcp_json import ServerFile
from foundation_rt.client import Client, HttpServer, StdioServer, connect
from foundation_rt.client.options import REVISION_VARIABLE
from foundation_rt.client.transports.http import HttpTransport
from foundation_rt.client.transports.memory import MemoryTransport
from foundation_rt.client.transports.stdio import ChildProcessTransport
from foundation_rt.errors import ConfigError, MissingExtraError, UsageError
from tests.lab.peers.script_memory import MemoryHarness


def transport(target: Any, **given: Any) -> Any:
    return connect(target, **given).make_transport()


@pytest.mark.rule("CLIENT-07")
def test_every_kind_of_target_has_its_transport_and_nothing_starts() -> None:
    local = transport("some-server --root '/a b'")
    assert isinstance(local, ChildProcessTransport)
    assert local.description == "some-server"  # what is said to it may be secret
    assert isinstance(transport(StdioServer("some-server", ["a"])), ChildProcessTransport)
    assert isinstance(transport(Server("s")), MemoryTransport)
    for url in ("http://host/mcp", "https://host/mcp", "HTTPS://host/mcp", " https://host/mcp\n"):
        assert isinstance(transport(url, headers={"Authorization": "Bearer x"}), HttpTransport)
    remote = transport(HttpServer("https://me:secret@host/mcp?key=secret"))
    assert isinstance(remote, HttpTransport)
    assert "secret" not in remote.description
    harness = MemoryHarness("any")
    client = connect(harness.make_transport)
    assert harness.transports == []
    assert client.make_transport() is harness.transports[0]


@pytest.mark.rule("CLIENT-07")
def test_every_session_gets_its_own_transport() -> None:
    for target in ("some-server", "https://host/mcp", Server("s")):
        client = connect(target)
        assert client.make_transport() is not client.make_transport()


@pytest.mark.rule("CLIENT-34")
def test_a_server_is_named_by_words_a_path_or_a_list_of_servers(tmp_path: Path) -> None:
    env, cwd = {"A": "b"}, str(tmp_path)
    words = ["some-server", "--root", "/a b"]
    expected = StdioServer("some-server", words[1:], env=env, cwd=cwd)
    for target in (words, tuple(words), "some-server --root '/a b'"):
        assert transport(target, env=env, cwd=cwd).server == expected
    script, program = tmp_path / "server.py", tmp_path / "server"
    assert transport(script).server == StdioServer(sys.executable, [str(script)])
    assert transport(program, env=env).server == StdioServer(str(program), env=env)
    entry = {"command": "some-server", "args": words[1:], "env": env, "cwd": cwd}
    config = {"mcpServers": {"any": entry}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(config))
    listed = ServerFile.of(file, config).entry("any", {})
    for described in (config, entry, file, str(file), listed):
        assert transport(described).server == expected
    remote = {"mcpServers": {"any": {"url": "https://host/mcp", "headers": {"A": "b"}}}}
    assert isinstance(transport(remote), HttpTransport)


@pytest.mark.rule("CLIENT-38")
def test_a_hint_repeats_no_value_of_a_variable() -> None:
    with pytest.raises(UsageError) as caught:
        connect("TOKEN=verysecret python x.py")
    assert "verysecret" not in str(caught.value)


@pytest.mark.rule("CLIENT-34")
@pytest.mark.parametrize(
    ("target", "given", "reason"),
    [
        ("", {}, "empty"),
        ("  ", {}, "empty"),
        ("server 'open", {}, "quotation"),
        ("ws://host/mcp", {}, "http://host/path"),
        ("file:///etc/passwd", {}, "http://host/path"),
        ("https://", {}, "http://host/path"),
        ("https://host/mcp", {"headers": {"bad name": "x"}}, "header"),
        ("some-server", {"headers": {"A": "b"}}, "headers go with a URL"),
        (HttpServer("https://host/mcp"), {"headers": {"A": "b"}}, "headers go with a URL"),
        ("https://host/mcp", {"on_stderr": print}, "on_stderr goes with a command"),
        (Server("s"), {"on_stderr": print}, "on_stderr goes with a command"),
        (None, {}, "not None"),
        (5, {}, "not 5"),
        ([], {}, "begin with the program"),
        (["some-server", 5], {}, "strings"),
        ("FOO=bar python x.py", {}, "env={'FOO': ...}"),
        ("server.py", {}, "connect\\('python server.py'\\)"),
        ("https://host/mcp", {"env": {"A": "b"}}, "env and cwd go with a command line"),
        (StdioServer("a"), {"cwd": "/"}, "env and cwd go with a command line"),
        ({}, {}, "lists no server"),
        ({"mcpServers": {"a": {"command": "x"}, "b": {"url": "y"}}}, {}, "lists 'a', 'b'"),
        ({"command": 5}, {}, "should be a string"),
        ("/nowhere/mcp.json", {}, "cannot be read"),
        (Path("/nowhere/mcp.json"), {}, "cannot be read"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_at_once(
    target: Any, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        connect(target, **given)


def test_url_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    monkeypatch.delitem(sys.modules, "foundation_rt.client.transports.http", raising=False)
    parts = ("foundation_rt.client.transports.http_", "foundation_rt.base.http_client.")
    for name in [each for each in sys.modules if each.startswith(parts)]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match="client"):
        connect("https://host/mcp")
    connect("some-server")


def test_options_and_handlers_reach_the_client() -> None:
    with pytest.raises(TypeError, match="tiemout"):
        connect(Server("s"), tiemout=5)
    client = connect(
        Server("s"),
        timeout=5,
        require=["prompts"],
        elicitation=lambda request: None,
        roots=["file:///a"],
    )
    assert isinstance(client, Client)
    assert client.options.timeout == 5
    assert client.options.require == {"prompts"}
    assert client.server is None
    assert not client.has_capability("tools")


@pytest.mark.rule("CLIENT-05")
def test_the_environment_is_read_when_the_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REVISION_VARIABLE, "none")
    with pytest.raises(ConfigError, match=REVISION_VARIABLE):
        connect(Server("s"))
