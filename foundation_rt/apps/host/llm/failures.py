"""The failures of a request to a model: their kinds, words and retries (LLM-30 to LLM-38). Pure.

One table has for each kind what people read, what they can change, whether the host asks again by
itself, and whether it may help that people do.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import orjson
from attrs import field, frozen

from ....base.http_client.values import read_retry_after
from .json_values import mapping
from .service import LLMFailure, LLMServiceError

MAX_RETRY_AFTER_S = 600.0
MAX_READ = 20_000
"""The characters of a provider's words that are looked at."""

_NAMES = {"openai": "OpenAI"}


@frozen
class FailureKind:
    """A kind of failure, as people are told of it.

    Attributes:
        sentence: with `who`, `model`, `address`, `status` and `seconds`.
        advice: what people can change.
        is_tried_again: the host asks again by itself (TURN-15).
        may_retry: it may help that people ask again, with nothing else said.
    """

    sentence: str
    advice: str = ""
    is_tried_again: bool = False
    may_retry: bool = True


_ADDRESS = "the base URL (LLM_BASE_URL)"
_NO_REQUEST = FailureKind(
    "{who} does not take the request{status}.",
    "If it stays so, begin a new chat or choose another model.",
    may_retry=False,
)
FAILURES: Mapping[LLMFailure, FailureKind] = {
    LLMFailure.TRANSIENT: FailureKind(
        "The connection to {who} broke off before the answer was complete.",
        is_tried_again=True,
    ),
    LLMFailure.TIMEOUT: FailureKind(
        "{who} has written nothing for {seconds:g} s.",
        "Try again; a model that loads for long needs a longer host.first_token_timeout_ms.",
    ),
    LLMFailure.STALLED: FailureKind(
        "{who} stopped in the middle of the answer: it has written nothing for {seconds:g} s.",
        "Try again; the log of a server of your own says more.",
    ),
    LLMFailure.EMPTY: FailureKind(
        "{who} answered with nothing.",
        "Try again; the log of a server of your own says more.",
        is_tried_again=True,
    ),
    LLMFailure.UNREACHABLE: FailureKind(
        "Nothing answers at {address}.",
        f"Check the network and {_ADDRESS}, and that a server of your own runs.",
        is_tried_again=True,
    ),
    LLMFailure.UNKNOWN_HOST: FailureKind(
        "No address is known (DNS) for {address}.",
        f"Check the network and {_ADDRESS}.",
    ),
    LLMFailure.NO_TLS: FailureKind(
        "There is no secure connection (TLS) to {address}.",
        f"Without TLS, {_ADDRESS} begins with http://; SSL_CERT_FILE names the file of an"
        " authority of your own.",
    ),
    LLMFailure.WRONG_ADDRESS: FailureKind(
        "There is no model at {address}{status}.",
        f"Correct {_ADDRESS}{{ending}}.",
    ),
    LLMFailure.WEB_PAGE: FailureKind(
        "There is a web page at {address}, and no model.",
        f"Correct {_ADDRESS}{{ending}}; a sign-in page of your network answers so too.",
    ),
    LLMFailure.BAD_KEY: FailureKind(
        "{who} refuses the key{status}.",
        "Set {variable} to a valid one.",
    ),
    LLMFailure.FORBIDDEN: FailureKind(
        "{who} does not allow this{status}.",
        "Check what the key, its account and your region may use.",
    ),
    LLMFailure.NO_CREDIT: FailureKind(
        "The quota or the credit at {who} is used up{status}.",
        "Add credit there, or choose another key or model.",
    ),
    LLMFailure.RATE_LIMIT: FailureKind(
        "{who} takes no more requests for now{status}.",
        "Wait a little, or choose another model.",
        is_tried_again=True,
    ),
    LLMFailure.SERVER_ERROR: FailureKind(
        "{who} has an error of its own{status}.",
        "Try again later; the log of a server of your own says more.",
        is_tried_again=True,
    ),
    LLMFailure.UNKNOWN_MODEL: FailureKind(
        "{who} has no model {model!r}{status}.",
        "Name one that it has: --model {provider}:NAME, or LLM_MODEL=NAME.",
    ),
    LLMFailure.TOO_LONG: FailureKind(
        "The chat is longer than {who} takes{status}.",
        "Begin a new chat, or set MAX_TOKEN_COUNT to what the model takes.",
        may_retry=False,
    ),
    LLMFailure.REFUSED: FailureKind(
        "{who} has ended the answer.",
        "Try again, or say it in other words.",
    ),
    LLMFailure.BAD_REQUEST: _NO_REQUEST,
    LLMFailure.TOOLS_UNSUPPORTED: _NO_REQUEST,
    LLMFailure.TOOL_REFUSED: _NO_REQUEST,
    LLMFailure.PICTURE_REFUSED: _NO_REQUEST,
    LLMFailure.UNREADABLE_CALL: FailureKind(
        "{who} cannot read what its model has written{status}.",
        is_tried_again=True,
    ),
}


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


@frozen(kw_only=True)
class AskedModel:
    """The model that was asked, as people know it.

    Attributes:
        provider: as in the setting.
        model: as the provider names it.
        address: that was asked, without any secret; "" where there is none.
        server: the host of a base URL that is not the vendor's; "" for the vendor's.
        variable: with the key.
    """

    provider: str
    model: str
    address: str = ""
    server: str = ""
    variable: str = ""

    def failure(
        self,
        kind: LLMFailure,
        *,
        said: str = "",
        status: int = 0,
        seconds: float = 0.0,
        retry_after: float | None = None,
    ) -> LLMServiceError:
        """Return the error of a failure.

        Args:
            said: the provider's words, without any secret; "" if it said none.
            status: of HTTP; 0 without any.
            seconds: for which was waited.
            retry_after: seconds that the provider asks to wait.
        """
        name = _NAMES.get(self.provider, self.provider.capitalize())
        known = {
            "who": f"the server at {self.server}" if self.server else name,
            "model": self.model,
            "provider": self.provider,
            "address": self.address or self.provider,
            "variable": self.variable,
            "ending": ": of most servers it ends with /v1" if self.provider == "openai" else "",
            "status": f" ({status})" if status else "",
            "seconds": seconds,
        }
        row = FAILURES[kind]
        sentence = row.sentence.format(**known)
        parts = [sentence[0].upper() + sentence[1:]]
        if said:
            parts.append(f"It says: {said}" if said[-1] in ".!?" else f"It says: {said}.")
        if retry_after:
            parts.append(f"It asks to wait {math.ceil(retry_after)} s.")
        return LLMServiceError(
            " ".join(parts),
            failure=kind,
            model=self.model,
            advice=row.advice.format(**known),
            retry_after=retry_after,
        )


# -- refusals of HTTP

_OF_STATUS = {
    401: LLMFailure.BAD_KEY,
    402: LLMFailure.NO_CREDIT,
    403: LLMFailure.FORBIDDEN,
    404: LLMFailure.WRONG_ADDRESS,
    405: LLMFailure.WRONG_ADDRESS,
    413: LLMFailure.TOO_LONG,
    429: LLMFailure.RATE_LIMIT,
    **dict.fromkeys((0, 408, 409, 425), LLMFailure.SERVER_ERROR),
}


def _words(pattern: str) -> re.Pattern[str]:
    """Return a pattern for words that a person can make long: so it repeats nothing unboundedly."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_QUOTA = _words(
    r"insufficient.{0,3}(quota|balance|credit|fund)|credit balance|out of credits|"
    r"exceeded.{0,9}current.{0,3}quota|payment required"
)
_UNREADABLE_CALL = _words(
    r"pars(e|ing) (the )?(tool|function)[_ -]?call|failed to call a function|tool_use_failed|"
    r"(tool|function)[_ -]?call (validation|parsing) failed|failed to generate (tool|function)"
)  # Ollama, llama.cpp, Groq, Cerebras
_TOOL_REFUSED = _words(
    r"\btools[.\[]\d|function_?declarations|\bschema|\bgrammar\b|input_schema|"
    r"\b(tool|function)s?[.\[ ]{1,3}(names?|description|parameters?|definition)\b|"
    r"\bfor (tool|function) ['\"`]"
)
_WITHOUT_TOOLS = _words(
    r"\b(tool|function)s?\b[^.]{0,60}(\bnot|n't|\bun)( be)? ?"
    r"(supported|enabled|available|allowed)\b|"
    r"(\bnot|n't|\bun)( be)? ?support(s|ed|ing)?\b[^.]{0,60}\b(tool|function)|"
    r"\bno endpoints\b.{0,80}\btool|\btools?\b[^.]{0,40}\brequires? -"
)  # the model, or its server as it was started, has no tools
_PICTURE_REFUSED = _words(r"\bimage|\bpicture|\binline_?data\b|\bmultimodal")
OF_WORDS = (
    ((0, 200), _words("unexpected endpoint"), LLMFailure.WRONG_ADDRESS),  # LM Studio
    ((0, 400, 422, 500), _UNREADABLE_CALL, LLMFailure.UNREADABLE_CALL),
    ((400, 403), _words(r"api[ _-]?key"), LLMFailure.BAD_KEY),
    ((0, 400, 403, 422, 429), _QUOTA, LLMFailure.NO_CREDIT),
    (
        (0, 400, 422, 500),
        _words(
            r"context.{0,3}(length|size|window)|prompt is too long|too many tokens|"
            r"token count.{0,40}exceeds|reduce the length|input is too long|"
            r"input tokens exceed|maximum (prompt|input) length|payload size exceeds"
        ),
        LLMFailure.TOO_LONG,
    ),
    ((400, 404, 405, 422, 500, 501), _TOOL_REFUSED, LLMFailure.TOOL_REFUSED),
    ((400, 404, 405, 422, 500, 501), _WITHOUT_TOOLS, LLMFailure.TOOLS_UNSUPPORTED),
    ((400, 404, 422, 500), _PICTURE_REFUSED, LLMFailure.PICTURE_REFUSED),
    (
        (400, 403, 404, 422),
        _words(
            r"\bmodels?\b:? ?((id|name|identifier) )?((?=\S{0,80}[\d/:._'\"`-])\S{1,80} )?"
            r"((does |is |was )?not (exist|found|supported)|(is|was) (unknown|invalid)\b)|"
            r"^model: |"
            r"(unknown|no such|invalid) model|not a valid model|not found for api version|"
            r"no endpoints found for"
        ),
        LLMFailure.UNKNOWN_MODEL,
    ),
)


def kind_of(reported: ReportedError, retry_after: float | None = None) -> LLMFailure:
    """Return what a refusal is, by its words, else by its status (LLM-30, LLM-31)."""
    status, said = reported.status, reported.message[:MAX_READ]
    for statuses, words, kind in OF_WORDS:
        # Google says the same of a limit for a minute, but then asks to wait.
        is_limit = kind is LLMFailure.NO_CREDIT and status == 429 and retry_after
        if status in statuses and not is_limit and words.search(said):
            return kind
    if status >= 500:
        return LLMFailure.SERVER_ERROR
    return _OF_STATUS.get(status, LLMFailure.BAD_REQUEST)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a provider asks to wait, at most 600; None if it asks for none."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            if (seconds := float(headers[name]) * unit) >= 0:  # not so what is no number
                return min(seconds, MAX_RETRY_AFTER_S)
    until = read_retry_after(headers.get("retry-after"), time.time())
    return None if until is None else min(until, MAX_RETRY_AFTER_S)


_MAX_DEPTH = 8
_MAX_PARTS = 3
_REASONS = ("error", "message", "detail", "errors", "msg")
"""The members that have a reason, in one another: of OpenAI, FastAPI, Mistral and others."""


def reason_in(body: Any, depth: int = 0) -> str:
    """Return the words of a provider in the body of a refusal; "" if there are none (LLM-121).

    A gateway has the words of the server behind it as `metadata.raw`, often as JSON.
    """
    if isinstance(body, str):
        return _reason_in_text(body, depth)
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(body, list):
        return "; ".join(filter(None, (reason_in(each, depth + 1) for each in body[:_MAX_PARTS])))
    if not isinstance(body, Mapping):
        return ""
    said = next(filter(None, (reason_in(body.get(name), depth + 1) for name in _REASONS)), "")
    place, raw = body.get("loc"), mapping(body.get("metadata")).get("raw")
    if isinstance(place, list):  # of FastAPI
        said = f"{'.'.join(map(str, place[:_MAX_DEPTH]))}: {said}"
    return ": ".join(filter(None, (said, reason_in(raw, depth + 1))))


def _reason_in_text(text: str, depth: int) -> str:
    if depth and text[:1] in ("{", "[") and len(text) <= MAX_READ:
        with suppress(orjson.JSONDecodeError):
            return reason_in(orjson.loads(text), depth + 1) or text
    return text


_PAGE = re.compile(r"\s*<(!doctype|html|head|\?xml)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,200})</title>", re.IGNORECASE)


def without_page(message: str) -> str:
    """Return words of a provider; of a web page its title alone."""
    if not _PAGE.match(message[:200]):
        return message
    title = _TITLE.search(message[:20_000])
    return title[1].strip() if title else ""


# -- connections that fail


class WebPageError(Exception):
    """A request to a model was answered with a web page."""


class MovedError(Exception):
    """A request to a model was redirected to another origin; its words say where (LLM-122)."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what has caused it, at most ten."""
    found: Any = error
    for _ in range(10):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__


def connection_failure(
    error: BaseException, unreachable: tuple[type[BaseException], ...]
) -> tuple[LLMFailure, str]:
    """Return what a failed connection is, and in words why (LLM-34).

    Args:
        error: of the HTTP client, or an SDK's with its cause.
        unreachable: the errors of that client for connections that could not be opened.
    """
    kind = LLMFailure.TRANSIENT
    for each in causes(error):
        if isinstance(each, WebPageError):
            return LLMFailure.WEB_PAGE, ""
        if isinstance(each, MovedError):
            return LLMFailure.WRONG_ADDRESS, str(each)
        if isinstance(each, ssl.SSLError) and not isinstance(each, ssl.SSLWantReadError):
            reason = getattr(each, "verify_message", "") or (each.reason or "").lower()
            return LLMFailure.NO_TLS, reason.replace("_", " ")
        if isinstance(each, socket.gaierror):
            return LLMFailure.UNKNOWN_HOST, ""
        if isinstance(each, unreachable):
            kind = LLMFailure.UNREACHABLE
    return kind, ""
