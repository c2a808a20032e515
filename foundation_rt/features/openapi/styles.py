"""The values of parameters as they stand in a request: every `style` of OpenAPI (OAPI-20).

What a value contains never changes the request around it: each character that could is
percent-encoded, and a value that cannot be carried exactly is refused (OAPI-21, OAPI-22).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from ...base.exact_json import dumps
from ...errors import ErrorCode, ToolError
from .operations import ApiParameter, is_json

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
