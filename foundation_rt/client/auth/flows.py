"""Gets tokens: discovers, registers, lets a person log in, refreshes (CAUTH-13 to CAUTH-35).

What is decided, is decided by the pure modules; here it is done, one request after another.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson
from attrs import define, evolve, field, frozen

from ..errors import AuthorizationError, ConnectionLostError, MCPError, place_of
from ..safe_text import readable
from .descriptions import (
    Authorization,
    ClientCredentials,
    EnterpriseManaged,
    LoginRequest,
    OAuth,
    Source,
    StoreKey,
    TokenStore,
    WorkloadIdentity,
)
from .discovery import (
    ASSERTION_TYPE,
    OAuthClient,
    ResourceMetadata,
    ServerMetadata,
    authenticate,
    check_challenge_method,
    choose_issuer,
    guessed_metadata,
    known_client,
    legacy_resource,
    read_resource_metadata,
    read_server_metadata,
    registered_client,
    registration,
    resource_metadata_places,
    secret_method,
    server_metadata_places,
)
from .grants import (
    Challenge,
    Grant,
    authorization_url,
    choose_challenge,
    choose_scopes,
    read_callback,
    read_grant,
    refusal_of,
    token_parameters,
)
from .urls import host_of, is_loopback, may_ask

if TYPE_CHECKING:
    from .exchanges import AuthExchanges, AuthResponse
    from .proofs import DpopKey

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
JWT_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"

_PING = b'{"jsonrpc":"2.0","id":"login","method":"ping"}'
_NOT_SECRET = (
    *("grant_type", "client_id", "resource", "scope", "redirect_uri", "audience"),
    *("client_assertion_type", "subject_token_type", "requested_token_type"),
)
_OVER = ("invalid_grant", "invalid_client", "unauthorized_client", "bad_refresh_token")
"""Errors after which only a login helps; the last one is GitHub's."""

_SHORTEST_SECRET = 8  # characters; shorter values are common in texts
_POLL_SECONDS = 5.0  # s; between two questions whether a device is admitted, if none is named


@frozen
class Discovered:
    """A server and its authorization server."""

    resource: ResourceMetadata
    server: ServerMetadata


@define(eq=False)
class Flows:
    """Gets tokens for one server.

    Args:
        url: the server's.
        store: keeps registrations.
        exchanges: sends requests to authorization servers.
        now: returns seconds since 1970.
        asking: a block in which a person is asked.
    """

    url: str
    description: Authorization
    store: TokenStore
    exchanges: AuthExchanges
    now: Callable[[], float]
    asking: Callable[[], AbstractContextManager[None]]
    _nonces: dict[str, str] = field(factory=dict, init=False, repr=False)

    # -- tokens

    async def obtain(self, challenge: Challenge, before: tuple[str, ...]) -> Grant:
        """Return a new token.

        Args:
            challenge: of the server.
            before: the scopes that were asked for before, if it wants more.

        Raises:
            AuthorizationError: there is none to be had.
            ConnectionLostError: a server does not answer.
        """
        found = await self.discover(challenge)
        wanted = self.description.scopes
        scopes = choose_scopes(challenge.scopes, found.resource, found.server, wanted, before)
        dpop = None
        if challenge.scheme == "dpop" or found.resource.wants_dpop:
            from .proofs import DpopKey

            dpop = DpopKey.generate()
        described = self.description
        if isinstance(described, OAuth):
            return await self._of_person(described, found, scopes, dpop)
        if isinstance(described, ClientCredentials):
            client = known_client(
                described.client_id, described.client_secret, described.private_key, found.server
            )
            parameters = token_parameters("client_credentials", found.resource.resource, scopes)
        elif isinstance(described, WorkloadIdentity):
            client = OAuthClient(described.client_id or "")
            parameters = token_parameters(JWT_GRANT, found.resource.resource, scopes)
            parameters["assertion"] = await _text_of(described.assertion)
        else:
            client = known_client(
                described.client_id, described.client_secret, described.private_key, found.server
            )
            parameters = token_parameters(JWT_GRANT, found.resource.resource, scopes)
            parameters["assertion"] = await self._identity_assertion(described, found, scopes)
        answer = await self._ask_token(found.server, client, parameters, dpop)
        return self._read(answer, found, client, scopes, dpop)

    async def refresh(self, grant: Grant) -> Grant | None:
        """Return the token that follows `grant`; None if only a login brings one (CAUTH-31).

        Raises:
            AuthorizationError: the authorization server refuses for another reason.
            ConnectionLostError: it does not answer.
        """
        assert grant.refresh_token is not None
        server = ServerMetadata(
            grant.issuer, grant.token_endpoint, revocation_endpoint=grant.revocation_endpoint
        )
        described = self.description
        key = described.private_key if isinstance(described, OAuth) else None
        client = OAuthClient(grant.client_id, grant.method, grant.client_secret, key)
        parameters = token_parameters("refresh_token", grant.resource, grant.scopes)
        parameters["refresh_token"] = grant.refresh_token
        dpop = None
        if grant.dpop_key is not None:
            from .proofs import DpopKey

            dpop = DpopKey.of(grant.dpop_key)
        answer = await self._post_token(server, client, parameters, dpop)
        if answer.error == "invalid_client":
            await self.forget_client(grant.issuer, grant.client_id)
        if answer.error in _OVER:
            return None
        self._check(answer, server, client, parameters)
        found = read_grant(
            answer.document,
            grant.resource,
            server,
            client,
            grant.scopes,
            self.now(),
            grant.dpop_key,
            grant.refresh_token,
        )
        return evolve(found, requested=grant.requested)

    async def revoke(self, grant: Grant) -> bool:
        """Ask the authorization server to forget a token; return whether it has (RFC 7009)."""
        if grant.revocation_endpoint is None:
            return False
        client = OAuthClient(grant.client_id, grant.method, grant.client_secret)
        parameters, headers = authenticate(client)
        token, hint = grant.refresh_token or grant.access_token, "refresh_token"
        if grant.refresh_token is None:
            hint = "access_token"
        body = {**parameters, "token": token, "token_type_hint": hint}
        try:
            answer = await self.exchanges.post(grant.revocation_endpoint, body, headers)
        except ConnectionLostError:
            return False
        return answer.status == 200

    # -- discovery

    async def challenge(self) -> Challenge:
        """Return the challenge of the server to a request without a token.

        Raises:
            AuthorizationError: it asks for no login.
            ConnectionLostError: it does not answer.
        """
        accepted = {"accept": "application/json, text/event-stream"}
        answer = await self.exchanges.post(self.url, _PING, accepted)
        if answer.status >= 500:
            raise _unavailable(self.url, answer.status)
        challenge = choose_challenge(answer.headers.get("www-authenticate", ""))
        if answer.status != 401 and await self._resource_metadata(None) is None:
            raise AuthorizationError(
                f"{host_of(self.url)} asks for no login", "Call it without one."
            )
        return challenge

    async def discover(self, challenge: Challenge) -> Discovered:
        """Find the authorization server of the server.

        Raises:
            AuthorizationError: there is none that may be used.
            ConnectionLostError: a server does not answer.
        """
        wanted = self.description.issuer
        named = challenge.parameters.get("resource_metadata")
        resource = await self._resource_metadata(named)
        is_legacy = resource is None
        resource = resource or legacy_resource(self.url)
        issuer = choose_issuer(resource, wanted, self.url)
        server = await self._server_metadata(issuer, self.url)
        if server is None:
            if not is_legacy:
                raise AuthorizationError(
                    f"{readable(issuer)} publishes no metadata",
                    "Report it to whoever runs the server.",
                )
            server = guessed_metadata(issuer)
        return Discovered(resource, server)

    async def _resource_metadata(self, named: str | None) -> ResourceMetadata | None:
        for place in resource_metadata_places(self.url, named):
            document = await self._document(place)
            if document is not None:
                return read_resource_metadata(document, self.url)
        if named is not None:
            raise AuthorizationError(
                f"{host_of(self.url)} names resource metadata that is not there",
                "Report it to whoever runs the server.",
            )
        return None

    async def _server_metadata(self, issuer: str, near: str) -> ServerMetadata | None:
        for place in server_metadata_places(issuer):
            document = await self._document(place)
            if document is not None:
                return read_server_metadata(document, issuer, near)
        return None

    async def _document(self, place: str) -> dict[str, Any] | None:
        """Return a document of metadata; None if there is no object of JSON there.

        Raises:
            ConnectionLostError: there is no telling.
        """
        answer = await self.exchanges.get(place)
        if answer.status == 429 or answer.status >= 500:
            raise _unavailable(place, answer.status)
        is_one = answer.status == 200 and isinstance(answer.document, dict)
        return answer.document if is_one else None

    # -- a person

    async def _of_person(
        self, described: OAuth, found: Discovered, scopes: tuple[str, ...], dpop: DpopKey | None
    ) -> Grant:
        login = described.login
        assert login is not None
        if getattr(login, "is_device", False):
            return await self._of_device(described, found, scopes, dpop)
        server = found.server
        check_challenge_method(server)
        client, redirect_uri = await self._client(described, server, scopes)
        state, verifier = token_urlsafe(32), token_urlsafe(48)
        resource = found.resource.resource
        page = authorization_url(server, client, redirect_uri, resource, scopes, state, verifier)
        request = LoginRequest(
            page, redirect_uri, server.issuer, client.client_id, scopes, described.login_timeout
        )
        came_back = await self._show(described, request, client)
        parameters = token_parameters("authorization_code", resource, ())
        parameters |= {
            "code": read_callback(came_back, redirect_uri, state, server),
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        answer = await self._ask_token(server, client, parameters, dpop)
        return self._read(answer, found, client, scopes, dpop)

    async def _show(self, described: OAuth, request: LoginRequest, client: OAuthClient) -> str:
        """Let a person log in; return the URL that the browser came back to."""
        assert described.login is not None
        try:
            with self.asking():
                async with asyncio.timeout(request.timeout):
                    return await described.login(request)
        except MCPError:
            raise
        except (TimeoutError, asyncio.CancelledError) as error:
            if client.is_dynamic:  # its server may have forgotten it, and said so to the browser
                await self.forget_client(request.issuer, client.client_id)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise AuthorizationError(
                f"Nobody completed the login within {request.timeout:g} s",
                "Run it again, or use --no-browser.",
            ) from None
        except Exception as error:
            raise AuthorizationError(f"The login failed: {place_of(error)}") from None

    async def _of_device(
        self, described: OAuth, found: Discovered, scopes: tuple[str, ...], dpop: DpopKey | None
    ) -> Grant:
        """Let a person log in on another device (RFC 8628)."""
        server = found.server
        if server.device_endpoint is None:
            raise AuthorizationError(f"{readable(server.issuer)} has no login for devices")
        client, redirect_uri = await self._client(described, server, scopes)
        parameters, headers = authenticate(client)
        asked = {**parameters, "resource": found.resource.resource}
        if scopes:
            asked["scope"] = " ".join(scopes)
        asked |= await self._assertion(client, server)
        answer = await self.exchanges.post(server.device_endpoint, asked, headers)
        self._check(answer, server, client, asked)
        said = answer.document
        code, page = said.get("device_code"), said.get("verification_uri")
        shown = said.get("verification_uri_complete", page)
        if not isinstance(code, str) or not may_ask(shown, self.url):
            raise AuthorizationError(f"{readable(server.issuer)} named no page for the device")
        request = LoginRequest(
            shown,
            redirect_uri,
            server.issuer,
            client.client_id,
            scopes,
            min(_seconds(said.get("expires_in"), 900.0), described.login_timeout),
            readable(said.get("user_code")),
        )
        polled = token_parameters(DEVICE_GRANT, found.resource.resource, ())
        polled["device_code"] = code
        interval = _seconds(said.get("interval"), _POLL_SECONDS)
        answer = await self._poll(described, request, found.server, client, polled, interval, dpop)
        return self._read(answer, found, client, scopes, dpop)

    async def _poll(
        self,
        described: OAuth,
        request: LoginRequest,
        server: ServerMetadata,
        client: OAuthClient,
        parameters: Mapping[str, str],
        interval: float,
        dpop: DpopKey | None,
    ) -> AuthResponse:
        """Show the page, and ask until the person has agreed there."""
        answer: AuthResponse | None = None

        async def ask(shown: LoginRequest) -> str:
            nonlocal answer, interval
            assert described.login is not None
            await described.login(shown)
            while True:
                await asyncio.sleep(interval)
                try:
                    answer = await self._post_token(server, client, parameters, dpop)
                except ConnectionLostError:  # RFC 8628, 3.5
                    interval *= 2
                    continue
                if answer.error == "slow_down":
                    interval += _POLL_SECONDS
                elif answer.error != "authorization_pending":
                    return ""

        await self._show(evolve(described, login=ask), request, client)
        assert answer is not None
        self._check(answer, server, client, parameters)
        return answer

    # -- clients

    async def _client(
        self, described: OAuth, server: ServerMetadata, scopes: tuple[str, ...]
    ) -> tuple[OAuthClient, str]:
        """Return the client to use, and where the browser comes back to (CAUTH-20)."""
        redirect_uri = described.redirect_uri
        if described.client_id is not None:
            known = known_client(
                described.client_id, described.client_secret, described.private_key, server
            )
            return known, redirect_uri or _free_redirect_uri()
        if described.client_metadata_url is not None and server.takes_metadata_urls:
            client = OAuthClient(described.client_metadata_url)
            return client, redirect_uri or _free_redirect_uri()
        key = StoreKey("", server.issuer)
        kept = _client_of_entry(await self.store.load(key), self.now())
        if kept is not None and kept.redirect_uri is not None and self._fits(kept, redirect_uri):
            return kept, kept.redirect_uri
        redirect_uri = redirect_uri or _free_redirect_uri()
        body = registration(server, redirect_uri, scopes)
        if getattr(described.login, "is_device", False):
            body["grant_types"].append(DEVICE_GRANT)
        assert server.registration_endpoint is not None
        answer = await self.exchanges.post(server.registration_endpoint, orjson.dumps(body), {})
        if answer.status == 429 or answer.status >= 500:
            raise _unavailable(server.registration_endpoint, answer.status)
        if answer.status not in (200, 201):
            said = refusal_of(answer.document) if isinstance(answer.document, dict) else ""
            raise AuthorizationError(
                f"{readable(server.issuer)} did not register this client"
                f" (HTTP status {answer.status}){f': {said}' if said else ''}",
                "Pass --client-id, from its administrator.",
            )
        made = registered_client(answer.document, redirect_uri, server)
        entry = {
            "client_id": made.client_id,
            "secret": made.secret,
            "method": made.method,
            "redirect_uri": redirect_uri,
            "expires_at": _seconds(answer.document.get("client_secret_expires_at"), 0.0),
        }
        async with self.store.lock(key):
            await self.store.save(key, entry)
        return made, redirect_uri

    def _fits(self, kept: OAuthClient, redirect_uri: str | None) -> bool:
        """Return whether a registration can be used for this login."""
        assert kept.redirect_uri is not None
        if redirect_uri is not None:
            return kept.redirect_uri == redirect_uri
        return is_loopback(kept.redirect_uri) and _is_free(kept.redirect_uri)

    async def forget_client(self, issuer: str, client_id: str) -> None:
        """Discard a client that was registered by us (CAUTH-23)."""
        key = StoreKey("", issuer)
        async with self.store.lock(key):
            entry = await self.store.load(key)
            if entry is not None and entry.get("client_id") == client_id:
                await self.store.delete(key)

    # -- the token endpoint

    async def _ask_token(
        self,
        server: ServerMetadata,
        client: OAuthClient,
        parameters: Mapping[str, str],
        dpop: DpopKey | None,
    ) -> AuthResponse:
        answer = await self._post_token(server, client, parameters, dpop)
        if answer.error == "invalid_client" and client.is_dynamic:
            await self.forget_client(server.issuer, client.client_id)
        self._check(answer, server, client, parameters)
        return answer

    async def _post_token(
        self,
        server: ServerMetadata,
        client: OAuthClient,
        parameters: Mapping[str, str],
        dpop: DpopKey | None,
    ) -> AuthResponse:
        """Return the answer of the token endpoint, asked once more if it wants a nonce."""
        named, headers = authenticate(client)
        body = {**named, **parameters}
        if not body.get("client_id", "-"):
            del body["client_id"]  # of a workload that has no name
        for _ in range(2):
            body |= await self._assertion(client, server)
            if dpop is not None:
                nonce = self._nonces.get(server.token_endpoint)
                headers["dpop"] = dpop.proof("POST", server.token_endpoint, self.now(), None, nonce)
            answer = await self.exchanges.post(server.token_endpoint, body, headers)
            if dpop is None or "dpop-nonce" not in answer.headers:
                break
            self._nonces[server.token_endpoint] = answer.headers["dpop-nonce"]
            if answer.error != "use_dpop_nonce":
                break
        if answer.status == 429 or answer.status >= 500:
            raise _unavailable(server.token_endpoint, answer.status)
        return answer

    async def _assertion(self, client: OAuthClient, server: ServerMetadata) -> dict[str, str]:
        """Return the parameters of a client that signs (RFC 7523, 2.2)."""
        if client.private_key is None:
            return {}
        from .proofs import client_assertion

        signed = client_assertion(
            client.client_id, client.private_key, server.issuer, self.now(), token_urlsafe(16)
        )
        return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": signed}

    def _check(
        self,
        answer: AuthResponse,
        server: ServerMetadata,
        client: OAuthClient,
        parameters: Mapping[str, str],
    ) -> None:
        """Raise unless it is an answer that grants something."""
        if answer.status == 200 and isinstance(answer.document, dict) and not answer.error:
            return
        said = refusal_of(answer.document) if isinstance(answer.document, dict) else ""
        secrets = [client.secret, *(v for k, v in parameters.items() if k not in _NOT_SECRET)]
        for secret in secrets:
            if secret is not None and len(secret) >= _SHORTEST_SECRET:
                said = said.replace(secret, "***")
        raise AuthorizationError(
            f"{readable(server.issuer)} gave no token (HTTP status {answer.status})"
            f"{f': {said}' if said else ''}"
        )

    def _read(
        self,
        answer: AuthResponse,
        found: Discovered,
        client: OAuthClient,
        scopes: tuple[str, ...],
        dpop: DpopKey | None,
    ) -> Grant:
        key = None if dpop is None else dpop.private
        resource = found.resource.resource
        return read_grant(answer.document, resource, found.server, client, scopes, self.now(), key)

    async def _identity_assertion(
        self, described: EnterpriseManaged, found: Discovered, scopes: tuple[str, ...]
    ) -> str:
        """Return the ID-JAG that the identity provider gives for an ID token (RFC 8693)."""
        issuer = described.identity_issuer
        provider = await self._server_metadata(issuer, issuer)
        if provider is None:
            raise AuthorizationError(f"{issuer} publishes no metadata")
        secret = described.identity_client_secret
        client = OAuthClient(described.identity_client_id, secret_method(secret, provider), secret)
        parameters = token_parameters(EXCHANGE_GRANT, found.resource.resource, scopes)
        parameters |= {
            "audience": found.server.issuer,
            "requested_token_type": _ID_JAG,
            "subject_token": await _text_of(described.id_token),
            "subject_token_type": _ID_TOKEN,
        }
        answer = await self._ask_token(provider, client, parameters, None)
        granted = answer.document.get("access_token")
        if answer.document.get("issued_token_type") != _ID_JAG or not isinstance(granted, str):
            raise AuthorizationError(f"{issuer} gave no ID-JAG")
        return granted


def _unavailable(url: str, status: int) -> ConnectionLostError:
    what = f"{host_of(url)} answered with HTTP status {status}"
    return ConnectionLostError(what, may_have_run=False)


def _client_of_entry(entry: Mapping[str, Any] | None, now: float) -> OAuthClient | None:
    """Return a client that was registered before; None if it has ended, or cannot be read."""
    if entry is None or not isinstance(entry.get("client_id"), str):
        return None
    if 0 < entry.get("expires_at", 0) <= now:
        return None
    return OAuthClient(
        entry["client_id"],
        str(entry.get("method", "none")),
        entry.get("secret"),
        None,
        entry.get("redirect_uri"),
        is_dynamic=True,
    )


async def _text_of(source: Source) -> str:
    """Return the text of a source, read anew.

    Raises:
        AuthorizationError: there is none.
    """
    try:
        if callable(source):
            given = source()
            text = await given if inspect.isawaitable(given) else given
        elif isinstance(source, PathLike):
            text = Path(source).read_text("ascii")
        else:
            text = source
    except MCPError:
        raise
    except Exception as error:
        raise AuthorizationError(f"The assertion cannot be had: {place_of(error)}") from None
    if not isinstance(text, str) or not text.strip():
        raise AuthorizationError("The assertion is empty")
    return text.strip()


def _free_redirect_uri() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/callback"


def _is_free(url: str) -> bool:
    """Return whether the port of a URL of this machine can be listened on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", urlsplit(url).port or 80))
        except OSError:
            return False
    return True


def _seconds(value: Any, default: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if is_number else default
