"""Resources, resource templates and prompts, as a server lists them.

Every member is kept as it came in `wire`. A member that only describes is left out where it is not
what the specification has for it, as in results (CTOOL-14).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import field, frozen

from ..errors import InvalidResponseError
from .results import text_of

_WIRE: Any = field(repr=False, eq=False)


@frozen
class Resource:
    """A resource that can be read by its URI.

    Attributes:
        uri: as `Client.read_resource` takes it.
        name: for programs; the URI if the server gives none.
        title: for people; None if there is none.
        description: None if there is none.
        mime_type: None if there is none.
        size: in bytes; None if it is not known.
        wire: the entry of `resources/list` as it came.
    """

    uri: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None
    wire: Mapping[str, Any] = _WIRE

    @classmethod
    def read(cls, wire: Any) -> Resource:
        """Return an entry of `resources`.

        Raises:
            InvalidResponseError: it is no resource (CTOOL-23).
        """
        uri = _identity(wire, "uri", "a resource")
        size = wire.get("size")
        return cls(
            uri,
            text_of(wire, "name") or uri,
            text_of(wire, "title"),
            text_of(wire, "description"),
            text_of(wire, "mimeType"),
            size if type(size) is int and size >= 0 else None,
            wire,
        )


@frozen
class ResourceTemplate:
    """Resources whose URIs have a form in common.

    Attributes:
        uri_template: RFC 6570, as in `task://{id}`.
        name: for programs; the template if the server gives none.
        title: for people; None if there is none.
        description: None if there is none.
        mime_type: of all its resources; None if there is none.
        wire: the entry of `resources/templates/list` as it came.
    """

    uri_template: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    wire: Mapping[str, Any] = _WIRE

    @classmethod
    def read(cls, wire: Any) -> ResourceTemplate:
        """Return an entry of `resourceTemplates`.

        Raises:
            InvalidResponseError: it is no template (CTOOL-23).
        """
        template = _identity(wire, "uriTemplate", "a resource template")
        return cls(
            template,
            text_of(wire, "name") or template,
            text_of(wire, "title"),
            text_of(wire, "description"),
            text_of(wire, "mimeType"),
            wire,
        )


@frozen
class ListedPromptArgument:
    """An argument of a prompt; its value is text.

    Attributes:
        title: for people; None if there is none.
        description: None if there is none.
        required: whether the prompt needs it.
    """

    name: str
    title: str | None
    description: str | None
    required: bool


@frozen
class Prompt:
    """A prompt that a server fills in.

    Attributes:
        name: as `Client.get_prompt` takes it.
        title: for people; None if there is none.
        description: None if there is none.
        arguments: in the server's order.
        wire: the entry of `prompts/list` as it came.
    """

    name: str
    title: str | None
    description: str | None
    arguments: tuple[ListedPromptArgument, ...]
    wire: Mapping[str, Any] = _WIRE

    @classmethod
    def read(cls, wire: Any) -> Prompt:
        """Return an entry of `prompts`.

        Raises:
            InvalidResponseError: it is no prompt (CTOOL-23).
        """
        name = _identity(wire, "name", "a prompt")
        listed = wire.get("arguments")
        arguments = [
            ListedPromptArgument(
                each["name"],
                text_of(each, "title"),
                text_of(each, "description"),
                each.get("required") is True,
            )
            for each in (listed if type(listed) is list else ())
            if type(each) is dict and text_of(each, "name")
        ]
        title, description = text_of(wire, "title"), text_of(wire, "description")
        return cls(name, title, description, tuple(arguments), wire)


Entry = TypeVar("Entry", Resource, ResourceTemplate, Prompt)


def _identity(wire: Any, member: str, what: str) -> str:
    """Return the member that identifies an entry."""
    value = text_of(wire, member) if type(wire) is dict else None
    if not value:
        raise InvalidResponseError(f"{what} is listed without a {member}")
    return value
