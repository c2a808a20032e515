"""Read content blocks from the wire into the classes of `protocol.content`.

What a block is for (its text, its bytes, its URI) has to be what its kind says, or it is refused.
What only describes it (annotations, icons, a title, a size) is left out where it is not what the
specification has: a server that gets a hint wrong can still be read (CTOOL-13, CTOOL-14).
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.content import (
    Annotations,
    Audio,
    BlobContents,
    Block,
    EmbeddedResource,
    Icon,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
    TextContents,
)
from ..errors import InvalidResponseError

Content = Block | dict[str, Any]
"""A content block; one of a kind that is not known is the object that came."""

_ROLES = ("user", "assistant")
_THEMES = ("light", "dark")


def read_block(wire: Any) -> Content:
    """Return a content block of a tool or a prompt.

    Raises:
        InvalidResponseError: it is no content block, or not what its kind says.
    """
    if type(wire) is not dict or type(wire.get("type")) is not str:
        raise InvalidResponseError("a content block is not an object with a type")
    read = _KINDS.get(wire["type"])
    return wire if read is None else read(wire)


def read_contents(wire: Any) -> ResourceContents:
    """Return the contents of a resource, from `resources/read` or from an embedded block.

    Raises:
        InvalidResponseError: it has no URI, or neither text nor bytes.
    """
    if type(wire) is not dict:
        raise InvalidResponseError("the contents of a resource are not an object")
    uri, mime_type, meta = _string(wire, "uri", "resource"), _hint(wire, "mimeType"), _meta(wire)
    if wire.get("text") is not None:
        return TextContents(uri, _string(wire, "text", "resource"), mime_type, meta=meta)
    return BlobContents(uri, _bytes(wire, "blob", "resource"), mime_type, meta=meta)


def _text(wire: dict[str, Any]) -> Block:
    text = _string(wire, "text", "text")
    return Text(text, annotations=_annotations(wire), meta=_meta(wire))


def _image(wire: dict[str, Any]) -> Block:
    data, mime_type = _bytes(wire, "data", "image"), _string(wire, "mimeType", "image")
    return Image(data, mime_type, annotations=_annotations(wire), meta=_meta(wire))


def _audio(wire: dict[str, Any]) -> Block:
    data, mime_type = _bytes(wire, "data", "audio"), _string(wire, "mimeType", "audio")
    return Audio(data, mime_type, annotations=_annotations(wire), meta=_meta(wire))


def _link(wire: dict[str, Any]) -> Block:
    size = wire.get("size")
    return ResourceLink(
        _string(wire, "uri", "resource_link"),
        _string(wire, "name", "resource_link"),
        title=_hint(wire, "title"),
        description=_hint(wire, "description"),
        mime_type=_hint(wire, "mimeType"),
        size=size if type(size) is int and size >= 0 else None,
        icons=_icons(wire),
        annotations=_annotations(wire),
        meta=_meta(wire),
    )


def _embedded(wire: dict[str, Any]) -> Block:
    contents = read_contents(wire.get("resource"))
    return EmbeddedResource(contents, annotations=_annotations(wire), meta=_meta(wire))


_KINDS: dict[str, Callable[[dict[str, Any]], Block]] = {
    Text.kind: _text,
    Image.kind: _image,
    Audio.kind: _audio,
    ResourceLink.kind: _link,
    EmbeddedResource.kind: _embedded,
}


def _string(wire: dict[str, Any], name: str, kind: str) -> str:
    value = wire.get(name)
    if type(value) is not str:
        raise InvalidResponseError(f"the {name} of a content block ({kind}) is not a string")
    return value


def _bytes(wire: dict[str, Any], name: str, kind: str) -> bytes:
    try:
        return a2b_base64(_string(wire, name, kind), strict_mode=True)
    except ValueError:
        message = f"the {name} of a content block ({kind}) is not base64"
        raise InvalidResponseError(message) from None


def _hint(wire: Mapping[str, Any], name: str) -> str | None:
    value = wire.get(name)
    return value if type(value) is str else None


def _meta(wire: dict[str, Any]) -> Mapping[str, Any] | None:
    value = wire.get("_meta")
    return value if type(value) is dict else None


def _annotations(wire: dict[str, Any]) -> Annotations | None:
    said = wire.get("annotations")
    if type(said) is not dict:
        return None
    return Annotations(
        audience=[role for role in _listed(said, "audience") if role in _ROLES],
        priority=_priority(said.get("priority")),
        last_modified=_hint(said, "lastModified"),
    )


def _priority(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= 1 else None


def _icons(wire: dict[str, Any]) -> list[Icon]:
    icons = (icon for icon in _listed(wire, "icons") if type(icon) is dict)
    return [_icon(icon, icon["src"]) for icon in icons if type(icon.get("src")) is str]


def _icon(wire: dict[str, Any], src: str) -> Icon:
    theme = wire.get("theme")
    return Icon(
        src,
        _hint(wire, "mimeType"),
        [size for size in _listed(wire, "sizes") if type(size) is str],
        theme if theme in _THEMES else None,
    )


def _listed(wire: dict[str, Any], name: str) -> list[Any]:
    value = wire.get(name)
    return value if type(value) is list else []
