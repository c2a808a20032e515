"""The parsing of any line into a message, with the right id."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.errors import JsonRpcErrorCode
from foundation_rt.protocol.jsonrpc import (
    ABSENT,
    Batch,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    encode,
    is_request_id,
    parse,
    read,
)

KINDS = (Request, Notification, Response, Malformed, Batch)

within_64_bits = st.integers(-(2**63), 2**64 - 1)
scalars = (
    st.none()
    | st.booleans()
    | within_64_bits
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
member_names = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"])
near_messages = st.dictionaries(
    member_names, values | st.sampled_from(["2.0", "1.0", "ping", 1, 1.0, "1"]), max_size=7
)
request_ids = within_64_bits | st.text()


def parse_value(value: Any) -> Message:
    return parse(orjson.dumps(value))


def assert_malformed(message: Message, code: int, reason: str, request_id: object) -> None:
    assert type(message) is Malformed
    assert (message.code, message.reason) == (code, reason)
    assert message.id == request_id
    assert type(message.id) is type(request_id)
    assert message.detail


# -- what is well-formed


@pytest.mark.rule("RPC-04")
@given(request_id=request_ids, method=st.text(), params=values)
@example(request_id=2**64 - 1, method="ping", params={})
@example(request_id=-(2**63), method="ping", params={})
@example(request_id="", method="", params=None)
def test_request_has_id_method_and_params(request_id: str | int, method: str, params: Any) -> None:
    message = parse_value({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
    assert type(message) is Request
    assert (message.id, message.method, message.params) == (request_id, method, params)
    assert type(message.id) is type(request_id)


@pytest.mark.rule("RPC-08")
@given(method=st.text(), params=values)
def test_message_without_id_is_notification(method: str, params: Any) -> None:
    message = parse_value({"jsonrpc": "2.0", "method": method, "params": params})
    assert type(message) is Notification
    assert (message.method, message.params) == (method, params)


@pytest.mark.rule("RPC-12")
def test_absent_params_differ_from_null() -> None:
    absent = parse(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    null = parse(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}')
    assert type(absent) is Request
    assert absent.params is ABSENT
    assert repr(ABSENT) == "ABSENT"
    assert type(null) is Request
    assert null.params is None
    notification = parse(b'{"jsonrpc":"2.0","method":"x"}')
    assert type(notification) is Notification
    assert notification.params is ABSENT


@pytest.mark.rule("RPC-07")
@pytest.mark.parametrize("request_id", [1, "1", None, 1.5, [1], {"a": 1}, True])
@pytest.mark.parametrize("members", [{"result": 5}, {"error": {}}, {"result": None, "error": 3}])
def test_result_or_error_without_method_is_response(
    request_id: Any, members: dict[str, Any]
) -> None:
    message = parse_value({"jsonrpc": "2.0", "id": request_id, **members})
    assert type(message) is Response
    assert message.id == request_id
    assert message.result == members.get("result")
    assert message.error == members.get("error")


# -- what is not


@pytest.mark.rule("RPC-13")
@given(near_messages | values)
def test_batch_item_is_parsed_like_single_message(value: Any) -> None:
    member, alone = read(value), parse_value(value)
    if type(value) is list:
        assert_malformed(member, JsonRpcErrorCode.INVALID_REQUEST, "not_an_object", None)
    else:
        assert type(member) is type(alone)


@pytest.mark.rule("RPC-04")
@given(values)
def test_request_id_is_string_or_integer(value: Any) -> None:
    assert is_request_id(value) == (type(value) in (int, str))


# -- any line


@pytest.mark.rule("RPC-01", "RPC-02")
@given(st.binary(max_size=200) | st.text(max_size=80).map(str.encode))
def test_any_bytes_are_one_kind_of_message(line: bytes) -> None:
    assert type(parse(line)) in KINDS


@pytest.mark.rule("RPC-02", "RPC-03", "RPC-04", "RPC-07", "RPC-08")
@given(near_messages | values)
def test_any_json_value_has_kind_of_rules(value: Any) -> None:
    message = parse_value(value)
    assert type(message) is kind_by_the_rules(value)
    if type(message) is Malformed:
        assert message.code is JsonRpcErrorCode.INVALID_REQUEST
        readable = value.get("id") if isinstance(value, dict) else None
        assert message.id == (readable if type(readable) in (int, str) else None)


def kind_by_the_rules(value: Any) -> type:
    if isinstance(value, list):
        return Batch
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return Malformed
    if "method" not in value:
        return Response if "result" in value or "error" in value else Malformed
    if type(value["method"]) is not str:
        return Malformed
    if "id" not in value:
        return Notification
    return Request if type(value["id"]) in (int, str) else Malformed


@pytest.mark.rule("RPC-01")
@given(st.dictionaries(st.text(), values))
def test_encoding_is_one_line_and_invertible(message: dict[str, Any]) -> None:
    line = encode(message)
    assert b"\n" not in line
    assert b"\r" not in line
    assert orjson.loads(line) == message
