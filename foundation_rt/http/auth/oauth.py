"""The server as a resource server of OAuth 2.1: its access tokens, and its metadata for clients.

A token is of the one configured issuer, for this server and no other (RFC 8707): a JWT (RFC 9068),
or with introspection whatever the issuer knows (RFC 7662).
Clients learn where to get one from the protected resource metadata (RFC 9728), to which every
refusal points. Needs the extra `http-full` (joserfc).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import orjson
from attrs import define, field
from joserfc import jws
from joserfc.errors import JoseError

from ...base.clock import Clock
from ...base.config.http_sections import OauthSection
from ...base.logs.logger import StructuredLogger
from ...errors import UsageError
from ...protocol.principal import Principal, TokenClaims
from ..asgi import HttpRefusal
from .authentication import KEY_SUBJECT
from .introspection import Introspection, IntrospectionUnavailable
from .jwks import KeySource, KeysUnavailable, VerificationKey

MAX_TOKEN_LENGTH = 16 * 1024

LEEWAY_SECONDS = 30
"""Seconds by which the clocks of issuer and server may differ."""

WELL_KNOWN = "/.well-known/oauth-protected-resource"

_MAX_SUBJECT = 256
_TYPES = ("jwt", "at+jwt", "application/at+jwt")  # RFC 9068, section 4, and the older type


class TokenRefused(Exception):
    """The token is not accepted; the message says why, without repeating any of it."""


class KeyFinder(Protocol):
    """The keys of an issuer, as `KeySource` has them."""

    async def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """See `KeySource`."""


@define(eq=False, repr=False)
class ResourceServer:
    """Verifies tokens.

    Args:
        settings: the section `oauth`, with an issuer.
        keys: the keys of the issuer.
        clock: gives the time to compare expiry times with.
        introspection: asks the issuer about every token instead; None to verify signatures.

    Raises:
        UsageError: a setting is missing.
    """

    _settings: OauthSection
    _keys: KeyFinder
    _clock: Clock
    _introspection: Introspection | None = None
    _issuer: str = field(init=False)
    _audience: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        if self._settings.issuer is None or self._settings.audience is None:
            raise UsageError(
                "oauth.issuer and oauth.audience go together: set oauth.audience to the URL of "
                "this server's endpoint, as clients know it"
            )
        if self._settings.introspection_uri is not None:
            for name in ("introspection_client_id", "introspection_client_secret"):
                if getattr(self._settings, name) is None:
                    raise UsageError(f"oauth.introspection_uri needs oauth.{name}: set both")
            if self._settings.jwks_uri is not None:
                raise UsageError(
                    "oauth.jwks_uri and oauth.introspection_uri exclude each other: a token is"
                    " verified with keys, or its issuer is asked"
                )
        if not self._settings.algorithms:
            raise UsageError("oauth.algorithms is empty: no token could be accepted")
        self._issuer = self._settings.issuer
        self._audience = self._settings.audience.rstrip("/")

    @property
    def resource(self) -> str:
        """Return the URL of this server, as tokens name it."""
        return self._audience

    @property
    def metadata_paths(self) -> tuple[str, ...]:
        """Return the paths of the metadata: that of this server's path, and that of the host."""
        path = urlsplit(self._audience).path
        return (f"{WELL_KNOWN}{path}", WELL_KNOWN) if path else (WELL_KNOWN,)

    @property
    def metadata(self) -> bytes:
        """Return the protected resource metadata as JSON (AUTH-06)."""
        document: dict[str, Any] = {
            "resource": self._audience,
            "authorization_servers": [self._issuer],
            "bearer_methods_supported": ["header"],
        }
        if self._settings.scopes:
            document["scopes_supported"] = [*self._settings.scopes]
        return orjson.dumps(document)

    async def authenticate(self, token: str, mount: str = "") -> Principal | HttpRefusal:
        """Return the principal of `token`, or a refusal (AUTH-07 to AUTH-12).

        Args:
            token: the access token.
            mount: the path at which the server is mounted.
        """
        try:
            principal = await self.verify(token)
        except TokenRefused as refused:
            return self.unauthorized(str(refused), mount)
        except KeysUnavailable as unavailable:
            return _unavailable("for its keys", "keys_unavailable", unavailable.seconds)
        except IntrospectionUnavailable:
            return _unavailable("about the token", "introspection_unavailable", 1.0)
        return self.forbidden((), principal, mount) or principal

    async def verify(self, token: str) -> Principal:
        """Return the principal of `token`.

        Raises:
            TokenRefused: the token is not valid for this server.
            KeysUnavailable: there are no keys to verify it with at the moment.
            IntrospectionUnavailable: its issuer does not answer.
        """
        if len(token) > MAX_TOKEN_LENGTH:
            raise TokenRefused("the token is too long")
        if self._introspection is not None:
            return await self._introspect(self._introspection, token)
        payload = await verified_payload(token, self._keys, self._settings.algorithms)
        return self._judge(_claims(payload), payload)

    async def _introspect(self, introspection: Introspection, token: str) -> Principal:
        payload = await introspection.ask(token)
        if payload is None:
            raise TokenRefused("the token is not valid, or not any more")
        # The issuer itself has answered, and says that the time of the token has not passed.
        return self._judge({"iss": self._issuer, "exp": inf, **_claims(payload)}, payload)

    def unauthorized(self, problem: str | None = None, mount: str = "") -> HttpRefusal:
        """Return the refusal that says where to get a token (AUTH-05).

        Args:
            problem: the fault of the token; None if there was no token.
            mount: the path at which the server is mounted.
        """
        error = (
            () if problem is None else (("error", "invalid_token"), ("error_description", problem))
        )
        message = f"Unauthorized: {problem or 'an access token is needed'}"
        return self._challenge(401, message, "unauthorized", error, self._settings.scopes, mount)

    def forbidden(
        self, scopes: Iterable[str], principal: Principal, mount: str = ""
    ) -> HttpRefusal | None:
        """Return the refusal that names the needed scopes, if `principal` lacks one (AUTH-12).

        Args:
            scopes: the scopes of the called tools.
            principal: the caller.
            mount: the path at which the server is mounted.
        """
        needed = dict.fromkeys((*self._settings.scopes, *scopes))
        if not principal.lacks(needed):
            return None
        error = (("error", "insufficient_scope"),)
        message = f"Forbidden: the scopes needed are {' '.join(needed)}"
        return self._challenge(403, message, "insufficient_scope", error, needed, mount)

    def _challenge(
        self,
        status: int,
        message: str,
        reason: str,
        error: tuple[tuple[str, str], ...],
        scopes: Iterable[str],
        mount: str,
    ) -> HttpRefusal:
        parts = urlsplit(self._audience)
        # The client may have chosen the mount: nothing in it may end the quoted string.
        url = f"{parts.scheme}://{parts.netloc}{quote(mount)}{self.metadata_paths[0]}"
        parameters = [*error, ("resource_metadata", url)]
        if joined := " ".join(scopes):
            parameters.append(("scope", joined))
        value = "Bearer " + ", ".join(f'{name}="{text}"' for name, text in parameters)
        headers = ((b"www-authenticate", value.encode("ascii")),)
        return HttpRefusal(status, message, reason=reason, headers=headers)

    def _judge(self, claims: dict[str, Any], payload: bytes) -> Principal:
        """Return the principal of a genuine token, if it is for this server and this time."""
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
        return _principal(claims, payload)


async def verified_payload(token: str, keys: KeyFinder, algorithms: Iterable[str]) -> bytes:
    """Return the claims of a JWT whose signature is right, as JSON (AUTH-07).

    Args:
        token: of at most `MAX_TOKEN_LENGTH` characters.
        keys: those of its issuer.
        algorithms: those that it may be signed with.

    Raises:
        TokenRefused: it is none, or its signature is not right.
        KeysUnavailable: there are no keys to verify it with at the moment.
    """
    try:
        signed = jws.extract_compact(token.encode())
    except (JoseError, ValueError, RecursionError):
        raise TokenRefused("the token is no signed JWT") from None
    header = signed.headers()
    algorithm, key_id = str(header.get("alg")), header.get("kid")
    if algorithm not in algorithms:
        raise TokenRefused("the token is signed with an algorithm that is not accepted")
    if "crit" in header or str(header.get("typ", "jwt")).lower() not in _TYPES:
        raise TokenRefused("the token is no access token")
    if key_id is not None and type(key_id) is not str:
        raise TokenRefused("the token names no key")
    key = await keys.find(key_id, algorithm)
    if key is None:
        raise TokenRefused("the token is signed with a key that its issuer does not have")
    try:
        is_genuine = jws.validate_compact(signed, key, [algorithm])
    except (JoseError, ValueError):
        is_genuine = False
    if not is_genuine:
        raise TokenRefused("the signature of the token is wrong")
    return signed.payload or b""


def make_resource_server(
    settings: OauthSection, clock: Clock, logger: StructuredLogger
) -> ResourceServer:
    """Return the resource server that `settings` describe.

    Raises:
        UsageError: a setting is missing.
    """
    keys = KeySource(settings.issuer or "", settings.jwks_uri, clock, logger)
    asks = settings.introspection_uri is not None
    introspection = Introspection(settings, clock, logger) if asks else None
    return ResourceServer(settings, keys, clock, introspection)


def _unavailable(what: str, reason: str, seconds: float) -> HttpRefusal:
    return HttpRefusal(
        503,
        f"Service unavailable: the authorization server cannot be asked {what}",
        reason=reason,
        headers=((b"retry-after", b"%d" % max(1, ceil(seconds))),),
    )


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = orjson.loads(payload)
    except ValueError:
        claims = None
    if type(claims) is not dict:
        raise TokenRefused("the token holds no claims")
    return claims


def _principal(claims: dict[str, Any], payload: bytes) -> Principal:
    subject = claims.get("sub")
    if type(subject) is not str or not 0 < len(subject) <= _MAX_SUBJECT:
        raise TokenRefused("the token does not say whose it is")
    if subject.startswith(KEY_SUBJECT):
        raise TokenRefused("the token is of a name that is kept for API keys")
    client = claims.get("client_id", claims.get("azp"))
    client_id = client if type(client) is str else None
    return Principal(subject, _scopes(claims), client_id, claims=TokenClaims(payload))


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    """Return the scopes of `scope` (RFC 9068) or `scp` (some servers), a string or a list."""
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
