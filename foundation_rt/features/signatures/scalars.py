"""Types of the standard library that are written as strings (TYPED-63 to TYPED-66).

Imported for the first type that is no JSON type and no class with members.
"""

from __future__ import annotations

import binascii
import pathlib
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from .converters import ConversionError, Converter
from .type_schema import NUMBERS, ORDER, Checked, Schema, TypeSchema

_DECIMAL = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$"
_BASE64 = "^[A-Za-z0-9+/]*={0,2}$"
# Without the look-aheads that would refuse "P" and "PT" as well: not every host has them.
_DURATION = "^[+-]?P([0-9]+W)?([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+([.][0-9]{1,6})?S)?)?$"
_DURATION_PARTS = re.compile(
    "([+-]?)P(?:([0-9]+)W)?(?:([0-9]+)D)?"
    "(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.]([0-9]{1,6}))?S)?)?"
)


def text_schema(hint: type, *, is_written: bool) -> TypeSchema | None:
    """Return the type schema of a type of the standard library; None if there is none.

    Args:
        hint: the type.
        is_written: the schema is that of values as they are written.
    """
    if issubclass(hint, pathlib.PurePath):
        return _text({"type": "string"}, text_converter(hint, "a path"))
    if hint.__module__ == "ipaddress":
        written = {"format": _ADDRESSES[hint.__name__]} if hint.__name__ in _ADDRESSES else {}
        return _text({"type": "string", **written}, text_converter(hint, f"an {hint.__name__}"))
    make = _SCALARS.get(hint)
    return None if make is None else make(is_written)


def text_converter(parse: Callable[[str], Any], noun: str) -> Converter:
    """Return the converter of a type that is written as a string; `parse` raises ValueError."""

    def convert(value: Any) -> Any:
        if type(value) is str:
            try:
                return parse(value)
            except ValueError:
                pass
        raise ConversionError(f"is not {noun}")

    return convert


def _text(schema: Schema, convert: Converter, checked: Checked | None = None) -> TypeSchema:
    return TypeSchema(schema, frozenset((str,)), convert, checked=checked)


def _decimal(is_written: bool) -> TypeSchema:
    checked = Checked(ORDER | {"multiple_of"}, int, float, Decimal)
    text: Schema = {"type": "string", "pattern": _DECIMAL}
    if is_written:
        return _text({"type": "string"}, convert_decimal, checked)
    schema = {"anyOf": [{"type": "number"}, text]}
    return TypeSchema(schema, NUMBERS | {str}, convert_decimal, checked=checked)


def convert_decimal(value: Any) -> Decimal:
    """Return the decimal of a number, by its shortest spelling, or of a string (TYPED-63)."""
    if type(value) is str and re.fullmatch(_DECIMAL, value, re.ASCII):
        return Decimal(value)
    if type(value) in NUMBERS:
        return Decimal(repr(value))
    raise ConversionError("is not a decimal number")


def _bytes(is_written: bool) -> TypeSchema:
    schema: Schema = {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}
    read = partial(binascii.a2b_base64, strict_mode=True)
    checked = Checked(frozenset(("min_length", "max_length")), int)
    return _text(schema, text_converter(read, "base64 with padding"), checked)


def _duration(is_written: bool) -> TypeSchema:
    convert = text_converter(parse_duration, "an ISO 8601 duration in weeks, days and time")
    return _text({"type": "string", "pattern": _DURATION}, convert, Checked(ORDER, timedelta))


def parse_duration(text: str) -> timedelta:
    """Return the duration that is written as ISO 8601 has it, without years and months.

    Raises:
        ValueError: it is none, or longer than a timedelta.
    """
    found = _DURATION_PARTS.fullmatch(text)
    if found is None or not text[-1].isalpha() or text[-1] in "PT":
        raise ValueError
    sign, *parts, fraction = found.groups(default="0")
    if max(map(len, parts)) > _LONGEST_PART:
        raise ValueError
    weeks, days, hours, minutes, seconds = map(int, parts)
    try:
        duration = timedelta(
            weeks=weeks,
            days=days,
            hours=hours,
            minutes=minutes,
            seconds=seconds,
            microseconds=int(fraction.ljust(6, "0")),
        )
        return -duration if sign == "-" else duration
    except OverflowError:
        raise ValueError from None


def _date_converter() -> Converter:
    """Return the converter of a day, written as RFC 3339 ``full-date``."""

    def parse(text: str) -> date:
        day = date.fromisoformat(text)
        if day.isoformat() != text:  # ISO 8601 knows more spellings: 20260131, 2026-W05-6
            raise ValueError
        return day

    return text_converter(parse, "a date")


def _date_time_converter() -> Converter:
    """Return the converter of a moment, written as RFC 3339 ``date-time``."""
    return _clock_converter(
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T", datetime.fromisoformat, "a date and time"
    )


def _time_converter() -> Converter:
    """Return the converter of a time of day, written as RFC 3339 ``full-time``."""
    return _clock_converter("", time.fromisoformat, "a time")


def _clock_converter(before: str, read: Callable[[str], Any], noun: str) -> Converter:
    spelling = re.compile(
        before + r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
    )

    def parse(text: str) -> Any:
        if not spelling.fullmatch(text.upper()):
            raise ValueError
        return read(text.upper())

    return text_converter(parse, f"{noun} with an offset, to the microsecond at most")


def _uuid_converter() -> Converter:
    """Return the converter of a UUID of 36 characters (RFC 9562), in either case."""

    def parse(text: str) -> UUID:
        value = UUID(text)
        if str(value) != text.lower():  # braces, no hyphens, urn:uuid:
            raise ValueError
        return value

    return text_converter(parse, "a UUID")


def _plain(
    make_converter: Callable[[], Converter], compared: type | None = None, **keywords: str
) -> Callable[[bool], TypeSchema]:
    checked = None if compared is None else Checked(ORDER, compared)
    return lambda is_written: _text({"type": "string", **keywords}, make_converter(), checked)


_LONGEST_PART = 18
"""Digits: no part of a timedelta has more, and `int` takes a time quadratic in them."""

_ADDRESSES = {"IPv4Address": "ipv4", "IPv6Address": "ipv6"}
"""Formats of JSON Schema; networks and interfaces have none."""

# draft-07 knows no format "uuid", so the pattern says it as well.
_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"

_SCALARS: dict[type, Callable[[bool], TypeSchema]] = {
    date: _plain(_date_converter, date, format="date"),
    datetime: _plain(_date_time_converter, datetime, format="date-time"),
    time: _plain(_time_converter, time, format="time"),
    UUID: _plain(_uuid_converter, format="uuid", pattern=_UUID),
    Decimal: _decimal,
    bytes: _bytes,
    timedelta: _duration,
}
