"""Sealed texts: only a server with the same `security.state_key` makes and reads them."""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error

from attrs import define, field

from ..errors import MissingExtraError

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError:
    raise MissingExtraError("HTTP in several processes", "http-full") from None

_NONCE_BYTES = 12


@define(eq=False, repr=False)
class Seal:
    """Seals texts for one purpose, with AES-256-GCM; pure but for its random nonces.

    Args:
        state_key: `security.state_key`, in hexadecimal.
        purpose: the key is derived from both.
    """

    _state_key: str
    _purpose: bytes
    _cipher: AESGCM = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cipher = AESGCM(hmac.digest(bytes.fromhex(self._state_key), self._purpose, "sha256"))

    def seal(self, content: bytes, bound: bytes) -> str:
        """Return `content`, sealed, in letters, digits, `-` and `_`.

        Args:
            content: what is sealed.
            bound: has to be named again when it is opened.
        """
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, content, bound)
        return _text(sealed)

    def open(self, text: str, bound: bytes) -> bytes | None:
        """Return the content of a sealed text; None if it was not sealed so, with this key."""
        if not text.isascii():
            return None
        try:
            sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            if _text(sealed) != text:  # what is no letter of it was passed over
                return None
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
        except (Error, ValueError, InvalidTag):
            return None


def _text(sealed: bytes) -> str:
    return urlsafe_b64encode(sealed).decode().rstrip("=")
