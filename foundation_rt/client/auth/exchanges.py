"""Requests to authorization servers, over the client's own HTTP (CAUTH-11).

Each is bounded in time and size, follows no redirect, keeps no cookie, and has a connection of its
own. A failure of the connection is a `ConnectionLostError`, which says nothing about credentials.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from attrs import define, field, frozen

from ...base.http_client.errors import ConnectTimeout, HttpError
from ...base.http_client.exchange import HttpAnswer, fetch
from ...base.http_client.network import Network
from ..errors import ConnectionLostError
from .urls import host_of

METADATA_TIMEOUT: Final = 10.0
"""Seconds for a document of metadata."""

TOKEN_TIMEOUT: Final = 30.0
"""Seconds for a token, a registration, and whatever else a server has to store."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
MAX_METADATA_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 256 * 1024


@frozen
class AuthResponse:
    """The response of an authorization server.

    Attributes:
        status: the status of HTTP.
        headers: the headers, by name in lower case.
        document: the body, parsed; None if it is no JSON, or too long.
    """

    status: int
    headers: Mapping[str, str]
    document: Any = field(repr=False)

    @property
    def error(self) -> str | None:
        """The `error` of an answer that refuses (RFC 6749, 5.2)."""
        found = self.document.get("error") if isinstance(self.document, dict) else None
        return found if isinstance(found, str) else None


@define(eq=False)
class AuthExchanges:
    """Sends requests to authorization servers.

    Args:
        metadata_timeout: seconds for a document.
        token_timeout: seconds for any other answer.
        max_answer_bytes: the most bytes of one.
        network: makes the connections.
    """

    metadata_timeout: float = METADATA_TIMEOUT
    token_timeout: float = TOKEN_TIMEOUT
    max_answer_bytes: int = MAX_ANSWER_BYTES
    network: Network = field(factory=Network)

    async def get(self, url: str, headers: Mapping[str, str] = NO_HEADERS) -> AuthResponse:
        """Return a document of metadata; `headers` go with the request.

        Raises:
            ConnectionLostError: there is no answer.
        """
        named = {"accept": "application/json", **headers}
        seconds = self.metadata_timeout
        asked = fetch(self.network, url, seconds, MAX_METADATA_BYTES, named)
        return await _answered(asked, url, seconds)

    async def post(
        self, url: str, body: Mapping[str, str] | bytes, headers: Mapping[str, str]
    ) -> AuthResponse:
        """Return the answer to a form, or to JSON.

        Raises:
            ConnectionLostError: there is no answer.
        """
        kind = "application/json" if isinstance(body, bytes) else _FORM
        sent = body if isinstance(body, bytes) else urlencode(body).encode("ascii")
        named = {"accept": "application/json", "content-type": kind, **headers}
        seconds = self.token_timeout
        asked = fetch(self.network, url, seconds, self.max_answer_bytes, named, sent)
        return await _answered(asked, url, seconds)


async def _answered(asked: Awaitable[HttpAnswer], url: str, seconds: float) -> AuthResponse:
    """Return the answer, or raise `ConnectionLostError` for a failure of HTTP."""
    try:
        answer = await asked
        document = None if answer.body is None else _parsed(answer.body)
        return AuthResponse(answer.status, answer.headers, document)
    except (TimeoutError, ConnectTimeout):
        what = f"{host_of(url)} did not answer within {seconds:g} s"
    except HttpError:
        what = f"there is no connection to {host_of(url)}"
    raise ConnectionLostError(what, may_have_run=False) from None


_FORM = "application/x-www-form-urlencoded"


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return None
