"""The key that signs our tokens: derived from `security.state_key`, so all workers have it."""

from __future__ import annotations

import hmac
from typing import Any

from attrs import define, field
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwt
from joserfc.jwk import ECKey

from ..auth.jwks import VerificationKey

ALGORITHM = "ES256"

_PURPOSE = b"foundation-rt access tokens 1\n"
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256


@define(eq=False, repr=False)
class SigningKey:
    """Signs tokens, and verifies them.

    Args:
        state_key: `security.state_key`, in hexadecimal.
    """

    _state_key: str
    _key: ECKey = field(init=False)

    def __attrs_post_init__(self) -> None:
        digest = hmac.digest(bytes.fromhex(self._state_key), _PURPOSE, "sha512")
        scalar = int.from_bytes(digest) % (_ORDER - 1) + 1
        private = ec.derive_private_key(scalar, ec.SECP256R1())
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._key = ECKey.import_key(pem)
        self._key.ensure_kid()

    @property
    def public(self) -> dict[str, Any]:
        """The key set that others verify with (RFC 7517)."""
        key = dict(self._key.as_dict(private=False))
        return {"keys": [{**key, "alg": ALGORITHM, "use": "sig"}]}

    def sign(self, claims: dict[str, Any]) -> str:
        """Return an access token with these claims (RFC 9068)."""
        header = {"alg": ALGORITHM, "kid": self._key.kid, "typ": "at+jwt"}
        return jwt.encode(header, claims, self._key, [ALGORITHM], default_type=None)

    async def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """See `KeyFinder`."""
        return self._key if key_id == self._key.kid and algorithm == ALGORITHM else None
