"""The headers of requests and responses. Pure (CHTTP-05 to CHTTP-12).

Headers of the user are mostly tokens: they are sent to the server's origin only, and appear in no
message and no log.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ...errors import UsageError
from ...protocol.http_headers import encode_header_value
from ...version import __version__

if TYPE_CHECKING:
    from ...base.http_client.connection import RawHeaders
    from ...protocol.revisions import Revision
    from .transport import ClientMessage

JSON_TYPE = "application/json"
EVENTS_TYPE = "text/event-stream"

_SCHEMES = ("http", "https")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_SESSION_ID = re.compile(r"[!-~]+")

# These belong to the transport; the user cannot set them.
_OWN = re.compile(
    r"accept|accept-encoding|connection|content-encoding|content-length|content-type|last-event-id"
    r"|transfer-encoding|mcp-method|mcp-name|mcp-protocol-version|mcp-session-id|mcp-param-.*",
    re.IGNORECASE,
)


def check_url(url: str) -> None:
    """Raise unless a URL is one of HTTP.

    Raises:
        UsageError: it is none; the message does not repeat it, since it may hold secrets.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in _SCHEMES and parts.hostname and parts.port != 0:
            return
    except ValueError:
        pass
    raise UsageError("the address of a server is expected as http://host/path or https://host/path")


def check_headers(headers: Mapping[Any, Any]) -> None:
    """Raise unless the user's headers can be sent.

    Raises:
        UsageError: names the header that cannot; its value is not repeated.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise UsageError(f"{name!r} is no name of a header")
        if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
            raise UsageError(f"the value of the header {name} is none that a header can have")


def common_headers(url: str, headers: Mapping[str, str]) -> RawHeaders:
    """Return the headers of every request to a server; names are in lower case.

    Args:
        url: of the server; its user and password become a header.
        headers: of the user, checked.
    """
    parts = urlsplit(url)
    found = {"user-agent": f"foundation-rt/{__version__}"}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        found["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    found |= {name.lower(): value for name, value in headers.items() if not _OWN.fullmatch(name)}
    # No compression: the size of an unpacked body could not be bounded.
    found["accept-encoding"] = "identity"
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in found.items()]


def message_headers(message: ClientMessage, session_id: str | None) -> RawHeaders:
    """Return the headers of a POST for a message."""
    found = [
        (b"accept", b"application/json, text/event-stream"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(message.line)),
    ]
    revision = message.revision
    if revision is None:
        return found
    if not revision.is_stateless:
        return found + session_headers(revision, session_id)
    found.append((b"mcp-protocol-version", revision.name.encode()))
    if message.method is not None:
        found.append((b"mcp-method", _encoded(message.method)))
    if message.name is not None:
        found.append((b"mcp-name", _encoded(message.name)))
    for name, value in message.header_params.items():
        found.append((b"mcp-param-" + name.encode("ascii"), _encoded(value)))
    return found


def session_headers(revision: Revision | None, session_id: str | None) -> RawHeaders:
    """Return the headers of every request of a session."""
    found: RawHeaders = []
    if revision is not None:
        found.append((b"mcp-protocol-version", revision.name.encode()))
    if session_id is not None:
        found.append((b"mcp-session-id", session_id.encode("ascii")))
    return found


def stream_headers(
    revision: Revision | None, session_id: str | None, last_id: bytes | None = None
) -> RawHeaders:
    """Return the headers of a GET that opens a stream, or resumes one after an event."""
    found = [(b"accept", EVENTS_TYPE.encode()), (b"cache-control", b"no-store")]
    if last_id is not None:
        found.append((b"last-event-id", last_id))
    return found + session_headers(revision, session_id)


def can_resume(last_id: bytes | None) -> bool:
    """Return whether a stream can be resumed: it has an id that fits in a header."""
    return last_id is not None and _VALUE.fullmatch(last_id.decode("latin-1")) is not None


def is_session_id(text: str) -> bool:
    """Return whether a session id is valid: visible ASCII."""
    return _SESSION_ID.fullmatch(text) is not None


def _encoded(text: str) -> bytes:
    return encode_header_value(text).encode("ascii")
