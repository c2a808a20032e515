"""`resources/*`: what every request, good or bad, is answered with, in every revision."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.errors import ToolError
from foundation_rt.features.resources.registry import ResourceDefinition, ResourceTemplateDefinition
from foundation_rt.kernel.effects import CallCompleted
from foundation_rt.kernel.invocation import Invocation, Raised, Returned
from foundation_rt.protocol.peer import CAPABILITIES_KEY
from foundation_rt.protocol.revisions import HANDSHAKE_REVISIONS, VERSION_KEY
from tests.lab.servers.core import Core, connection_id, make_core, notification, replies, request

LISTS = ("resources/list", "resources/templates/list")
STATELESS = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}


def never(arguments: dict[str, Any], context: Any) -> None:
    raise AssertionError("the core calls no handlers")


def featured(config: dict[str, dict[str, Any]] | None = None, revision: str = "2025-11-25") -> Core:
    core = make_core(config)
    features = core.features
    for uri in ("task://all", "file:///a", "file:///b"):
        features.resources.register(ResourceDefinition(uri=uri, name="n"), never, cache_ttl_ms=5)
    definition = ResourceTemplateDefinition(uri_template="task://{id}", name="one")
    features.resources.register_template(definition, never, timeout_ms=50)
    core.dispatch(request("initialize", {"protocolVersion": revision}, "initialize"))
    core.dispatch(notification("notifications/initialized"))
    return core


def begun(core: Core, params: Any) -> Invocation:
    [call] = core.dispatch(request("resources/read", params))
    assert isinstance(call, Invocation)
    return call


@pytest.mark.rule("MRES-13")
def test_server_without_resources_has_no_capability_and_methods() -> None:
    core = make_core()
    for _ in range(2):
        core.session = core.open_session()
        answer = core.answer(request("initialize", {"protocolVersion": "2025-11-25"}))
        assert not {"resources", "prompts", "completions"} & answer["result"]["capabilities"].keys()
        core.dispatch(notification("notifications/initialized"))
        for method in (*LISTS, "resources/read"):
            assert core.answer(request(method, {"uri": "a:b"}))["error"]["code"] == -32601
        assert core.features.resources.resources.entries() == ()  # the registry is made, and empty


@pytest.mark.rule("PAGE-03")
@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("cursor", ["", "x", 5, True, [], {}])
def test_unknown_cursor_is_refused(method: str, cursor: Any) -> None:
    error = featured().answer(request(method, {"cursor": cursor}))["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_cursor")


@pytest.mark.rule("MRES-04")
@pytest.mark.parametrize(
    ("uri", "arguments", "timeout_ms"),
    [
        ("task://all", {"uri": "task://all"}, 30_000),
        ("task://%C3%A9", {"uri": "task://%C3%A9", "id": "é"}, 50),
    ],
)
def test_resource_with_the_uri_is_read(
    uri: str, arguments: dict[str, str], timeout_ms: int
) -> None:
    core = featured()
    call = begun(core, {"uri": uri})
    assert (call.name, call.arguments, call.timeout_ms) == (uri, arguments, timeout_ms)
    [reply] = replies(core.conclude(call, Returned("text")))
    assert reply["result"] == {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "text"}]}


@pytest.mark.rule("MRES-16")
@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
def test_unknown_uri_is_not_found(revision: str) -> None:
    core = featured(revision=revision)
    assert core.answer(request("resources/read", {"uri": "no://such"}))["error"] == {
        "code": -32002,
        "message": "Resource not found",
        "data": {
            "uri": "no://such",
            "reason": "resource_not_found",
            "correlationId": connection_id(),
        },
    }
    missing = Raised(ToolError("NOT_FOUND", "no such task"))
    [reply] = replies(core.conclude(begun(core, {"uri": "task://7"}), missing))
    assert (reply["error"]["code"], reply["error"]["data"]["uri"]) == (-32002, "task://7")


@pytest.mark.rule("MRES-16", "MRES-09")
def test_unknown_uri_is_not_found_for_stateless_peer() -> None:
    core = featured()
    for uri in ("no://such", "task://..", "task://%2e%2e", "task://%2Fb", ""):
        params = {"uri": uri, "_meta": STATELESS}
        error = core.answer(request("resources/read", params))["error"]
        assert (error["code"], error["data"]["uri"]) == (-32602, uri)


@pytest.mark.rule("MRES-04")
@pytest.mark.parametrize(
    "params", [None, {}, {"uri": None}, {"uri": 5}, {"uri": ["a:b"]}, {"uri": "a:" + "b" * 2047}]
)
def test_invalid_uri_is_refused(params: Any) -> None:
    error = featured().answer(request("resources/read", params))["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_params")


@pytest.mark.rule("MRES-14")
def test_stateless_peer_gets_cache_hints() -> None:
    core = featured()
    for method in LISTS:
        result = core.answer(request(method, {"_meta": STATELESS}))["result"]
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    call = begun(core, {"uri": "task://all", "_meta": STATELESS})
    [reply] = replies(core.conclude(call, Returned(b"x")))
    assert (reply["result"]["ttlMs"], reply["result"]["resultType"]) == (5, "complete")
    call = begun(core, {"uri": "task://1", "_meta": STATELESS})
    [reply] = replies(core.conclude(call, Returned(b"x")))
    assert reply["result"]["ttlMs"] == 0


@pytest.mark.rule("MRES-04", "MRES-09", "FEAT-07")
@given(st.text(max_size=30) | st.text("task:/.%2eFf{}", max_size=30).map("task://".__add__))
def test_every_uri_is_answered(uri: str) -> None:
    core = featured()
    try:
        line = request("resources/read", {"uri": uri})
    except TypeError:  # no JSON has lone surrogates
        return
    effect, *rest = core.dispatch(line)
    if isinstance(effect, Invocation):
        value = effect.arguments.get("id", "x")
        assert not {"\\", "\0"} & set(value)
        assert not {"", ".", ".."} & {*value.split("/")}
    else:
        [reply] = replies([effect])
        assert reply["error"]["code"] == -32002
        [record] = rest
        assert isinstance(record, CallCompleted)
        assert (record.fields["name"], record.refusal) == (uri, "resource_not_found")
