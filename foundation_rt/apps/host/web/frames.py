"""Frames of clients: parsed and checked (HOST-20 to HOST-23). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from attrs import field, frozen

from ....base.exact_json import loads_bounded
from .attachments import AttachmentError, Attachments, read_attachments

MAX_TEXT = 32_768
"""Most characters of a message."""

MAX_ID = 256

DECISIONS = ("once", "session", "always", "trust", "deny")
ACTIONS = ("accept", "decline", "cancel")


class InvalidMessageError(Exception):
    """A frame that a client should not have sent (HOST-21).

    Attributes:
        path: of the wrong member, such as `payload.text`; "" of the frame itself.
        expected: what would have been right.
        message_id: of the message, if the frame has one.
    """

    def __init__(self, path: str, expected: str, message_id: str | None = None) -> None:
        super().__init__(f"{path or 'the frame'}: expected {expected}")
        self.path = path
        self.expected = expected
        self.message_id = message_id


@frozen
class ClientFrame:
    """A frame of a client, as it should be.

    Attributes:
        type: `message`, `stop`, `ping`, `approval` or `answer`.
        payload: its members that count.
    """

    type: str
    payload: Mapping[str, Any] = field(factory=dict)


def parse_frame(text: str) -> ClientFrame:
    """Return the frame in a text.

    Raises:
        InvalidMessageError: it is none; names the member.
    """
    try:
        frame = loads_bounded(text)
    except orjson.JSONDecodeError:
        raise InvalidMessageError("", "an object as JSON") from None
    if type(frame) is not dict:
        raise InvalidMessageError("", "an object as JSON")
    kind = frame.get("type")
    read = _READERS.get(kind) if type(kind) is str else None
    if read is None or type(kind) is not str:
        raise InvalidMessageError("type", f"one of {', '.join(_READERS)}")
    payload = frame.get("payload", {})
    if payload is None:
        payload = {}
    if type(payload) is not dict:
        raise InvalidMessageError("payload", "an object")
    return ClientFrame(kind, read(payload))


def _read_nothing(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _read_message(payload: Mapping[str, Any]) -> dict[str, Any]:
    message_id = None
    if payload.get("id") is not None:
        message_id = _id(payload, "id")
    text = payload.get("text")
    if type(text) is not str or not text.strip() or len(text) > MAX_TEXT:
        expected = f"a text of 1 to {MAX_TEXT} characters"
        raise InvalidMessageError("payload.text", expected, message_id)
    read: dict[str, Any] = {"text": text, "id": message_id}
    if "after" in payload:
        read["after"] = None if payload["after"] is None else _id(payload, "after")
    for name in ("model", "attachmentsOf"):
        if payload.get(name) is not None:
            read[name] = _id(payload, name)
    if payload.get("attachments") is not None:
        read["attachments"] = _attachments(payload, message_id)
    return read


def _attachments(payload: Mapping[str, Any], message_id: str | None) -> Attachments:
    try:
        return read_attachments(payload["attachments"])
    except AttachmentError as error:
        place = "" if error.at is None else f"[{error.at}]"
        path = f"payload.attachments{place}"
        raise InvalidMessageError(path, error.expected, message_id) from None


def _read_approval(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "callId": _id(payload, "callId"),
        "decision": _word(payload, "decision", DECISIONS),
    }


def _read_answer(payload: Mapping[str, Any]) -> dict[str, Any]:
    content = payload.get("content")
    if content is not None and type(content) is not dict:
        raise InvalidMessageError("payload.content", "an object")
    return {
        "questionId": _id(payload, "questionId"),
        "action": _word(payload, "action", ACTIONS),
        "content": content,
    }


def _id(payload: Mapping[str, Any], name: str) -> str:
    value = payload.get(name)
    if type(value) is not str or not 0 < len(value) <= MAX_ID:
        raise InvalidMessageError(f"payload.{name}", f"a string of 1 to {MAX_ID} characters")
    return value


def _word(payload: Mapping[str, Any], name: str, words: tuple[str, ...]) -> str:
    value = payload.get(name)
    if type(value) is not str or value not in words:
        raise InvalidMessageError(f"payload.{name}", f"one of {', '.join(words)}")
    return value


_READERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "message": _read_message,
    "stop": _read_nothing,
    "ping": _read_nothing,
    "approval": _read_approval,
    "answer": _read_answer,
}
