"""Signed proofs: of a key that a token is bound to (RFC 9449), and of a client (RFC 7523).

Needs the extra `client-oauth` (joserfc).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from attrs import define, field

from ...errors import MissingExtraError
from ..errors import AuthorizationError
from .urls import origin_of

try:
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey
except ImportError:
    raise MissingExtraError("A signed proof", "client-oauth") from None

_ASSERTION_SECONDS = 60
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


@define(eq=False, repr=False)
class DpopKey:
    """The key that a token is bound to, and the nonces of the servers it is shown to.

    Attributes:
        private: as a JWK.
    """

    private: dict[str, Any]
    _key: ECKey
    _nonces: dict[str, str] = field(factory=dict, init=False)

    @classmethod
    def generate(cls) -> DpopKey:
        """Return a new key (ES256)."""
        key = ECKey.generate_key("P-256", auto_kid=False)
        return cls(dict(key.as_dict(private=True)), key)

    @classmethod
    def of(cls, private: Mapping[str, Any]) -> DpopKey:
        """Return a key that was stored."""
        return cls(dict(private), ECKey.import_key(dict(private)))

    def note_nonce(self, url: str, nonce: str) -> None:
        """Use the nonce of a server for what is sent to its origin from now on."""
        self._nonces[origin_of(url)] = nonce

    def proof(
        self, method: str, url: str, now: float, token: str | None, nonce: str | None = None
    ) -> str:
        """Return a proof for one request (RFC 9449, 4.2).

        Args:
            method: of HTTP.
            url: of the request.
            now: seconds since 1970.
            token: that goes with it; None for a request to the authorization server.
            nonce: of that server; None: the one of the URL's origin.
        """
        parts = urlsplit(url)
        claims: dict[str, Any] = {
            "jti": token_urlsafe(16),
            "htm": method,
            "htu": urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")),
            "iat": int(now),
        }
        nonce = nonce or self._nonces.get(origin_of(url))
        if nonce is not None:
            claims["nonce"] = nonce
        if token is not None:
            digest = sha256(token.encode("ascii")).digest()
            claims["ath"] = urlsafe_b64encode(digest).rstrip(b"=").decode()
        public = {name: self.private[name] for name in ("kty", "crv", "x", "y")}
        header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": public}
        return jwt.encode(header, claims, self._key, ["ES256"], default_type=None)


def client_assertion(
    client_id: str, private_key: str, issuer: str, now: float, identifier: str
) -> str:
    """Return the JWT with which a client authenticates itself (`private_key_jwt`).

    Args:
        private_key: PEM: of RSA, of a curve of NIST, or Ed25519.
        issuer: the authorization server, which is the audience.
        now: seconds since 1970.
        identifier: the `jti`.

    Raises:
        AuthorizationError: the key cannot be used.
    """
    key, algorithm = _import(private_key)
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": issuer,
        "iat": int(now),
        "exp": int(now) + _ASSERTION_SECONDS,
        "jti": identifier,
    }
    return jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, key, [algorithm])


def _import(private_key: str) -> tuple[ECKey | OKPKey | RSAKey, str]:
    for kind in (ECKey, RSAKey, OKPKey):
        try:
            key = kind.import_key(private_key)
        except (JoseError, ValueError, TypeError):
            continue
        if isinstance(key, ECKey) and key.is_private:
            algorithm = _CURVES.get(str(key.as_dict(private=False).get("crv")))
        else:
            algorithm = "RS256" if isinstance(key, RSAKey) else "Ed25519"
        if key.is_private and algorithm is not None:
            return key, algorithm
    raise AuthorizationError("The private key of the client cannot be used")
