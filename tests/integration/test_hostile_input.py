"""Every row of the table in spec/errors.md that a client causes, through a real process.

All of it goes through one conversation, with a `ping` after each line: what was answered between
two of them is the answer to the line.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.process import decode, serve

APP = """
import threading
from foundation_rt import Server, ToolContext

server = Server("target")
go_on = threading.Event()


@server.tool(inline=True)
def add(first: int, second: int = 0) -> int:
    return first + second


@server.tool
def hold(ctx: ToolContext):
    ctx.logger.info("holding")
    go_on.wait()


@server.tool(inline=True)
def free(anything: list | None = None):
    go_on.set()
"""

LIMIT = 262_144
SETTINGS = {
    "transport.max_line_bytes": LIMIT,
    "tools.max_payload_bytes": 2_000,
    "resources.max_concurrent_executions": 2,
    "tools.admin_registration_enabled": "true",
    "security.dynamic_registration_enabled": "true",
}


def request(method: str, /, params: Any = ..., identifier: Any = "id", **members: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": identifier, "method": method, **members}
    if params is not ...:
        message["params"] = params
    return orjson.dumps(message)


def call(arguments: Any, name: Any = "add", **params: Any) -> bytes:
    return request("tools/call", {"name": name, "arguments": arguments, **params})


def raw(text: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":"id","method":"ping","params":{{"x":{text}}}}}'.encode()


PARSE = (-32700, None, ...)
SHAPE = (-32602, "id", "invalid_params")

# What is sent; then code, id and reason of the JSON-RPC error that answers it.
PROTOCOL_ERRORS: dict[str, tuple[bytes, tuple[int, str | None, Any]]] = {
    "no_json": (b"hello", PARSE),
    "truncated": (b'{"jsonrpc":"2.0"', PARSE),
    "two_on_a_line": (b"{} {}", PARSE),
    "no_utf8": (b'{"jsonrpc":"2.0","id":"\xff\xfe","method":"ping"}', PARSE),
    "utf16": ('{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16-le"), PARSE),
    "bom": (b"\xef\xbb\xbf" + request("ping"), PARSE),
    "nan": (raw("NaN"), PARSE),
    "infinity": (raw("-Infinity"), PARSE),
    "huge_number": (raw("1" + "0" * 400), PARSE),
    "huge_exponent": (raw("1e400"), PARSE),
    "nul": (raw('"\0"'), PARSE),
    "lone_surrogate": (raw('"\\ud800"'), PARSE),
    "deep_arrays": (b"[" * 100_000, PARSE),
    "deep_objects": (b'{"a":' * 40_000, PARSE),
    "deep_closed": (raw("[" * 100_000 + "]" * 100_000), PARSE),
    "scalar": (b"5", (-32600, None, ...)),
    "string": (b'"ping"', (-32600, None, ...)),
    "null": (b"null", (-32600, None, ...)),
    "no_jsonrpc": (b'{"id":"id","method":"ping"}', (-32600, "id", ...)),
    "jsonrpc_1": (request("ping", jsonrpc="1.0"), (-32600, "id", ...)),
    "jsonrpc_number": (request("ping", jsonrpc=2.0), (-32600, "id", ...)),
    "no_method": (b'{"jsonrpc":"2.0","id":"id"}', (-32600, "id", ...)),
    "method_number": (request("ping", method=5), (-32600, "id", ...)),
    "empty_batch": (b"[]", (-32600, None, "batch_not_supported")),
    "batch": (b"[" + request("ping") + b"]", (-32600, None, "batch_not_supported")),
    "id_null": (request("ping", identifier=None), (-32600, None, "invalid_id")),
    "id_true": (request("ping", identifier=True), (-32600, None, "invalid_id")),
    "id_fraction": (request("ping", identifier=1.5), (-32600, None, "invalid_id")),
    "id_float": (request("ping", identifier=1.0), (-32600, None, "invalid_id")),
    "id_list": (request("ping", identifier=[1]), (-32600, None, "invalid_id")),
    "id_object": (request("ping", identifier={}), (-32600, None, "invalid_id")),
    "id_large": (
        b'{"jsonrpc":"2.0","id":18446744073709551616,"method":"ping"}',
        (-32600, None, "invalid_id"),
    ),
    "unknown_method": (request("tools/conquer"), (-32601, "id", ...)),
    "second_initialize": (
        request("initialize", {"protocolVersion": "2025-11-25"}),
        (-32600, "id", "already_initialized"),
    ),
    "line_too_long": (b"x" * (LIMIT + 1), (-32600, None, "line_too_long")),
    "line_much_too_long": (request("ping", ["y"] * LIMIT), (-32600, None, "line_too_long")),
    "params_null": (request("tools/call", None), SHAPE),
    "params_list": (request("tools/call", ["add"]), SHAPE),
    "name_missing": (request("tools/call", {}), SHAPE),
    "name_number": (request("tools/call", {"name": 5}), SHAPE),
    "arguments_list": (call([1]), SHAPE),
    "arguments_null": (call(None), SHAPE),
    "meta_string": (call({"first": 1}, _meta="x"), SHAPE),
    "cursor": (request("tools/list", {"cursor": "x"}), (-32602, "id", "invalid_cursor")),
}


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


def nested_text(levels: int) -> bytes:
    text = "[" * levels + "]" * levels
    return (
        '{"jsonrpc":"2.0","id":"id","method":"tools/call",'
        f'"params":{{"name":"free","arguments":{{"anything":{text}}}}}}}'
    ).encode()


# What is sent; then code, details.reason and details of the tool error that answers it.
TOOL_ERRORS: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "unknown_tool": (call({}, "nowhere"), "NOT_FOUND", {"toolName": "nowhere"}),
    "long_name": (call({}, "n" * 1000), "NOT_FOUND", {"toolName": "n" * 128}),
    "administrative": (call({}, "admin/registerTool"), "UNAUTHORIZED", {"reason": "deny_all"}),
    "wrong_type": (
        call({"first": "5"}),
        "INVALID_ARGUMENT",
        {
            "reason": "schema_validation",
            "errors": [{"path": "/first", "message": "must be integer"}],
        },
    ),
    "payload": (
        call({"first": 1, "x": "y" * 2_000}),
        "RESOURCE_EXHAUSTED",
        {"reason": "payload_too_large", "payloadBytes": 2_018, "maxPayloadBytes": 2_000},
    ),
    "too_deep": (
        nested_text(300),
        "INVALID_ARGUMENT",
        {"reason": "arguments_not_serializable"},
    ),
}

UNANSWERED: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \t\r",
    "result": b'{"jsonrpc":"2.0","id":"id","result":{}}',
    "error": b'{"jsonrpc":"2.0","id":"id","error":{"code":1,"message":"x"}}',
    "error_of_nobody": b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    "unknown_notification": b'{"jsonrpc":"2.0","method":"notifications/unknown"}',
    "call_without_id": b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"free"}}',
    "ping_without_id": b'{"jsonrpc":"2.0","method":"ping"}',
}

ANSWERED: dict[str, tuple[bytes, Any]] = {
    "duplicate_keys": (
        b'{"jsonrpc":"2.0","id":"no","method":"tools/call","id":"id",'
        b'"params":{"name":"add","arguments":{"first":1,"first":2}}}',
        2,
    ),
    "extra_members": (call({"first": 1}, spare=[1]), 1),
    "carriage_return": (call({"first": 1}) + b"\r", 1),
    "integral_float": (call({"first": 5.0}), 5),
    "at_the_payload_limit": (call({"first": 1, "second": 2}), 3),
}

LINES = {
    **{name: line for name, (line, _) in PROTOCOL_ERRORS.items()},
    **{name: line for name, (line, _, _) in TOOL_ERRORS.items()},
    **UNANSWERED,
    **{name: line for name, (line, _) in ANSWERED.items()},
}

Answers = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    """Return the answer to each line, and check that the server then serves as before."""
    with serve(APP, SETTINGS) as server:
        for name, line in LINES.items():
            server.write(line + b"\n" + request("ping", identifier=f"after {name}") + b"\n")
        server.answer(f"after {name}")
        health = server.call("health")
        assert health["resources"]["concurrentExecutions"] == 0
        assert server.finish() == 0
        assert "Traceback" not in server.stderr
        found: Answers = {}
        pending: list[dict[str, Any]] = []
        for message in server.messages[1:]:
            if str(message["id"]).startswith("after "):
                found[message["id"].removeprefix("after ")] = pending
                pending = []
            else:
                pending.append(message)
        # For each request that reached tools/call there is one record.
        records = server.records_with(message="tool call completed")
        reached = [line for line in LINES.values() if b'"tools/call"' in line and b'"id"' in line]
        assert len(records) == len(reached) + 1
        return found


@pytest.mark.rule("ERR-06", "RPC-01", "RPC-02", "RPC-03", "RPC-04", "RPC-11", "CALL-02", "REG-02")
@pytest.mark.parametrize("name", PROTOCOL_ERRORS)
def test_what_is_no_request_is_refused(answers: Answers, name: str) -> None:
    code, identifier, reason = PROTOCOL_ERRORS[name][1]
    [answer] = answers[name]
    assert answer.keys() == {"jsonrpc", "id", "error"}
    assert answer["id"] == identifier
    assert answer["error"]["code"] == code
    assert len(answer["error"]["data"]["correlationId"]) == 36
    if reason is not ...:
        assert answer["error"]["data"]["reason"] == reason


@pytest.mark.rule("ERR-06", "ERR-02", "CALL-05", "CALL-06", "CALL-08")
@pytest.mark.parametrize("name", TOOL_ERRORS)
def test_a_call_that_is_refused_is_told_why(answers: Answers, name: str) -> None:
    _, code, details = TOOL_ERRORS[name]
    [answer] = answers[name]
    error = decode(answer)
    assert answer["id"] == "id"
    assert answer["result"]["isError"] is True
    assert error["code"] == code
    assert error["details"] == details
    assert error.keys() == {"code", "message", "details", "runId", "correlationId"}


@pytest.mark.rule("ERR-06", "RPC-07", "RPC-08", "FRAME-03")
@pytest.mark.parametrize("name", UNANSWERED)
def test_what_asks_nothing_is_not_answered(answers: Answers, name: str) -> None:
    assert answers[name] == []


@pytest.mark.rule("ERR-06", "RPC-06", "FRAME-02")
@pytest.mark.parametrize("name", ANSWERED)
def test_what_is_odd_but_valid_is_answered(answers: Answers, name: str) -> None:
    [answer] = answers[name]
    assert answer["id"] == "id"
    assert decode(answer) == ANSWERED[name][1]


@pytest.mark.rule("ERR-06", "RPC-05", "CALL-07", "RES-06", "RES-08", "RES-09", "CALL-13")
def test_an_id_and_a_slot_can_be_taken() -> None:
    with serve(APP, {**SETTINGS, "server.shutdown_timeout_ms": 300}) as server:
        for number in (1001, 1002):
            server.send("tools/call", {"name": "hold"}, id=number)
        server.wait_until(lambda: len(server.records_with(message="holding")) == 2, "both")
        server.send("tools/call", {"name": "add", "arguments": {"first": 1}}, id=1001)
        server.send("ping", id=1002)
        server.request("ping")
        duplicates = server.messages[1:3]
        assert [each["id"] for each in duplicates] == [None, None]
        assert {each["error"]["code"] for each in duplicates} == {-32600}
        assert {each["error"]["data"]["reason"] for each in duplicates} == {"duplicate_id"}
        for _ in range(3):
            error = server.call("add", first=1)
            assert error["code"] == "RESOURCE_EXHAUSTED"
            assert error["details"] == {"reason": "concurrency_limit", "maxConcurrentExecutions": 2}
        health = server.call("health")
        assert health["status"] == "unhealthy"
        assert health["resources"]["concurrentExecutions"] == 2
        [*_, record] = server.records_with(errorCode="RESOURCE_EXHAUSTED") or [
            server.record(errorCode="RESOURCE_EXHAUSTED")
        ]
        assert record["outcome"] == "tool_error"
        assert "backoff" in record["retryHint"]
        server.cancel(1001)
        server.cancel(1002)
        assert server.call("health")["resources"]["concurrentExecutions"] == 2
        server.close_input()
        assert server.wait() == 0
        assert server.answers(1001) == server.answers(1002) == []


@pytest.mark.rule("ERR-06", "LIFE-03", "CALL-01", "CALL-14")
def test_before_the_handshake_nothing_is_served() -> None:
    with serve(APP, handshake=False) as server:
        lines = [
            request("ping", identifier=101),
            request("tools/call", {"name": "add", "arguments": {"first": 1}}, identifier=102),
            request("tools/conquer", identifier=103),
            request("notifications/initialized", identifier=104),
        ]
        server.write(b"\n".join(lines) + b"\n")
        server.wait_for_messages(4)
        for number, answer in enumerate(server.messages, start=101):
            assert answer["id"] == number
            assert answer["error"]["code"] == -32002
            assert answer["error"]["message"] == "Not initialized"
            assert answer["error"]["data"]["code"] == "NOT_INITIALIZED"
        record = server.record(outcome="protocol_error")
        assert record["toolName"] == "add"
        assert "runId" not in record
        server.handshake()
        assert server.call("add", first=1) == 1
        assert server.finish() == 0


@pytest.mark.rule("FRAME-04", "FRAME-01")
def test_a_line_without_an_end_is_discarded_as_it_comes() -> None:
    with serve(APP, {"transport.max_line_bytes": 65_536}) as server:
        server.write(b"z" * 20_000_000 + b"\n")
        assert server.call("add", first=1) == 1
        [refused, _] = server.messages[1:]
        assert refused["id"] is None
        assert refused["error"]["data"]["reason"] == "line_too_long"
        assert refused["error"]["data"]["maxLineBytes"] == 65_536
        memory = server.call("health")["resources"]["memoryUsageBytes"]
        assert memory < 60_000_000
        server.write(b"z" * 100_000)  # and one that ends with the input
        assert server.finish() == 0
        assert server.messages[-1]["error"]["data"]["reason"] == "line_too_long"
