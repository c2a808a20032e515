"""The content blocks of tools, prompts and resources (spec/content.md).

The values belong to no revision. `to_wire` writes them for one: members that it does not have are
left out, and a kind that it does not have is replaced by an equivalent one (CONT-04).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import field, frozen
from attrs.validators import deep_iterable, in_, instance_of, optional

from .plain_values import ExplicitResult

if TYPE_CHECKING:
    from .revisions import Revision

Role = Literal["user", "assistant"]

_text = instance_of(str)
_maybe_text = optional(_text)
_maybe_meta = optional(instance_of(Mapping))  # type: ignore[type-abstract]
_META = {"wire": "_meta"}

AUDIO_URI = "content:audio"
"""The URI of audio that is sent as an embedded resource, which must have one."""


# Type checkers infer parameters from converters: from `tuple` itself they infer nothing.


def _to_roles(roles: Iterable[Role]) -> Sequence[Role]:
    return tuple(roles)


def _to_sizes(sizes: Iterable[str]) -> Sequence[str]:
    if isinstance(sizes, str):
        raise TypeError(f"sizes must be several strings, not {sizes!r}")
    return tuple(sizes)


def _to_icons(icons: Iterable[Icon]) -> Sequence[Icon]:
    return tuple(icons)


def _to_date(value: datetime | str | None) -> str | None:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError("last_modified must have a time zone")
    return value.isoformat()


def _check_priority(instance: Any, attribute: Any, value: Any) -> None:
    if value is not None and not (type(value) in (int, float) and 0 <= value <= 1):
        raise ValueError(f"priority must be a number from 0 to 1, not {value!r}")


def _check_size(instance: Any, attribute: Any, value: Any) -> None:
    if value is not None and not (type(value) is int and value >= 0):
        raise ValueError(f"size must be a number of bytes, not {value!r}")


def _to_blocks(content: Block | str | Sequence[Block | str] | None) -> Sequence[Block | str] | None:
    return [content] if isinstance(content, Block | str) else content


@frozen(kw_only=True)
class Annotations:
    """Hints for a client that decides how to use content.

    Args:
        audience: the roles that the content is for.
        priority: from 0, of little importance, to 1, required.
        last_modified: a datetime with a time zone, or the same as ISO 8601 text; kept as text.

    Raises:
        TypeError: a value has another type; the same holds for every class of this module.
        ValueError: a value has the type, but is not allowed; the same holds for every class.
    """

    audience: Sequence[Role] = field(
        default=(), converter=_to_roles, validator=deep_iterable(in_(("user", "assistant")))
    )
    priority: float | None = field(default=None, validator=_check_priority)
    last_modified: str | None = field(default=None, converter=_to_date, validator=_maybe_text)

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the `annotations` object of content and of resources."""
        return revision.write(
            "annotations",
            audience=list(self.audience) or None,
            priority=self.priority,
            lastModified=self.last_modified,
        )


@frozen
class Icon:
    """An icon of a listed item.

    Args:
        src: a URI: https, or a `data:` URI.
        mime_type: the media type, if `src` does not imply it.
        sizes: such as ``("48x48", "any")``.
        theme: the background that it is made for.
    """

    src: str = field(validator=_text)
    mime_type: str | None = field(default=None, validator=_maybe_text)
    sizes: Sequence[str] = field(default=(), converter=_to_sizes, validator=deep_iterable(_text))
    theme: Literal["light", "dark"] | None = field(
        default=None, validator=optional(in_(("light", "dark")))
    )

    def to_wire(self) -> dict[str, Any]:
        """Return an item of `icons`."""
        wire: dict[str, Any] = {"src": self.src, "mimeType": self.mime_type, "theme": self.theme}
        wire["sizes"] = list(self.sizes) or None
        return {name: value for name, value in wire.items() if value is not None}


@frozen
class Block(ExplicitResult, ABC):
    """A content block.

    Attributes:
        annotations: its audience and priority.
        meta: the block's `_meta`; JSON.
    """

    annotations: Annotations | None = field(
        default=None, kw_only=True, validator=optional(instance_of(Annotations))
    )
    meta: Mapping[str, Any] | None = field(
        default=None, kw_only=True, validator=_maybe_meta, metadata=_META
    )

    kind: ClassVar[str]
    """The block's `type` on the wire."""
    shape: ClassVar[str] = "content"
    """The shape whose members depend on the revision."""

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the block as `revision` defines it (CONT-02, CONT-04)."""
        annotations = self.annotations
        return revision.write(
            self.shape,
            type=self.kind,
            **self.members(revision),
            annotations=None if annotations is None else annotations.to_wire(revision),
            _meta=self.meta,
        )

    @abstractmethod
    def members(self, revision: Revision) -> dict[str, Any]:
        """Return the members that only blocks of this kind have; one that is None is left out."""


@frozen
class LateBlock(Block):
    """A content block of a kind that some revisions lack."""

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the block, or an equivalent one, as `revision` defines it (CONT-04)."""
        if self.kind in revision.content_kinds:
            return super().to_wire(revision)
        return self.substitute().to_wire(revision)

    @abstractmethod
    def substitute(self) -> Block:
        """Return an equivalent block of a kind that every revision has."""


@frozen
class Text(Block):
    """Plain text."""

    text: str = field(validator=_text)

    kind: ClassVar[str] = "text"

    def members(self, revision: Revision) -> dict[str, Any]:
        return {"text": self.text}


@frozen
class Image(Block):
    """A picture: its bytes and their media type, such as ``image/png``."""

    data: bytes = field(validator=instance_of(bytes), repr=False)
    mime_type: str = field(validator=_text)

    kind: ClassVar[str] = "image"

    def members(self, revision: Revision) -> dict[str, Any]:
        return {"data": _base64(self.data), "mimeType": self.mime_type}


@frozen
class Audio(LateBlock):
    """Sound: its bytes and their media type, such as ``audio/wav``."""

    data: bytes = field(validator=instance_of(bytes), repr=False)
    mime_type: str = field(validator=_text)

    kind: ClassVar[str] = "audio"

    def members(self, revision: Revision) -> dict[str, Any]:
        return {"data": _base64(self.data), "mimeType": self.mime_type}

    def substitute(self) -> Block:
        contents = BlobContents(AUDIO_URI, self.data, self.mime_type)
        return EmbeddedResource(contents, annotations=self.annotations)


@frozen
class ResourceLink(LateBlock):
    """A resource that the client may read, whether or not it is listed.

    Args:
        uri: the resource's URI.
        name: for programs, and for people if there is no title.
        title: for people.
        description: for models and people.
        mime_type: the resource's media type.
        size: the resource's size in bytes, before any encoding.
        icons: the resource's icons.
    """

    uri: str = field(validator=_text)
    name: str = field(validator=_text)
    title: str | None = field(default=None, kw_only=True, validator=_maybe_text)
    description: str | None = field(default=None, kw_only=True, validator=_maybe_text)
    mime_type: str | None = field(default=None, kw_only=True, validator=_maybe_text)
    size: int | None = field(default=None, kw_only=True, validator=_check_size)
    icons: Sequence[Icon] = field(
        default=(), kw_only=True, converter=_to_icons, validator=deep_iterable(instance_of(Icon))
    )

    kind: ClassVar[str] = "resource_link"
    shape: ClassVar[str] = "resource"

    def members(self, revision: Revision) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "size": self.size,
            "icons": [icon.to_wire() for icon in self.icons] or None,
        }

    def substitute(self) -> Block:
        return Text(self.uri, annotations=self.annotations)


@frozen
class TextContents:
    """A resource, or a part of one, that is text."""

    uri: str = field(validator=_text)
    text: str = field(validator=_text)
    mime_type: str | None = field(default=None, validator=_maybe_text)
    meta: Mapping[str, Any] | None = field(
        default=None, kw_only=True, validator=_maybe_meta, metadata=_META
    )

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return an item of `contents`, or the `resource` of an embedded one."""
        members = {"uri": self.uri, "mimeType": self.mime_type, "text": self.text}
        return revision.write("contents", **members, _meta=self.meta)


@frozen
class BlobContents:
    """A resource, or a part of one, that is bytes."""

    uri: str = field(validator=_text)
    blob: bytes = field(validator=instance_of(bytes), repr=False)
    mime_type: str | None = field(default=None, validator=_maybe_text)
    meta: Mapping[str, Any] | None = field(
        default=None, kw_only=True, validator=_maybe_meta, metadata=_META
    )

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return an item of `contents`, or the `resource` of an embedded one."""
        members = {"uri": self.uri, "mimeType": self.mime_type, "blob": _base64(self.blob)}
        return revision.write("contents", **members, _meta=self.meta)


ResourceContents = TextContents | BlobContents


@frozen
class EmbeddedResource(Block):
    """A resource with its contents."""

    contents: ResourceContents = field(
        validator=instance_of((TextContents, BlobContents)), metadata={"wire": "resource"}
    )

    kind: ClassVar[str] = "resource"

    def members(self, revision: Revision) -> dict[str, Any]:
        return {"resource": self.contents.to_wire(revision)}


_blocks: Any = deep_iterable(instance_of((Block, str)))


@frozen
class ToolResult(ExplicitResult):
    """The result of a tool, in full (CONT-03).

    Args:
        content: blocks, or strings for text blocks; None for the JSON of `structured` as text.
        structured: a value that can be written as JSON, which an output schema validates. None is
            no value, unless the tool has an output schema that allows null.
        is_error: whether the tool has failed; `content` then tells its caller why.
        meta: the `_meta` of the result; JSON.
    """

    content: Sequence[Block | str] | None = field(
        default=None,
        converter=_to_blocks,
        validator=optional(_blocks),
    )
    structured: Any = field(default=None, kw_only=True)
    is_error: bool = field(default=False, kw_only=True, validator=instance_of(bool))
    meta: Mapping[str, Any] | None = field(default=None, kw_only=True, validator=_maybe_meta)


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
