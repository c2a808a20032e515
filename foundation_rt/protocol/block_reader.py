"""Read content blocks of the wire into the classes of `content`."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from ..base.structuring import Structurer
from .content import (
    Audio,
    BlobContents,
    EmbeddedResource,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
    TextContents,
)

KnownBlock = Text | Image | Audio | ResourceLink | EmbeddedResource


@cache
def block_structurer(*, leaves_out: bool) -> Structurer:
    """Return what makes a `KnownBlock` or `ResourceContents` of JSON; see `Structurer`."""
    made = Structurer(leaves_out=leaves_out)

    def contents(wire: Any, _: Any) -> ResourceContents:
        is_text = type(wire) is dict and wire.get("text") is not None
        kind = TextContents if is_text else BlobContents
        return cast("ResourceContents", made.structure(wire, kind))

    made.register(ResourceContents, contents)
    made.register_kinds(KnownBlock)
    return made
