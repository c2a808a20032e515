"""The common part of the adapters of vendors' SDKs (LLM-03, LLM-09, LLM-25 to LLM-33).

All three SDKs take an HTTP client: it is ours, so that a request ends the moment its answer is
closed, whatever iterators of the SDK stand between. Their own retries and deadlines are off:
retries are the orchestrator's, deadlines those of `model_service`.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from importlib import import_module
from typing import Any, ClassVar, TypeVar
from urllib.parse import urljoin, urlsplit

import orjson
from attrs import define, field

from foundation_rt import UsageError

from ....base.exact_json import dumps, loads
from ....base.http_client.values import readable_url, same_origin
from ....base.logs.redaction import mask_secrets
from ....client.transports.sse import EventReader, ServerSentEvent
from .call_assembly import MAX_CHARACTERS, CallAssembler
from .failures import (
    AskedModel,
    MovedError,
    ReportedError,
    WebPageError,
    causes,
    connection_failure,
    kind_of,
    reason_in,
    retry_after,
    without_page,
)
from .json_values import mapping
from .provider import ModelRequest, Piece
from .service import LLMConfig, LLMFailure, LLMServiceError

CONNECT_TIMEOUT_S = 10.0
COMPLETE_S = 10.0
"""Seconds for what follows the reason of the end: usage, and the end of the stream."""
_CLOSING_S = 0.25
"""Seconds for the end of a response that has said all: read to it, its connection is kept."""
NO_KEY = "none"
"""The key for servers that want none; the SDKs do not do without."""

_MAX_REDIRECTS = 3
_MAX_SHOWN = 500
_FEWEST_OF_A_KEY = 6  # characters: shorter values stand in messages by chance
_SECRET = re.compile(r"key|auth|secret|passw", re.IGNORECASE)

_T = TypeVar("_T")
_opened: ContextVar[list[Any] | None] = ContextVar("_opened", default=None)


@define(eq=False)
class AnswerReader(ABC):
    """Reads one answer from the objects of a stream. Pure. A subclass knows their form.

    Args:
        names: of the tools that the model may call.
        model: its name, since only this model gets back what it wants back.

    Attributes:
        calls: the calls of the answer.
        is_done: nothing of the answer follows.
    """

    _names: Collection[str]
    _model: str
    calls: CallAssembler = field(init=False)
    is_done: bool = field(default=False, init=False)
    _reason: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.calls = CallAssembler(self._names)

    @property
    def is_complete(self) -> bool:
        """The server has said that the answer ends, and why; usage may follow (LLM-93)."""
        return bool(self._reason or self.is_done)

    @abstractmethod
    def read(self, event: Mapping[str, Any]) -> list[Piece]:
        """Return the pieces of an object."""

    @abstractmethod
    def end(self) -> list[Piece]:
        """Return the calls and the end; nothing if the answer was cut off."""


@define(eq=False)
class VendorProvider(ABC):
    """The base of the adapters. A subclass writes a request down and reads an answer."""

    name: ClassVar[str]
    package: ClassVar[str]
    key_variable: ClassVar[str]
    picture_types: ClassVar[Sequence[str]]
    hosts: ClassVar[Sequence[str]]
    max_tools: ClassVar[int | None] = None
    takes_pictures: ClassVar[bool] = True

    _config: LLMConfig
    _key: str = field(init=False, repr=False)
    _address: str = field(default="", init=False)  # that was asked last
    notes: list[str] = field(factory=list, init=False)
    _sdk: Any = field(default=None, init=False, repr=False)
    _http: Any = field(default=None, init=False, repr=False)
    _client: Any = field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._key = self._config.api_key

    def picture_types_for(self, request: ModelRequest) -> Sequence[str]:
        """Return the media types of the pictures that a request may have."""
        return self.picture_types if request.has_pictures else ()

    async def connect(self) -> None:
        """Import the SDK in a thread, which takes seconds, and make its client (LLM-03)."""
        if self._client is None:
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self._sdk = import_module(self.package)
        http = import_module("httpx2")
        timeout = http.Timeout(None, connect=CONNECT_TIMEOUT_S)
        hooks = {"request": [self._note_address], "response": [_keep]}
        self._http = http.AsyncClient(
            timeout=timeout,
            event_hooks=hooks,
            follow_redirects=True,
            max_redirects=_MAX_REDIRECTS,
        )
        try:
            self._client = self._make_client()
        except http.InvalidURL as error:
            raise UsageError(f"the base URL of {self.name} is none: {error}") from None

    async def _note_address(self, request: Any) -> None:
        self._address = readable_url(str(request.url))

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
        """Return what an error of the SDK means (LLM-30 to LLM-34); None if it is a bug."""
        if isinstance(error, LLMServiceError):
            return error
        reported = self._reported(error)
        if reported is not None:
            return self._refusal(reported, model)
        http = import_module("httpx2")
        lost = (http.HTTPError, OSError, WebPageError, MovedError)
        if not isinstance(error, ValueError) and not any(
            isinstance(each, lost) for each in causes(error)
        ):
            return None
        kind, said = connection_failure(error, (http.ConnectError, http.ConnectTimeout))
        return self.asked(model).failure(kind, said=said)

    def _refusal(self, reported: ReportedError, model: str) -> LLMServiceError:
        """Return the failure that a refusal is, by its status and its words."""
        wait = retry_after(reported.headers)
        kind = kind_of(reported, wait)
        # What is said of a key may have it.
        said = "" if kind is LLMFailure.BAD_KEY else self.readable(reported.message)
        asked = self.asked(model)
        return asked.failure(kind, said=said, status=reported.status, retry_after=wait)

    def asked(self, model: str) -> AskedModel:
        """Return the model as people know it."""
        return AskedModel(
            provider=self.name,
            model=model,
            address=self._address,
            server=urlsplit(readable_url(self._config.base_url or "")).netloc,
            variable=self.key_variable,
        )

    def readable(self, message: str) -> str:
        """Return words of a provider for people: short, on one line, without a key (LLM-33)."""
        message = without_page(message)
        for key in (self._key, self._config.api_key):
            if len(key) >= _FEWEST_OF_A_KEY:
                message = message.replace(key, "[REDACTED]")
        shown = "".join(each if each.isprintable() else " " for each in message[: 4 * _MAX_SHOWN])
        shown = mask_secrets(shown, lambda name: _SECRET.search(name) is not None)
        return " ".join(shown.split())[:_MAX_SHOWN]

    # -- what a subclass has

    @abstractmethod
    def _make_client(self) -> Any:
        """Return the SDK's client, on our HTTP client, with the present key."""

    @abstractmethod
    async def list_models(self) -> Sequence[str]:
        """Return the names of the models."""

    @abstractmethod
    def _pieces(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Send the request, and yield the pieces of the answer."""

    @abstractmethod
    def _reported(self, error: Exception) -> ReportedError | None:
        """Return what the provider said; None if the error is not of the SDK."""


@define(eq=False)
class StreamingProvider(VendorProvider):
    """The base of the adapters of OpenAI's and Anthropic's SDKs, which one generator has made.

    Their streams are read here: the SDKs' own do not tell `[DONE]` from a connection that ended.
    """

    client: ClassVar[str]
    """The name of the SDK's client."""
    error: ClassVar[str]
    """The name of the SDK's error of which all others are."""
    reader: ClassVar[type[AnswerReader]]
    picture_types: ClassVar[Sequence[str]] = ("image/png", "image/jpeg", "image/webp", "image/gif")

    _base_url: str | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._base_url = self._config.base_url

    def _make_client(self) -> Any:
        return getattr(self._sdk, self.client)(
            api_key=self._key or NO_KEY,
            base_url=self._base_url,
            http_client=self._http,
            max_retries=0,
            timeout=self._http.timeout,
        )

    async def list_models(self) -> Sequence[str]:
        """Return the names of the models."""
        return [model.id async for model in self._client.models.list()]

    @abstractmethod
    async def _open(self, model: str, request: ModelRequest) -> Any:
        """Send the request; return the SDK's stream."""

    async def _pieces(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        answer = self.reader(request.tool_names, model)
        stream = await self._open(model, request)
        async with aclosing(self._read(stream.response, answer, model)) as pieces:
            async for piece in pieces:
                yield piece

    async def _read(
        self, response: Any, answer: AnswerReader, model: str
    ) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of the response of an SDK's stream."""
        events = self._events(response, model)
        async with aclosing(to_the_end(events, lambda: _patience(answer))) as received:
            async for event in received:
                if event is None:
                    answer.is_done = True
                    continue
                for piece in answer.read(event):
                    yield piece
                if answer.calls.size > MAX_CHARACTERS:
                    raise _too_long(model)
        for piece in answer.end():
            yield piece

    async def _events(
        self, response: Any, model: str
    ) -> AsyncGenerator[Mapping[str, Any] | None, None]:
        """Yield the objects of a stream, or one that came instead; None at `[DONE]` (LLM-93)."""
        reader, whole = EventReader(MAX_CHARACTERS), bytearray()
        has_begun = False
        async for chunk in response.aiter_bytes():
            data = chunk if has_begun else chunk.lstrip()
            if whole or (data[:1] == b"{" and not has_begun):
                whole += data
                if len(whole) > MAX_CHARACTERS:
                    raise _too_long(model)
            else:
                for event in reader.feed(data):
                    yield self._event(event, model)
            has_begun = has_begun or bool(data)
        if whole:
            yield self._event(ServerSentEvent(bytes(whole)), model)
            yield None
        for event in reader.feed(b"\n\n"):  # some servers end without the blank line
            yield self._event(event, model)

    def _event(self, event: Any, model: str) -> Mapping[str, Any] | None:
        if not isinstance(event, ServerSentEvent):
            raise _too_long(model)
        if event.data.strip() == b"[DONE]":
            return None
        try:
            found = mapping(loads(event.data))
        except orjson.JSONDecodeError:
            raise self.asked(model).failure(LLMFailure.TRANSIENT) from None
        if error := found.get("error") or (found.get("object") == "error" and found):
            code = mapping(error).get("code")
            status = code if isinstance(code, int) and 400 <= code < 600 else 0
            said = reason_in(error) or str(error)
            raise self._refusal(ReportedError(status, said), model)
        return found

    def _reported(self, error: Exception) -> ReportedError | None:
        if isinstance(error, self._sdk.APIStatusError):
            # An error within the stream has the status 200 of the stream.
            status = error.status_code if error.status_code >= 400 else 0
            return ReportedError(status, _words_of(error), error.response.headers)
        is_said = isinstance(error, getattr(self._sdk, self.error))
        if is_said and not isinstance(error, self._sdk.APIConnectionError):
            return ReportedError(0, str(error))
        return None


def _patience(answer: AnswerReader) -> float | None:
    """Return the seconds that the rest of a stream is waited for; None: as long as it takes."""
    if answer.is_done:
        return _CLOSING_S
    return COMPLETE_S if answer.is_complete else None


async def to_the_end(
    items: AsyncGenerator[_T, None], patience: Callable[[], float | None]
) -> AsyncGenerator[_T, None]:
    """Yield the items of a stream; a complete answer is one, however its stream ends (LLM-120)."""
    lost = import_module("httpx2").HTTPError
    async with aclosing(items):
        while True:
            seconds = patience()
            try:
                async with asyncio.timeout(seconds):
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except (TimeoutError, lost):
                if seconds is None:
                    raise
                return
            yield item


def _too_long(model: str) -> LLMServiceError:
    text = f"The answer is longer than {MAX_CHARACTERS} characters."
    return LLMServiceError(text, failure=LLMFailure.REFUSED, model=model)


def _words_of(error: Any) -> str:
    """Return the provider's own words in an error of an SDK that is about a status."""
    found = error.body
    return reason_in(found) or (dumps(found).decode() if found else "")


async def _keep(response: Any) -> None:
    """Keep a response with the answer that is being streamed, which closes it.

    Raises:
        WebPageError: it is a page for people.
        MovedError: it redirects to another origin, which gets neither the key nor the chat.
    """
    if response.has_redirect_location:
        place = _redirect_target(str(response.url), response.headers["location"])
        if place is not None:
            raise MovedError(f"the model has moved to {place or 'what is no address'}")
    if response.is_success and response.headers.get("content-type", "").startswith("text/html"):
        raise WebPageError
    responses = _opened.get()
    if responses is not None:
        responses.append(response)


def _redirect_target(url: str, location: str) -> str | None:
    """Return to what other origin a redirect leads, "" if it is none; None if it stays."""
    try:
        place = urljoin(url, location)
    except ValueError:
        return ""
    return None if same_origin(place, url) else readable_url(place)
