"""Errors as data: codes, shapes, and that an error can always be told."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.errors import (
    AbortError,
    ConfigError,
    ErrorCode,
    JsonRpcErrorCode,
    MissingExtraError,
    RegistrationError,
    StructuredError,
    ToolCompletionOutcome,
    ToolError,
    UsageError,
    create_error,
    describe_exception,
    to_json_rpc_error,
    to_tool_error,
)


def told(error: StructuredError) -> dict[str, Any]:
    result = to_tool_error(error, run_id="r", correlation_id="c")
    assert result.keys() == {"content", "isError"}
    assert result["isError"] is True
    [content] = result["content"]
    assert content.keys() == {"type", "text"}
    assert content["type"] == "text"
    wire: dict[str, Any] = orjson.loads(content["text"])
    return wire


@pytest.mark.rule("ERR-01")
def test_the_codes_are_spelled_as_on_the_wire() -> None:
    assert {code.name for code in ErrorCode} == {code.value for code in ErrorCode}
    assert set(ErrorCode) == {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "TIMEOUT",
        "RESOURCE_EXHAUSTED",
        "INTERNAL",
        "UNAUTHORIZED",
        "NOT_INITIALIZED",
    }
    assert {code.name: int(code) for code in JsonRpcErrorCode} == {
        "PARSE_ERROR": -32700,
        "INVALID_REQUEST": -32600,
        "METHOD_NOT_FOUND": -32601,
        "INVALID_PARAMS": -32602,
        "INTERNAL_ERROR": -32603,
        "NOT_INITIALIZED": -32002,
        "HEADER_MISMATCH": -32020,
        "MISSING_CLIENT_CAPABILITY": -32021,
        "UNSUPPORTED_PROTOCOL_VERSION": -32022,
        "URL_ELICITATION_REQUIRED": -32042,
    }


@pytest.mark.rule("TIME-07")
def test_the_outcomes_are_spelled_as_in_the_record() -> None:
    assert {outcome.value for outcome in ToolCompletionOutcome} == {
        "success",
        "tool_error",
        "timeout",
        "late_completed",
        "aborted",
        "disconnected_completed",
        "protocol_error",
    }


@pytest.mark.rule("ERR-02")
def test_a_structured_error_leaves_out_what_it_does_not_have() -> None:
    assert create_error(ErrorCode.NOT_FOUND, "gone").to_wire() == {
        "code": "NOT_FOUND",
        "message": "gone",
    }
    whole = StructuredError(ErrorCode.INTERNAL, "m", {}, "r", "c")
    assert whole.to_wire() == {
        "code": "INTERNAL",
        "message": "m",
        "details": {},
        "runId": "r",
        "correlationId": "c",
    }


@pytest.mark.rule("ERR-02")
def test_a_tool_error_carries_the_error_as_json_text() -> None:
    error = create_error(ErrorCode.TIMEOUT, "late", {"timeoutMs": 5})
    assert told(error) == {
        "code": "TIMEOUT",
        "message": "late",
        "details": {"timeoutMs": 5},
        "runId": "r",
        "correlationId": "c",
    }
    assert (error.run_id, error.correlation_id) == (None, None)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


UNSPEAKABLE = {
    "bytes": {"x": b"raw"},
    "an object": {"x": object()},
    "a set": {"x": {1}},
    "a lone surrogate": {"x": "\ud800"},
    "a lone surrogate as a key": {"\ud800": 1},
    "a tuple as a key": {(1, 2): 1},
    "a cycle": cycle(),
    "too deep": {"x": nested(300)},
    "no mapping that orjson knows": type("Odd", (), {})(),
}


@pytest.mark.rule("ERR-03")
@pytest.mark.parametrize("details", UNSPEAKABLE.values(), ids=UNSPEAKABLE)
def test_details_that_json_cannot_say_are_replaced(details: Any) -> None:
    error = told(create_error(ErrorCode.NOT_FOUND, "gone", details))
    assert error["details"] == {"reason": "details_not_serializable"}
    assert (error["code"], error["message"]) == ("NOT_FOUND", "gone")
    assert (error["runId"], error["correlationId"]) == ("r", "c")


@pytest.mark.rule("ERR-03")
def test_a_message_that_utf8_cannot_say_is_told_with_escapes() -> None:
    error = told(create_error(ErrorCode.INTERNAL, "bad \ud800 text"))
    assert error["message"] == "bad \\ud800 text"


@pytest.mark.rule("ERR-02")
def test_details_may_have_keys_that_are_no_strings() -> None:
    error = told(create_error(ErrorCode.INTERNAL, "m", {1: "one", None: "none"}))  # type: ignore[dict-item]
    assert error["details"] == {"1": "one", "null": "none"}


@pytest.mark.rule("ERR-03")
@given(
    message=st.text(st.characters(exclude_categories=())),
    details=st.none()
    | st.recursive(
        st.integers() | st.floats() | st.text(st.characters(exclude_categories=())) | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=8,
    ),
)
def test_an_error_can_always_be_told(message: str, details: Any) -> None:
    error = told(create_error(ErrorCode.INTERNAL, message, details))
    assert error["code"] == "INTERNAL"


@pytest.mark.rule("ERR-01", "RPC-09")
@pytest.mark.parametrize("request_id", [None, 0, "a"])
def test_a_json_rpc_error_has_its_id_code_message_and_data(request_id: Any) -> None:
    code = JsonRpcErrorCode.INVALID_PARAMS
    message = to_json_rpc_error(code, "no", {"correlationId": "c"}, request_id)
    assert orjson.loads(orjson.dumps(message)) == {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": -32602, "message": "no", "data": {"correlationId": "c"}},
    }


@pytest.mark.rule("ERR-04")
@pytest.mark.parametrize("code", list(ErrorCode))
def test_a_tool_error_takes_its_code_as_a_member_or_as_text(code: ErrorCode) -> None:
    for given_code in (code, code.value):
        error = ToolError(given_code, "why", {"a": 1})
        assert error.to_structured() == StructuredError(code, "why", {"a": 1})
        assert str(error) == "why"


@pytest.mark.rule("ERR-04")
def test_a_tool_error_with_another_code_is_a_bug_of_its_author() -> None:
    with pytest.raises(ValueError, match="NO_SUCH_CODE"):
        ToolError("NO_SUCH_CODE", "why")


@pytest.mark.rule("ERR-04")
def test_a_message_that_is_no_text_becomes_text() -> None:
    error = ToolError(ErrorCode.INTERNAL, ValueError("inner"))  # type: ignore[arg-type]
    assert error.message == "inner"


@pytest.mark.rule("ERR-04")
def test_a_subclass_that_forgets_its_base_is_an_internal_error() -> None:
    class Forgetful(ToolError):
        def __init__(self) -> None:
            """Call no base."""

    assert Forgetful().to_structured() == StructuredError(ErrorCode.INTERNAL, "The tool failed.")


def test_what_an_author_or_operator_can_mend_is_a_usage_error() -> None:
    assert issubclass(ConfigError, UsageError)
    assert issubclass(RegistrationError, UsageError)
    assert ConfigError("x").problems == ()
    assert not issubclass(UsageError, ToolError | AbortError)


@pytest.mark.rule("REG-03")
def test_a_registration_error_counts_as_an_invalid_argument() -> None:
    assert RegistrationError("x").code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.rule("ERR-11")
def test_missing_extra_is_named_with_one_command_that_installs_it(tmp_path: Path) -> None:
    message = str(MissingExtraError("OutgoingMessage 2020-12", "jsonschema"))
    prefix, _, command = message.partition(": ")
    assert prefix == "OutgoingMessage 2020-12 needs an extra"
    # It is installed here: nothing has to be fetched.
    words = [*shlex.split(command), "--dry-run", "--no-index"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


@pytest.mark.rule("ERR-05")
def test_an_exception_is_described_by_its_type_its_text_and_where_it_was_raised() -> None:
    def inner() -> None:
        raise KeyError("lost")

    try:
        inner()
    except KeyError as error:
        described = describe_exception(error)
    assert described["type"] == "KeyError"
    assert described["message"] == "'lost'"
    here, there = described["frames"]
    assert here.endswith(
        " test_an_exception_is_described_by_its_type_its_text_and_where_it_was_raised"
    )
    assert there.startswith(f"{__file__}:")
    assert there.endswith(" inner")


@pytest.mark.rule("ERR-05")
def test_of_many_frames_the_innermost_ten_are_kept() -> None:
    def descend(depth: int) -> None:
        if depth == 0:
            raise ValueError("deep")
        descend(depth - 1)

    with pytest.raises(ValueError, match="deep") as raised:
        descend(50)
    frames = describe_exception(raised.value)["frames"]
    assert len(frames) == 10
    assert all(frame.endswith(" descend") for frame in frames)


@pytest.mark.rule("ERR-05")
def test_an_exception_without_a_text_or_a_traceback_is_described_all_the_same() -> None:
    assert describe_exception(Mute()) == {
        "type": "Mute",
        "message": "(no text: its __str__ raised)",
        "frames": [],
    }


@pytest.mark.rule("ERR-09")
def test_exceptions_of_a_group_are_described_to_a_depth() -> None:
    error: Exception = TypeError("why")
    for name in ("a", "b", "c", "d"):
        error = ExceptionGroup(name, [error] * 11)
    described, depth = describe_exception(error), 0
    while "exceptions" in described:
        assert len(described["exceptions"]) == 10
        described, depth = described["exceptions"][0], depth + 1
    assert depth == 3
