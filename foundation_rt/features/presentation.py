"""The texts and the icons of a server, for people and models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UsageError


def check_presentation(options: Any) -> None:
    """Raise `UsageError` unless the texts and the icons of the server have the right types."""
    for name in ("instructions", "title", "website_url"):
        value = getattr(options, name)
        if value is not None and type(value) is not str:
            raise UsageError(f"{name} must be a string, not {type(value).__name__}")
    icons: object = options.icons
    if icons:
        from ..protocol.content import Icon

        if not isinstance(icons, Sequence) or not all(isinstance(each, Icon) for each in icons):
            raise UsageError("icons must be a sequence of Icon")
