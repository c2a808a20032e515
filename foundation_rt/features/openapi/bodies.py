"""The bodies of requests: JSON, forms, parts with files, text, bytes (OAPI-23)."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from attrs import evolve, frozen

from ...base.exact_json import dumps
from .documents import References
from .operations import ApiBody, ApiParameter, is_json, is_text
from .styles import query_pairs, refused, text_of

FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
BYTES: Final = "application/octet-stream"

FILE_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "data": {"type": "string", "description": "The bytes of the file, in base64."},
        "filename": {"type": "string", "description": "The name of the file."},
        "mime_type": {"type": "string", "description": "The media type of the file."},
    },
    "required": ["data"],
}
"""The schema of an argument that is a file."""


@frozen
class EncodedBody:
    """A body as it is sent.

    Attributes:
        content: its bytes.
        media_type: the value of its `Content-Type`.
    """

    content: bytes
    media_type: str


def is_binary(media_type: str) -> bool:
    """Return whether a body of a media type is given in base64."""
    return not (is_text(media_type) or media_type == MULTIPART)


def is_file(references: References, body: ApiBody, name: str, schema: Any) -> bool:
    """Return whether a property of a body in parts is a file, or an array of files."""
    final = references.follow(schema)
    if not isinstance(final, dict):
        return False
    if final.get("type") == "array":
        return is_file(references, body, name, final.get("items"))
    given = body.encodings.get(name)
    sent_as = given.get("contentType") if isinstance(given, dict) else None
    if isinstance(sent_as, str):
        first = sent_as.partition(",")[0].partition(";")[0].strip().lower()
        return is_binary(first) or first == "*/*"
    is_text = final.get("type") in (None, "string")
    is_media = "contentMediaType" in final and "contentEncoding" not in final
    return is_text and (final.get("format") == "binary" or is_media)


def encode_body(body: ApiBody, value: Any) -> EncodedBody:
    """Return a body as it is sent.

    Args:
        body: of the operation.
        value: as the tool was given it.

    Raises:
        ToolError: INVALID_ARGUMENT; the value is no base64, or cannot be carried.
    """
    if is_json(body.media_type):
        return EncodedBody(dumps(value), body.media_type)
    if body.media_type == FORM:
        return EncodedBody(_form(body, value), FORM)
    if body.media_type == MULTIPART:
        return _multipart(body, value)
    if is_binary(body.media_type):
        return EncodedBody(from_base64("body", value), body.media_type)
    return EncodedBody(text_of(value).encode(), f"{body.media_type}; charset=utf-8")


def from_base64(name: str, value: Any) -> bytes:
    """Return the bytes of an argument in base64."""
    try:
        return b64decode("".join(str(value).split()), validate=True)
    except (Base64Error, ValueError):
        raise refused(name, "must be base64") from None


def _form(body: ApiBody, value: Any) -> bytes:
    if not isinstance(value, dict):
        return text_of(value).encode()
    pairs: list[str] = []
    for name, each in value.items():
        if each is not None:
            pairs += query_pairs(form_parameter(name, each, body.encodings.get(name)), each)
    return "&".join(pairs).encode("ascii")


def form_parameter(name: str, value: Any, encoding: Any) -> ApiParameter:
    """Return the parameter that carries a property of a form."""
    parameter = ApiParameter(name, "query")
    given = encoding if isinstance(encoding, dict) else {}
    style = given.get("style")
    if style in ("form", "spaceDelimited", "pipeDelimited", "deepObject"):
        explode = given.get("explode", style in ("form", "deepObject"))
        return evolve(parameter, style=style, explode=explode is True)
    if isinstance(value, dict):
        return evolve(parameter, media_type="application/json")
    return parameter


# -- parts ---------------------------------------------------------------------------------------


def _multipart(body: ApiBody, value: Any) -> EncodedBody:
    parts: list[bytes] = []
    for name, each in (value if isinstance(value, dict) else {}).items():
        several = each if isinstance(each, list) else [each]
        parts += [_part(body, name, one) for one in several if one is not None]
    # Nobody can write a text that contains the digest of a request with that text.
    boundary = sha256(b"".join(parts)).hexdigest()
    written = b"".join(b"--%b\r\n%b\r\n" % (boundary.encode(), part) for part in parts)
    content = b"%b--%b--\r\n" % (written, boundary.encode())
    return EncodedBody(content, f"{MULTIPART}; boundary={boundary}")


def _part(body: ApiBody, name: str, value: Any) -> bytes:
    given = body.encodings.get(name)
    media_type = given.get("contentType") if isinstance(given, dict) else None
    filename = None
    if name in body.files and isinstance(value, dict):
        content = from_base64(name, value.get("data", ""))
        filename = value.get("filename") or name
        media_type = value.get("mime_type") or media_type or BYTES
        if "*" in media_type:
            media_type = BYTES
    elif isinstance(value, str):
        content = value.encode()
    else:
        content = dumps(value)
        media_type = media_type or ("application/json" if isinstance(value, dict | list) else None)
    head = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    if filename is not None:
        head += f'; filename="{_quoted(str(filename))}"'
    if media_type is not None:
        head += f"\r\nContent-Type: {_line(name, str(media_type).partition(',')[0])}"
    return f"{head}\r\n\r\n".encode() + content


def _quoted(text: str) -> str:
    """Return a name of a part, encoded as browsers do it."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _line(name: str, text: str) -> str:
    if any(ord(each) < 32 or ord(each) > 126 for each in text):
        raise refused(name, "must have a media type of visible ASCII characters")
    return text
