"""Values as they stand in a request: parameters in every `style` of OpenAPI, and bodies (OAPI-20).

What a value contains never changes the request around it: each character that could is
percent-encoded, and a value that cannot be carried exactly is refused (OAPI-21, OAPI-22). Bodies
are JSON, forms, parts with files, text or bytes (OAPI-23).
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, unquote

from attrs import evolve

from ...base.exact_json import dumps
from ...errors import ErrorCode, ToolError
from .documents import References, object_at
from .operations import ApiBody, ApiParameter, is_json, is_text

_RESERVED: Final = ":/?@!$'()*,;[]"
"""Reserved characters that `allowReserved` leaves; those that divide a query stay encoded."""

_DELIMITERS: Final = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def refused(name: str, problem: str) -> ToolError:
    """Return the refusal of an argument that cannot be carried."""
    return ToolError(
        ErrorCode.INVALID_ARGUMENT,
        f"The argument {name!r} {problem}.",
        {"reason": "not_sendable", "argument": name},
    )


def text_of(value: Any) -> str:
    """Return a value as text: a string as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return dumps(value).decode()
    except TypeError as error:
        raise ToolError(ErrorCode.INVALID_ARGUMENT, f"An argument is no JSON: {error}.") from None


def _encoded(text: str, safe: str = "") -> str:
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError:
        raise ToolError(
            ErrorCode.INVALID_ARGUMENT, "An argument is no valid Unicode text."
        ) from None


def _items(value: list[Any]) -> list[str]:
    return [text_of(each) for each in value if each is not None]


def _members(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, text_of(each)) for key, each in value.items() if each is not None]


# -- path ----------------------------------------------------------------------------------------


def path_value(parameter: ApiParameter, value: Any) -> str:
    """Return the text that replaces a variable of a path.

    Raises:
        ToolError: INVALID_ARGUMENT; the path would be another one (OAPI-22).
    """
    name = parameter.name
    if parameter.media_type is not None:
        text = _encoded(_document(parameter, value))
    else:
        text = _styled_path_value(parameter, value)
    if not text:
        raise refused(name, "must not be empty: it is a part of the path")
    if leads_away(text):
        raise refused(name, "must have no part `.` or `..`: it would lead to another path")
    return text


def leads_away(path: str) -> bool:
    """Return whether a path has a segment `.` or `..`, however often it is encoded.

    Some servers decode a path twice, or take `..;x` for `..`.
    """
    while (decoded := unquote(path)) != path:
        path = decoded
    return any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\]", path))


def _styled_path_value(parameter: ApiParameter, value: Any) -> str:
    prefix, delimiter = {"simple": ("", ","), "label": (".", "."), "matrix": (";", ";")}[
        parameter.style if parameter.style in ("label", "matrix") else "simple"
    ]
    name = _encoded(parameter.name)
    is_label = parameter.style == "label"  # whose delimiter is never encoded otherwise
    is_matrix = parameter.style == "matrix"
    if isinstance(value, dict):
        members = [
            (_path_part(key, is_label), _path_part(each, is_label)) for key, each in _members(value)
        ]
        if parameter.explode:
            return prefix + delimiter.join(f"{key}={each}" for key, each in members)
        joined = ",".join(part for member in members for part in member)
    elif isinstance(value, list):
        items = [_path_part(each, is_label) for each in _items(value)]
        if parameter.explode and is_matrix:
            return "".join(f";{name}={each}" for each in items)
        joined = (delimiter if parameter.explode else ",").join(items)
    else:
        joined = _path_part(text_of(value), is_label)
    return f";{name}={joined}" if is_matrix else prefix + joined


def _path_part(text: str, is_label: bool) -> str:
    return _encoded(text).replace(".", "%2E") if is_label else _encoded(text)


def _document(parameter: ApiParameter, value: Any) -> str:
    """Return the value of a parameter with `content`."""
    media_type = (parameter.media_type or "").partition(";")[0].strip().lower()
    if is_json(media_type):
        return dumps(value).decode()
    return text_of(value)


# -- query, cookies, forms -----------------------------------------------------------------------


def query_pairs(parameter: ApiParameter, value: Any) -> list[str]:
    """Return the parts of a query or of a form that carry a value, each as `name=value`.

    Raises:
        ToolError: INVALID_ARGUMENT; an item contains the delimiter of its style.
    """
    safe = _RESERVED if parameter.allow_reserved else ""
    name = _encoded(parameter.name, "[]" if parameter.allow_reserved else "")
    if parameter.media_type is not None:
        return [f"{name}={_encoded(_document(parameter, value), safe)}"]
    if parameter.style == "deepObject" and isinstance(value, dict | list):
        return [
            f"{name}{_encoded(path)}={_encoded(text, safe)}" for path, text in _deep_members(value)
        ]
    if isinstance(value, dict):
        members = _members(value)
        if parameter.explode:
            return [f"{_encoded(key)}={_encoded(each, safe)}" for key, each in members]
        return [f"{name}={_joined(parameter, [part for member in members for part in member])}"]
    if isinstance(value, list):
        items = _items(value)
        if parameter.explode:
            return [f"{name}={_encoded(each, safe)}" for each in items]
        return [f"{name}={_joined(parameter, items)}"] if items else []
    return [f"{name}={_encoded(text_of(value), safe)}"]


def _joined(parameter: ApiParameter, parts: list[str]) -> str:
    """Return parts with the delimiter of the style between them.

    Within a part a comma is encoded, and the delimiter is not. Space and bar are encoded either
    way, so a part that has one cannot be told from two parts.
    """
    delimiter = _DELIMITERS.get(parameter.style, ",")
    if delimiter != "," and any(delimiter in each for each in parts):
        raise refused(parameter.name, f"must have no {delimiter!r} in an item: it divides items")
    safe = _RESERVED.replace(",", "") if parameter.allow_reserved else ""
    written = "," if delimiter == "," else _encoded(delimiter)
    return written.join(_encoded(each, safe) for each in parts)


def _deep_members(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Return the scalars in a value, each with its path in brackets: `[a][0][b]`."""
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = [(str(number), each) for number, each in enumerate(value)]
    else:
        return [] if value is None else [(path, text_of(value))]
    found: list[tuple[str, str]] = []
    for key, each in members:
        if set("[]") & set(key):
            raise refused(key, "must have no brackets in its names")
        found += _deep_members(each, f"{path}[{key}]")
    return found


# -- headers -------------------------------------------------------------------------------------


def header_value(parameter: ApiParameter, value: Any) -> str:
    """Return the value of a header.

    Raises:
        ToolError: INVALID_ARGUMENT; HTTP would change the value, or end the header in it.
    """
    if parameter.media_type is not None:
        text = _document(parameter, value)
    elif isinstance(value, dict | list):
        text = _header_list(parameter, value)
    else:
        text = text_of(value)
    if _CONTROLS.search(text) or text != text.strip(" \t"):
        raise refused(parameter.name, "must have no control characters, and no spaces at its ends")
    return text


def _header_list(parameter: ApiParameter, value: Any) -> str:
    if isinstance(value, list):
        parts = _items(value)
    elif parameter.explode:
        members = _members(value)
        if any("=" in key for key, _ in members):
            raise refused(parameter.name, "must have no `=` in its names")
        parts = [f"{key}={each}" for key, each in members]
    else:
        parts = [part for member in _members(value) for part in member]
    if any("," in each for each in parts):
        raise refused(parameter.name, "must have no comma in an item: it divides items")
    return ",".join(parts)


# -- bodies --------------------------------------------------------------------------------------

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
    sent_as = object_at(body.encodings, name).get("contentType")
    if isinstance(sent_as, str):
        first = sent_as.partition(",")[0].partition(";")[0].strip().lower()
        return is_binary(first) or first == "*/*"
    is_text = final.get("type") in (None, "string")
    is_media = "contentMediaType" in final and "contentEncoding" not in final
    return is_text and (final.get("format") == "binary" or is_media)


def encode_body(body: ApiBody, value: Any) -> tuple[bytes, str]:
    """Return the bytes of a body as it is sent, and their `Content-Type`.

    Args:
        body: of the operation.
        value: as the tool was given it.

    Raises:
        ToolError: INVALID_ARGUMENT; the value is no base64, or cannot be carried.
    """
    if is_json(body.media_type):
        return dumps(value), body.media_type
    if body.media_type == FORM:
        return _form(body, value), FORM
    if body.media_type == MULTIPART:
        return _multipart(body, value)
    if is_binary(body.media_type):
        return from_base64("body", value), body.media_type
    return text_of(value).encode(), f"{body.media_type}; charset=utf-8"


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
    given = object_at(encoding)
    style = given.get("style")
    if style in ("form", "spaceDelimited", "pipeDelimited", "deepObject"):
        explode = given.get("explode", style in ("form", "deepObject"))
        return evolve(parameter, style=style, explode=explode is True)
    if isinstance(value, dict):
        return evolve(parameter, media_type="application/json")
    return parameter


# -- parts ---------------------------------------------------------------------------------------


def _multipart(body: ApiBody, value: Any) -> tuple[bytes, str]:
    parts: list[bytes] = []
    for name, each in object_at(value).items():
        several = each if isinstance(each, list) else [each]
        parts += [_part(body, name, one) for one in several if one is not None]
    # Nobody can write a text that contains the digest of a request with that text.
    boundary = sha256(b"".join(parts)).hexdigest()
    written = b"".join(b"--%b\r\n%b\r\n" % (boundary.encode(), part) for part in parts)
    content = b"%b--%b--\r\n" % (written, boundary.encode())
    return content, f"{MULTIPART}; boundary={boundary}"


def _part(body: ApiBody, name: str, value: Any) -> bytes:
    media_type = object_at(body.encodings, name).get("contentType")
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
