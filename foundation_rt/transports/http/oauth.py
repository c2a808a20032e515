"""The server as a resource server of OAuth 2.1: which tokens open it, and what it tells clients.

A token is a JWT of the one issuer that is configured, for this server and no other (RFC 8707,
RFC 9068). Where to get one is in the protected resource metadata (RFC 9728), to which every refusal
points. Needs the extra `http` (joserfc).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any
from urllib.parse import quote, urlsplit

import orjson
from attrs import define, field
from joserfc import jws
from joserfc.errors import JoseError

from ...clock import Clock
from ...config.settings import OauthSection
from ...errors import UsageError
from ...logs.logger import StructuredLogger
from ...protocol.principal import Principal
from .authentication import KEY_SUBJECT
from .jwks import KeySource, KeysUnavailable
from .refusal import HttpRefusal

MAX_TOKEN_LENGTH = 16 * 1024

LEEWAY_SECONDS = 30
"""How far clocks may be apart."""

WELL_KNOWN = "/.well-known/oauth-protected-resource"

_MAX_SUBJECT = 256
_TYPES = ("jwt", "at+jwt", "application/at+jwt")  # RFC 9068, section 4, and what came before it


class TokenRefused(Exception):
    """A token that opens nothing; the message says why, without repeating any of it."""


@define(eq=False, repr=False)
class ResourceServer:
    """Decides on tokens.

    Args:
        settings: the section `oauth`, with an issuer.
        keys: those of the issuer.
        clock: says whether a token has expired.

    Raises:
        UsageError: a setting is missing.
    """

    _settings: OauthSection
    _keys: KeySource
    _clock: Clock
    _issuer: str = field(init=False)
    _audience: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        if self._settings.issuer is None or self._settings.audience is None:
            raise UsageError(
                "oauth.issuer and oauth.audience go together: set oauth.audience to the URL of "
                "this server's endpoint, as clients know it"
            )
        if not self._settings.algorithms:
            raise UsageError("oauth.algorithms is empty: no token could be accepted")
        self._issuer = self._settings.issuer
        self._audience = self._settings.audience.rstrip("/")

    @property
    def metadata_paths(self) -> tuple[str, ...]:
        """Where the metadata is served: for the path of this server, and for the whole host."""
        path = urlsplit(self._audience).path
        return (f"{WELL_KNOWN}{path}", WELL_KNOWN) if path else (WELL_KNOWN,)

    @property
    def metadata(self) -> bytes:
        """The protected resource metadata as JSON (AUTH-06)."""
        document: dict[str, Any] = {
            "resource": self._audience,
            "authorization_servers": [self._issuer],
            "bearer_methods_supported": ["header"],
        }
        if self._settings.scopes:
            document["scopes_supported"] = [*self._settings.scopes]
        return orjson.dumps(document)

    async def authenticate(self, token: str, mount: str = "") -> Principal | HttpRefusal:
        """Who sent `token`, or why he may not enter (AUTH-07 to AUTH-12).

        Args:
            mount: the path that the server is mounted at.
        """
        try:
            principal = await self.verify(token)
        except TokenRefused as refused:
            return self.unauthorized(str(refused), mount)
        except KeysUnavailable as unavailable:
            return HttpRefusal(
                503,
                "Service unavailable: the authorization server cannot be asked for its keys",
                reason="keys_unavailable",
                headers=((b"retry-after", b"%d" % max(1, ceil(unavailable.seconds))),),
            )
        return self.forbidden((), principal, mount) or principal

    async def verify(self, token: str) -> Principal:
        """Who sent `token`.

        Raises:
            TokenRefused: it is not valid here.
            KeysUnavailable: that cannot be known at the moment.
        """
        if len(token) > MAX_TOKEN_LENGTH:
            raise TokenRefused("the token is too long")
        try:
            signed = jws.extract_compact(token.encode())
        except (JoseError, ValueError, RecursionError):
            raise TokenRefused("the token is no signed JWT") from None
        header = signed.headers()
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise TokenRefused("the token is signed with an algorithm that is not accepted")
        if "crit" in header or str(header.get("typ", "jwt")).lower() not in _TYPES:
            raise TokenRefused("the token is no access token")
        if key_id is not None and type(key_id) is not str:
            raise TokenRefused("the token names no key")
        key = await self._keys.find(key_id, algorithm)
        if key is None:
            raise TokenRefused("the token is signed with a key that its issuer does not have")
        try:
            is_genuine = jws.validate_compact(signed, key, [algorithm])
        except (JoseError, ValueError):
            is_genuine = False
        if not is_genuine:
            raise TokenRefused("the signature of the token is wrong")
        return self._judge(_claims(signed.payload))

    def unauthorized(self, problem: str | None = None, mount: str = "") -> HttpRefusal:
        """401, and where to get a token (AUTH-05).

        Args:
            problem: what is wrong with the token; None if there was none.
            mount: the path that the server is mounted at.
        """
        what = (
            () if problem is None else (("error", "invalid_token"), ("error_description", problem))
        )
        message = f"Unauthorized: {problem or 'an access token is needed'}"
        return self._challenge(401, message, "unauthorized", what, self._settings.scopes, mount)

    def forbidden(
        self, scopes: Iterable[str], principal: Principal, mount: str = ""
    ) -> HttpRefusal | None:
        """403 and what is needed, if `principal` lacks some of it (AUTH-12).

        Args:
            scopes: those of the tools that are called.
            mount: the path that the server is mounted at.
        """
        needed = dict.fromkeys((*self._settings.scopes, *scopes))
        if not principal.lacks(needed):
            return None
        what = (("error", "insufficient_scope"),)
        message = f"Forbidden: the scopes needed are {' '.join(needed)}"
        return self._challenge(403, message, "insufficient_scope", what, needed, mount)

    def _challenge(
        self,
        status: int,
        message: str,
        reason: str,
        what: tuple[tuple[str, str], ...],
        scopes: Iterable[str],
        mount: str,
    ) -> HttpRefusal:
        parts = urlsplit(self._audience)
        # The mount may be what the client wrote: nothing in it may end the quotation.
        url = f"{parts.scheme}://{parts.netloc}{quote(mount)}{self.metadata_paths[0]}"
        said = [*what, ("resource_metadata", url)]
        if joined := " ".join(scopes):
            said.append(("scope", joined))
        value = "Bearer " + ", ".join(f'{name}="{text}"' for name, text in said)
        headers = ((b"www-authenticate", value.encode("ascii")),)
        return HttpRefusal(status, message, reason=reason, headers=headers)

    def _judge(self, claims: dict[str, Any]) -> Principal:
        """What a genuine token says, if it is for us and for now."""
        if claims.get("iss") != self._issuer:
            raise TokenRefused("the token is another issuer's")
        audience = claims.get("aud")
        audiences = audience if type(audience) is list else [audience]
        if not any(type(each) is str and each.rstrip("/") == self._audience for each in audiences):
            raise TokenRefused("the token is for another server")
        now = self._clock.now().timestamp()
        expires, begins = _time(claims.get("exp")), _time(claims.get("nbf", 0))
        if now >= expires + LEEWAY_SECONDS:
            raise TokenRefused("the token has expired")
        if now < begins - LEEWAY_SECONDS:
            raise TokenRefused("the token is not valid yet")
        return _principal(claims)


def make_resource_server(
    settings: OauthSection, clock: Clock, logger: StructuredLogger
) -> ResourceServer:
    """The resource server that `settings` ask for.

    Raises:
        UsageError: a setting is missing.
    """
    keys = KeySource(settings.issuer or "", settings.jwks_uri, clock, logger)
    return ResourceServer(settings, keys, clock)


def _claims(payload: bytes | None) -> dict[str, Any]:
    try:
        claims = orjson.loads(payload or b"")
    except ValueError:
        claims = None
    if type(claims) is not dict:
        raise TokenRefused("the token holds no claims")
    return claims


def _principal(claims: dict[str, Any]) -> Principal:
    subject = claims.get("sub")
    if type(subject) is not str or not 0 < len(subject) <= _MAX_SUBJECT:
        raise TokenRefused("the token does not say whose it is")
    if subject.startswith(KEY_SUBJECT):
        raise TokenRefused("the token is of a name that is kept for API keys")
    client = claims.get("client_id", claims.get("azp"))
    return Principal(subject, _scopes(claims), client if type(client) is str else None)


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    """`scope` as RFC 9068 has it, or `scp`, as some servers call it, as a text or a list."""
    scopes = claims.get("scope", claims.get("scp", ""))
    if type(scopes) is str:
        scopes = scopes.split(" ")
    if type(scopes) is not list:
        return frozenset()
    return frozenset(scope for scope in scopes if type(scope) is str and scope)


def _time(value: Any) -> float:
    if type(value) is not int and type(value) is not float:
        raise TokenRefused("the token does not say how long it is valid")
    return value
