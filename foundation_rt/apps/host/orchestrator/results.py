"""The result of a call as the model reads it, and as people see it (TURN-40 to TURN-44). Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from .... import Audio, BlobContents, EmbeddedResource, Image, ResourceLink, Text, TextContents
from ....base.exact_json import dumps
from ....client import CallResult, InvalidResponseError
from .pruning import Count, cut_text

MAX_PICTURES = 8
"""The most pictures of one result that a model gets."""

MAX_PICTURE_BYTES = 4 * 1024 * 1024
"""The most bytes of the pictures of one result that a model gets."""

NOTHING = "(the tool returned nothing)"
PICTURES = "(the tool returned pictures)"
CUT = "\n[cut here: the result is longer than what fits]"


@frozen
class ToolOutcome:
    """The end of a call.

    Attributes:
        content: what the model reads.
        data: `{"result": ...}` as it came, or `{"error": {"code", "message"}}`.
        is_error: whether the call failed, or the tool says so.
        pictures: for a model that takes them, as `{"mimeType", "data"}`.
        message: the error in short, for people; "" if there is none.
    """

    content: str
    data: Mapping[str, Any]
    is_error: bool = False
    pictures: tuple[Mapping[str, str], ...] = field(default=(), repr=False)
    message: str = ""


def failure(code: str, message: str, advice: str = "") -> ToolOutcome:
    """Return the outcome of a call that has no result."""
    content = f"Error: {message}{f' {advice}' if advice else ''}"
    return ToolOutcome(
        content, {"error": {"code": code, "message": message}}, is_error=True, message=message
    )


def outcome_of(
    result: CallResult, *, takes_pictures: bool, tokens: int, count: Count
) -> ToolOutcome:
    """Return the outcome of a call that has a result.

    Args:
        result: as the server sent it.
        takes_pictures: whether the model does.
        tokens: the most that the model reads.
        count: estimates the tokens of a text.
    """
    try:
        blocks = result.content
    except InvalidResponseError as error:
        return failure("INVALID_RESULT", f"The result cannot be read: {error.message}")
    seen = _Pictures() if takes_pictures else None
    texts = [_text_of(block, seen) for block in blocks]
    content = "\n".join(text for text in texts if text.strip())
    pictures = () if seen is None else tuple(seen.taken)
    if not content and pictures:
        content = PICTURES
    elif not content:
        content = _json(result.structured) if result.has_structured else NOTHING
    content = cut_text(content, tokens, count, CUT)
    failed = result.error
    message = "" if failed is None else failed.message[:500]
    return ToolOutcome(content, {"result": dict(result.wire)}, result.is_error, pictures, message)


class _Pictures:
    """The pictures of one result that a model gets."""

    def __init__(self) -> None:
        self.taken: list[Mapping[str, str]] = []
        self._bytes = 0

    def take(self, picture: Image) -> bool:
        """Take a picture if there is room for it."""
        self._bytes += len(picture.data)
        if len(self.taken) >= MAX_PICTURES or self._bytes > MAX_PICTURE_BYTES:
            return False
        data = b64encode(picture.data).decode()
        self.taken.append({"mimeType": picture.mime_type, "data": data})
        return True


def _text_of(block: Any, pictures: _Pictures | None) -> str:
    """Return what a model reads of a content block; "" of a picture that it sees."""
    match block:
        case Text():
            return block.text
        case Image():
            if pictures is not None and pictures.take(block):
                return ""
            return f"[picture, {block.mime_type}, {len(block.data)} bytes: only people see it]"
        case Audio():
            return f"[sound, {block.mime_type}, {len(block.data)} bytes: only people hear it]"
        case ResourceLink():
            about = f": {block.description}" if block.description else ""
            return f"[resource {block.name}, {block.uri}{about}]"
        case EmbeddedResource(contents=TextContents() as contents):
            return f"[resource {contents.uri}]\n{contents.text}"
        case EmbeddedResource(contents=BlobContents() as contents):
            return f"[resource {contents.uri}, {len(contents.blob)} bytes]"
    return _json(block)


def _json(value: Any) -> str:
    return dumps(value).decode()


def json_size(value: Any) -> int:
    """Return how many bytes a value has as JSON."""
    return len(dumps(value))


def shown(data: Mapping[str, Any], max_bytes: int) -> Mapping[str, Any]:
    """Return the data of an outcome for an event, which may not be as long (TURN-44)."""
    written = dumps(data)
    if len(written) <= max_bytes:
        return data
    text = written[:max_bytes].decode("utf-8", "ignore")
    return {
        "result": {"content": [{"type": "text", "text": text}]},
        "isCut": True,
        "bytes": len(written),
    }
