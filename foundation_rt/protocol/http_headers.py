"""What both ends of Streamable HTTP write into and read out of headers (SEP-2243, SEP-2663)."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode

NAME_SOURCES = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""By method, the member of its params that `Mcp-Name` repeats."""

_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
# Printable ASCII that neither begins nor ends with a space: what every proxy passes on as it is.
_PLAIN = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")


def encode_header_value(text: str) -> str:
    """`text` as the value of `Mcp-Name` or `Mcp-Param-*` (CHTTP-09).

    What no header can hold, or what would be taken for base64, is base64 of its UTF-8. A lone
    surrogate, which no JSON can hold either, becomes `?`.
    """
    if _PLAIN.fullmatch(text) is not None and _ENCODED.fullmatch(text) is None:
        return text
    return f"=?base64?{b64encode(text.encode('utf-8', 'replace')).decode()}?="


def decode_header_value(text: str) -> str | None:
    """What a header's text stands for; None if its base64 is none (HEAD-13)."""
    found = _ENCODED.fullmatch(text)
    if found is None:
        return text
    try:
        encoded = found[1].encode("ascii")
        decoded = b64decode(encoded, validate=True)
        # Encoded again it must be the same: `validate` lets superfluous padding and bits pass.
        return decoded.decode() if b64encode(decoded) == encoded else None
    except ValueError:
        return None
