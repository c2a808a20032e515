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


@pytest.mark.rule("RPC-06")
def test_unknown_members_are_ignored_and_last_duplicate_wins() -> None:
    message = parse(
        b'{"jsonrpc":"1.0","jsonrpc":"2.0","id":null,"id":7,"method":4,"method":"ping",'
        b'"extra":{"id":9},"result":1,"error":2}'
    )
    assert type(message) is Request
    assert (message.id, message.method) == (7, "ping")


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


@pytest.mark.rule("RPC-07")
def test_response_may_lack_id() -> None:
    message = parse(b'{"jsonrpc":"2.0","result":{}}')
    assert type(message) is Response
    assert message.id is None


# -- what is not


HOSTILE_JSON = {
    "no JSON at all": b"hello",
    "cut off": b'{"jsonrpc":"2.0","id":1,"method":',
    "two values": b"{} {}",
    "a trailing comma": b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    "single quotes": b"{'jsonrpc':'2.0'}",
    "a comment": b'{"jsonrpc":"2.0"/*x*/}',
    "invalid UTF-8": b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}',
    "overlong UTF-8": b'{"jsonrpc":"2.0","id":"\xc0\xaf","method":"ping"}',
    "UTF-8 cut off": b'{"jsonrpc":"2.0","id":"\xe2\x82","method":"ping"}',
    "a surrogate in UTF-8": b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "NaN": b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":Infinity}}',
    "a raw NUL between values": b'{"jsonrpc":"2.0",\x00"id":1,"method":"ping"}',
    "a raw NUL in a string": b'{"jsonrpc":"2.0","id":"\x00","method":"ping"}',
    "a raw control character in a string": b'{"jsonrpc":"2.0","id":"\x1f","method":"ping"}',
    "a lone high surrogate": b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    "a lone low surrogate": b'{"jsonrpc":"2.0","id":"\\udc00","method":"ping"}',
    "surrogates the wrong way round": b'{"jsonrpc":"2.0","id":"\\udc00\\ud800","method":"ping"}',
    "a lone surrogate in a key": b'{"jsonrpc":"2.0","id":1,"method":"ping","\\ud800":1}',
    "10^400": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e400}}',
    "-10^400 in digits": b'{"jsonrpc":"2.0","id":-1' + b"0" * 400 + b',"method":"ping"}',
    "a leading zero": b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
    "a hexadecimal number": b'{"jsonrpc":"2.0","id":0x1,"method":"ping"}',
    "100,000 arrays": b"[" * 100_000 + b"]" * 100_000,
    "100,000 arrays that never end": b"[" * 100_000,
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "1,025 arrays": b"[" * 1025 + b"]" * 1025,
}


@pytest.mark.rule("RPC-01", "ERR-06")
@pytest.mark.parametrize("line", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_invalid_json_or_utf8_is_parse_error(line: bytes) -> None:
    assert_malformed(parse(line), JsonRpcErrorCode.PARSE_ERROR, "parse_error", None)


@pytest.mark.rule("RPC-01")
@pytest.mark.parametrize(
    "params",
    [
        b"[" * 1023 + b"]" * 1023,
        b'"\\u0000"',
        b'"\\ud83d\\ude00"',
        b'"\x7f\xc2\x80"',
        b"1.7976931348623157e308",
        b"1e-400",
        b"99999999999999999999",
    ],
)
def test_unusual_json_is_accepted(params: bytes) -> None:
    message = parse(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + params + b"}")
    assert type(message) is Request


@pytest.mark.rule("RPC-02")
@pytest.mark.parametrize("line", [b"1", b"-0.5", b'"ping"', b"true", b"null"])
def test_scalar_is_invalid_request(line: bytes) -> None:
    assert_malformed(parse(line), JsonRpcErrorCode.INVALID_REQUEST, "not_an_object", None)


@pytest.mark.rule("RPC-13")
@pytest.mark.parametrize(
    "line",
    [b"[]", b"[1]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', b"[" * 1024 + b"]" * 1024],
)
def test_any_array_is_batch(line: bytes) -> None:
    message = parse(line)
    assert type(message) is Batch
    assert len(message.items) == (0 if line == b"[]" else 1)


@pytest.mark.rule("RPC-13")
@given(near_messages | values)
def test_batch_item_is_parsed_like_single_message(value: Any) -> None:
    member, alone = read(value), parse_value(value)
    if type(value) is list:
        assert_malformed(member, JsonRpcErrorCode.INVALID_REQUEST, "not_an_object", None)
    else:
        assert type(member) is type(alone)


@pytest.mark.rule("RPC-02")
@pytest.mark.parametrize("request_id", [0, "", "a", 2**64 - 1])
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"method": "ping"}, "jsonrpc_version"),
        ({"jsonrpc": "1.0", "method": "ping"}, "jsonrpc_version"),
        ({"jsonrpc": 2.0, "method": "ping"}, "jsonrpc_version"),
        ({"jsonrpc": None, "result": 1}, "jsonrpc_version"),
        ({"jsonrpc": "2.0"}, "no_method"),
        ({"jsonrpc": "2.0", "params": {}}, "no_method"),
        ({"jsonrpc": "2.0", "method": None}, "method_not_a_string"),
        ({"jsonrpc": "2.0", "method": 5, "result": 1}, "method_not_a_string"),
        ({"jsonrpc": "2.0", "method": ["ping"]}, "method_not_a_string"),
    ],
)
def test_invalid_request_keeps_its_id(
    request_id: str | int, members: dict[str, Any], reason: str
) -> None:
    params = {"_meta": {"correlationId": "c"}}
    message = parse_value({"id": request_id, "params": params, **members})
    assert_malformed(message, JsonRpcErrorCode.INVALID_REQUEST, reason, request_id)
    without_id = parse_value(members)
    assert_malformed(without_id, JsonRpcErrorCode.INVALID_REQUEST, reason, None)


@pytest.mark.rule("RPC-09")
def test_invalid_request_keeps_readable_params() -> None:
    params = {"_meta": {"correlationId": "c"}}
    for members in (
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
    ):
        message = parse_value({**members, "params": params})
        assert type(message) is Malformed
        assert message.params == params
        without = parse_value(members)
        assert type(without) is Malformed
        assert without.params is ABSENT


INVALID_IDS = [
    b"null",
    b"true",
    b"false",
    b"1.5",
    b"1.0",
    b"1e2",
    b"[]",
    b"[1]",
    b"{}",
    b'{"a":1}',
    b"18446744073709551616",
    b"-9223372036854775809",
    b"1" + b"0" * 300,
]


@pytest.mark.rule("RPC-04", "ERR-06")
@pytest.mark.parametrize("request_id", INVALID_IDS)
def test_invalid_id_is_answered_with_null(request_id: bytes) -> None:
    message = parse(b'{"jsonrpc":"2.0","id":' + request_id + b',"method":"ping"}')
    assert_malformed(message, JsonRpcErrorCode.INVALID_REQUEST, "invalid_id", None)


@pytest.mark.rule("RPC-02", "RPC-04")
@pytest.mark.parametrize("request_id", INVALID_IDS)
def test_invalid_id_is_never_repeated(request_id: bytes) -> None:
    for rest in (b'"method":"ping"', b'"jsonrpc":"2.0"', b'"jsonrpc":"2.0","method":5'):
        message = parse(b'{"id":' + request_id + b"," + rest + b"}")
        assert type(message) is Malformed
        assert message.id is None


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


def test_encoding_of_non_json_raises() -> None:
    with pytest.raises(TypeError):
        encode({"x": object()})
