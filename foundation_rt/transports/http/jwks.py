"""The keys of an authorization server: fetched when first needed, kept, and fetched anew with care.

The issuer's keys come from its `jwks_uri`, which its metadata names (RFC 8414, OpenID Connect
Discovery) unless it is given. Whoever sends tokens decides how often a key is unknown, so there is
a least time between two fetches; one fetch serves everybody who waits (AUTH-09 to AUTH-11).

Needs the extra `http` (joserfc).
"""

from __future__ import annotations

import asyncio
import json
import re
from http.client import HTTPException
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from attrs import define, field
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from ...config.types import ISSUER_URL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...clock import Clock
    from ...logs.logger import StructuredLogger

VerificationKey = RSAKey | ECKey | OKPKey

MAX_AGE_SECONDS = 3600.0
"""After so long the keys are fetched anew, so that one that was withdrawn is forgotten."""

MIN_INTERVAL_SECONDS = 30.0
"""Between the end of one fetch and the next, whatever tokens say; after failures less."""

FIRST_RETRY_SECONDS = 1.0
"""From a failed fetch to the next one; twice as long after each further failure (AUTH-10)."""

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_KEYS = 100
FETCH_SECONDS = 5.0  # of one document; there are three at most
_PATIENCE_SECONDS = 3 * FETCH_SECONDS

_KEY_TYPES: dict[str, type[VerificationKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_MIN_MODULUS = 342  # characters of 2,048 bits in base64 (NIST SP 800-131A)
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "Ed25519": "Ed25519"}


class KeysUnavailable(Exception):
    """The issuer's keys have never been fetched, and now is not the time either.

    Attributes:
        seconds: until they may be fetched again.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


@define(eq=False, repr=False)
class KeySource:
    """The verification keys of one issuer; belongs to one event loop.

    Args:
        issuer: its URL, exactly as it spells it.
        jwks_uri: where its keys are; None: its metadata says.
        clock: says how old they are.
        logger: told when they cannot be fetched.
    """

    _issuer: str
    _jwks_uri: str | None
    _clock: Clock
    _logger: StructuredLogger
    _keys: tuple[VerificationKey, ...] | None = field(default=None, init=False)
    _fetched: float = field(default=0.0, init=False)
    _next_fetch: float = field(default=float("-inf"), init=False)
    _failures: int = field(default=0, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _refreshing: set[asyncio.Task[bool]] = field(factory=set, init=False)
    _asking: asyncio.Future[list[Any]] | None = field(default=None, init=False)

    async def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """The key that a token names; without a name, the only one that `algorithm` can be of.

        Raises:
            KeysUnavailable: there are no keys to look among.
        """
        if self._keys is None:
            await self._refresh()
        elif self._clock.monotonic() - self._fetched >= MAX_AGE_SECONDS and not self._refreshing:
            # Nobody waits for it: an issuer that does not answer must not hold up its own clients.
            self._refreshing.add(task := asyncio.create_task(self._refresh()))
            task.add_done_callback(self._refreshing.discard)
        key = self._pick(key_id, algorithm)
        if key is None and await self._refresh():
            key = self._pick(key_id, algorithm)
        if self._keys is None:
            raise KeysUnavailable(max(0.0, self._next_fetch - self._clock.monotonic()))
        return key

    def _pick(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        fitting = [key for key in self._keys or () if _fits(key, algorithm)]
        if key_id is not None:
            return next((key for key in fitting if key.kid == key_id), None)
        return fitting[0] if len(fitting) == 1 else None

    async def _refresh(self) -> bool:
        """Fetch the keys, unless that was tried just now; return whether they are new."""
        before = self._fetched
        async with self._lock:
            now = self._clock.monotonic()
            if now >= self._next_fetch:
                self._failures = 0 if await self._fetch(now) else self._failures + 1
                self._next_fetch = self._clock.monotonic() + self._pause()
        return self._keys is not None and self._fetched != before

    def _pause(self) -> float:
        """Seconds from the fetch that has just ended to the next one."""
        if not self._failures:
            return MIN_INTERVAL_SECONDS
        doublings = min(self._failures - 1, 10)
        return min(MIN_INTERVAL_SECONDS, FIRST_RETRY_SECONDS * (1 << doublings))

    async def _fetch(self, now: float) -> bool:
        """Fetch the keys; return whether that went well."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(
                asyncio.to_thread(fetch_keys, self._issuer, self._jwks_uri)
            )
            self._asking.add_done_callback(self._was_answered)
        try:
            # What blocks before the first byte, looking the name up for instance, has no timeout.
            # The thread goes on then; there is never another one beside it.
            async with asyncio.timeout(_PATIENCE_SECONDS):
                keys = await asyncio.shield(self._asking)
        except (OSError, ValueError) as error:
            self._logger.warn(
                "the keys of the authorization server cannot be fetched",
                {"issuer": self._issuer, "error": {"type": type(error).__name__}},
            )
            return False
        self._keys = tuple(islice(_import_keys(keys), MAX_KEYS))
        self._fetched = now
        return True

    def _was_answered(self, asking: asyncio.Future[list[Any]]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # nobody may wait for it any more, and then it is no news


def fetch_keys(issuer: str, jwks_uri: str | None) -> list[Any]:
    """The keys in the JWK set of `issuer`, as they stand there; blocks.

    Raises:
        OSError: nobody answers, or not in time.
        ValueError: the answer is not what it should be.
    """
    document = _fetch_json(jwks_uri or _discover(issuer))
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise ValueError("the answer is no set of keys")
    return keys


def _discover(issuer: str) -> str:
    """Where the metadata of `issuer` says that its keys are."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    places = (
        f"{origin}/.well-known/oauth-authorization-server{path}",  # RFC 8414, section 3.1
        f"{origin}{path}/.well-known/openid-configuration",
    )
    for place in places:
        try:
            metadata = _fetch_json(place)
        except HTTPError as error:
            error.close()
            continue
        if not isinstance(metadata, dict) or metadata.get("issuer") != issuer:
            raise ValueError("the metadata is another issuer's")
        jwks_uri = metadata.get("jwks_uri")
        if not isinstance(jwks_uri, str) or not ISSUER_URL.accepts(jwks_uri):
            raise ValueError("the metadata names no https URL for the keys")
        return jwks_uri
    raise ValueError("the issuer publishes no metadata")


class _NoRedirects(HTTPRedirectHandler):
    """What a key is trusted for is the place that it was fetched from."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch_json(url: str) -> Any:
    handlers: list[Any] = [_NoRedirects]
    if url.startswith("http:"):  # this machine alone, which no proxy reaches
        handlers.append(ProxyHandler({}))
    deadline = monotonic() + FETCH_SECONDS
    request = Request(url, headers={"Accept": "application/json"})
    try:
        with build_opener(*handlers).open(request, timeout=FETCH_SECONDS) as response:
            body = b""
            while chunk := response.read1(65536):
                body += chunk
                if len(body) > MAX_DOCUMENT_BYTES:
                    raise ValueError("the answer is too long")
                if monotonic() > deadline:
                    raise TimeoutError
            if response.length:
                raise ValueError("the answer is shorter than it says")
    except HTTPError:
        raise
    except URLError as error:
        raise OSError(str(error.reason)) from None
    except HTTPException as error:
        raise ValueError(f"the answer is no HTTP: {type(error).__name__}") from None
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None


def _import_keys(keys: list[Any]) -> Iterator[VerificationKey]:
    """The keys of a JWK set that can verify; others are passed over (RFC 7517, section 5)."""
    for data in keys:
        if not isinstance(data, dict) or data.get("use", "sig") != "sig":
            continue
        kind = _KEY_TYPES.get(str(data.get("kty")))
        modulus = data.get("n")
        if kind is None or (kind is RSAKey and _is_short(modulus)):
            continue
        try:
            yield kind.import_key(data)
        except (JoseError, ValueError, TypeError, KeyError):
            continue


def _is_short(modulus: Any) -> bool:
    return not isinstance(modulus, str) or len(re.sub("^A+", "", modulus)) < _MIN_MODULUS


def _fits(key: VerificationKey, algorithm: str) -> bool:
    """Return whether `key` may verify what `algorithm` signed."""
    if key.get("alg") not in (None, algorithm):
        return False
    if isinstance(key, RSAKey):
        return algorithm[:2] in ("RS", "PS")
    return key.get("crv") == _CURVES.get(algorithm)
