"""Authentication over HTTP: by API key, by access token, or none if it is turned off.

A server without any of the three settings does not start: to be open to everyone that reaches it
must be an explicit decision (AUTH-01).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from attrs import define

from ...base.extras import require
from ...errors import UsageError
from ...protocol.principal import ALL_SCOPES, Principal
from ..asgi import HttpRefusal

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...base.config.settings import ServerConfig
    from ...base.logs.logger import StructuredLogger
    from ..headers import RequestHead
    from .oauth import ResourceServer

KEY_SUBJECT = "key:"
"""The prefix of API keys' subjects; tokens with such subjects are refused."""

PAGE_NAME = "page"
"""The name of the key that is the token of the page."""

_BEARER = "bearer "
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)
_WRONG_KEY = ((b"www-authenticate", b'Bearer error="invalid_token"'),)


@define(eq=False, repr=False)
class ApiKeys:
    """The API keys of the server, kept as hashes.

    Args:
        principals: the principals, by the hash of their keys.
    """

    principals: dict[bytes, Principal]

    def find(self, key: str) -> Principal | None:
        """Return the principal of a key; takes the same time for every key (AUTH-03)."""
        digest = sha256(key.encode()).digest()
        found = None
        for each, principal in self.principals.items():
            if compare_digest(each, digest):
                found = principal
        return found


def read_api_keys(entries: Iterable[str]) -> ApiKeys:
    """Parse the setting `http.api_keys`: `KEY`, `NAME:KEY` or `NAME:KEY:SCOPES` (AUTH-02).

    Raises:
        UsageError: a name or a key occurs twice.
    """
    principals: dict[bytes, Principal] = {}
    subjects: set[str] = set()
    for entry in entries:
        first, *rest = entry.split(":", 2)
        name, key = (first, rest[0]) if rest else ("", first)
        scopes = frozenset(rest[1].split()) if len(rest) > 1 else ALL_SCOPES
        digest = sha256(key.encode()).digest()
        # Without a name, one that changes only with the key, and does not reveal it.
        subject = KEY_SUBJECT + (name or digest.hex()[:12])
        if digest in principals or subject in subjects:
            raise UsageError(f"http.api_keys: {subject!r} stands there twice")
        subjects.add(subject)
        principals[digest] = Principal(subject, scopes)
    return ApiKeys(principals)


@define(eq=False, repr=False)
class Authenticator:
    """Finds the principal of every request.

    Args:
        keys: the API keys; None if there are none.
        oauth: accepts tokens; None if no token is accepted. Without both, there are no principals.
    """

    keys: ApiKeys | None
    oauth: ResourceServer | None

    async def authenticate(
        self, head: RequestHead, mount: str = ""
    ) -> Principal | HttpRefusal | None:
        """Return the principal of a request; None without authentication (AUTH-03 to AUTH-05).

        Args:
            head: the request's head.
            mount: the path at which the server is mounted.
        """
        if self.keys is None and self.oauth is None:
            return None
        if self.keys is not None and head.api_key is not None:
            return self.keys.find(head.api_key) or self._unauthorized(_WRONG_KEY, mount)
        token = _bearer_token(head.authorization)
        if token is None:
            return self._unauthorized(_CHALLENGE, mount)
        principal = None if self.keys is None else self.keys.find(token)
        if principal is not None:
            return principal
        if self.oauth is not None:
            return await self.oauth.authenticate(token, mount)
        return self._unauthorized(_WRONG_KEY, mount)

    def check_scopes(
        self, principal: Principal | None, scopes: frozenset[str], mount: str = ""
    ) -> HttpRefusal | None:
        """Return why `principal` may not call tools that need `scopes` (AUTH-12, AUTH-13)."""
        if principal is None or not principal.lacks(scopes):
            return None
        if self.oauth is not None:
            return self.oauth.forbidden(sorted(scopes), principal, mount)
        needed = " ".join(sorted(scopes))
        challenge = f'Bearer error="insufficient_scope", scope="{needed}"'
        return HttpRefusal(
            403,
            f"Forbidden: the scopes needed are {needed}",
            reason="insufficient_scope",
            headers=((b"www-authenticate", challenge.encode("ascii")),),
        )

    def _unauthorized(self, headers: tuple[tuple[bytes, bytes], ...], mount: str) -> HttpRefusal:
        if self.oauth is not None:
            problem = "the key is wrong" if headers is _WRONG_KEY else None
            return self.oauth.unauthorized(problem, mount)
        return HttpRefusal(
            401,
            "Unauthorized: send a key of this server in X-API-Key, or as a Bearer token",
            reason="unauthorized",
            headers=headers,
        )


def make_authenticator(
    config: ServerConfig,
    clock: Clock,
    logger: StructuredLogger,
    page_token: str | None = None,
    own_tokens: ResourceServer | None = None,
) -> Authenticator:
    """Return the authenticator that `config` describes (AUTH-01).

    Args:
        config: the sections `http` and `oauth`.
        clock: for tokens.
        logger: gets a WARN if everybody is let in.
        page_token: of the application's page; it is one more key.
        own_tokens: verifies the tokens of this server, if it is an authorization server.

    Raises:
        UsageError: authentication is neither configured nor turned off, or both.
    """
    http, has_issuer = config.http, config.has_issuer()
    if http.no_auth:
        if http.api_keys or has_issuer:
            raise UsageError(
                "http.no_auth (--no-auth) would let everybody in, but there are keys or an issuer: "
                "take away http.no_auth, or http.api_keys, oauth.issuer and authorization.url"
            )
        logger.warn("HTTP without authentication: every client that reaches the server may use it")
        return Authenticator(None, None)
    if not http.api_keys and not has_issuer and page_token is None:
        raise UsageError(
            "HTTP needs a key that clients have to send: set http.api_keys (for instance "
            "FOUNDATION_RT_HTTP__API_KEYS=$(openssl rand -hex 32)), oauth.issuer, or the section "
            "authorization; or say that everybody may use the server, with --no-auth or"
            " http.no_auth = true"
        )
    page = () if page_token is None else (f"{PAGE_NAME}:{page_token}",)
    entries = (*http.api_keys, *page)
    keys = read_api_keys(entries) if entries else None
    if own_tokens is not None:
        return Authenticator(keys, own_tokens)
    if config.oauth.issuer is None and config.oauth.audience is None:
        return Authenticator(keys, None)
    require("oauth.issuer", "http-full", "joserfc")
    from .oauth import make_resource_server

    return Authenticator(keys, make_resource_server(config.oauth, clock, logger))


def _bearer_token(authorization: str | None) -> str | None:
    if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
        return None
    return authorization[len(_BEARER) :].strip(" ") or None
