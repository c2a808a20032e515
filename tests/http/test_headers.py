"""The head of a request, and its comparison with the body."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.errors import JsonRpcErrorCode
from foundation_rt.http.asgi import HttpRefusal
from foundation_rt.http.headers import (
    RequestHead,
    check_mcp_headers,
    is_stateless,
    read_head,
)
from foundation_rt.protocol.jsonrpc import ABSENT, Request
from foundation_rt.protocol.methods import METHODS
from foundation_rt.protocol.peer import CAPABILITIES_KEY

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
MODERN = "2026-07-28"
SINGLE = [
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "host",
    "origin",
    "authorization",
    "x-api-key",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "mcp-method",
    "mcp-name",
    "mcp-param-a",
]


def head_of(**fields: str) -> RequestHead:
    head = read_head([(n.replace("_", "-").encode(), v.encode()) for n, v in fields.items()])
    assert isinstance(head, RequestHead)
    return head


def modern(method: str, params: Any = None, **fields: str) -> tuple[RequestHead, Request]:
    """Return a valid stateless request with `fields` replaced in its head; "" removes one."""
    params = {"_meta": {VERSION_KEY: MODERN}, **(params or {})}
    right = {"mcp_protocol_version": MODERN, "mcp_method": method}
    if (member := METHODS[method].mirrored) is not None:
        right["mcp_name"] = params[member]
    kept = {name: value for name, value in (right | fields).items() if value != ""}
    return head_of(**kept), Request(1, method, params)


def mismatch(head: RequestHead, request: Request) -> str | None:
    refusal = check_mcp_headers(head, request)
    if refusal is None:
        return None
    assert (refusal.status, refusal.code) == (400, JsonRpcErrorCode.HEADER_MISMATCH)
    return refusal.message


@pytest.mark.rule("HEAD-01", "HEAD-03")
@pytest.mark.parametrize("name", SINGLE)
def test_duplicate_deciding_header_is_refused(name: str) -> None:
    raw = name.encode()
    refusal = read_head([(raw, b"a"), (b"x-other", b"b"), (b"x-other", b"b"), (raw, b"a")])
    assert isinstance(refusal, HttpRefusal)
    assert refusal.status == 400
    assert name in refusal.message
    expected = -32020 if name.startswith("mcp-") else -32600
    assert refusal.code == expected


@pytest.mark.rule("HEAD-02", "HEAD-03")
@pytest.mark.parametrize("name", [*SINGLE, "accept"])
@pytest.mark.parametrize("byte", [b"\x00", b"\r", b"\n", b"\x7f", b"\x80", b"\xff"])
def test_forbidden_characters_are_refused(name: str, byte: bytes) -> None:
    refusal = read_head([(name.encode(), b"a" + byte + b"b")])
    assert isinstance(refusal, HttpRefusal)
    assert refusal.status == 400
    assert (refusal.code == -32020) is name.startswith("mcp-")


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20))))
def test_any_head_is_parsed_or_refused(headers: list[tuple[bytes, bytes]]) -> None:
    assert isinstance(read_head(headers), RequestHead | HttpRefusal)


@given(st.binary(max_size=30))
def test_any_parameter_name_is_parsed(rest: bytes) -> None:
    assert isinstance(read_head([(b"mcp-param-" + rest, b"a")]), RequestHead)


@pytest.mark.rule("HEAD-09")
@pytest.mark.parametrize(
    ("version", "params", "expected"),
    [
        (MODERN, ABSENT, True),
        (None, {"_meta": {VERSION_KEY: MODERN}}, True),
        (None, {"_meta": {VERSION_KEY: "v999"}}, True),
        ("2025-06-18", {"_meta": {VERSION_KEY: MODERN}}, True),
        ("2025-06-18", {"_meta": {}}, False),
        ("v999", {}, True),
        (None, {"_meta": {CAPABILITIES_KEY: {}}}, True),
        (None, ABSENT, False),
        (None, {"_meta": 5}, False),
        (None, [], False),
    ],
)
def test_protocol_mode_of_request(version: str | None, params: Any, expected: bool) -> None:
    fields = {} if version is None else {"mcp_protocol_version": version}
    assert is_stateless(head_of(**fields), params) is expected


@pytest.mark.rule("HEAD-12")
@pytest.mark.parametrize(
    ("method", "member"),
    [(name, each.target) for name, each in METHODS.items() if each.is_mirrored],
)
def test_name_must_be_equal_in_head_and_body(method: str, member: str) -> None:
    params = {member: "greet"}
    assert mismatch(*modern(method, params)) is None
    for wrong in ("", "Greet", "greet2", "=?base64?!?="):
        assert "Mcp-Name" in (mismatch(*modern(method, params, mcp_name=wrong)) or "")


@pytest.mark.rule("HEAD-12")
def test_request_without_params_has_no_name_to_compare() -> None:
    head = head_of(mcp_protocol_version=MODERN, mcp_method="tools/call")
    assert mismatch(head, Request(1, "tools/call", ABSENT)) is None
    assert mismatch(head, Request(1, "tools/list", ABSENT)) == (
        "Header mismatch: Mcp-Method is not the method of the body"
    )


def encoded(text: str) -> str:
    return f"=?base64?{b64encode(text.encode()).decode()}?="


@pytest.mark.rule("HEAD-12", "HEAD-13")
@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_text_survives_header_encoding(text: str) -> None:
    assert mismatch(*modern("resources/read", {"uri": text}, mcp_name=encoded(text))) is None


def test_refusal_is_json_rpc_error() -> None:
    refusal = check_mcp_headers(*modern("tools/list", mcp_method=""))
    assert refusal is not None
    error = orjson.loads(refusal.body("c-1", 7))
    assert (error["id"], error["error"]["code"]) == (7, -32020)
    assert error["error"]["data"] == {"reason": "header_mismatch", "correlationId": "c-1"}
    assert orjson.loads(refusal.body("c-1"))["id"] is None
