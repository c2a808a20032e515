"""Frames of clients, parsed and checked, with their attachments (HOST-20 to HOST-23). Pure.

Attachments are texts and pictures, known by their bytes (HOST-62).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import orjson
from attrs import field, frozen

from ....base.exact_json import loads_bounded
from ..chat import ChatMessage, picture_type
from ..events import Approval
from .export import fenced

MAX_ATTACHMENTS = 8
MAX_ATTACHED_BYTES = 700 * 1024
"""Of all attachments of a message together; with it a frame stays below 1 MiB (HOST-23)."""
_MAX_NAME = 256


class AttachmentError(Exception):
    """An attachment that cannot be taken.

    Attributes:
        at: its number, from 0 on; None for all of them.
        expected: what would have been right.
    """

    def __init__(self, expected: str, at: int | None = None) -> None:
        super().__init__(expected)
        self.at = at
        self.expected = expected


@frozen
class Attachments:
    """The attachments of one message.

    Attributes:
        text: what a model reads of the text files, behind the words.
        files: their names and sizes: `{"name", "bytes"}`.
        pictures: `{"name", "mimeType", "data"}`, with `data` in base64.
    """

    text: str = ""
    files: Sequence[dict[str, Any]] = ()
    pictures: Sequence[dict[str, Any]] = field(default=(), repr=False)

    def __add__(self, other: Attachments) -> Attachments:
        """Return both together.

        Raises:
            AttachmentError: they are too many, or too large.
        """
        both = Attachments(
            self.text + other.text,
            [*self.files, *other.files],
            [*self.pictures, *other.pictures],
        )
        if len(both.files) + len(both.pictures) > MAX_ATTACHMENTS:
            raise AttachmentError(f"at most {MAX_ATTACHMENTS}, with those of the other message")
        if both.size > MAX_ATTACHED_BYTES:
            raise AttachmentError(
                f"at most {MAX_ATTACHED_BYTES} bytes, with those of the other message"
            )
        return both

    @property
    def size(self) -> int:
        """Bytes of all together."""
        sizes: list[int] = [each["bytes"] for each in self.files]
        pictures: list[str] = [each["data"] for each in self.pictures]
        return sum(sizes) + sum(len(each) // 4 * 3 - each.count("=", -2) for each in pictures)

    def metadata(self, words: str) -> dict[str, Any]:
        """Return what is kept of them with the message (`ChatMessage.metadata`)."""
        found: dict[str, Any] = {}
        if self.files:
            found = {"words": words, "files": [*self.files]}
        if self.pictures:
            found["pictures"] = [*self.pictures]
        return found


def read_attachments(given: object) -> Attachments:
    """Return the attachments of a frame: a list of `{"name", "data"}`, with `data` in base64.

    Raises:
        AttachmentError: says which cannot be taken, and why.
    """
    if type(given) is not list or len(given) > MAX_ATTACHMENTS:
        raise AttachmentError(f"a list of at most {MAX_ATTACHMENTS}")
    found, size = Attachments(), 0
    for at, each in enumerate(given):
        name, data = _parts(each, at)
        size += len(data)
        if size > MAX_ATTACHED_BYTES:
            raise AttachmentError(f"at most {MAX_ATTACHED_BYTES} bytes together", at)
        found += _attachment(name, data, each["data"], at)
    return found


def _parts(given: object, at: int) -> tuple[str, bytes]:
    name = given.get("name") if isinstance(given, dict) else None
    if type(name) is not str or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise AttachmentError(f"an object with `name`, of 1 to {_MAX_NAME} characters", at)
    assert isinstance(given, dict)
    try:
        return name, b64decode(given["data"], validate=True)
    except (KeyError, TypeError, ValueError):
        raise AttachmentError("an object with `data`, bytes in base64", at) from None


def _attachment(name: str, data: bytes, encoded: str, at: int) -> Attachments:
    kind = picture_type(data)
    if kind is not None:
        return Attachments(pictures=[{"name": name, "mimeType": kind, "data": encoded}])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    if not text.strip() or "\x00" in text:
        raise AttachmentError("a text in UTF-8, or a picture as PNG, JPEG, GIF or WebP", at)
    read = f"\n\nFile {name}:\n\n{fenced(text, '')}"
    return Attachments(read, [{"name": name, "bytes": len(data)}])


def attachments_of(message: ChatMessage) -> Attachments:
    """Return the attachments of a message that a chat has."""
    metadata, content = message.metadata, message.content or ""
    return Attachments(
        content[len(metadata.get("words", content)) :],
        metadata.get("files", ()),
        metadata.get("pictures", ()),
    )


MAX_TEXT = 32_768
"""Most characters of a message."""

MAX_ID = 256

DECISIONS: tuple[str, ...] = get_args(Approval)
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
