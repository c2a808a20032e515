"""The sizes of what a model reads, in bytes, roughly, and of what is kept of people. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.exact_json import dumps

BYTES_PER_TOKEN = 4
MESSAGE_BYTES = 16
"""Bytes that a wire adds to a message, roughly."""

MAX_DECISIONS = 1_000
"""The most subjects whose decisions are kept for one principal (CHAT-28)."""

PICTURE_BYTES = 1_000 * BYTES_PER_TOKEN
"""Of a picture, roughly: providers count from 258 to 1,600 tokens, by its size."""


def text_bytes(text: str) -> int:
    """Return the size of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def json_bytes(value: object) -> int:
    """Return the size of a value as JSON."""
    try:
        return len(dumps(dict(value) if isinstance(value, Mapping) else value))
    except TypeError:
        return text_bytes(str(value))
