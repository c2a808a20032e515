"""The check that a request was meant for this server: its `Host` and its `Origin`.

A web page can make its own host name resolve to this machine, and so reach a server that listens
on loopback only (DNS rebinding). The page cannot change the name that the browser reports in `Host`
and `Origin`, so both are compared with the names of this server (AUTH-19 to AUTH-21).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from attrs import define, field

from .asgi import HttpRefusal

if TYPE_CHECKING:
    from ..base.config.http_sections import HttpSection
    from .headers import RequestHead

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")  # lower case
_ANY = "*"
_MAX_VERDICTS = 1024  # pairs of Host and Origin remembered; they come from outside
_MAX_REMEMBERED = 512  # characters of one pair


@define(eq=False, repr=False)
class HostCheck:
    """Decides whether a request was meant for this server.

    Args:
        bound_host: the address on which the server listens.
        allowed_hosts: further values of `Host`; one without a port allows every port.
        allowed_origins: further values of `Origin`.
    """

    _bound_host: str
    _allowed_hosts: frozenset[str]
    _allowed_origins: frozenset[str]
    _is_loopback: bool = field(init=False)
    _verdicts: dict[tuple[str | None, str | None], HttpRefusal | None] = field(
        factory=dict, init=False
    )

    def __attrs_post_init__(self) -> None:
        self._is_loopback = is_loopback(self._bound_host)

    @property
    def remembered(self) -> int:
        """Return the number of remembered verdicts."""
        return len(self._verdicts)

    def check(self, head: RequestHead) -> HttpRefusal | None:
        """Return why a request is not for this server: 421 for its host, 403 for its origin."""
        names = (head.host, head.origin)
        try:
            return self._verdicts[names]
        except KeyError:
            verdict = self._judge(*names)
        if sum(len(name or "") for name in names) <= _MAX_REMEMBERED:
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            self._verdicts[names] = verdict
        return verdict

    def _judge(self, host: str | None, origin: str | None) -> HttpRefusal | None:
        if not host:
            return HttpRefusal(400, "The header Host is missing", reason="host_missing")
        is_known = self._is_known_host(host.lower())
        if not is_known and _ANY not in self._allowed_hosts:
            return HttpRefusal(
                421,
                "Misdirected request: this Host is not served; an operator can add it to "
                "http.allowed_hosts",
                reason="host_not_allowed",
            )
        if origin is not None and not self._is_known_origin(origin.lower(), host.lower(), is_known):
            return HttpRefusal(
                403,
                "Forbidden: this Origin is not served; an operator can add it to "
                "http.allowed_origins or http.cors_origins",
                reason="origin_not_allowed",
            )
        return None

    def _is_known_host(self, host: str) -> bool:
        name = _without_port(host)
        if name is None:
            return False
        if host in self._allowed_hosts or name in self._allowed_hosts:
            return True
        if self._is_loopback:
            return name in LOOPBACK_NAMES or name == _in_url(self._bound_host)
        # An address is not looked up, so it cannot have been rebound.
        return name == "localhost" or name == _in_url(self._bound_host) or _is_address(name)

    def _is_known_origin(self, origin: str, host: str, host_is_known: bool) -> bool:
        if _ANY in self._allowed_origins or origin in self._allowed_origins:
            return True
        scheme, separator, name = origin.partition("://")
        if not separator or scheme not in ("http", "https"):
            return False
        # A page of this server. Where every host is served, a known host proves nothing.
        if host_is_known and name == host:
            return True
        return self._is_loopback and _without_port(name) in LOOPBACK_NAMES


def make_host_check(config: HttpSection, public_url: str | None = None) -> HostCheck:
    """Return the check that `config` describes.

    Args:
        config: the section `http`.
        public_url: where the server is reached, too; None if nothing says so.
    """
    origins = (*config.allowed_origins, *config.cors_origins)
    hosts = (*config.allowed_hosts, *(() if public_url is None else (urlsplit(public_url).netloc,)))
    return HostCheck(config.host.lower(), _lowered(hosts), _lowered(origins))


def is_loopback(host: str) -> bool:
    """Return whether a listening address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str | None:
    """Return `example.com` for `example.com:80`; None if it is not a name and a port."""
    found = _HOST.fullmatch(host)
    return None if found is None else found[1]


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _lowered(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)
