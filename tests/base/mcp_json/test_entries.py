"""The members of an entry, and the JSON Schema that is made of their table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.mcp_json import (
    OAuthEntry,
    ServerEntry,
    ServerFile,
    ServerFileError,
    ServerSettings,
)
from foundation_rt.base.mcp_json.members import MEMBERS, file_schema
from foundation_rt.client.auth.descriptions import OAuth
from foundation_rt.client.targets import HttpServer, StdioServer, server_of

VALIDATOR = jsonschema_rs.validator_for(file_schema())


def entry(members: Any, **variables: str) -> ServerEntry:
    return ServerFile(Path("mcp.json"), {"notes": members}).entry("notes", variables)


def refusal(members: Any, **variables: str) -> str:
    with pytest.raises(ServerFileError) as raised:
        entry(members, **variables)
    said = str(raised.value)
    assert said.startswith("mcp.json, server 'notes': ")
    return said


@pytest.mark.rule("MCPJSON-01", "MCPJSON-03")
def test_form_of_the_chat_host_is_read() -> None:
    members = {
        "id": "notes",
        "type": "local",
        "transport": "stdio",
        "command": "npx",
        "args": ["some-server"],
        "timeoutMs": 10_000,
        "autoApprove": [],
    }
    found = entry(members)
    assert (found.command, found.args) == ("npx", ("some-server",))
    assert found.settings == ServerSettings(timeout_ms=10_000)
    assert found.settings.max_timeout_ms == 600_000
    remote = entry({"type": "remote", "transport": "http", "url": "http://a"})
    assert isinstance(server_of(remote), HttpServer)
    assert isinstance(server_of(found), StdioServer)


@pytest.mark.rule("MCPJSON-03", "MCPJSON-06", "MCPJSON-08", "MCPJSON-10")
def test_every_setting_is_read() -> None:
    members = {
        "url": "http://a",
        "timeoutMs": 700_000,
        "connectTimeoutMs": 2,
        "idleTimeoutMs": 3.0,
        "maxConcurrent": 4,
        "circuitFailures": 5,
        "circuitWindowMs": 6,
        "circuitOpenMs": 7,
        "isolation": "shared",
        "disabled": True,
        "allowedTools": ["a*"],
        "disabledTools": ["ab"],
        "alwaysAllow": ["get_*"],
        "trust": True,
        "headersFrom": {"Authorization": "X-Github-Token"},
    }
    assert entry(members).settings == ServerSettings(
        timeout_ms=700_000,
        max_timeout_ms=700_000,
        connect_timeout_ms=2,
        idle_timeout_ms=3,
        max_concurrent=4,
        circuit_failures=5,
        circuit_window_ms=6,
        circuit_open_ms=7,
        isolation="shared",
        disabled=True,
        allowed_tools=("a*",),
        disabled_tools=("ab",),
        always_allow=("get_*",),
        trust=True,
        headers_from={"Authorization": "X-Github-Token"},
    )


@pytest.mark.rule("MCPJSON-01", "MCPJSON-03", "MCPJSON-06", "MCPJSON-07")
@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"id": "other"}, "\"id\" should be 'notes', the name of the server, or absent"),
        ({"id": 5}, '"id" should be a string'),
        ({"transport": "http"}, '"transport" should be stdio beside "command"'),
        ({"transport": "local"}, '"transport" should be stdio beside "command"'),
        ({"timeoutMs": 0}, '"timeoutMs" should be a whole number from 1 to 86400000'),
        ({"timeoutMs": True}, '"timeoutMs" should be a whole number'),
        ({"timeoutMs": "5"}, '"timeoutMs" should be a whole number'),
        ({"timeoutMs": 5, "maxTimeoutMs": 4}, '"maxTimeoutMs" should be at least "timeoutMs"'),
        ({"maxConcurrent": 100_001}, '"maxConcurrent" should be a whole number'),
        ({"isolation": "none"}, '"isolation" should be session or principal or shared'),
        ({"disabled": 1}, '"disabled" should be true or false'),
        ({"allowedTools": "a"}, '"allowedTools" should be a list of strings'),
        ({"disabledTools": [None]}, '"disabledTools" should be a list of strings'),
        ({"alwaysAllow": "*"}, '"alwaysAllow" should be a list of strings'),
        ({"trust": "yes"}, '"trust" should be true or false'),
        ({"trust": 1, "disabled": 1}, '"disabled" should be true or false; "trust" should be'),
        ({"headersFrom": {"A": "B"}}, '"headersFrom" goes with "url"'),
        ({"oauth": {}}, '"oauth" goes with "url"'),
        ({"headersFrom": {"A B": "B"}}, '"headersFrom" should be an object of names of headers'),
    ],
)
def test_member_that_cannot_be_used_is_named(members: dict[str, Any], said: str) -> None:
    assert said in refusal({"command": "a", **members})


@pytest.mark.rule("MCPJSON-18")
def test_entry_says_how_a_person_logs_in() -> None:
    assert entry({"url": "https://a"}).oauth is None
    assert entry({"url": "https://a", "oauth": {"other": 5}}).oauth == OAuthEntry()
    given = {
        "clientId": "me",
        "clientSecret": "${SECRET}",
        "issuer": "https://b",
        "scopes": ["x"],
        "callbackPort": 8123,
        "shared": True,
    }
    found = entry({"url": "https://a", "oauth": given}, SECRET="hush")
    assert found.oauth == OAuthEntry(
        client_id="me",
        client_secret="hush",
        issuer="https://b",
        scopes=("x",),
        callback_port=8123,
        shared=True,
    )
    assert "hush" not in repr(found)
    described = server_of(found).auth
    assert isinstance(described, OAuth)
    assert described.redirect_uri == "http://127.0.0.1:8123/callback"
    assert (described.client_id, described.issuer) == ("me", "https://b")


@pytest.mark.rule("MCPJSON-18")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "should be an object"),
        ({"clientId": "me"}, 'has a "clientId" and needs "issuer"'),
        ({"clientSecret": "hush"}, 'has a "clientSecret" and needs the "clientId"'),
        ({"scopes": "a b"}, 'has a "scopes" that should be a list of strings'),
        ({"callbackPort": 0}, 'has a "callbackPort" that should be a whole number'),
        ({"issuer": None}, 'has a "issuer" that should be a string'),
    ],
)
def test_login_that_cannot_be_used_is_named(given: Any, said: str) -> None:
    found = refusal({"url": "https://a", "oauth": given})
    assert said in found
    assert "hush" not in found


@pytest.mark.rule("MCPJSON-04")
def test_variable_sets_the_time_of_calls_where_the_entry_does_not() -> None:
    variable = "DEFAULT_TOOL_TIMEOUT_MS"
    assert entry({"command": "a"}, **{variable: "5000"}).settings.timeout_ms == 5000
    said = entry({"command": "a", "timeoutMs": 7}, **{variable: "5000"})
    assert said.settings.timeout_ms == 7
    assert entry({"command": "a"}, **{variable: ""}).settings.timeout_ms == 60_000
    for wrong in ("0", "x", "-5", "9" * 20, "٥"):
        assert variable in refusal({"command": "a"}, **{variable: wrong})


@pytest.mark.rule("MCPJSON-05")
@pytest.mark.parametrize(
    ("allowed", "disabled", "listed"),
    [
        (None, (), {"read_file", "write_file", "Read"}),
        ((), (), set()),
        (("read*",), (), {"read_file"}),
        (("*",), ("*_file",), {"Read"}),
        (("read_file", "write_file"), ("write_file",), {"read_file"}),
        (("[rR]ead*",), ("?ead",), {"read_file"}),
    ],
)
def test_patterns_choose_the_tools(
    allowed: tuple[str, ...] | None, disabled: tuple[str, ...], listed: set[str]
) -> None:
    settings = ServerSettings(allowed_tools=allowed, disabled_tools=disabled)
    tools = {"read_file", "write_file", "Read"}
    assert {tool for tool in tools if settings.allows(tool)} == listed


@pytest.mark.rule("CLI-23")
def test_representation_has_no_secret() -> None:
    found = entry({"command": "a", "args": ["hush"], "env": {"A": "hush"}})
    remote = entry({"url": "http://a?key=hush", "headers": {"A": "hush"}})
    assert "hush" not in f"{found!r} {remote!r}"


values = (
    st.none()
    | st.booleans()
    | st.integers(-1, 2**33)
    | st.floats()
    | st.sampled_from(["", "a", "stdio", "local", "http", "sse", "remote", "shared", "notes"])
    | st.lists(st.sampled_from(["a", 1]), max_size=2)
    | st.dictionaries(st.sampled_from(["A", "b c"]), st.sampled_from(["a", 1]), max_size=2)
)
entries = st.dictionaries(st.sampled_from([*MEMBERS, "other"]), values, max_size=6)
usable = st.builds(
    lambda way, more: {**more, way: "a"}, st.sampled_from(["command", "url"]), entries
)


@pytest.mark.rule("MCPJSON-02")
@given(entries | usable | values)
def test_schema_allows_what_is_read(members: Any) -> None:
    try:
        entry(members)
    except ServerFileError as error:
        read = False
        # A schema cannot compare members with each other or with the key.
        if '"maxTimeoutMs" should be at least' in str(error) or "the name of" in str(error):
            return
    else:
        read = True
    assert VALIDATOR.is_valid({"mcpServers": {"notes": members}}) is read
