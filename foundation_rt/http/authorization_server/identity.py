"""The provider at work: its page, who has come back from it, and whether they are still there.

Its tokens are asked for over the client's HTTP, in 5 s and 64 KiB, and no redirect is followed; its
endpoints are `https`, or of this machine (AUTHZ-15, AUTHZ-23).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import orjson
from attrs import define, field, frozen

from ...client.auth.discovery import (
    ASSERTION_TYPE,
    OAuthClient,
    ServerMetadata,
    authenticate,
    known_client,
    read_server_metadata,
    server_metadata_places,
)
from ...client.auth.exchanges import AuthExchanges, AuthResponse
from ...client.auth.grants import OFFLINE_ACCESS, challenge_of, read_grant
from ...client.auth.proofs import client_assertion
from ...client.auth.urls import check_may_ask
from ...client.errors import AuthorizationError, MCPError
from ...errors import UsageError
from ..auth.jwks import KeySource, KeysUnavailable
from ..auth.oauth import LEEWAY_SECONDS, MAX_TOKEN_LENGTH, TokenRefused, verified_payload
from .providers import PROVIDERS, Identity, ProviderKind, issuer_of, read_person

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...base.config.http_sections import AuthorizationSection
    from ...base.logs.logger import StructuredLogger

_METADATA_AGE = 3600.0  # s
_MAX_PAGES = 5  # of 100 organisations each
# GitHub's name, and those with which a provider wants to see the person again (Entra).
_OVER = (
    *("invalid_grant", "bad_refresh_token"),
    *("interaction_required", "login_required", "consent_required"),
)
_ALGORITHMS = ("RS256", "ES256", "PS256", "ES384", "RS384", "RS512", "Ed25519")


class ProviderError(Exception):
    """The provider gave nobody.

    Attributes:
        code: of RFC 6749, 4.1.2.1, for the client.
        is_over: whether the person's login there has ended.
        tokens: new ones that it gave before; None if it gave none.
    """

    def __init__(self, message: str, code: str = "server_error", is_over: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_over = is_over
        self.tokens: IdentityTokens | None = None


@frozen
class IdentityTokens:
    """The tokens of a person at the provider.

    Attributes:
        access_token: empty where it is not kept.
        expires_at: seconds since 1970; None if nobody knows.
    """

    access_token: str = field(repr=False)
    expires_at: float | None = None
    refresh_token: str | None = field(default=None, repr=False)


@frozen
class Endpoints:
    """The provider, as it describes itself."""

    server: ServerMetadata
    userinfo: str | None
    keys: KeySource | None


@define(eq=False, repr=False)
class IdentityProvider:
    """The provider of one server.

    Args:
        settings: the section `authorization`.
        callback: the URL that it sends people back to.
        exchanges: sends requests to it.
        clock: of the server.
        logger: of the server.

    Raises:
        UsageError: a setting is missing, or the file of the key cannot be used.
    """

    _settings: AuthorizationSection
    _callback: str
    _exchanges: AuthExchanges
    _clock: Clock
    _logger: StructuredLogger
    row: ProviderKind = field(init=False)
    issuer: str = field(init=False)
    _private_key: str | None = field(default=None, init=False)
    _found: tuple[float, Endpoints] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self._settings
        self.row = PROVIDERS[settings.provider or ""]
        self.issuer = issuer_of(settings, self.row)
        if settings.client_key_file is None:
            return
        try:
            self._private_key = Path(settings.client_key_file).read_text()
            self._assertion("", self._private_key, self.issuer)
        except (OSError, ValueError, AuthorizationError) as error:
            raise UsageError(
                f"authorization.client_key_file cannot be used: {type(error).__name__}"
            ) from None

    # -- the page

    async def page(self, state: str, nonce: str, verifier: str) -> str:
        """Return the URL of the page at which a person logs in.

        Raises:
            ProviderError: the provider does not say where it is.
        """
        server = (await self._endpoints()).server
        page = server.authorization_endpoint
        if page is None:
            raise ProviderError("the provider has no page to log in at")
        named = dict(each.split("=", 1) for each in self._settings.provider_parameters)
        parameters = {
            "response_type": "code",
            "client_id": self._settings.client_id or "",
            "redirect_uri": self._callback,
            "scope": " ".join(self._scopes(server)),
            "state": state,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
            **({"nonce": nonce} if self.row.is_openid else {}),
            **self.row.parameters,
            **named,
        }
        return f"{page}{'&' if urlsplit(page).query else '?'}{urlencode(parameters)}"

    def _scopes(self, server: ServerMetadata) -> tuple[str, ...]:
        if self._settings.provider_scopes:
            return self._settings.provider_scopes
        lists = OFFLINE_ACCESS in server.scopes and self.row.is_openid
        wants = any(each.startswith("org:") for each in self._settings.allow)
        offline = (OFFLINE_ACCESS,) if lists else ()
        organizations = ("read:org",) if self.row.is_github and wants else ()
        return tuple(dict.fromkeys((*self.row.scopes, *offline, *organizations)))

    # -- people

    async def enter(
        self, said: Mapping[str, str], nonce: str, verifier: str
    ) -> tuple[Identity, IdentityTokens]:
        """Return who has come back, and their tokens.

        Args:
            said: the parameters of the answer, whose `state` is that of this login.
            nonce: of the login.
            verifier: of the login (PKCE).

        Raises:
            ProviderError: nobody has.
        """
        server = (await self._endpoints()).server
        issuer = said.get("iss")
        if issuer != server.issuer and (issuer is not None or server.sends_iss):
            raise ProviderError("the answer is another provider's")
        if "error" in said or not said.get("code"):
            refused = said.get("error") in ("access_denied", "consent_required", "login_required")
            code = "access_denied" if refused else "server_error"
            raise ProviderError("the provider refused the login", code)
        parameters = {
            "grant_type": "authorization_code",
            "code": said["code"],
            "redirect_uri": self._callback,
            "code_verifier": verifier,
        }
        answer = await self._ask_token(server, parameters)
        tokens = self._tokens(answer, server, None)
        return await self._person(answer.document, tokens, nonce), tokens

    async def renew(
        self, person: Identity, tokens: IdentityTokens
    ) -> tuple[Identity, IdentityTokens]:
        """Return new tokens of a person, and the person as the provider knows them now.

        Raises:
            ProviderError: there are none; `is_over` if the login there has ended.
        """
        server = (await self._endpoints()).server
        kept = tokens.refresh_token or ""
        parameters = {"grant_type": "refresh_token", "refresh_token": kept}
        answer = await self._ask_token(server, parameters)
        renewed = self._tokens(answer, server, kept)
        if self.row.is_openid and "id_token" not in answer.document:
            return person, renewed
        try:
            again = await self._person(answer.document, renewed, None)
        except ProviderError as error:
            error.tokens = renewed
            raise
        if again.subject != person.subject:
            raise ProviderError("the provider names another person", is_over=True)
        return again, renewed

    async def _person(
        self, answer: Mapping[str, Any], tokens: IdentityTokens, nonce: str | None
    ) -> Identity:
        """Return who tokens are of.

        Raises:
            ProviderError: the provider's word is not good.
        """
        found = await self._endpoints()
        claims: dict[str, Any] = {}
        if self.row.is_openid:
            claims = await self._id_claims(str(answer.get("id_token")), found, nonce)
        if self.row.is_github:
            claims = await self._github_claims(tokens.access_token)
        elif found.userinfo is not None and ("email" not in claims or not self.row.is_openid):
            more = await self._get(found.userinfo, tokens.access_token)
            if isinstance(more, dict) and more.get("sub") == claims.get("sub", more.get("sub")):
                claims = {**more, **claims}
        person = read_person(claims, self.row)
        if person is None:
            raise ProviderError("the provider does not say who has logged in")
        return person

    async def _id_claims(self, token: str, found: Endpoints, nonce: str | None) -> dict[str, Any]:
        """Return the claims of an ID token (OpenID Connect Core, 3.1.3.7)."""
        if found.keys is None or len(token) > MAX_TOKEN_LENGTH:
            raise ProviderError("the provider gives no ID token that can be verified")
        try:
            payload = await verified_payload(token, found.keys, _ALGORITHMS)
            claims = orjson.loads(payload)
        except (TokenRefused, KeysUnavailable, ValueError):
            raise ProviderError("the ID token of the provider is not good") from None
        ours, now = self._settings.client_id, self._clock.now().timestamp()
        if type(claims) is not dict or claims.get("iss") != found.server.issuer:
            raise ProviderError("the ID token is another provider's")
        audience = claims.get("aud")
        is_ours = audience in (ours, [ours]) or (
            isinstance(audience, list) and ours in audience and claims.get("azp") == ours
        )
        expires = claims.get("exp")
        in_time = isinstance(expires, int | float) and now < expires + LEEWAY_SECONDS
        if not is_ours or not in_time or (nonce is not None and claims.get("nonce") != nonce):
            raise ProviderError("the ID token is not of this login")
        return claims

    async def _github_claims(self, token: str) -> dict[str, Any]:
        own = self.issuer == self.row.url
        api = "https://api.github.com" if own else f"{self.issuer.rstrip('/')}/api/v3"
        user = await self._get(f"{api}/user", token)
        found = dict(user) if isinstance(user, dict) else {}
        found.pop("sub", None)
        found |= {"name": found.get("name") or found.get("login"), "email": None}
        emails = await self._get(f"{api}/user/emails", token)
        for each in emails if isinstance(emails, list) else ():
            if isinstance(each, dict) and each.get("primary") and each.get("verified"):
                found |= {"email": each.get("email"), "email_verified": True}
        if any(each.startswith("org:") for each in self._settings.allow):
            found["organizations"] = await self._github_organizations(api, token)
        return found

    async def _github_organizations(self, api: str, token: str) -> list[Any]:
        names: list[Any] = []
        for number in range(1, _MAX_PAGES + 1):
            listed = await self._get(f"{api}/user/orgs?per_page=100&page={number}", token)
            found = listed if isinstance(listed, list) else []
            names += [each.get("login") for each in found if isinstance(each, dict)]
            if len(found) < 100:
                break
        return names

    # -- requests

    async def _get(self, url: str, token: str) -> Any:
        headers = {"authorization": f"Bearer {token}"}
        answer = await self._answer(partial(self._exchanges.get, url, headers))
        is_limited = answer.headers.get("x-ratelimit-remaining") == "0"
        is_limited = is_limited or "retry-after" in answer.headers
        may_lack = self.row.is_github and not url.endswith("/user") and not is_limited
        if answer.status in (401, 403, 404) and may_lack:
            return None  # without the scope
        if answer.status != 200 or not isinstance(answer.document, dict | list):
            raise ProviderError("the provider does not say who has logged in")
        return answer.document

    async def _ask_token(
        self, server: ServerMetadata, parameters: Mapping[str, str]
    ) -> AuthResponse:
        secret, key = self._settings.client_secret, self._private_key
        client = known_client(self._settings.client_id or "", secret, key, server)
        named, headers = authenticate(client)
        body = {**named, **parameters}
        if key is not None:
            body |= self._assertion(client.client_id, key, server.issuer)
        answer = await self._answer(
            partial(self._exchanges.post, server.token_endpoint, body, headers)
        )
        if answer.status == 429 or answer.status >= 500:
            raise ProviderError("the provider does not answer", "temporarily_unavailable")
        if answer.status != 200 or answer.error is not None:  # GitHub reports errors with 200
            is_over = answer.error in _OVER
            fields = {"provider": self.issuer, "status": answer.status}
            self._logger.warn("the identity provider gives no token", fields)
            raise ProviderError("the provider gives no token", is_over=is_over)
        return answer

    def _assertion(self, client_id: str, key: str, issuer: str) -> dict[str, str]:
        now = self._clock.now().timestamp()
        signed = client_assertion(client_id, key, issuer, now, token_urlsafe(16))
        return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": signed}

    def _tokens(
        self, answer: AuthResponse, server: ServerMetadata, refresh_token: str | None
    ) -> IdentityTokens:
        now = self._clock.now().timestamp()
        client = OAuthClient(self._settings.client_id or "")
        try:
            grant = read_grant(
                answer.document, "", server, client, (), now, None, refresh_token or None
            )
        except AuthorizationError:
            raise ProviderError("the provider gives no token that can be used") from None
        return IdentityTokens(grant.access_token, grant.expires_at, grant.refresh_token)

    async def _answer(self, send: Callable[[], Awaitable[AuthResponse]]) -> AuthResponse:
        try:
            return await send()
        except MCPError as error:
            fields = {"provider": self.issuer, "error": {"type": type(error).__name__}}
            self._logger.warn("the identity provider does not answer", fields)
            raise ProviderError("the provider does not answer", "temporarily_unavailable") from None

    # -- discovery

    async def _endpoints(self) -> Endpoints:
        """Return what the provider says of itself; asked once in an hour.

        Raises:
            ProviderError: it says nothing that can be used.
        """
        now = self._clock.monotonic()
        if self._found is not None and now - self._found[0] < _METADATA_AGE:
            return self._found[1]
        try:
            found = self._github() if self.row.is_github else await self._discover()
        except AuthorizationError as error:
            fields = {"provider": self.issuer, "problem": str(error)}
            self._logger.warn("the identity provider cannot be used", fields)
            raise ProviderError("the provider cannot be used") from None
        self._found = (now, found)
        return found

    def _github(self) -> Endpoints:
        base = f"{self.issuer.rstrip('/')}/login/oauth"
        server = ServerMetadata(
            base,
            f"{base}/access_token",
            f"{base}/authorize",
            auth_methods=("client_secret_post",),
        )
        return Endpoints(server, None, None)

    async def _discover(self) -> Endpoints:
        for place in server_metadata_places(self.issuer):
            answer = await self._answer(partial(self._exchanges.get, place))
            if answer.status != 200 or not isinstance(answer.document, dict):
                continue
            named, base = answer.document, self.issuer
            server = read_server_metadata(named, base, base)
            userinfo = named.get("userinfo_endpoint")
            if userinfo is not None:
                userinfo = check_may_ask("its userinfo_endpoint", userinfo, base)
            keys = None
            if named.get("jwks_uri") is not None:
                place_of_keys = check_may_ask("its jwks_uri", named["jwks_uri"], base)
                keys = KeySource(base, place_of_keys, self._clock, self._logger)
            return Endpoints(server, userinfo, keys)
        raise ProviderError("the provider does not describe itself", "temporarily_unavailable")
