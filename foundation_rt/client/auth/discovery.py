"""Discovery: places of metadata, whether it may be used, and as which client. Pure.

(CAUTH-13 to CAUTH-24, RFC 7591)

    server URL ─► resource metadata ─► issuer ─► metadata of the authorization server
                  RFC 9728                       RFC 8414, OpenID Connect Discovery

A server of revision 2025-03-26 has no resource metadata: it is its own authorization server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlsplit

from attrs import field, frozen

from ..errors import AuthorizationError
from ..safe_text import readable
from .urls import check_may_ask, host_of, origin_of, without_secrets

_REPORT = "Report it to whoever runs the server."
_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"


@frozen
class ResourceMetadata:
    """A server, as RFC 9728 describes it.

    Attributes:
        resource: its name for itself, character for character.
        issuers: its authorization servers.
        scopes: `scopes_supported`; None if it names none.
        wants_dpop: whether it takes only tokens that are bound to a key.
    """

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] | None = None
    wants_dpop: bool = False


@frozen
class ServerMetadata:
    """An authorization server, as RFC 8414 or OpenID Connect describes it.

    Attributes:
        issuer: its name, character for character.
        is_guessed: whether it has no metadata, and its endpoints are those of 2025-03-26.
        sends_iss: whether it says to send `iss` with every answer (RFC 9207).
        auth_methods: how clients authenticate; None if it does not say.
        takes_metadata_urls: whether a client may be named by the URL of its description (CIMD).
    """

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    device_endpoint: str | None = None
    revocation_endpoint: str | None = None
    is_guessed: bool = False
    sends_iss: bool = False
    auth_methods: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ()
    challenge_methods: tuple[str, ...] = ()
    takes_metadata_urls: bool = False


def resource_metadata_places(url: str, named: str | None) -> list[str]:
    """Return the URLs of the resource metadata, in the order in which they are asked.

    Args:
        url: the server's.
        named: by its challenge; then it is the only one.

    Raises:
        AuthorizationError: the URL that is named may not be asked.
    """
    if named is not None:
        return [check_may_ask("the resource metadata of the server", named, url)]
    path = urlsplit(url).path.rstrip("/")
    places = [f"{origin_of(url)}{_RESOURCE}{path}", f"{origin_of(url)}{_RESOURCE}"]
    return [*dict.fromkeys(places)]


def read_resource_metadata(document: Any, url: str) -> ResourceMetadata:
    """Return the resource metadata of a server, checked.

    Args:
        document: as it came.
        url: the server's.

    Raises:
        AuthorizationError: it describes another server, or cannot be used.
    """
    found = document if isinstance(document, Mapping) else {}
    resource = found.get("resource")
    if not isinstance(resource, str) or not is_resource_of(resource, url):
        called = readable(resource) or "nothing"
        raise AuthorizationError(
            f"{host_of(url)} calls itself {called}",
            "No login was begun.",
        )
    issuers = _texts(found.get("authorization_servers")) or ()
    if not issuers:
        raise AuthorizationError(f"{host_of(url)} names no authorization server", _REPORT)
    return ResourceMetadata(
        resource,
        issuers,
        _texts(found.get("scopes_supported")),
        found.get("dpop_bound_access_tokens_required") is True,
    )


def is_resource_of(resource: str, url: str) -> bool:
    """Return whether the server at `url` may call itself `resource` (CAUTH-14).

    It is the URL itself, or the beginning of it that ends before a `/`.
    """
    try:
        parts, asked = urlsplit(resource), urlsplit(url)
        ports = (parts.port, asked.port)
    except ValueError:
        return False
    if parts.fragment or parts.username is not None or parts.query not in ("", asked.query):
        return False
    if (parts.scheme.lower(), parts.hostname) != (asked.scheme.lower(), asked.hostname):
        return False
    default = {"https": 443, "http": 80}.get(parts.scheme.lower())
    if (ports[0] or default) != (ports[1] or default):
        return False
    begin, path = parts.path.rstrip("/"), asked.path.rstrip("/")
    return path == begin or path.startswith(f"{begin}/")


def choose_issuer(found: ResourceMetadata, wanted: str | None, url: str) -> str:
    """Return the authorization server to use: the one that is wanted, else the first.

    Raises:
        AuthorizationError: the one that is wanted is not among them, or it may not be asked.
    """
    if wanted is not None:
        if wanted not in found.issuers:
            raise issuer_changed(wanted, found.issuers[0], url)
        return wanted
    return check_may_ask("the authorization server", found.issuers[0], url)


def issuer_changed(ours: str, theirs: str, url: str) -> AuthorizationError:
    """Return the error for credentials of another authorization server (CAUTH-22)."""
    return AuthorizationError(
        f"The credentials belong to {readable(ours)}; {host_of(url)} now uses {readable(theirs)}",
        "Log in with new ones.",
    )


def server_metadata_places(issuer: str) -> list[str]:
    """Return the URLs of an authorization server's metadata, in the order of the specification."""
    origin, path = origin_of(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [f"{origin}{_SERVER}", f"{origin}{_OPENID}"]
    return [f"{origin}{_SERVER}{path}", f"{origin}{_OPENID}{path}", f"{origin}{path}{_OPENID}"]


def read_server_metadata(document: Any, issuer: str, url: str) -> ServerMetadata:
    """Return the metadata of an authorization server, checked.

    Args:
        document: as it came.
        issuer: whose it has to be, character for character.
        url: the server's.

    Raises:
        AuthorizationError: it is another issuer's, or an endpoint of it may not be asked.
    """
    found = document if isinstance(document, Mapping) else {}
    named = found.get("issuer")
    if named != issuer:
        shown = readable(named) or "nothing"
        what = f"The metadata of {readable(issuer)} names {shown} as its issuer and was not used"
        raise AuthorizationError(what, _REPORT)

    def endpoint(name: str) -> str | None:
        return None if found.get(name) is None else check_may_ask(f"its {name}", found[name], url)

    token_endpoint = endpoint("token_endpoint")
    if token_endpoint is None:
        raise AuthorizationError(f"{readable(issuer)} names no token_endpoint", _REPORT)
    return ServerMetadata(
        issuer,
        token_endpoint,
        endpoint("authorization_endpoint"),
        endpoint("registration_endpoint"),
        endpoint("device_authorization_endpoint"),
        endpoint("revocation_endpoint"),
        sends_iss=found.get("authorization_response_iss_parameter_supported") is True,
        auth_methods=_texts(found.get("token_endpoint_auth_methods_supported")),
        scopes=_texts(found.get("scopes_supported")) or (),
        challenge_methods=_texts(found.get("code_challenge_methods_supported")) or (),
        takes_metadata_urls=found.get("client_id_metadata_document_supported") is True,
    )


def legacy_resource(url: str) -> ResourceMetadata:
    """Return what is assumed of a server without resource metadata (2025-03-26)."""
    return ResourceMetadata(without_secrets(url), (origin_of(url),))


def guessed_metadata(origin: str) -> ServerMetadata:
    """Return the endpoints of a server that has no metadata at all (2025-03-26)."""
    return ServerMetadata(
        origin,
        f"{origin}/token",
        f"{origin}/authorize",
        f"{origin}/register",
        is_guessed=True,
        challenge_methods=("S256",),  # nothing says so; a server that ignores it does no harm
    )


def check_challenge_method(server: ServerMetadata) -> None:
    """Raise unless an authorization server lists S256 (CAUTH-17).

    Raises:
        AuthorizationError: a code that is intercepted could be used by anybody.
    """
    if "S256" not in server.challenge_methods:
        what = f"{readable(server.issuer)} does not list S256, without which no code is safe (PKCE)"
        raise AuthorizationError(what, _REPORT)


def _texts(value: Any) -> tuple[str, ...] | None:
    """Return the texts of a list; None if it is none, or holds none."""
    if not isinstance(value, list):
        return None
    return tuple(dict.fromkeys(each for each in value if isinstance(each, str) and each)) or None


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
