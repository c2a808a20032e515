"""Descriptions of how a client is authorized: what `auth=` takes (CAUTH-01).

They are plain values: nothing is asked or sent, and no secret stands in their representation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import Any, Protocol, TypeGuard

from attrs import field, frozen

from ...errors import UsageError
from .urls import check_endpoint, is_loopback

Source = str | PathLike[str] | Callable[[], Any]
"""A text; or the path of a file that has it, or a function that returns it, for each use."""


@frozen
class StoreKey:
    """Says whose entry of a store it is.

    Attributes:
        resource: the URL of the server; empty for a registration.
        issuer: the authorization server, if the description names one; else empty.
        client: the client, if the description names one; else empty.
    """

    resource: str
    issuer: str = ""
    client: str = ""


class TokenStore(Protocol):
    """Keeps tokens and registrations of clients; each entry is a JSON object (CAUTH-40)."""

    async def load(self, key: StoreKey) -> Mapping[str, Any] | None:
        """Return an entry; None if there is none."""

    async def save(self, key: StoreKey, entry: Mapping[str, Any]) -> None:
        """Replace an entry, whole or not at all."""

    async def delete(self, key: StoreKey) -> None:
        """Delete an entry, if it is there."""

    def lock(self, key: StoreKey) -> AbstractAsyncContextManager[None]:
        """Return a block that nobody else is in for this key, whichever process it is."""


@frozen
class LoginRequest:
    """The page of a login, as it is shown to a person.

    Attributes:
        url: the page to open.
        redirect_uri: where the browser comes back to.
        issuer: the authorization server.
        client_id: the client's name there.
        scopes: what is asked for.
        timeout: seconds that there are.
        user_code: the code to enter on the page, where the login is one of a device.
    """

    url: str = field(repr=False)
    redirect_uri: str
    issuer: str
    client_id: str
    scopes: tuple[str, ...] = ()
    timeout: float = 300.0
    user_code: str | None = field(default=None, repr=False)


Login = Callable[[LoginRequest], Awaitable[str]]
"""Shows a page to a person; returns the URL that the browser came back to."""


def _names(scopes: Sequence[str]) -> tuple[str, ...]:
    if isinstance(scopes, str):
        raise UsageError("scopes is a sequence of strings, one for each scope, not a string")
    return tuple(scopes)


def _store(store: TokenStore | None) -> TokenStore:
    from .stores import MemoryTokenStore

    return MemoryTokenStore() if store is None else store


def _check_client(secret: str | None, private_key: Any, *, needs_one: bool) -> None:
    if secret is not None and private_key is not None:
        raise UsageError("client_secret and private_key exclude each other: give one")
    if needs_one and secret is None and private_key is None:
        raise UsageError("a client of its own needs client_secret or private_key")


def _check_issuer(issuer: str | None) -> None:
    if issuer is not None:
        check_endpoint("issuer", issuer)


@frozen
class OAuth:
    """A person logs in, and the client acts for them.

    Args:
        scopes: asked for besides those that the server names.
        client_id: of a client that is registered already, at `issuer`.
        client_secret: its secret, if it has one.
        private_key: its key instead of a secret, PEM, for `private_key_jwt`.
        issuer: the authorization server that the client is registered at.
        client_metadata_url: an `https` URL that describes the client (CIMD).
        redirect_uri: where the browser comes back to; None: a free port of this machine.
        login: shows the page, such as `browser_login()`; None: nobody is asked.
        store: keeps what a login brings; None: the memory of this description.
        login_timeout: seconds for a login.

    Raises:
        UsageError: an argument is invalid, or one is missing that it needs.
    """

    scopes: Sequence[str] = field(default=(), converter=_names)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    issuer: str | None = None
    client_metadata_url: str | None = None
    redirect_uri: str | None = None
    login: Login | None = None
    store: TokenStore = field(default=None, repr=False, converter=_store)
    login_timeout: float = 300.0

    def __attrs_post_init__(self) -> None:
        _check_client(self.client_secret, self.private_key, needs_one=False)
        _check_issuer(self.issuer)
        if self.client_id is None and (self.client_secret or self.private_key):
            raise UsageError("a client_secret and a private_key need the client_id they belong to")
        if self.client_id is not None and self.issuer is None:
            raise UsageError("a client_id needs issuer, the authorization server that knows it")
        url = self.client_metadata_url
        if url is not None and not (url.startswith("https://") and url.count("/") > 2):
            raise UsageError("client_metadata_url is an https URL with a path")
        uri = self.redirect_uri
        if uri is not None and not (uri.startswith("https://") or is_loopback(uri)):
            raise UsageError("redirect_uri is an https URL, or one of this machine")
        if not self.login_timeout > 0:
            raise UsageError("login_timeout is a number of seconds, more than 0")


@frozen
class ClientCredentials:
    """A program acts for itself.

    Args:
        client_id: its name at the authorization server.
        client_secret: its secret.
        private_key: its key instead of a secret, PEM, for `private_key_jwt`.
        issuer: the authorization server; None: the one that the server names.
        scopes: asked for besides those that the server names.

    Raises:
        UsageError: an argument is invalid, or one is missing.
    """

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    issuer: str | None = None
    scopes: Sequence[str] = field(default=(), converter=_names)

    def __attrs_post_init__(self) -> None:
        _check_client(self.client_secret, self.private_key, needs_one=True)
        _check_issuer(self.issuer)


@frozen
class WorkloadIdentity:
    """A program is known by a JWT of its platform (RFC 7523, section 2.1).

    Args:
        assertion: the JWT: a text, the path of a file that the platform renews, or a function.
        client_id: its name at the authorization server, if that wants one.
        issuer: the authorization server; None: the one that the server names.
        scopes: asked for besides those that the server names.

    Raises:
        UsageError: an argument is invalid.
    """

    assertion: Source = field(repr=False)
    client_id: str | None = None
    issuer: str | None = None
    scopes: Sequence[str] = field(default=(), converter=_names)

    def __attrs_post_init__(self) -> None:
        _check_issuer(self.issuer)


@frozen
class EnterpriseManaged:
    """A person's login at their company's identity provider is enough (ID-JAG).

    Args:
        identity_issuer: the identity provider.
        identity_client_id: this program's name there.
        id_token: the person's ID token: a text, a path or a function.
        client_id: this program's name at the server's authorization server.
        client_secret: its secret there.
        private_key: its key there instead of a secret, PEM.
        identity_client_secret: its secret at the identity provider, if it has one.
        issuer: the authorization server; None: the one that the server names.
        scopes: asked for besides those that the server names.

    Raises:
        UsageError: an argument is invalid.
    """

    identity_issuer: str
    identity_client_id: str
    id_token: Source = field(repr=False)
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    identity_client_secret: str | None = field(default=None, repr=False)
    issuer: str | None = None
    scopes: Sequence[str] = field(default=(), converter=_names)

    def __attrs_post_init__(self) -> None:
        check_endpoint("identity_issuer", self.identity_issuer)
        _check_client(self.client_secret, self.private_key, needs_one=False)
        _check_issuer(self.issuer)


Authorization = OAuth | ClientCredentials | WorkloadIdentity | EnterpriseManaged
"""Values that `auth=` takes besides an `auth` of httpx2."""


def is_description(auth: object) -> TypeGuard[Authorization]:
    """Return whether `auth` is one of these descriptions."""
    return isinstance(auth, Authorization)


def key_of(description: Authorization, url: str) -> StoreKey:
    """Return the key of a server's tokens (CAUTH-40).

    Args:
        description: how the client is authorized.
        url: the server's.
    """
    client = description.client_id
    if client is None and isinstance(description, OAuth):
        client = description.client_metadata_url
    return StoreKey(url, description.issuer or "", client or "")
