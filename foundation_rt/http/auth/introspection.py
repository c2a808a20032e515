"""Introspection: the issuer is asked whether a token is good (AUTH-40 to AUTH-43, RFC 7662).

An answer is kept for 60 s, so a token that its owner revokes is refused at most 60 s later. Tokens
come from outside: those that are good and those that are not are kept apart, each up to a limit, so
that wrong ones push out no good one; nothing but the hash of a token is kept.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode

from attrs import define, field

from ...base.bounded_dict import BoundedDict
from ...base.exact_json import dumps
from ...base.http_client.network import Network
from .jwks import FETCH_SECONDS, StatusRefused, fetch_json, issuer_network

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...base.config.http_sections import OauthSection
    from ...base.logs.logger import StructuredLogger

KEEP_SECONDS = 60.0
MAX_KEPT = 10_000
"""Most good tokens that are kept, and most others."""

MAX_ANSWER_BYTES = 16 * 1024
MAX_REQUESTS = 8
"""Most requests to the issuer at once."""

_Answers = dict[bytes, tuple[float, bytes | None]]


class IntrospectionUnavailable(Exception):
    """The issuer could not be asked, so nothing is known of the token."""


@define(eq=False, repr=False)
class Introspection:
    """Asks the issuer about tokens; belongs to one event loop.

    Args:
        settings: the section `oauth`, with `introspection_uri`.
        clock: measures the age of answers.
        logger: logs when the issuer cannot be asked.
    """

    _settings: OauthSection
    _clock: Clock
    _logger: StructuredLogger
    _good: _Answers = field(factory=lambda: BoundedDict(MAX_KEPT), init=False)
    _wrong: _Answers = field(factory=lambda: BoundedDict(MAX_KEPT), init=False)
    _asking: dict[bytes, asyncio.Task[bytes | None]] = field(factory=dict, init=False)
    _network: Network = field(factory=issuer_network, init=False)
    _places: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(MAX_REQUESTS), init=False)
    _is_failing: bool = field(default=False, init=False)

    async def ask(self, token: str) -> bytes | None:
        """Return the claims of a good token, as JSON; None for any other.

        Raises:
            IntrospectionUnavailable: the issuer did not answer.
        """
        digest, now = sha256(token.encode()).digest(), self._clock.monotonic()
        for kept in (self._good, self._wrong):
            found = kept.get(digest)
            if found is not None and now < found[0]:
                return found[1]
        asking = self._asking.get(digest)
        if asking is None:  # one request serves all that wait
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(token, digest, now))
            asking.add_done_callback(lambda done: self._on_answered(digest, done))
        return await asyncio.shield(asking)

    def _on_answered(self, digest: bytes, asking: asyncio.Task[bytes | None]) -> None:
        del self._asking[digest]
        if not asking.cancelled():
            asking.exception()  # marks it as retrieved: nothing may wait for it any more

    async def _ask(self, token: str, digest: bytes, now: float) -> bytes | None:
        try:
            async with asyncio.timeout(FETCH_SECONDS), self._places:
                answer = await self._request(token)
            claims = _active_claims(answer)
        except (OSError, ValueError) as error:
            self._note_failure(error)
            raise IntrospectionUnavailable from None
        self._is_failing = False
        # From the time of the question on: it may have been revoked while the answer was coming.
        kept = self._wrong if claims is None else self._good
        kept[digest] = now + KEEP_SECONDS, claims
        return claims

    async def _request(self, token: str) -> Any:
        settings = self._settings
        names = (settings.introspection_client_id, settings.introspection_client_secret)
        pair = ":".join(quote_plus(name or "") for name in names)
        return await fetch_json(
            self._network,
            settings.introspection_uri or "",
            urlencode({"token": token, "token_type_hint": "access_token"}).encode(),
            {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"},
            MAX_ANSWER_BYTES,
        )

    def _note_failure(self, error: Exception) -> None:
        """Log the first of several failures in a row."""
        described: dict[str, Any] = {"type": type(error).__name__}
        if isinstance(error, StatusRefused):
            described["status"] = error.status
        if self._is_failing:
            return
        self._is_failing = True
        fields = {"issuer": self._settings.issuer, "error": described}
        self._logger.warn("the authorization server cannot be asked about tokens", fields)


def _active_claims(answer: Any) -> bytes | None:
    """Return the claims of an answer; None if the token is not active.

    Raises:
        ValueError: it is no answer.
    """
    if not isinstance(answer, Mapping) or type(answer.get("active")) is not bool:
        raise ValueError("the response does not say whether the token is active")
    try:
        return dumps(answer) if answer["active"] else None
    except (TypeError, RecursionError):  # half a character, or too many levels
        raise ValueError("the response cannot be written as JSON") from None
