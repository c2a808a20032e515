"""The attachments of a message: texts and pictures, known by their bytes (HOST-62). Pure."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from ..chat import ChatMessage
from ..pictures import picture_type
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
