"""Read content blocks from the wire into the classes of `protocol.content`.

What a block is for (its text, its bytes, its URI) has to be what its kind says, or it is refused.
What only describes it (annotations, icons, a title, a size) is left out where it is not what the
specification has: a server that gets a hint wrong can still be read (CTOOL-13, CTOOL-14).
"""

from __future__ import annotations

from typing import Any, cast, get_args

from ...base.structuring import StructuringError
from ...protocol.block_reader import KnownBlock, block_structurer
from ...protocol.content import Block, ResourceContents
from ..errors import InvalidResponseError

Content = Block | dict[str, Any]
"""A content block; one of a kind that is not known is the object that came."""

_KINDS = {each.kind for each in get_args(KnownBlock)}


def read_block(wire: Any) -> Content:
    """Return a content block of a tool or a prompt.

    Raises:
        InvalidResponseError: it is no content block, or not what its kind says.
    """
    kind = wire.get("type") if type(wire) is dict else None
    if type(kind) is not str:
        raise InvalidResponseError("a content block is not an object with a type")
    if kind not in _KINDS:
        return cast("dict[str, Any]", wire)
    try:
        return cast("Block", BLOCKS.structure(wire, KnownBlock))
    except StructuringError as error:
        raise InvalidResponseError(f"a content block ({kind}) cannot be read: {error}") from None


def read_contents(wire: Any) -> ResourceContents:
    """Return the contents of a resource, from `resources/read`.

    Raises:
        InvalidResponseError: it has no URI, or neither text nor bytes.
    """
    try:
        return cast("ResourceContents", BLOCKS.structure(wire, ResourceContents))
    except StructuringError as error:
        message = f"the contents of a resource cannot be read: {error}"
        raise InvalidResponseError(message) from None


BLOCKS = block_structurer(leaves_out=True)
"""Reads content, without the hints that are wrong."""
