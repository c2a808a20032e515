"""The clients that people let in: what they say of themselves, and where their browser may go.

A client is known by a URL at which it describes itself (CIMD), or by an id that it was given when
it registered (RFC 7591). That id is its own registration, sealed: there is no table that somebody
could flood, and none to lose (AUTHZ-10 to AUTHZ-15).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from attrs import define, field, frozen

from ...base.bounded_dict import BoundedDict
from ...base.http_client.network import Network
from ...client.auth.exchanges import AuthExchanges
from ...client.auth.urls import split_url
from ...client.errors import MCPError
from ...client.safe_text import readable
from ..seal import Seal

LOOPBACK = "loopback"
"""The item of `authorization.redirect_uris` that stands for any program of the user's machine."""

MAX_ID = 2048
"""Most characters of the id of a client."""

MAX_URIS = 10
MAX_NAME = 80
_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
_REGISTERED = b"client"
_DOTS = re.compile(r"/(\.|%2e){1,2}(/|$)", re.IGNORECASE)  # what URL parsers resolve
_MAX_KEPT = 100
_MAX_AGE = 300.0  # s
_MAX_FETCHES = 8
_PATIENCE = 10.0  # s; for a description, the wait for others included


class ClientError(Exception):
    """A client is not known, or not as it should be; the message says why.

    Attributes:
        code: of RFC 7591.
    """

    def __init__(self, message: str, code: str = "invalid_client_metadata") -> None:
        super().__init__(message)
        self.code = code


@frozen
class LoginClient:
    """A client, which nobody has verified.

    Attributes:
        name: as it calls itself; empty if it does not.
        redirect_uris: where its browser may be sent.
    """

    client_id: str
    name: str
    redirect_uris: tuple[str, ...]

    def allows(self, uri: str) -> bool:
        """Return whether it has named this URI; one of this machine at any port (RFC 8252, 7.3)."""
        return uri in self.redirect_uris or any(
            _without_port(uri) == _without_port(each) is not None for each in self.redirect_uris
        )


def is_allowed(uri: str, allowed: Iterable[str]) -> bool:
    """Return whether the operator lets clients be at a redirect URI.

    Args:
        uri: of a client.
        allowed: `authorization.redirect_uris`.
    """
    parts = split_url(uri)
    if parts is None:
        return False
    if parts.scheme == "https":
        return uri in allowed
    return LOOPBACK in allowed and parts.hostname in _LOOPBACK_HOSTS


def read_client(document: Any, client_id: str, allowed: Iterable[str]) -> LoginClient:
    """Return the client of its metadata.

    Args:
        document: as the client sent it, or published it.
        client_id: its id.
        allowed: `authorization.redirect_uris`.

    Raises:
        ClientError: it cannot be used.
    """
    found = document if isinstance(document, Mapping) else {}
    uris = found.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= MAX_URIS:
        raise ClientError(f"redirect_uris has 1 to {MAX_URIS} URIs", "invalid_redirect_uri")
    kept = tuple(each for each in uris if isinstance(each, str) and is_allowed(each, allowed))
    if not kept:
        raise ClientError(
            "no redirect URI is allowed here; an operator can add it to"
            " authorization.redirect_uris",
            "invalid_redirect_uri",
        )
    return LoginClient(client_id, readable(found.get("client_name"))[:MAX_NAME], kept)


@define(eq=False, repr=False)
class Clients:
    """Finds clients by their ids.

    Args:
        seal: seals registrations.
        allowed: `authorization.redirect_uris`.
        exchanges: fetches the descriptions of clients, from public addresses alone.
        now: returns seconds, which never go back.
    """

    _seal: Seal
    _allowed: tuple[str, ...]
    _exchanges: AuthExchanges
    _now: Callable[[], float]
    _kept: BoundedDict[str, tuple[float, LoginClient]] = field(
        factory=lambda: BoundedDict(_MAX_KEPT), init=False
    )
    _fetches: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(_MAX_FETCHES), init=False)

    def register(self, document: Any) -> LoginClient:
        """Return a new client; nothing is kept of it.

        Raises:
            ClientError: it cannot be used.
        """
        read = read_client(document, "", self._allowed)
        content = orjson.dumps([read.name, read.redirect_uris])
        client_id = self._seal.seal(content, _REGISTERED)
        if len(client_id) > MAX_ID:
            raise ClientError("name and redirect URIs are too long")
        return LoginClient(client_id, read.name, read.redirect_uris)

    async def find(self, client_id: str) -> LoginClient:
        """Return the client of an id.

        Raises:
            ClientError: there is none.
        """
        if client_id.startswith("https://"):
            return await self._described(client_id)
        found = self.registered(client_id)
        if found is None:
            raise ClientError("this server does not know the program: it may register again")
        return found

    def registered(self, client_id: str) -> LoginClient | None:
        """Return the client that was given this id; None if none was."""
        content = self._seal.open(client_id, _REGISTERED) if len(client_id) <= MAX_ID else None
        if content is None:
            return None
        name, uris = orjson.loads(content)
        # The operator may have changed the setting since.
        kept = tuple(each for each in uris if is_allowed(each, self._allowed))
        return LoginClient(client_id, name, kept)

    async def _described(self, url: str) -> LoginClient:
        """Return the client that describes itself at a URL."""
        parts = split_url(url)
        if parts is None or parts.path in ("", "/") or parts.query or _DOTS.search(parts.path):
            raise ClientError("the id of the program is no https URL with a path")
        age, client = self._kept.get(url, (0.0, None))
        if client is not None and self._now() - age < _MAX_AGE:
            return client
        try:
            async with asyncio.timeout(_PATIENCE), self._fetches:
                answer = await self._exchanges.get(url)
        except (MCPError, TimeoutError):
            raise ClientError("the program's description cannot be fetched") from None
        found = answer.document if isinstance(answer.document, Mapping) else {}
        if answer.status != 200 or found.get("client_id") != url:
            raise ClientError("the program's description is not there, or another program's")
        if found.get("token_endpoint_auth_method", "none") != "none":
            raise ClientError("the program would have to authenticate, which is not done here")
        client = read_client(found, url, self._allowed)
        self._kept[url] = (self._now(), client)
        return client


def public_network() -> Network:
    """Return a network that reaches public addresses alone (AUTHZ-15).

    The owner of a name may let its look-up take long: so it does not happen in the threads in which
    all names are looked up.
    """
    return Network(threads=ThreadPoolExecutor(_MAX_FETCHES, "descriptions"), only_public=True)


def _without_port(uri: str) -> tuple[str | None, str] | None:
    """Return a redirect URI of this machine without its port; None if it is another one."""
    parts = split_url(uri)
    if parts is None or parts.scheme != "http" or parts.hostname not in _LOOPBACK_HOSTS:
        return None
    return parts.hostname, uri.partition(parts.netloc)[2]
