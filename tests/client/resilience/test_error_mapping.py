"""What errors of the wire become: by vectors, against servers of this runtime, and by chance."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.errors import CATALOGUE, CallTimeoutError, MCPError, SessionExpiredError
from foundation_rt.client.resilience import error_mapping
from foundation_rt.client.resilience.error_mapping import (
    BY_NUMBER,
    map_http_status,
    map_mcp_error,
)
from foundation_rt.client.safe_text import MAX_MESSAGE_CHARACTERS
from foundation_rt.errors import ErrorCode, JsonRpcErrorCode
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.peers.client_vectors import cases
from tests.lab.values.json_values import json_values

SPEC = Path(__file__).parents[3] / "spec"
METHODS = sorted({"initialize", *(each for r in REVISIONS.values() for each in r.requests)})
BEFORE_SESSION = ("initialize", "server/discover")

numbers = st.integers(-(2**63), 2**64 - 1)
texts = st.text() | st.sampled_from(
    [each.values[0]["error"]["message"] for each in cases("errors", "error")[:60]]
)
any_json = json_values(numbers, st.floats(allow_nan=False), texts, keys=texts)
codes = st.sampled_from([*BY_NUMBER, *range(-32099, -31999)]) | numbers
data = any_json | st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from([*ErrorCode]).map(str) | any_json,
        "details": any_json | st.fixed_dictionaries({"reason": any_json, "retryAfterMs": any_json}),
        "uri": any_json,
        "supported": any_json,
        "requiredCapabilities": any_json,
    },
)
errors = st.fixed_dictionaries(
    {"code": codes}, optional={"message": texts | any_json, "data": data}
)
methods = st.none() | st.sampled_from(METHODS) | st.text()


def _mapped(vector: dict[str, Any]) -> MCPError:
    if "http" in vector:
        return map_http_status(vector["http"])
    return map_mcp_error(vector["error"], vector["method"])


@pytest.mark.rule(
    "CERR-04",
    "CERR-07",
    "CERR-08",
    "CERR-09",
    "CERR-10",
    "CERR-11",
    "CERR-15",
    "CERR-12",
    "CERR-16",
)
@pytest.mark.parametrize("vector", cases("errors"))
def test_the_vectors_hold(vector: dict[str, Any]) -> None:
    error = _mapped(vector)
    found = {
        "code": error.code,
        "retryable": error.retryable,
        "may_have_run": error.may_have_run,
        "type": type(error).__name__,
    }
    assert found == {name: vector[name] for name in found}


@pytest.mark.rule("CERR-07")
def test_the_table_of_the_specification_is_the_one_that_is_used() -> None:
    text = (SPEC / "client-errors.md").read_text()
    rows = re.findall(r"^\| (-\d+) \| (E\d+) \| (yes|no) \| (not|may)", text, re.MULTILINE)
    shown = {int(number): (code, word == "yes", ran == "may") for number, code, word, ran in rows}
    assert shown == {
        number: (meaning.code, CATALOGUE[meaning.code].retryable, meaning.may_have_run)
        for number, meaning in BY_NUMBER.items()
    }


@pytest.mark.rule("CERR-07")
@pytest.mark.parametrize(
    ("number", "code", "user_message"),
    [
        (-32700, "E203", "Invalid request format"),
        (-32600, "E203", "Invalid request format"),
        (-32601, "E204", "Requested tool not available"),
        (-32602, "E203", "Invalid parameters"),
        (-32603, "E201", "Processing service error"),
        (-32000, "E201", "Processing service unavailable"),
        (-32001, "E202", "Request timeout"),
        (-32002, "E302", "Document conversion failed"),
        (-32003, "E303", "Export generation failed"),
        (-32010, "E201", "An unexpected error occurred"),
        (7, "E201", "An unexpected error occurred"),
    ],
)
def test_user_messages_are_those_of_the_seed(number: int, code: str, user_message: str) -> None:
    error = map_mcp_error({"code": number, "message": "as it is", "data": [1]}, "tools/call")
    assert (error.code, error.user_message) == (code, user_message)
    assert (error.message, error.original_code, error.data) == ("as it is", number, [1])
    assert error.suggested_action


@pytest.mark.rule("CERR-07")
def test_every_code_that_servers_of_this_runtime_use_has_a_meaning() -> None:
    assert {int(code) for code in JsonRpcErrorCode} <= BY_NUMBER.keys()


@pytest.mark.rule("CERR-08")
def test_every_code_of_a_tool_error_has_a_meaning() -> None:
    for code in ErrorCode:
        error = map_mcp_error({"code": 7, "message": "m", "data": {"code": code.value}})
        assert error.user_message != error_mapping.UNKNOWN.user_message


@pytest.mark.rule("CERR-08")
@pytest.mark.parametrize(
    ("told", "seconds"),
    [(1500, 1.5), (0, 0.0), (-1, None), ("1500", None), (True, None), (1.5, None), (None, None)],
)
def test_a_server_says_how_long_it_wants_to_be_left_alone(told: Any, seconds: float | None) -> None:
    details = {"reason": "rate_limit", "retryAfterMs": told}
    data = {"code": "RESOURCE_EXHAUSTED", "details": details}
    error = map_mcp_error({"code": -32603, "message": "m", "data": data}, "resources/read")
    assert error.retry_after == seconds


@pytest.mark.rule("CERR-09")
@pytest.mark.parametrize(
    ("method", "message", "noun"),
    [
        ("tools/call", "no", "tool"),
        ("prompts/get", "no", "prompt"),
        ("resources/read", "no", "resource"),
        ("tasks/get", "no", "task"),
        ("logging/setLevel", "no", "function"),
        (None, "no", "tool"),
        ("tools/call", "Unknown resource: a://b", "resource"),
    ],
)
def test_user_message_names_the_missing_thing(method: str | None, message: str, noun: str) -> None:
    error = map_mcp_error({"code": -32601, "message": message}, method)
    assert (error.code, error.user_message) == ("E204", f"Requested {noun} not available")


@pytest.mark.rule("CERR-12")
def test_message_keeps_its_readable_part() -> None:
    def message(text: str) -> str:
        return map_mcp_error({"code": 1, "message": text}).message

    assert message("  two\nlines,\ta tab  ") == "two\nlines,\ta tab"
    assert message("\x1b[31mred\x07\x00\x9b\u2028") == "\ufffd[31mred\ufffd\ufffd\ufffd\ufffd"
    assert message("a\ud800b") == "a\ufffdb"
    assert message("safe\u202etxt.exe") == "safe\ufffdtxt.exe"
    assert message("a" * MAX_MESSAGE_CHARACTERS) == "a" * MAX_MESSAGE_CHARACTERS
    assert message("ab" * MAX_MESSAGE_CHARACTERS) == "ab" * (MAX_MESSAGE_CHARACTERS // 2) + "..."
    assert message("\n") == "the server answered with error 1"
    assert map_http_status(500, detail="\x1b[2J" + "a" * 2000).message.endswith("aaa...")


@pytest.mark.rule("CERR-13")
def test_http_status_is_kept_with_its_details() -> None:
    error = map_http_status(503, retry_after=7.0, detail="Back soon")
    assert error.message == "the server answered with HTTP status 503: Back soon"
    assert (error.data, error.original_code, error.retry_after) == ({"status": 503}, None, 7.0)
    assert map_http_status(404).message == "the server answered with HTTP status 404"


@pytest.mark.rule("CERR-01", "CERR-04", "CERR-07", "CERR-15", "CERR-12")
@given(error=errors, method=methods)
def test_whatever_an_error_says_it_becomes_one_of_the_catalogue(
    error: dict[str, Any], method: str | None
) -> None:
    mapped = map_mcp_error(error, method)
    assert mapped.code in CATALOGUE
    assert mapped.original_code == error["code"]
    assert mapped.data == error.get("data")
    assert 0 < len(mapped.message) <= MAX_MESSAGE_CHARACTERS + 3
    controls = {each for each in mapped.message if category(each) in ("Cc", "Cs")}
    assert controls <= {"\n", "\t"}
    assert isinstance(mapped, CallTimeoutError) is (mapped.code == "E202")
    if isinstance(mapped, SessionExpiredError):
        assert not mapped.may_have_run
        assert method not in BEFORE_SESSION


@pytest.mark.rule("CERR-12")
@given(error=any_json, method=methods)
def test_whatever_stands_in_the_place_of_an_error_is_an_unusable_answer(
    error: Any, method: str | None
) -> None:
    mapped = map_mcp_error(error, method)
    has_code = isinstance(error, dict) and type(error.get("code")) is int
    assert has_code or mapped.code == "E209"


@pytest.mark.rule("CERR-07")
@given(number=numbers.filter(lambda number: number not in BY_NUMBER), method=methods)
def test_an_unknown_number_is_e201_and_retryable(number: int, method: str | None) -> None:
    error = map_mcp_error({"code": number, "message": "as it is"}, method)
    assert (error.code, error.retryable, error.may_have_run) == ("E201", True, True)
    assert error.original_code == number


@pytest.mark.rule("CERR-16")
@given(status=st.integers(), detail=st.text())
def test_every_number_in_the_place_of_a_status_becomes_an_error(status: int, detail: str) -> None:
    error = map_http_status(status, detail=detail)
    assert error.code in CATALOGUE
    assert error.data == {"status": status}
    if 400 <= status < 500:
        assert error.may_have_run is (status == 408)
