"""Values of resource handlers as contents."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any

import orjson
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.features.resources.results import shape_contents
from foundation_rt.protocol.content import BlobContents, Text, TextContents, ToolResult
from foundation_rt.protocol.revisions import REVISIONS

OLDEST, *_, NEWEST = REVISIONS.values()


@frozen
class Place:
    city: str


def contents(value: Any, mime_type: str | None = None, revision: Any = NEWEST) -> list[Any]:
    result = shape_contents(value, "a:b", mime_type, revision)
    assert result.keys() == {"contents"}
    listed: list[Any] = result["contents"]
    return listed


@pytest.mark.rule("MRES-05")
@pytest.mark.parametrize(
    ("value", "mime_type", "text"),
    [
        ("text", "text/plain", "text"),
        ("", "text/plain", ""),
        (None, "application/json", "null"),
        (5, "application/json", "5"),
        ({"a": 1}, "application/json", '{"a":1}'),
        (["a", "b"], "application/json", '["a","b"]'),
        ([], "application/json", "[]"),
        (Place("Oslo"), "application/json", '{"city":"Oslo"}'),
    ],
)
def test_text_and_json(value: Any, mime_type: str, text: str) -> None:
    assert contents(value) == [{"uri": "a:b", "mimeType": mime_type, "text": text}]
    assert contents(value, "text/x")[0]["mimeType"] == "text/x"


@pytest.mark.rule("MRES-05")
@given(st.binary())
def test_bytes_are_a_blob(value: bytes) -> None:
    for given_value in (value, bytearray(value), memoryview(value)):
        [blob] = contents(given_value)
        assert a2b_base64(blob.pop("blob")) == value
        assert blob == {"uri": "a:b", "mimeType": "application/octet-stream"}
    assert contents(value, "image/png")[0]["mimeType"] == "image/png"


@pytest.mark.rule("MRES-17")
def test_several_contents() -> None:
    text = TextContents("a:1", "one", meta={"k": 1})
    blob = BlobContents("a:2", b"two", "image/png")
    expected = [
        {"uri": "a:1", "text": "one", "_meta": {"k": 1}},
        {"uri": "a:2", "mimeType": "image/png", "blob": "dHdv"},
    ]
    assert contents(text) == expected[:1]
    assert contents([text, blob], "text/x") == expected
    assert contents((text, "three"))[1] == {
        "uri": "a:b",
        "mimeType": "text/plain",
        "text": "three",
    }
    assert [each["blob"] for each in contents([b"1", b"2"])] == ["MQ==", "Mg=="]
    assert "_meta" not in contents(text, revision=OLDEST)[0]


@pytest.mark.rule("MRES-18")
@pytest.mark.parametrize("value", [object(), {"a": object()}, Text("x"), ToolResult("x")])
def test_value_that_is_not_json_is_an_error(value: Any) -> None:
    with pytest.raises(ToolError, match="cannot be written as JSON") as raised:
        contents(value)
    assert raised.value.code is ErrorCode.INTERNAL
    assert raised.value.details == {"reason": "result_not_serializable"}
    assert isinstance(raised.value.__cause__, TypeError)


@pytest.mark.rule("MRES-05")
@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text("aé"), st.lists))
def test_any_json_value_can_be_read_back(value: Any) -> None:
    [shown] = contents(value)
    assert value == (shown["text"] if type(value) is str else orjson.loads(shown["text"]))
