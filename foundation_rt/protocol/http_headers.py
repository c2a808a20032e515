"""HTTP's headers: those of MCP (SEP-2243, SEP-2663), and those of a request for handlers (HEAD-16).

The values of a request may be credentials of users for other servers. They are read by handlers
alone, and nothing that logs or describes an object shows them.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping

_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
# Printable ASCII that neither begins nor ends with a space: every proxy passes it on unchanged.
_PLAIN = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")


def encode_header_value(text: str) -> str:
    """Return `text` as the value of `Mcp-Name` or `Mcp-Param-*` (CHTTP-09).

    Text that no header can hold, or that looks like an encoded value, becomes the base64 of its
    UTF-8. A lone surrogate, which JSON cannot hold either, becomes `?`.
    """
    if _PLAIN.fullmatch(text) is not None and _ENCODED.fullmatch(text) is None:
        return text
    return f"=?base64?{b64encode(text.encode('utf-8', 'replace')).decode()}?="


def decode_header_value(text: str) -> str | None:
    """Return the value that a header's text encodes; None if its base64 is invalid (HEAD-13)."""
    found = _ENCODED.fullmatch(text)
    if found is None:
        return text
    try:
        encoded = found[1].encode("ascii")
        decoded = b64decode(encoded, validate=True)
        # Encoding it again must give the same: `validate` accepts superfluous padding and bits.
        return decoded.decode() if b64encode(decoded) == encoded else None
    except ValueError:
        return None


class RequestHeaders(Mapping[str, str]):
    """Values by lower-case name; a name is looked up in any case, and no value is ever shown."""

    __slots__ = ("_values",)

    hides_values = True
    """Logs show the names alone."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<headers {', '.join(self._values)}>"
