"""The keys of an authorization server: fetched when first needed, cached and refreshed.

The issuer's keys come from its `jwks_uri`, which its metadata names (RFC 8414, OpenID Connect
Discovery) unless it is configured. Senders of tokens can cause fetches by naming unknown keys, so
there is a minimum time between two fetches; one fetch serves all waiting requests (AUTH-09 to
AUTH-11).

Needs the extra `http-full` (joserfc).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from attrs import define, field
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from ...base.backoff import exponential_delay
from ...base.config.http_sections import ISSUER_URL
from ...base.http_client.exchange import NO_HEADERS, fetch
from ...base.http_client.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...base.clock import Clock
    from ...base.logs.logger import StructuredLogger

VerificationKey = RSAKey | ECKey | OKPKey

MAX_AGE_SECONDS = 3600.0
"""The age at which the keys are fetched again, so that a withdrawn one is forgotten."""

MIN_INTERVAL_SECONDS = 30.0
"""The minimum time from the end of a fetch to the next one; shorter after failures."""

FIRST_RETRY_SECONDS = 1.0
"""The time from a failed fetch to the next one; doubled by each further failure (AUTH-10)."""

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_KEYS = 100
FETCH_SECONDS = 5.0  # for one document; there are three at most

_KEY_TYPES: dict[str, type[VerificationKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_MIN_MODULUS = 342  # characters of 2,048 bits in base64 (NIST SP 800-131A)
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "Ed25519": "Ed25519"}


class StatusRefused(OSError):
    """The answer has another status than 200.

    Attributes:
        status: of the answer.
    """

    def __init__(self, status: int) -> None:
        super().__init__("the response has another status than 200")
        self.status = status


class KeysUnavailable(Exception):
    """The issuer's keys have never been fetched, and the next fetch is not due yet.

    Attributes:
        seconds: the time until the next fetch.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


@define(eq=False, repr=False)
class KeySource:
    """The verification keys of one issuer; belongs to one event loop.

    Args:
        issuer: the issuer's URL, exactly as it spells it.
        jwks_uri: the URL of its keys; None if its metadata has to name it.
        clock: measures their age.
        logger: logs when they cannot be fetched.
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
    _network: Network = field(factory=lambda: issuer_network(), init=False)

    async def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Return the key that a token names; without a name, the only one for `algorithm`.

        Raises:
            KeysUnavailable: no keys have been fetched.
        """
        if self._keys is None:
            await self._refresh()
        elif self._clock.monotonic() - self._fetched >= MAX_AGE_SECONDS and not self._refreshing:
            # In the background: an issuer that does not answer must not delay its own clients.
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
        """Fetch the keys, unless that was tried recently; return whether they are new."""
        before = self._fetched
        async with self._lock:
            now = self._clock.monotonic()
            if now >= self._next_fetch:
                self._failures = 0 if await self._fetch(now) else self._failures + 1
                self._next_fetch = self._clock.monotonic() + self._pause()
        return self._keys is not None and self._fetched != before

    def _pause(self) -> float:
        """Return the time from the fetch that has just ended to the next one, in seconds."""
        if not self._failures:
            return MIN_INTERVAL_SECONDS
        return exponential_delay(self._failures, FIRST_RETRY_SECONDS, MIN_INTERVAL_SECONDS)

    async def _fetch(self, now: float) -> bool:
        """Fetch the keys; return whether that succeeded."""
        try:
            keys = await fetch_keys(self._network, self._issuer, self._jwks_uri)
        except (OSError, ValueError) as error:
            self._logger.warn(
                "the keys of the authorization server cannot be fetched",
                {"issuer": self._issuer, "error": {"type": type(error).__name__}},
            )
            return False
        self._keys = tuple(islice(_import_keys(keys), MAX_KEYS))
        self._fetched = now
        return True


def issuer_network() -> Network:
    """Return the network in which an issuer is asked.

    A look-up of a name may take for ever. It is then the only one: no second thread hangs.
    """
    threads = ThreadPoolExecutor(1, "issuer")
    return Network(FETCH_SECONDS, threads, http_is_direct=True)


async def fetch_keys(network: Network, issuer: str, jwks_uri: str | None) -> list[Any]:
    """Fetch the keys in the JWK set of `issuer`, unchecked.

    Raises:
        OSError: the issuer does not answer, or not in time.
        ValueError: the response is not a JWK set.
    """
    document = await fetch_json(network, jwks_uri or await _discover(network, issuer))
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise ValueError("the response is no set of keys")
    return keys


async def _discover(network: Network, issuer: str) -> str:
    """Return the URL of the keys in the metadata of `issuer`."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    places = (
        f"{origin}/.well-known/oauth-authorization-server{path}",  # RFC 8414, section 3.1
        f"{origin}{path}/.well-known/openid-configuration",
    )
    for place in places:
        try:
            metadata = await fetch_json(network, place)
        except StatusRefused:
            continue
        if not isinstance(metadata, dict) or metadata.get("issuer") != issuer:
            raise ValueError("the metadata is another issuer's")
        jwks_uri = metadata.get("jwks_uri")
        if not isinstance(jwks_uri, str) or not ISSUER_URL.accepts(jwks_uri):
            raise ValueError("the metadata names no https URL for the keys")
        return jwks_uri
    raise ValueError("the issuer publishes no metadata")


async def fetch_json(
    network: Network,
    url: str,
    form: bytes | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    most: int = MAX_DOCUMENT_BYTES,
) -> Any:
    """Return a JSON document, or the answer to a form, within `FETCH_SECONDS` (AUTH-29).

    Args:
        network: makes the connection.
        url: `https`, or of this machine.
        form: the encoded parameters to POST; None to GET.
        headers: further headers.
        most: the most bytes of the answer.

    Raises:
        OSError: there is no answer, or not in time, or one with another status than 200.
        ValueError: the answer is no JSON, or too long.
    """
    named = {"accept": "application/json", **headers}
    if form is not None:
        named["content-type"] = "application/x-www-form-urlencoded"
    answer = await fetch(network, url, FETCH_SECONDS, most, named, form)
    if answer.status != 200:
        raise StatusRefused(answer.status)
    if answer.body is None:
        raise ValueError("the response is too long, or compressed")
    try:
        return json.loads(answer.body)
    except RecursionError:
        raise ValueError("the response is nested too deeply") from None


def _import_keys(keys: list[Any]) -> Iterator[VerificationKey]:
    """Yield the keys of a JWK set that can verify; ignore others (RFC 7517, section 5)."""
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
