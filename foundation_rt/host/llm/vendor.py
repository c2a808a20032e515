"""The common part of the adapters of vendors' SDKs (LLM-03, LLM-09, LLM-25 to LLM-33).

All three SDKs take an HTTP client: it is ours, so that a request ends the moment its answer is
closed, whatever iterators of the SDK stand between. Their own retries and deadlines are off:
retries are the orchestrator's, deadlines those of `model_service`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import ContextVar
from importlib import import_module
from typing import Any, ClassVar

from attrs import define, field, frozen

from .provider import CallPiece, MalformedPiece, ModelRequest, Piece
from .service import LLMConfig, LLMFailure, LLMServiceError

CONNECT_TIMEOUT_S = 10.0
MAX_CALL_CHARACTERS = 1024 * 1024
MAX_RETRY_AFTER_S = 600.0
NO_KEY = "none"
"""The key for servers that want none; the SDKs do not do without."""

_MAX_SHOWN = 500
_FEWEST_OF_A_KEY = 6  # characters: shorter values stand in messages by chance
_TOOLS_REFUSED = re.compile(
    r"(tool|function)s?\b.*\b(not? (be )?support|unsupport|not enabled|not available|not allowed|"
    r"requires?\b|invalid|schema)|"
    r"(not? support|unsupported|invalid|not enabled|no endpoints).*\b(tool|function)",
    re.IGNORECASE | re.DOTALL,
)
_NO_SUCH_MODEL = re.compile(
    r"model\b.*(not found|does not exist|not exist|unknown|invalid|not supported)|"
    r"(unknown|no such|invalid) model|not found for api version",
    re.IGNORECASE | re.DOTALL,
)
_BAD_KEY = re.compile(r"api[ _-]?key", re.IGNORECASE)

_opened: ContextVar[list[Any] | None] = ContextVar("_opened", default=None)


@frozen
class ReportedError:
    """The refusal of a provider.

    Attributes:
        status: of HTTP; 0 if it came within the stream, or there was no answer.
        message: its words.
        headers: of the response.
    """

    status: int
    message: str
    headers: Mapping[str, str] = field(factory=dict)


@define(eq=False)
class VendorProvider:
    """The base of the adapters. A subclass writes a request down and reads an answer."""

    name: ClassVar[str]
    package: ClassVar[str]
    key_variable: ClassVar[str]
    picture_types: ClassVar[Sequence[str]]

    _config: LLMConfig
    _key: str = field(init=False, repr=False)
    _sdk: Any = field(default=None, init=False, repr=False)
    _http: Any = field(default=None, init=False, repr=False)
    _client: Any = field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._key = self._config.api_key

    @property
    def takes_pictures(self) -> bool:
        """Tell whether results may have pictures: servers of one's own often read none."""
        return self._config.base_url is None

    @property
    def accepted_pictures(self) -> Sequence[str]:
        """The media types of the pictures that the model reads."""
        return self.picture_types if self.takes_pictures else ()

    async def connect(self) -> None:
        """Import the SDK in a thread, which takes seconds, and make its client (LLM-03)."""
        if self._client is None:
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self._sdk = import_module(self.package)
        http = import_module("httpx2")
        timeout = http.Timeout(None, connect=CONNECT_TIMEOUT_S)
        hooks = {"response": [_keep]}
        self._http = http.AsyncClient(timeout=timeout, event_hooks=hooks, follow_redirects=True)
        self._client = self._make_client()

    def set_api_key(self, api_key: str) -> None:
        """Use another key from the next request on; those that run keep theirs (LLM-09)."""
        self._key = api_key
        if self._http is not None:
            self._client = self._make_client()

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    async def stream(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream one answer; closing it closes the HTTP response at once (LLM-02)."""
        responses: list[Any] = []
        async with aclosing(self._pieces(model, request)) as pieces:
            try:
                while True:
                    token = _opened.set(responses)
                    try:
                        piece = await anext(pieces, None)
                    finally:
                        _opened.reset(token)
                    if piece is None:
                        return
                    yield piece
            finally:
                for response in responses:
                    await response.aclose()

    def failure_of(self, error: Exception, model: str) -> LLMServiceError | None:
        """Return what an error of the SDK means (LLM-30 to LLM-33); None if it is a bug."""
        if isinstance(error, LLMServiceError):
            return error
        reported = self._reported(error)
        if reported is not None:
            return self._refusal(reported, model)
        transport = import_module("httpx2").HTTPError
        if isinstance(error, transport | OSError | ValueError):
            kind = type(error).__name__
            return self._error(f"the connection failed ({kind})", LLMFailure.TRANSIENT, model)
        return None

    def _refusal(self, reported: ReportedError, model: str) -> LLMServiceError:
        """Return the failure that a refusal is, by its status and its words."""
        failure = _failure_kind(reported)
        said = self.readable(reported.message)
        status = f"{reported.status}: " if reported.status else ""
        if failure is LLMFailure.BAD_KEY:  # the provider's words may have the key
            where = f" at {self._config.base_url}" if self._config.base_url else ""
            advice = f"Set {self.key_variable} to a valid key of {self.name}{where}."
            return self._error(f"{self.name} refuses the key", failure, model, advice)
        if failure is LLMFailure.UNKNOWN_MODEL:
            advice = f"Name a model that {self.name} has: --model {self.name}:NAME, or LLM_MODEL."
            return self._error(f"{self.name} has no model {model!r}", failure, model, advice)
        error = self._error(f"{self.name} answered {status}{said}", failure, model)
        error.retry_after = _retry_after(reported.headers)
        return error

    def _error(
        self, message: str, failure: LLMFailure, model: str, advice: str = ""
    ) -> LLMServiceError:
        return LLMServiceError(message, failure=failure, model=model, advice=advice)

    def readable(self, message: str) -> str:
        """Return words of a provider for people: short, on one line, without the key (LLM-33)."""
        for key in (self._key, self._config.api_key):
            if len(key) >= _FEWEST_OF_A_KEY:
                message = message.replace(key, "[REDACTED]")
        shown = "".join(each if each.isprintable() else " " for each in message[: 4 * _MAX_SHOWN])
        return " ".join(shown.split())[:_MAX_SHOWN]

    # -- what a subclass has

    def _make_client(self) -> Any:
        """Return the SDK's client, on our HTTP client, with the present key."""
        raise NotImplementedError

    async def list_models(self) -> Sequence[str]:
        """Return the names of the models."""
        raise NotImplementedError

    def _pieces(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Send the request, and yield the pieces of the answer."""
        raise NotImplementedError

    def _reported(self, error: Exception) -> ReportedError | None:
        """Return what the provider said; None if the error is not of the SDK."""
        raise NotImplementedError


@define
class CallBuffer:
    """A call that arrives in parts, as JSON (LLM-26)."""

    name: str = ""
    call_id: str = ""
    _parts: list[str] = field(factory=list, init=False)
    _size: int = field(default=0, init=False)

    def add(self, part: str) -> None:
        """Add a part of the arguments; beyond the limit none is kept."""
        self._size += len(part)
        if self._size <= MAX_CALL_CHARACTERS:
            self._parts.append(part)

    def piece(self) -> Piece:
        """Return the whole call."""
        if self._size > MAX_CALL_CHARACTERS:
            limit = f"{MAX_CALL_CHARACTERS} characters"
            return MalformedPiece(f"Your call of {self.name} has arguments of more than {limit}.")
        return CallPiece(self.name, "".join(self._parts), self.call_id)


def _failure_kind(reported: ReportedError) -> LLMFailure:
    status, message = reported.status, reported.message
    if status == 401 or (status in (400, 403) and _BAD_KEY.search(message)):
        return LLMFailure.BAD_KEY
    if status in (400, 404, 405, 422, 500, 501) and _TOOLS_REFUSED.search(message):
        return LLMFailure.TOOLS_UNSUPPORTED
    if status == 404 or (status in (400, 403, 422) and _NO_SUCH_MODEL.search(message)):
        return LLMFailure.UNKNOWN_MODEL
    if status in (0, 408, 409, 425, 429) or status >= 500:
        return LLMFailure.TRANSIENT
    return LLMFailure.BAD_REQUEST


def words_of(error: Any) -> str:
    """Return the provider's own words in an error of an SDK that is about a status."""
    found = error.body
    if isinstance(found, Mapping):
        found = found.get("error", found)
    if isinstance(found, Mapping):
        found = found.get("message")
    return found if isinstance(found, str) else str(error.message)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks for, within reason; None without any."""
    with suppress(ValueError, KeyError):
        seconds = float(headers["retry-after"])
        return seconds if 0 <= seconds <= MAX_RETRY_AFTER_S else None
    return None


async def _keep(response: Any) -> None:
    """Keep a response with the answer that is being streamed, which closes it."""
    responses = _opened.get()
    if responses is not None:
        responses.append(response)
