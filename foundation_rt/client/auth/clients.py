"""The choice of the client for an authorization server. Pure (CAUTH-20 to CAUTH-24, RFC 7591)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from attrs import field, frozen

from ..errors import AuthorizationError
from ..safe_text import readable

if TYPE_CHECKING:
    from .discovery import ServerMetadata

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@frozen
class OAuthClient:
    """A client, as an authorization server knows it.

    Attributes:
        client_id: its name.
        method: how it authenticates: `none`, `client_secret_basic`, `client_secret_post` or
            `private_key_jwt`.
        secret: None if it has none.
        private_key: PEM; None if it has none.
        redirect_uri: the one that it was registered with; None if it was not registered by us.
        is_dynamic: whether it was registered by us.
    """

    client_id: str
    method: str = "none"
    secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    redirect_uri: str | None = None
    is_dynamic: bool = False


def known_client(
    client_id: str, secret: str | None, private_key: str | None, server: ServerMetadata
) -> OAuthClient:
    """Return a client that is registered already."""
    method = "private_key_jwt" if private_key is not None else secret_method(secret, server)
    return OAuthClient(client_id, method, secret, private_key)


def secret_method(secret: str | None, server: ServerMetadata) -> str:
    """Return how a client with or without a secret authenticates."""
    listed = server.auth_methods
    if secret is None:
        return "none"
    if listed is None or "client_secret_basic" in listed:
        return "client_secret_basic"
    return "client_secret_post" if "client_secret_post" in listed else "none"


def registration(server: ServerMetadata, redirect_uri: str, scopes: tuple[str, ...]) -> Any:
    """Return the body of a registration (CAUTH-21).

    Raises:
        AuthorizationError: the authorization server registers no clients.
    """
    if server.registration_endpoint is None:
        raise AuthorizationError(
            f"{readable(server.issuer)} registers no clients",
            "Pass --client-id, from its administrator.",
        )
    body: dict[str, Any] = {
        "client_name": "foundation-rt",
        "redirect_uris": [redirect_uri],
        "application_type": "native",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _wanted_method(server),
    }
    return {**body, "scope": " ".join(scopes)} if scopes else body


def registered_client(answer: Any, redirect_uri: str, server: ServerMetadata) -> OAuthClient:
    """Return the client of the answer to a registration.

    Raises:
        AuthorizationError: it names none.
    """
    found = answer if isinstance(answer, Mapping) else {}
    client_id, secret = found.get("client_id"), found.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        raise AuthorizationError(f"{readable(server.issuer)} registered a client without a name")
    secret = secret if isinstance(secret, str) and secret else None
    method = found.get("token_endpoint_auth_method")
    if method not in ("none", "client_secret_basic", "client_secret_post"):
        method = secret_method(secret, server)
    if secret is None:
        method = "none"
    return OAuthClient(client_id, method, secret, None, redirect_uri, is_dynamic=True)


def authenticate(client: OAuthClient) -> tuple[dict[str, str], dict[str, str]]:
    """Return the parameters and headers with which a client names itself, but for an assertion."""
    from base64 import b64encode

    if client.method == "client_secret_basic" and client.secret is not None:
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.secret)}"
        return {}, {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}
    parameters = {"client_id": client.client_id}
    if client.method == "client_secret_post" and client.secret is not None:
        parameters["client_secret"] = client.secret
    return parameters, {}


def _wanted_method(server: ServerMetadata) -> str:
    listed = server.auth_methods
    if listed is None or "none" in listed:
        return "none"
    for method in ("client_secret_basic", "client_secret_post"):
        if method in listed:
            return method
    return "none"
