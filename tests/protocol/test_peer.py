"""Two protocol modes on one connection, and the peer that a stateless request describes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.kernel.invocation import Invocation, Returned
from foundation_rt.kernel.replies import ResultWriter, ServerInfo
from foundation_rt.kernel.session import State
from foundation_rt.protocol import methods
from foundation_rt.protocol.content import Icon
from foundation_rt.protocol.peer import (
    CAPABILITIES_KEY,
    INFO_KEY,
    LOG_LEVEL_KEY,
    LOGGING_LEVELS,
    MAX_DESCRIPTION_BYTES,
    MAX_EXTENSIONS,
    MAX_NAME_LENGTH,
    SUPPORTED_REVISIONS,
    Peer,
    describe_peer,
    is_wanted,
)
from foundation_rt.protocol.revisions import (
    HANDSHAKE_REVISIONS,
    REVISIONS,
    STATELESS_REVISIONS,
    VARYING_MEMBERS,
    VERSION_KEY,
)
from tests.lab.servers.core import make_core, replies, request

ROOT = Path(__file__).parents[2] / "foundation_rt"
NEWEST = STATELESS_REVISIONS[-1]
MODERN = {VERSION_KEY: NEWEST, CAPABILITIES_KEY: {}}
SERVER_INFO = {"io.modelcontextprotocol/serverInfo": {"name": "foundation-rt", "version": "0.1.0"}}


def modern(**members: Any) -> dict[str, Any]:
    return {"_meta": {**MODERN, **members}}


def literals(names: set[str]) -> Iterator[tuple[Path, str]]:
    """Yield each literal of the package that is one of these names, with its file."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text("utf-8")
        if any(name in text for name in names):  # to parse them all takes 4 s
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and node.value in names:
                    yield path.relative_to(ROOT), f"{node.lineno} {node.value}"


@pytest.mark.rule("REV-01")
def test_only_table_knows_revisions_by_name() -> None:
    knowing = {
        path.as_posix() for path, _ in literals({*HANDSHAKE_REVISIONS, *STATELESS_REVISIONS})
    }
    assert knowing == {"protocol/revisions.py", "protocol/methods.py"}


@pytest.mark.rule("REV-14")
def test_only_table_knows_methods_by_name() -> None:
    names = {
        value
        for value in vars(methods).values()
        if isinstance(value, str) and re.fullmatch(r"\w+(/\w+)+", value)
    }
    assert {"tools/call", "notifications/progress"} < names
    knowing = [
        f"{path.as_posix()}:{literal}"
        for path, literal in literals(names)
        if path != Path("protocol/methods.py") and Path("apps/migration") not in path.parents
    ]
    assert knowing == []


@pytest.mark.rule("REV-02")
@pytest.mark.parametrize("state", [State.STARTING, State.INITIALIZING, State.RUNNING])
def test_stateless_request_is_served_in_every_state(state: State) -> None:
    core = make_core()
    if state is not State.STARTING:
        core.dispatch(request("initialize", {"protocolVersion": "2025-11-25"}))
    if state is State.RUNNING:
        core.dispatch(request("initialized"))
    before = core.session.peer
    core.add("tool")
    assert core.answer(request("tools/list", modern()))["result"]["resultType"] == "complete"
    [call] = core.call("tool", **modern())
    assert isinstance(call, Invocation)
    assert call.peer.revision is REVISIONS[NEWEST]
    assert replies(core.conclude(call, Returned(1)))[0]["result"] == {
        "resultType": "complete",
        "content": [{"type": "text", "text": "1"}],
        "isError": False,
        "_meta": SERVER_INFO,
    }
    assert (core.session.state, core.session.peer) == (state, before)
    if state is State.STARTING:
        assert core.answer(request("tools/list", {}))["error"]["code"] == -32002


@pytest.mark.rule("REV-12", "REV-04")
@pytest.mark.parametrize("method", ["server/discover", "tools/call", "initialize", "ping"])
def test_stateless_session_refuses_request_without_meta(method: str) -> None:
    core = make_core()
    core.session.stateless = True
    error = core.answer(request(method, {"protocolVersion": "2025-11-25"}))["error"]
    assert error["code"] == -32602
    assert error["data"]["reason"] == "invalid_meta"


@pytest.mark.rule("REV-04")
@pytest.mark.parametrize(
    "meta",
    [
        {VERSION_KEY: NEWEST},
        {VERSION_KEY: NEWEST, CAPABILITIES_KEY: None},
        {VERSION_KEY: NEWEST, CAPABILITIES_KEY: []},
        {VERSION_KEY: None, CAPABILITIES_KEY: {}},
        {VERSION_KEY: 20260728, CAPABILITIES_KEY: {}},
        {**MODERN, INFO_KEY: "me"},
        {**MODERN, INFO_KEY: None},
        {**MODERN, LOG_LEVEL_KEY: "loud"},
        {**MODERN, LOG_LEVEL_KEY: 3},
        {**MODERN, LOG_LEVEL_KEY: {}},
    ],
    ids=str,
)
def test_peer_description_of_stateless_request_is_checked(meta: dict[str, Any]) -> None:
    core = make_core()
    error = core.answer(request("tools/list", {"_meta": meta}))["error"]
    assert error["code"] == -32602
    assert error["data"]["reason"] == "invalid_meta"
    assert error["data"]["correlationId"]


@pytest.mark.rule("REV-04")
@given(
    meta=st.dictionaries(st.sampled_from([*MODERN, INFO_KEY, LOG_LEVEL_KEY]), st.none() | st.text())
)
def test_any_peer_description_is_answered(meta: dict[str, Any]) -> None:
    core = make_core()
    core.session.stateless = True
    reply = core.answer(request("tools/list", {"_meta": meta}))
    assert ("result" in reply) != ("error" in reply)


@pytest.mark.rule("REV-12", "REV-04")
@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "no/such/method"])
@pytest.mark.parametrize("lacking", [VERSION_KEY, CAPABILITIES_KEY])
def test_missing_required_member_is_reported(state: State, method: str, lacking: str) -> None:
    core = make_core()
    core.session.state = state
    meta = {key: value for key, value in MODERN.items() if key != lacking}
    error = replies(core.dispatch(request(method, {"_meta": meta})))[0]["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_meta")
    assert lacking in error["message"]


@pytest.mark.rule("REV-05")
@pytest.mark.parametrize("asked", ["2025-11-25", "1900-01-01", "", "2026-07-29"])
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "no/such/method"])
def test_unsupported_revision_is_refused_with_supported_ones(asked: str, method: str) -> None:
    core = make_core()
    meta = {"_meta": {**MODERN, VERSION_KEY: asked}}
    error = replies(core.dispatch(request(method, meta)))[0]["error"]
    assert error["code"] == -32022
    assert error["data"]["supported"] == [*SUPPORTED_REVISIONS]
    assert error["data"]["requested"] == asked
    assert SUPPORTED_REVISIONS[0] == NEWEST


@pytest.mark.rule("REV-06", "REV-07")
def test_only_stateless_results_have_type_and_server() -> None:
    results = ResultWriter(ServerInfo("s", "1", title="T", icons=[Icon("i")]), 5, "public")
    old, new = (Peer(REVISIONS[name]) for name in ("2025-03-26", NEWEST))
    assert results.complete(old, {"a": 1}) == {"a": 1}
    assert results.cache_hints(old) == {}
    assert results.complete(new, {"a": 1, "_meta": {"x": 2}}) == {
        "resultType": "complete",
        "a": 1,
        "_meta": {
            "x": 2,
            "io.modelcontextprotocol/serverInfo": {
                "name": "s",
                "version": "1",
                "title": "T",
                "icons": [{"src": "i"}],
            },
        },
    }
    assert results.cache_hints(new) == {"ttlMs": 5, "cacheScope": "public"}
    assert results.cache_hints(new, 7) == {"ttlMs": 7, "cacheScope": "public"}
    assert results.server_info(REVISIONS["2024-11-05"]) == {"name": "s", "version": "1"}


@pytest.mark.rule("REV-03")
@pytest.mark.parametrize("shape", sorted(VARYING_MEMBERS))
def test_later_revision_has_all_earlier_members(shape: str) -> None:
    wire = dict.fromkeys([*VARYING_MEMBERS[shape], "name"], 1)
    kept = [revision.keep(shape, wire).keys() for revision in REVISIONS.values()]
    assert all(earlier <= later for earlier, later in pairwise(kept))
    assert kept[0] == {"name"}
    assert kept[-1] == wire.keys()
    for revision in REVISIONS.values():
        assert all(
            revision.has(shape, name) == (name in revision.keep(shape, wire))
            for name in VARYING_MEMBERS[shape]
        )


@pytest.mark.rule("REV-08")
@pytest.mark.parametrize(
    ("method", "mode"),
    [("ping", "handshake"), ("server/discover", "stateless"), ("no/such", None)],
)
def test_method_of_other_revision_is_not_found(method: str, mode: str | None) -> None:
    for each in ("handshake", "stateless"):
        core = make_core().handshake()
        reply = core.answer(request(method, modern() if each == "stateless" else {}))
        assert (reply.get("error", {}).get("code") == -32601) == (each != mode)


@pytest.mark.rule("REV-09")
def test_server_describes_itself() -> None:
    result = make_core(instructions="Be kind.").answer(request("server/discover", modern()))
    assert result["result"].keys() == {
        "resultType",
        "supportedVersions",
        "capabilities",
        "instructions",
        "ttlMs",
        "cacheScope",
        "_meta",
    }
    assert result["result"]["supportedVersions"] == [*SUPPORTED_REVISIONS]
    assert result["result"]["instructions"] == "Be kind."
    plain = make_core().answer(request("server/discover", modern()))["result"]
    assert "instructions" not in plain


@pytest.mark.rule("REV-04")
def test_peer_has_only_declared_capabilities() -> None:
    declared = {"sampling": {"tools": {}}, "roots": None, "elicitation": False, "x": True}
    peer = describe_peer(REVISIONS[NEWEST], declared, {})
    assert peer.can("sampling")
    assert peer.can("sampling", "tools")
    assert not peer.can("sampling", "context")
    assert not peer.can("roots")
    assert not peer.can("x", "y")
    assert not peer.can("elicitation")


@pytest.mark.rule("REV-11")
def test_only_known_capabilities_and_extension_names_are_kept() -> None:
    names = [f"example.com/{number}" for number in range(MAX_EXTENSIONS + 5)]
    long_name = "x" * (MAX_NAME_LENGTH + 1)
    declared = {
        "roots": {"listChanged": True, "secret": {"a": [1] * 100}},
        "elicitation": {"form": {"a": "b"}, "url": {}},
        "tasks": {},
        "extensions": {long_name: {}, "off": False, **{each: {"deep": {}} for each in names}},
        "experimental": [],
        "unknown": {"a": "b"},
    }
    peer = describe_peer(REVISIONS[NEWEST], declared, {})
    assert {path for path in peer.capabilities if path[0] != "extensions"} == {
        ("experimental",),
        ("roots",),
        ("roots", "listChanged"),
        ("elicitation",),
        ("elicitation", "form"),
        ("elicitation", "url"),
        ("tasks",),
    }
    kept = [each for each in names if peer.can("extensions", each)]
    assert kept == names[:MAX_EXTENSIONS]
    assert not peer.can("extensions", long_name)
    assert not peer.can("extensions", "off")


@pytest.mark.rule("REV-11")
@pytest.mark.parametrize(
    ("info", "kept"),
    [
        ({"name": "desk", "version": "7", "title": "x"}, ("desk", "7")),
        ({"name": "n" * 300, "version": "v" * 300}, ("n" * 256, "v" * 256)),
        ({"name": ["odd"], "version": 7}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_client_name_and_version_are_kept(
    info: dict[str, Any], kept: tuple[str | None, str | None]
) -> None:
    peer = describe_peer(REVISIONS[NEWEST], {}, info)
    assert (peer.name, peer.version) == kept


TOO_LARGE = {"x": "y" * (MAX_DESCRIPTION_BYTES - 7)}
LARGEST = {"x": "y" * (MAX_DESCRIPTION_BYTES - 8)}
TOO_DEEP = orjson.Fragment(b'{"x":' * 300 + b"{}" + b"}" * 300)


@pytest.mark.rule("REV-10")
@pytest.mark.parametrize("large", [TOO_LARGE, TOO_DEEP], ids=["large", "deep"])
@pytest.mark.parametrize("member", ["capabilities", "clientInfo"])
def test_initialize_with_too_large_description_is_refused(member: str, large: object) -> None:
    core = make_core()
    params = {"protocolVersion": "2025-11-25", member: large}
    error = core.answer(request("initialize", params))["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_params")
    assert member in error["message"]
    assert str(MAX_DESCRIPTION_BYTES) in error["message"]
    assert (core.session.state, core.session.peer) == (State.STARTING, None)
    assert "result" in core.answer(request("initialize", params | {member: LARGEST}))


@pytest.mark.rule("REV-10")
@pytest.mark.parametrize("large", [TOO_LARGE, TOO_DEEP], ids=["large", "deep"])
@pytest.mark.parametrize("key", [CAPABILITIES_KEY, INFO_KEY])
def test_stateless_request_with_too_large_description_is_refused(key: str, large: object) -> None:
    core = make_core()
    error = core.answer(request("tools/list", modern(**{key: large})))["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_meta")
    assert str(MAX_DESCRIPTION_BYTES) in error["message"]
    assert "result" in core.answer(request("tools/list", modern(**{key: LARGEST})))


@pytest.mark.rule("REV-04")
def test_level_is_wanted_from_least_severe_one_on() -> None:
    assert not any(is_wanted(level, None) for level in LOGGING_LEVELS)
    for number, least in enumerate(LOGGING_LEVELS):
        wanted = [level for level in LOGGING_LEVELS if is_wanted(level, least)]
        assert wanted == [*LOGGING_LEVELS[number:]]
