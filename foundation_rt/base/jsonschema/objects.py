"""Schemas of objects, as definitions of tools write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def closed_object(
    properties: Mapping[str, Any], required: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the schema of an object without other members; all are required by default."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*(properties if required is None else required)],
        "additionalProperties": False,
    }
