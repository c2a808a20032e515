"""What the heads of requests say, and what those of responses mean; pure (CHTTP-05 to CHTTP-12).

Headers that a user gives are theirs: tokens, mostly. They go to the server's origin and nowhere
else, and not into a message or a log.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from ...errors import UsageError
from ...protocol.http_headers import encode_header_value
from ...version import __version__

if TYPE_CHECKING:
    from ...protocol.revisions import Revision
    from .transport import ClientMessage

RawHeaders = list[tuple[bytes, bytes]]

JSON_TYPE = "application/json"
EVENTS_TYPE = "text/event-stream"

_SCHEMES = ("http", "https")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_SESSION_ID = re.compile(r"[!-~]+")
_SECONDS = re.compile(r"[0-9]{1,9}")

# What says how a message is carried; of these a user's are not taken.
_OWN = re.compile(
    r"accept|accept-encoding|connection|content-encoding|content-length|content-type|last-event-id"
    r"|transfer-encoding|mcp-method|mcp-name|mcp-protocol-version|mcp-session-id|mcp-param-.*",
    re.IGNORECASE,
)


def split_url(url: str) -> SplitResult:
    """The parts of an address.

    Raises:
        UsageError: it is no HTTP URL; the message does not repeat it, for what it may hold.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in _SCHEMES and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise UsageError("the address of a server is expected as http://host/path or https://host/path")


def describe(url: str) -> str:
    """An address for people: without user, password, query and fragment."""
    parts = split_url(url)
    return f"{parts.scheme}://{_authority(parts)}{parts.path or '/'}"


def same_origin(url: str, other: str) -> bool:
    """Return whether two addresses have scheme, host and port in common (RFC 6454)."""
    try:
        return _origin(urlsplit(url)) == _origin(urlsplit(other))
    except ValueError:
        return False


def check_headers(headers: Mapping[Any, Any]) -> None:
    """Hold that a user's headers can be sent.

    Raises:
        UsageError: names the header that cannot; its value is not repeated.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise UsageError(f"{name!r} is no name of a header")
        if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
            raise UsageError(f"the value of the header {name} is none that a header can have")


def common_headers(url: str, headers: Mapping[str, str]) -> RawHeaders:
    """What every request to a server says, the same each time; names are in lower case.

    Args:
        headers: of the user, checked; user and password of the URL count as one.
    """
    parts = urlsplit(url)
    found = {"user-agent": f"foundation-rt/{__version__}"}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        found["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    found |= {name.lower(): value for name, value in headers.items() if not _OWN.fullmatch(name)}
    # Bodies come as they are: what unpacks to more than was sent could not be bounded.
    found["accept-encoding"] = "identity"
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in found.items()]


def message_headers(message: ClientMessage, session_id: str | None) -> RawHeaders:
    """What the head of a POST says of its message."""
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
    """What every request of a session says."""
    found: RawHeaders = []
    if revision is not None:
        found.append((b"mcp-protocol-version", revision.name.encode()))
    if session_id is not None:
        found.append((b"mcp-session-id", session_id.encode("ascii")))
    return found


def stream_headers(
    revision: Revision | None, session_id: str | None, last_id: bytes | None = None
) -> RawHeaders:
    """What the head of a GET says that asks for a stream, or for what follows an event of it."""
    found = [(b"accept", EVENTS_TYPE.encode()), (b"cache-control", b"no-store")]
    if last_id is not None:
        found.append((b"last-event-id", last_id))
    return found + session_headers(revision, session_id)


def can_resume(last_id: bytes | None) -> bool:
    """Return whether there is an id to resume from, and one that a header can hold."""
    return last_id is not None and _VALUE.fullmatch(last_id.decode("latin-1")) is not None


def is_session_id(text: str) -> bool:
    """Return whether a server may call a session that: visible ASCII."""
    return _SESSION_ID.fullmatch(text) is not None


def media_type(content_type: str | None) -> str:
    """The type that a response says it has, without its parameters."""
    return (content_type or "").partition(";")[0].strip(" \t").lower()


def read_retry_after(value: str | None, now: float) -> float | None:
    """How long a server wants to be left alone, in s; None if it does not say.

    Args:
        value: of `Retry-After`: seconds, or a date of HTTP (RFC 9110, 10.2.3).
        now: seconds since 1970.
    """
    if value is None:
        return None
    if _SECONDS.fullmatch(value) is not None:
        return float(value)
    try:
        date = parsedate_tz(value)
        return None if date is None else max(0.0, mktime_tz(date) - now)
    except (ValueError, OverflowError):
        return None


def _encoded(text: str) -> bytes:
    return encode_header_value(text).encode("ascii")


def _authority(parts: SplitResult) -> str:
    """Host and port, as they stand in the address."""
    return parts.netloc.rpartition("@")[2]


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, parts.hostname, parts.port or default
