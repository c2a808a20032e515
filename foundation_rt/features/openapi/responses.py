"""Results of tools from the responses of an API: content, structured values, errors (OAPI-34)."""

from __future__ import annotations

import re
import time
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, field, frozen

from ...base.exact_json import loads_bounded
from ...base.http_client.values import read_retry_after
from ...errors import ErrorCode, ToolError
from ...protocol.content import (
    Audio,
    BlobContents,
    Block,
    EmbeddedResource,
    Image,
    ResourceContents,
    Text,
    TextContents,
    ToolResult,
)
from .operations import ApiOperation, is_json, is_text

_MAX_ERROR_BYTES: Final = 4_096
_MAX_RETRY_MS: Final = 24 * 3_600_000
_KEPT: Final = ("link", "location", "etag", "x-total-count", "retry-after")
"""Headers that say how a call goes on; they stand in `_meta`."""

_MARKS: Final = {BOM_UTF8: "utf-8", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}

_META: Final = "foundation-rt/http"

_CODES: Final = {
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.UNAUTHORIZED,
    404: ErrorCode.NOT_FOUND,
    408: ErrorCode.TIMEOUT,
    410: ErrorCode.NOT_FOUND,
    429: ErrorCode.RESOURCE_EXHAUSTED,
    503: ErrorCode.RESOURCE_EXHAUSTED,
    504: ErrorCode.TIMEOUT,
}


@frozen
class ApiResponse:
    """A response of an API, read whole.

    Attributes:
        status: its code.
        headers: by name, in lower case.
        content: its body.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes = field(repr=False)

    @property
    def media_type(self) -> str:
        """The media type in lower case, without parameters; empty if there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        """The body as text; what its charset does not have is replaced, a byte order mark cut."""
        found = re.search(r'charset="?([\w-]+)', self.headers.get("content-type", ""), re.I)
        charset = found[1] if found else "utf-8"
        for mark, marked in _MARKS.items():
            if self.content.startswith(mark):
                charset = marked
        try:
            return self.content.decode(charset, "replace").removeprefix("\ufeff")
        except (LookupError, UnicodeError):  # no charset, or one that replaces nothing
            return self.content.decode("utf-8", "replace")


def tool_result(response: ApiResponse, uri: str, *, is_wrapped: bool = False) -> ToolResult:
    """Return the result of a tool from a response of success.

    Args:
        response: of a status below 400.
        uri: of the operation, without secrets; names content that is neither text nor media.
        is_wrapped: whether a JSON value stands in `{"result": ...}`, as the output schema says.
    """
    kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
    meta = {_META: {"status": response.status, **kept}} if kept else None
    if not response.content:
        return ToolResult(
            f"Done: HTTP {response.status}, without content.",
            structured={"result": None} if is_wrapped else None,
            meta=meta,
        )
    if _is_json_like(response):
        try:
            value = loads_bounded(response.text)
        except ValueError:
            pass  # not what its header says: it is text
        else:
            structured = {"result": value} if is_wrapped else value
            text = "null" if value is None else None
            return ToolResult(text, structured=structured, meta=meta)
    return ToolResult([_block(response, uri)], meta=meta)


def _is_json_like(response: ApiResponse) -> bool:
    if response.media_type:
        return is_json(response.media_type)
    return response.text.lstrip()[:1] in ("{", "[")


def _is_text(response: ApiResponse) -> bool:
    return is_text(response.media_type) if response.media_type else _is_utf_8(response)


def _block(response: ApiResponse, uri: str) -> Block:
    media_type = response.media_type
    if _is_text(response):
        return Text(response.text)
    if media_type.startswith("image/"):
        return Image(response.content, media_type)
    if media_type.startswith("audio/"):
        return Audio(response.content, media_type)
    return EmbeddedResource(
        BlobContents(uri, response.content, media_type or "application/octet-stream")
    )


def _is_utf_8(response: ApiResponse) -> bool:
    try:
        response.content.decode()
    except UnicodeDecodeError:
        return False
    return True


def resource_contents(response: ApiResponse, uri: str) -> ResourceContents:
    """Return the contents of a resource from a response of success."""
    media_type = response.media_type or None
    if _is_text(response):
        return TextContents(uri, response.text, media_type)
    return BlobContents(uri, response.content, media_type)


# -- errors --------------------------------------------------------------------------------------


def tool_error(
    operation: ApiOperation, response: ApiResponse, secrets: tuple[str, ...], advice: str
) -> ToolError:
    """Return the error of a response of 300 and more (OAPI-36).

    Args:
        operation: that was called.
        response: of the API.
        secrets: of the call; they do not stand in the error.
        advice: the options that name its secrets, for 401 and 403; may be empty.
    """
    status = response.status
    details: dict[str, Any] = {"reason": "http_status", "status": status}
    longest = max(map(len, secrets), default=0)  # a secret that is cut is still told
    body = _redacted(response.text[: _MAX_ERROR_BYTES + longest], secrets)[:_MAX_ERROR_BYTES]
    summary = ""
    if _is_json_like(response) and len(response.content) <= _MAX_ERROR_BYTES:
        try:
            details["body"] = loads_bounded(body)
            summary = _summary(details["body"])
        except ValueError:
            details["body"] = body
    elif body:
        details["body"] = body
    pause = read_retry_after(response.headers.get("retry-after"), time.time())
    if pause is not None:
        details["retryAfterMs"] = min(int(pause * 1000), _MAX_RETRY_MS)
    message = f"{operation.label} answered {status}{': ' if summary else ''}{summary}."
    if status in (401, 403) and advice:
        message += f" It was sent no secret: the operator of this server names one with {advice}"
        message += " (auth= in code)."
    return ToolError(_code(status), message.replace("..", "."), details)


def _code(status: int) -> ErrorCode:
    if status in _CODES:
        return _CODES[status]
    return ErrorCode.INVALID_ARGUMENT if 400 <= status < 500 else ErrorCode.INTERNAL


def _summary(body: Any) -> str:
    """Return the sentence of an error: of problem+json, or of the names that most APIs have."""
    if isinstance(body, dict):
        for name in ("detail", "message", "error_description", "title", "error"):
            value = body.get(name)
            if isinstance(value, dict):
                value = value.get("message")
            if isinstance(value, str) and value.strip():
                return " ".join(value.split())[:300]
    return ""


def without_secrets(response: ApiResponse, secrets: tuple[str, ...]) -> ApiResponse:
    """Return a response whose headers have no secrets: links often repeat the query (OAPI-28)."""
    if not secrets:
        return response
    headers = {
        name: _redacted(each, secrets) if name in _KEPT else each
        for name, each in response.headers.items()
    }
    return evolve(response, headers=headers)


def _redacted(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[REDACTED]")
    return text
