"""The traversal of a logged or redacted structure: `Redactor.redact` and `Redactor.for_log`.

Imported with the first record that cannot be written unchanged. Both operations are one traversal
(`_Traversal`), with different treatment of leaves and keys. It reads foreign objects, so it expects
the worst of them: cycles, endless iterators, and properties and ``repr`` that raise. Any part that
cannot be read is replaced by a marker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, time
from enum import Enum
from typing import Any
from uuid import UUID

import attrs

from ...errors import ErrorCode
from .redaction import MAX_TEXT, REDACTED, VALUE_KEYS, Redactor, may_hold_secret

# Members that hold a name; `VALUE_KEYS` hold its value (LOG-28).
_NAMING = ("name", "key", "header", "field", "variable")
_IS_NAME = dict.fromkeys(VALUE_KEYS, False) | {
    each: True for key in _NAMING for each in (key, key.capitalize(), key.upper())
}

CIRCULAR = "[CIRCULAR]"
TOO_DEEP = "[TOO DEEP]"
TRUNCATED = "[TRUNCATED]"
UNREADABLE = "[UNREADABLE]"

MAX_BYTES = 255  # of one bytes object; its repr is no longer than MAX_TEXT (LOG-14)
_SEARCHED_BYTES = 65_536  # to find a secret that begins within the first MAX_BYTES
MAX_LEVELS = 64  # of nesting (LOG-09)
MAX_LOG_VALUES = 1_000  # in one logged structure (LOG-10)
MAX_REDACT_VALUES = 1_000_000  # in one structure that is only redacted (LOG-10)

_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_INTEGERS = range(-(2**63), 2**64)  # what orjson can write


def redact(redactor: Redactor, value: Any) -> Any:
    """Return `value` without secrets; see `Redactor.redact`."""
    return _Traversal(redactor, MAX_REDACT_VALUES).visit(value, 1)


def for_log(redactor: Redactor, value: Any) -> Any:
    """Return a copy of `value` as JSON values; see `Redactor.for_log`."""
    return _LogTraversal(redactor, MAX_LOG_VALUES).visit(value, 1)


def sanitize(text: str, length: int | None = None) -> str:
    r"""Return `text` on one line and with bounded length (LOG-11, LOG-12).

    C0 and C1 controls, DEL, U+2028, U+2029 and lone surrogates become the six characters
    ``\uXXXX``. A text longer than 1,024 characters is cut after 1,024, and a marker with its
    length follows.

    Args:
        text: any text.
        length: the length of the text before secrets in it were replaced.
    """
    if len(text) > MAX_TEXT:
        return f"{_escape(text[:MAX_TEXT])} [cut at {MAX_TEXT} of {length or len(text)} characters]"
    # Every character to be escaped is not printable; the reverse does not hold (U+00A0, U+200D).
    return text if text.isprintable() else _escape(text)


def _escape(text: str) -> str:
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode()


def _unchanged(value: Any) -> Any:
    return value


def _integer(value: int) -> int | str:
    return value if value in _INTEGERS else sanitize(_read(repr, value))


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return `name` with as many ``_`` appended as needed to be unused."""
    while name in taken:
        name += "_"
    return name


def _read(to_text: Callable[[Any], str], value: Any) -> str:
    """Return `to_text(value)`, with ``repr`` or ``str``, of a foreign object (LOG-14, LOG-15)."""
    try:
        return str.__str__(to_text(value))
    except BaseException:  # as in _Traversal.visit
        return UNREADABLE


# Replaces a field that its class leaves out of its ``repr``, or changes there.
_HIDDEN: Any = object()


def _is_collection(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(
        value, str | bytes | bytearray | memoryview | Enum
    )


def _members(value: Any) -> Iterable[tuple[Any, Any]] | None:
    if isinstance(value, Mapping):
        if getattr(type(value), "hides_values", False):
            return ((name, _HIDDEN) for name in value)
        return value.items()
    kind = type(value)
    if attrs.has(kind):
        return _fields(value, [(field.name, field.repr is True) for field in attrs.fields(kind)])
    if dataclasses.is_dataclass(kind):
        return _fields(value, [(field.name, field.repr) for field in dataclasses.fields(kind)])
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return zip(kind._fields, value, strict=True)
    return None


def _fields(value: Any, names: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, Any]]:
    for name, shown in names:
        yield name, getattr(value, name) if shown else _HIDDEN


def _exception_members(error: BaseException) -> list[tuple[str, str]]:
    code = getattr(error, "code", None)
    kind = ("code", code.value) if isinstance(code, ErrorCode) else ("type", type(error).__name__)
    return [kind, ("message", _read(str, error))]


def _is_option(item: Any) -> bool:
    if type(item) is str:
        return item.startswith("-")
    return type(item) is bytes and item.startswith(b"-")


class _Traversal:
    """One traversal of one structure; copies on write."""

    __slots__ = ("_budget", "_path", "_redactor")

    # The conversions of values of exactly these types, before any other check.
    scalars: Mapping[type, Callable[[Any], Any]] = dict.fromkeys(
        (int, float, bool, type(None)), _unchanged
    )

    def __init__(self, redactor: Redactor, budget: int) -> None:
        self._redactor = redactor
        self._budget = budget
        self._path: set[int] = set()  # ids of the containers that are being visited

    def visit(self, value: Any, level: int) -> Any:
        if type(value) is str:
            return self.text(value)
        scalar = self.scalars.get(type(value))
        if scalar is not None:
            return scalar(value)
        try:
            members = self.members(value)
            if members is None and not _is_collection(value):
                return self.leaf(value, level)
            if id(value) in self._path:
                return CIRCULAR
            if level > MAX_LEVELS:
                return TOO_DEEP
            self._path.add(id(value))
            try:
                if members is None:
                    return self._visit_items(value, level)
                return self._visit_members(value, members, level)
            finally:
                self._path.discard(id(value))
        # Not only Exception: this ran the code of a foreign object, and no exception of it, not
        # even SystemExit, may reach the caller that logs (LOG-15).
        except BaseException:
            return UNREADABLE

    def _visit_members(self, value: Any, members: Iterable[tuple[Any, Any]], level: int) -> Any:
        result: dict[Any, Any] = {}
        changed = secret_named = False
        values = []  # the keys of members that another member may name
        for key, member in members:
            if self._spent():
                result[TRUNCATED] = TRUNCATED
                changed = True
                break
            label = str.__str__(key) if isinstance(key, str) else _read(repr, key)
            if member is _HIDDEN or self._redactor.is_secret(label):
                clean = REDACTED
            else:
                clean = self.visit(member, level + 1)
            changed = changed or clean is not member
            shown = self.key(key, label, result)
            result[shown] = clean
            names = _IS_NAME.get(label)
            if names:
                secret_named = secret_named or self._redactor.names_secret(member)
            elif names is False:
                values.append(shown)
        if secret_named and values:
            result.update(dict.fromkeys(values, REDACTED))
            changed = True
        return self.settle(value, result, changed)

    def _visit_items(self, value: Collection[Any], level: int) -> Any:
        result: list[Any] = []
        changed = False
        is_sequence = isinstance(value, list | tuple)
        is_pair = is_sequence and len(value) == 2
        is_option, before = False, None
        for item in value:
            if self._spent():
                result.append(TRUNCATED)
                changed = True
                break
            if (is_pair or is_option) and self._is_named(item, before, is_pair):
                clean = REDACTED
            else:
                clean = self.visit(item, level + 1)
            before = item
            is_option = is_sequence and _is_option(item)
            changed = changed or clean is not item
            result.append(clean)
        return self.settle(value, result, changed)

    def _is_named(self, item: Any, before: Any, is_pair: bool) -> bool:
        """Return whether the item before names a secret: in a pair, or an option (LOG-28)."""
        return (is_pair or not _is_option(item)) and self._redactor.names_secret(before)

    def _spent(self) -> bool:
        self._budget -= 1
        return self._budget < 0

    # The differences between the two traversals.

    def members(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        """Return the keyed members of `value`; None if it is not of such a kind."""
        return _members(value)

    def text(self, value: str) -> str:
        """Return the replacement of a text."""
        return self._redactor.mask(value)

    def leaf(self, value: Any, level: int) -> Any:
        """Return the replacement of a value that is neither text nor container."""
        if isinstance(value, str):
            text = str.__str__(value)
            clean = self.text(text)
            return value if clean is text else clean
        return value

    def key(self, key: Any, label: str, taken: Mapping[Any, Any]) -> Any:
        """Return the replacement of `key` in a mapping that already has the keys `taken`."""
        return key

    def settle(self, value: Any, result: Any, changed: bool) -> Any:
        """Return the replacement of the container `value`; `result` holds its new content."""
        if not changed:
            return value
        return tuple(result) if type(result) is list and isinstance(value, tuple) else result


def _text_function(value: Any) -> Callable[[Any], str]:
    if isinstance(value, str):
        return str.__str__
    if isinstance(value, date | time):
        return type(value).isoformat
    return str if isinstance(value, UUID) else repr


class _LogTraversal(_Traversal):
    """One traversal that makes a copy for a log line."""

    __slots__ = ()

    scalars: Mapping[type, Callable[[Any], Any]] = {
        int: _integer,
        float: _unchanged,
        bool: _unchanged,
        type(None): _unchanged,
    }

    def members(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        if isinstance(value, BaseException):
            return _exception_members(value)
        return _members(value)

    def leaf(self, value: Any, level: int) -> Any:
        if isinstance(value, Enum):
            return self.visit(value.value, level)
        if isinstance(value, int):
            return _integer(int.__int__(value))
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, bytes | bytearray):
            clean = self._without_secrets(value)
            if len(value) > MAX_BYTES:
                return f"{bytes(clean[:MAX_BYTES])!r} [cut at {MAX_BYTES} of {len(value)} bytes]"
            return sanitize(repr(clean))
        return self.text(_read(_text_function(value), value))

    def _without_secrets(self, value: bytes | bytearray) -> bytes | bytearray:
        """Return at least the beginning of `value`; the same object if it has no secrets."""
        text = value[:_SEARCHED_BYTES].decode("latin-1")
        clean = self._redactor.mask(text, MAX_BYTES)
        return value if clean is text else clean.encode("latin-1")

    def text(self, value: str) -> str:
        if may_hold_secret(value) is None:
            return sanitize(value)
        return sanitize(self._redactor.mask(value, MAX_TEXT), len(value))

    def key(self, key: Any, label: str, taken: Mapping[Any, Any]) -> str:
        return unused_name(self.text(label), taken)

    def settle(self, value: Any, result: Any, changed: bool) -> Any:
        # Always the copy: an unchanged dict subclass can show other members to orjson than here.
        return result
