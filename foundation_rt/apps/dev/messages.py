"""One JSON-RPC message, described for the record of the wire. Pure."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from ...base.exact_json import loads

MAX_SHOWN_BYTES = 16 * 1024
"""The most bytes of a message that are kept; its true size is told."""


@frozen(eq=False)
class DescribedMessage:
    """A message as it went.

    Attributes:
        kind: `request`, `response`, `notification`, `batch` or `invalid`.
        method: of a request or notification.
        id: of a request or response; None otherwise.
        size: of the message, in bytes.
        value: parsed; None if it is no JSON.
        line: the message.
    """

    kind: str
    method: str | None
    id: Any
    size: int
    value: Any
    line: bytes

    @property
    def params(self) -> dict[str, Any]:
        """The params, if they are an object; empty otherwise."""
        found = self.value.get("params") if isinstance(self.value, dict) else None
        return found if isinstance(found, dict) else {}

    def to_json(self) -> dict[str, Any]:
        """Return the members of a `wire` event that tell of the message itself (DEV-22)."""
        is_cut = self.size > MAX_SHOWN_BYTES
        is_shown = self.value is not None and not is_cut
        text = None if is_shown else self.line[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
        return {
            "kind": self.kind,
            "method": self.method,
            "id": self.id,
            "bytes": self.size,
            "message": self.value if is_shown else None,
            "text": text,
            "truncated": is_cut,
        }


def describe_message(line: bytes) -> DescribedMessage:
    """Return the description of a message, which may be anything."""
    size = len(line)
    try:
        value = loads(line)
    except ValueError:
        return DescribedMessage("invalid", None, None, size, None, line)
    if isinstance(value, list):
        return DescribedMessage("batch", None, None, size, value, line)
    if not isinstance(value, dict):
        return DescribedMessage("invalid", None, None, size, value, line)
    method, has_id = value.get("method"), "id" in value
    message_id = value.get("id")
    if isinstance(message_id, dict | list):
        message_id = None
    if not isinstance(method, str):
        kind = "response" if has_id else "invalid"
        return DescribedMessage(kind, None, message_id, size, value, line)
    return DescribedMessage(
        "request" if has_id else "notification", method, message_id, size, value, line
    )
