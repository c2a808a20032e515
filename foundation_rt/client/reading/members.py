"""Members of what a server sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_of(wire: Mapping[str, Any], member: str) -> str | None:
    """Return a member that is text; None if it is absent or something else."""
    value = wire.get(member)
    return value if type(value) is str else None
