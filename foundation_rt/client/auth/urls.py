"""The URLs that metadata, tokens and logins are asked from. Pure (CAUTH-10, CAUTH-11)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ...base.http_client.values import is_public
from ...errors import UsageError
from ..errors import AuthorizationError
from ..safe_text import readable

MAX_URL: Final = 2048
"""Most characters of a URL that a server or a client names."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?"


def is_loopback(url: str) -> bool:
    """Return whether a URL is one of this machine."""
    try:
        return urlsplit(url).hostname in _LOOPBACK_NAMES
    except ValueError:
        return False


def host_of(url: str) -> str:
    """Return host and port of a URL, for people; no user and no password."""
    return readable(urlsplit(url).netloc.rpartition("@")[2])


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, as it has them."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def without_secrets(url: str) -> str:
    """Return the URL of a server as it names itself: no user, no query and no fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.rpartition('@')[2].lower()}{parts.path}"


def may_ask(url: object, server_url: str) -> bool:
    """Return whether a URL that a server has named may be asked (CAUTH-10).

    It is `https`, or this machine's if the server is; and no address of a private network, unless
    the server is at one, so that a server cannot make the client ask where itself cannot.
    """
    if not isinstance(url, str):
        return False
    parts = split_url(url)
    if parts is None:
        return False
    if is_loopback(url):
        return is_loopback(server_url)
    host = parts.hostname or ""
    return parts.scheme == "https" and (not _is_private(host) or _is_private(_host(server_url)))


def check_may_ask(what: str, url: object, server_url: str) -> str:
    """Return a URL that may be asked.

    Args:
        what: its name in an error.
        url: as it was named.
        server_url: the server's.

    Raises:
        AuthorizationError: it may not.
    """
    if not may_ask(url, server_url):
        shown = readable(url) if isinstance(url, str) else "no text"
        raise AuthorizationError(
            f"{what} is {shown}, which is not asked: it has to be https, and no private address",
            "Report it to whoever runs the server.",
        )
    assert isinstance(url, str)
    return url


def check_endpoint(name: str, url: object) -> None:
    """Raise unless an argument is a URL of an authorization server.

    Raises:
        UsageError: it is neither `https` nor this machine's.
    """
    parts = split_url(url) if isinstance(url, str) else None
    is_one = parts is not None and not parts.query
    if not is_one or not (str(url).startswith("https://") or is_loopback(str(url))):
        raise UsageError(f"{name} is an https URL without a query, or one of this machine")


def split_url(url: str) -> SplitResult | None:
    """Return the parts of a URL that browsers and libraries read alike; None of any other text.

    It is `http` or `https`, without a user and a fragment, and has a plain host: `urlsplit` takes
    `[::1].evil.example` for `::1`, and browsers `127.0.0.%31` for `127.0.0.1`.
    """
    if len(url) > MAX_URL or any(not "!" <= each <= "~" or each in "\\#" for each in url):
        return None
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if is_one and re.fullmatch(_AUTHORITY, parts.netloc) else None


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _is_private(host: str) -> bool:
    name = host.rstrip(".")
    try:
        return not is_public(name)
    except ValueError:  # 127.1 and 0x7f000001 are addresses, too: no domain ends in such a label
        last = name.rpartition(".")[2]
        return last == "localhost" or last[:1].isdigit()
