"""Hints about the effects of a tool, for clients that ask their user before a call."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen
from attrs.validators import instance_of, optional

_maybe_bool = optional(instance_of(bool))


@frozen(kw_only=True)
class ToolAnnotations:
    """Hints; clients must not rely on those of a server that they do not trust.

    Args:
        title: a title for people; `ToolDefinition.title` is the newer place.
        read_only: whether the tool changes nothing.
        destructive: whether it may destroy or overwrite, not only add.
        idempotent: whether a second call with the same arguments changes nothing more.
        open_world: whether it accesses systems outside of the server, such as the web.

    Raises:
        TypeError: a value has another type.
    """

    title: str | None = field(default=None, validator=optional(instance_of(str)))
    read_only: bool | None = field(default=None, validator=_maybe_bool)
    destructive: bool | None = field(default=None, validator=_maybe_bool)
    idempotent: bool | None = field(default=None, validator=_maybe_bool)
    open_world: bool | None = field(default=None, validator=_maybe_bool)

    def to_wire(self) -> dict[str, Any]:
        """Return the `annotations` of a tool, the same in every revision that has them."""
        wire = {
            "title": self.title,
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }
        return {name: value for name, value in wire.items() if value is not None}
