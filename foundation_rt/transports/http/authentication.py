"""Who may use the server over HTTP: holders of a key, bearers of a token, or everybody, if said so.

A server that nobody said anything of does not start: to be open to whoever reaches it is a decision
(AUTH-01).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from attrs import define

from ...errors import UsageError
from ...protocol.principal import ALL_SCOPES, Principal
from .refusal import HttpRefusal

if TYPE_CHECKING:
    from ...clock import Clock
    from ...config.settings import ServerConfig
    from ...logs.logger import StructuredLogger
    from .headers import RequestHead
    from .oauth import ResourceServer

KEY_SUBJECT = "key:"
"""What the subjects of API keys begin with, and those of tokens do not."""

_BEARER = "bearer "
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)
_WRONG_KEY = ((b"www-authenticate", b'Bearer error="invalid_token"'),)


@define(eq=False, repr=False)
class ApiKeys:
    """The keys that open the server; what is kept is their hashes.

    Args:
        keys: by hash, the principal.
    """

    _principals: dict[bytes, Principal]

    def find(self, key: str) -> Principal | None:
        """Whose key it is; takes the same time whichever of them it is, or none (AUTH-03)."""
        digest = sha256(key.encode()).digest()
        found = None
        for each, principal in self._principals.items():
            if compare_digest(each, digest):
                found = principal
        return found


def read_api_keys(entries: Iterable[str]) -> ApiKeys:
    """The keys of the setting `http.api_keys`, each `KEY` or `NAME:KEY` (AUTH-02).

    Raises:
        UsageError: a name or a key stands there twice.
    """
    principals: dict[bytes, Principal] = {}
    subjects: set[str] = set()
    for entry in entries:
        name, _, key = entry.rpartition(":")
        digest = sha256(key.encode()).digest()
        # Without a name, one that stays the same as long as the key does, and does not tell it.
        subject = KEY_SUBJECT + (name or digest.hex()[:12])
        if digest in principals or subject in subjects:
            raise UsageError(f"http.api_keys: {subject!r} stands there twice")
        subjects.add(subject)
        principals[digest] = Principal(subject, ALL_SCOPES)
    return ApiKeys(principals)


@define(eq=False, repr=False)
class Authenticator:
    """Asks every request who sends it.

    Args:
        keys: None: there are none.
        oauth: None: no token is accepted. Without either everybody is welcome.
    """

    _keys: ApiKeys | None
    oauth: ResourceServer | None

    async def authenticate(
        self, head: RequestHead, mount: str = ""
    ) -> Principal | HttpRefusal | None:
        """Who sends the request; None where nobody is asked (AUTH-03 to AUTH-05).

        Args:
            mount: the path that the server is mounted at.
        """
        if self._keys is None and self.oauth is None:
            return None
        if self._keys is not None and head.api_key is not None:
            return self._keys.find(head.api_key) or self._unauthorized(_WRONG_KEY, mount)
        token = _bearer_token(head.authorization)
        if token is None:
            return self._unauthorized(_CHALLENGE, mount)
        principal = None if self._keys is None else self._keys.find(token)
        if principal is not None:
            return principal
        if self.oauth is not None:
            return await self.oauth.authenticate(token, mount)
        return self._unauthorized(_WRONG_KEY, mount)

    def check_scopes(
        self, principal: Principal | None, scopes: frozenset[str], mount: str = ""
    ) -> HttpRefusal | None:
        """Why `principal` may not call tools that need `scopes` (AUTH-12, AUTH-13)."""
        if principal is None or self.oauth is None or not scopes:
            return None
        return self.oauth.forbidden(sorted(scopes), principal, mount)

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
    config: ServerConfig, clock: Clock, logger: StructuredLogger
) -> Authenticator:
    """The authenticator that `config` asks for (AUTH-01).

    Raises:
        UsageError: nobody has said who may use the server, or two things that exclude each other.
    """
    http, issuer = config.http, config.oauth.issuer
    if http.no_auth:
        if http.api_keys or issuer is not None:
            raise UsageError(
                "http.no_auth (--no-auth) would let everybody in, but there are keys or an issuer: "
                "take away http.no_auth, or http.api_keys and oauth.issuer"
            )
        logger.warn("HTTP without authentication: whoever reaches the server may use it")
        return Authenticator(None, None)
    if not http.api_keys and issuer is None:
        raise UsageError(
            "HTTP needs a key that clients have to send: set http.api_keys (for instance "
            "FOUNDATION_RT_HTTP__API_KEYS=$(openssl rand -hex 32)) or oauth.issuer; or say that "
            "everybody may use the server, with --no-auth or http.no_auth = true"
        )
    keys = read_api_keys(http.api_keys) if http.api_keys else None
    if issuer is None and config.oauth.audience is None:
        return Authenticator(keys, None)
    from .oauth import make_resource_server

    return Authenticator(keys, make_resource_server(config.oauth, clock, logger))


def _bearer_token(authorization: str | None) -> str | None:
    if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
        return None
    return authorization[len(_BEARER) :].strip(" ") or None
