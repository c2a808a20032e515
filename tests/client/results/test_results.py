"""Results as they come: what is in them, and that nothing else is ever raised."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.errors import InvalidResponseError, ToolCallError
from foundation_rt.client.results.results import (
    CallResult,
    CompletionResult,
    GetPromptResult,
    ReadResult,
    ReceivedPromptMessage,
)
from foundation_rt.errors import ErrorCode, StructuredError, to_tool_error
from foundation_rt.protocol.content import BlobContents, Image, Text, TextContents
from tests.lab.peers.client_vectors import cases
from tests.lab.values.json_values import json_values

HI = {"type": "text", "text": "hi"}
PICTURE = {"type": "image", "data": "YWJj", "mimeType": "image/png"}
NO_PICTURE = {"type": "image", "data": "%", "mimeType": "image/png"}


def text(*lines: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": line} for line in lines]


def call_result(*blocks: Any, **members: Any) -> CallResult:
    return CallResult.read({"content": [*blocks], **members})


# -- the frame


@pytest.mark.rule("CTOOL-11")
def test_a_result_is_kept_as_it_came() -> None:
    wire = {
        "resultType": "complete",
        "content": [HI, PICTURE, {"type": "x"}],
        "structuredContent": {"a": 1},
        "isError": False,
        "_meta": {"b": 2},
        "own": 3,
    }
    result = CallResult.read(wire, "c-1")
    assert result.wire is wire
    assert result.content == (Text("hi"), Image(b"abc", "image/png"), {"type": "x"})
    assert result.content is result.content
    assert result.text == "hi"
    assert result.has_structured
    assert result.structured == {"a": 1}
    assert not result.is_error
    assert result.error is None
    assert result.meta == {"b": 2}
    assert result.correlation_id == "c-1"
    assert result.run_id is None
    assert result.raise_for_error() is result


@pytest.mark.rule("CTOOL-11")
def test_absent_members_may_be_null() -> None:
    for wire in ({}, {"content": None, "isError": None, "_meta": None}):
        result = CallResult.read(wire)
        assert result.content == ()
        assert result.text == ""
        assert not result.is_error
        assert result.meta == {}
        assert not result.has_structured
        assert result.structured is None
        assert result.correlation_id is None
        assert result.value() is None
    assert CallResult.read({"structuredContent": None}).has_structured


@pytest.mark.rule("CTOOL-11")
@pytest.mark.parametrize("vector", cases("tool-results", "refused"))
def test_invalid_call_result_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidResponseError) as caught:
        CallResult.read(vector["result"])
    assert caught.value.code == vector["refused"]
    assert caught.value.may_have_run


@pytest.mark.rule("CTOOL-12")
def test_broken_block_leaves_the_other_blocks_readable() -> None:
    result = call_result(HI, NO_PICTURE, *text("there"), structuredContent=[5])
    assert result.text == "hi\nthere"
    assert result.value() == [5]
    with pytest.raises(InvalidResponseError, match="is not base64"):
        _ = result.content


@pytest.mark.rule("CTOOL-12", "CTOOL-13")
@pytest.mark.parametrize(
    "block", [None, "hi", ["hi"], {"type": "text"}, {"type": "text", "text": 5}]
)
def test_broken_text_is_refused_on_access(block: Any) -> None:
    result = call_result(block)
    for ask in (lambda: result.text, lambda: result.content, result.value):
        with pytest.raises(InvalidResponseError):
            ask()


# -- how a tool failed


@pytest.mark.rule("CTOOL-15")
@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_of_this_runtime_comes_back_as_it_was(code: ErrorCode) -> None:
    error = StructuredError(code, "no such city", {"city": "Atlantis"})
    wire = to_tool_error(error, run_id="r-1", correlation_id="c-2")
    result = CallResult.read(orjson.loads(orjson.dumps(wire)), "c-1")
    assert (result.is_error, result.run_id, result.correlation_id) == (True, "r-1", "c-2")
    for ask in (result.raise_for_error, result.value):
        with pytest.raises(ToolCallError) as caught:
            ask()
        told = caught.value
        assert (told.code, told.message, told.details) == (
            code,
            "no such city",
            {"city": "Atlantis"},
        )
        assert (told.run_id, told.correlation_id) == ("r-1", "c-2")
        assert told.content == result.content


@pytest.mark.rule("CTOOL-15")
@pytest.mark.parametrize("vector", cases("tool-results", "error"))
def test_tool_error_is_read_from_json_or_text(vector: dict[str, Any]) -> None:
    result = CallResult.read(vector["result"], "sent")
    error, expected = result.error, vector["error"]
    assert error is not None
    assert (error.code, error.message) == (expected["code"], expected["message"])
    assert error.details == expected.get("details")
    assert result.run_id == expected.get("runId")
    assert result.correlation_id == expected.get("correlationId", "sent")
    assert error.content == result.content


@pytest.mark.rule("CTOOL-15")
def test_members_of_an_error_that_are_wrong_are_left_out() -> None:
    told = {"code": "TIMEOUT", "message": "", "details": [], "runId": 5, "correlationId": {}}
    result = call_result(*text(orjson.dumps(told).decode()), isError=True)
    error = result.error
    assert error is not None
    assert (error.code, error.message) == (ErrorCode.TIMEOUT, "")
    assert (error.details, error.run_id, error.correlation_id) == (None, None, None)


@pytest.mark.rule("CTOOL-15")
def test_an_error_beside_other_blocks_is_text() -> None:
    told = text('{"code":"INTERNAL","message":"x"}')
    error = call_result(*told, PICTURE, isError=True).error
    assert error is not None
    assert error.code is None


# -- the plain value


@pytest.mark.rule("CTOOL-16", "CTOOL-21")
@pytest.mark.parametrize("vector", cases("tool-results", "value"))
def test_the_value_of_a_result(vector: dict[str, Any]) -> None:
    result = CallResult.read(vector["result"])
    value, structured = vector["value"], vector["result"].get("structuredContent")
    assert result.value() == value
    assert type(result.value()) is type(value)
    assert result.structured == structured
    assert result.is_wrapped is (structured == {"result": value})


@pytest.mark.rule("CTOOL-20", "CTOOL-21")
def test_value_of_a_wrapped_long_integer_is_exact() -> None:
    result = call_result(*text(str(2**70)), structuredContent={"result": 2**70})
    assert result.is_wrapped
    assert (type(result.value()), result.value()) == (int, 2**70)


@pytest.mark.rule("CTOOL-16")
@pytest.mark.parametrize("vector", cases("tool-results", "value_is"))
def test_the_value_of_a_result_that_is_more_than_text(vector: dict[str, Any]) -> None:
    result = CallResult.read(vector["result"])
    assert result.value() is getattr(result, vector["value_is"])


@pytest.mark.rule("CTOOL-29")
def test_the_text_of_a_failed_tool_does_not_pass_for_a_result() -> None:
    result = call_result(*text("no such city"), isError=True)
    with pytest.raises(ToolCallError, match="no such city") as caught:
        _ = result.text
    assert caught.value.content == result.content == (Text("no such city"),)


# -- resources, prompts, completions


@pytest.mark.rule("CTOOL-17")
def test_the_contents_of_a_resource() -> None:
    wire = {
        "contents": [
            {"uri": "a:1", "text": "hi", "mimeType": "text/plain"},
            {"uri": "a:2", "blob": "YWJj", "_meta": {"x": 1}},
        ],
        "ttlMs": 5,
        "_meta": {"y": 2},
    }
    result = ReadResult.read(wire)
    assert result.wire is wire
    assert result.meta == {"y": 2}
    assert result.contents == (
        TextContents("a:1", "hi", "text/plain"),
        BlobContents("a:2", b"abc", meta={"x": 1}),
    )
    assert ReadResult.read({"contents": []}).contents == ()


@pytest.mark.rule("CTOOL-17")
def test_the_messages_of_a_prompt() -> None:
    wire = {
        "description": "Greets.",
        "messages": [
            {"role": "user", "content": HI},
            {"role": "assistant", "content": {"type": "x"}},
        ],
        "_meta": {"y": 2},
    }
    result = GetPromptResult.read(wire)
    assert result.wire is wire
    assert (result.description, result.meta) == ("Greets.", {"y": 2})
    assert result.messages == (
        ReceivedPromptMessage("user", Text("hi")),
        ReceivedPromptMessage("assistant", {"type": "x"}),
    )
    assert GetPromptResult.read({"messages": [], "description": 5}).description is None


@pytest.mark.rule("CTOOL-17")
@pytest.mark.parametrize("vector", cases("results", "has_more"))
def test_the_values_of_a_completion(vector: dict[str, Any]) -> None:
    result = CompletionResult.read(vector["result"])
    assert result.wire is vector["result"]
    assert result.values == ("a", "b")
    assert (result.total, result.has_more) == (vector["total"], vector["has_more"])


KINDS: dict[str, Any] = {
    "resources/read": ReadResult,
    "prompts/get": GetPromptResult,
    "completion/complete": CompletionResult,
}


@pytest.mark.rule("CTOOL-17")
@pytest.mark.parametrize("vector", cases("results", "method", "refused"))
def test_invalid_results_of_other_methods_are_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidResponseError) as caught:
        KINDS[vector["method"]].read(vector["result"])
    assert caught.value.code == vector["refused"]


NAMES = [
    "_meta content structuredContent isError resultType contents messages completion",
    "description values total hasMore role type text data mimeType uri blob code message",
]
JSON = json_values(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.sampled_from(["complete", "text", "image", "user", "INTERNAL", "", '{"code":"INTERNAL"}']),
    keys=st.sampled_from(" ".join(NAMES).split()),
    leaves=12,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "content": st.lists(st.sampled_from([HI, PICTURE, NO_PICTURE]) | JSON, max_size=3),
        "isError": st.booleans(),
        "structuredContent": JSON,
        "_meta": JSON,
        "contents": st.lists(JSON, max_size=2),
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.just("user"), "content": JSON}), max_size=2
        ),
        "completion": st.fixed_dictionaries({"values": st.lists(st.just("a") | JSON)}),
    },
)


@pytest.mark.rule("CTOOL-11", "CTOOL-12", "CTOOL-13", "CTOOL-15", "CTOOL-16", "CTOOL-17")
@given(NEARLY | JSON)
def test_whatever_comes_is_a_result_or_refused(wire: Any) -> None:
    for kind in (ReadResult, GetPromptResult, CompletionResult):
        try:
            kind.read(wire)
        except InvalidResponseError as error:
            assert error.code == "E209"
    try:
        result = CallResult.read(wire)
    except InvalidResponseError:
        return
    assert isinstance(result.meta, dict)
    for ask in (
        lambda: result.text,
        lambda: result.content,
        lambda: result.error,
        lambda: (result.run_id, result.correlation_id),
    ):
        try:
            ask()
        except ToolCallError:
            assert result.is_error
        except InvalidResponseError as error:
            assert error.code == "E209"
    try:
        result.value()
    except ToolCallError:
        assert result.is_error
    except InvalidResponseError as error:
        assert error.code == "E209"
