"""Frames of clients: what counts, what is refused, and how the error names it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.web.frames import MAX_TEXT, InvalidMessageError, parse_frame


def frame(kind: Any, payload: Any = None) -> str:
    return orjson.dumps({"type": kind, "payload": payload, "more": 1}).decode()


@pytest.mark.rule("HOST-20")
def test_frames_are_read_without_unknown_members() -> None:
    assert parse_frame(frame("ping")).payload == {}
    assert parse_frame('{"type":"stop"}').type == "stop"
    said = parse_frame(frame("message", {"text": "hi", "id": "m1", "more": []}))
    assert said.payload == {"text": "hi", "id": "m1"}
    decided = parse_frame(frame("approval", {"callId": "c", "decision": "always"}))
    assert decided.payload == {"callId": "c", "decision": "always"}
    answered = parse_frame(frame("answer", {"questionId": "q", "action": "decline"}))
    assert answered.payload == {"questionId": "q", "action": "decline", "content": None}


@pytest.mark.rule("HOST-21", "HOST-22")
@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("", "", "JSON"),
        ("{", "", "JSON"),
        ("[]", "", "JSON"),
        ('"\\ud800"', "", "JSON"),
        ("[" * 100_000, "", "JSON"),
        ("{}", "type", "message, stop, ping, approval, answer"),
        (frame("shout"), "type", "one of"),
        (frame(["ping"]), "type", "one of"),
        (frame("message", []), "payload", "object"),
        (frame("message", {}), "payload.text", str(MAX_TEXT)),
        (frame("message", {"text": ""}), "payload.text", str(MAX_TEXT)),
        (frame("message", {"text": " \n"}), "payload.text", str(MAX_TEXT)),
        (frame("message", {"text": "x" * (MAX_TEXT + 1)}), "payload.text", str(MAX_TEXT)),
        (frame("message", {"text": 1}), "payload.text", str(MAX_TEXT)),
        (frame("message", {"text": "x", "id": ""}), "payload.id", "256"),
        (frame("message", {"text": "x", "id": 7}), "payload.id", "256"),
        (frame("approval", {"decision": "once"}), "payload.callId", "256"),
        (frame("approval", {"callId": "c", "decision": "yes"}), "payload.decision", "once"),
        (frame("answer", {"questionId": "q", "action": "maybe"}), "payload.action", "accept"),
        (
            frame("answer", {"questionId": "q", "action": "accept", "content": "x"}),
            "payload.content",
            "object",
        ),
    ],
    ids=range(20),
)
def test_wrong_frame_is_refused_with_the_path(text: str, path: str, expected: str) -> None:
    with pytest.raises(InvalidMessageError) as error:
        parse_frame(text)
    assert error.value.path == path
    assert expected in str(error.value)


@pytest.mark.rule("HOST-21")
def test_refused_message_is_named_by_its_id() -> None:
    with pytest.raises(InvalidMessageError) as error:
        parse_frame(frame("message", {"text": "", "id": "m7"}))
    assert error.value.message_id == "m7"


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(repr))
def test_any_text_is_a_frame_or_refused(text: str) -> None:
    try:
        parse_frame(text)
    except InvalidMessageError as error:
        assert len(str(error)) < 200
