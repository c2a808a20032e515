"""The meaning of addresses, URLs and headers of HTTP. Pure."""

from __future__ import annotations

import re
from email.utils import mktime_tz, parsedate_tz
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

_TRANSLATED = ip_network("64:ff9b::/96")  # IPv4 behind a gateway (RFC 6052)
_GLOBAL = ip_network("2000::/3")  # all that IPv6 has given out (RFC 4291)
_SECONDS = re.compile(r"[0-9]+")
_LONGEST_S = 1e9


def is_public(address: str) -> bool:
    """Return whether an address is one of the public network.

    Raises:
        ValueError: it is no address.
    """
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if found in _TRANSLATED:
            return is_public(str(ip_address(int(found) & 0xFFFFFFFF)))
        inner = found.ipv4_mapped or found.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if found not in _GLOBAL:
            return False
    return found.is_global and not found.is_multicast


def full_origin(url: str) -> str:
    """Return scheme, host and port of a URL, the port in any case (RFC 6454)."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def same_origin(url: str, other: str) -> bool:
    """Return whether two URLs have scheme, host and port in common."""
    try:
        return full_origin(url) == full_origin(other)
    except ValueError:
        return False


def readable_url(url: str) -> str:
    """Return a URL for people: no user, password, query, fragment; "" if it is none of HTTP."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    host = parts.netloc.rpartition("@")[2]
    is_one = host and parts.scheme in ("http", "https")
    return f"{parts.scheme}://{host}{parts.path or '/'}" if is_one else ""


def read_retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds of a `Retry-After`; None if there is none.

    Args:
        value: of `Retry-After`: seconds, or a date of HTTP (RFC 9110, 10.2.3).
        now: seconds since 1970.
    """
    if value is None:
        return None
    if _SECONDS.fullmatch(value) is not None:
        return min(float(value), _LONGEST_S)
    try:
        date = parsedate_tz(value)
        return None if date is None else max(0.0, mktime_tz(date) - now)
    except (ValueError, OverflowError):
        return None
