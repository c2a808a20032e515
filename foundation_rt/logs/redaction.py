"""What may leave the process in a log line: no secrets, no control characters, nothing unbounded.

Three operations, none of which changes what it is given:

* `Redactor.redact` replaces the values under secret keys, anywhere in a structure. It copies on
  write: where nothing had to be replaced, the very same object comes back.
* `sanitize` makes a text safe to show on one line of a terminal and bounds its length.
* `Redactor.for_log` does both to a whole structure and turns every leaf into what JSON can write.

The first and the third are one traversal (`_Traversal`) that differs in what it does with leaves
and keys. It reads objects that others made, so it expects the worst of them: cycles, endless
iterators, properties and ``repr`` that raise. None of that gets past it: what cannot be read is
replaced by a marker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, time
from enum import Enum
from typing import Any
from uuid import UUID

import attrs

from ..errors import ErrorCode

DEFAULT_REDACT_KEYS: tuple[str, ...] = (
    "token",
    "key",
    "secret",
    "password",
    "apiKey",
    "authorization",
    "bearer",
    "session",
    "cookie",
)

REDACTED = "[REDACTED]"
CIRCULAR = "[CIRCULAR]"
TOO_DEEP = "[TOO DEEP]"
TRUNCATED = "[TRUNCATED]"
UNREADABLE = "[UNREADABLE]"

MAX_TEXT = 1024  # characters of one string in a log line (LOG-12)
MAX_BYTES = 255  # of one bytes object; its repr is no longer than MAX_TEXT (LOG-14)
MAX_LEVELS = 64  # of nesting (LOG-09)
MAX_LOG_VALUES = 1_000  # in one structure that is logged (LOG-10)
MAX_REDACT_VALUES = 1_000_000  # in one structure that is redacted only (LOG-10)
MAX_KEY = 256  # characters; no name is longer, so a longer key counts as secret (LOG-07)
_MAX_VERDICTS = 4096  # keys remembered; they can come from outside

_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_INTEGERS = range(-(2**63), 2**64)  # what orjson can write
_UPPER, _LOWER, _DIGIT, _OTHER = range(4)


def sanitize(text: str) -> str:
    """`text` on one line and of bounded length (LOG-11, LOG-12).

    C0 and C1 controls, DEL, U+2028, U+2029 and lone surrogates become the six characters
    ``\\uXXXX``. Of a text longer than 1,024 characters the first 1,024 are kept, and a marker that
    tells its length follows.
    """
    if len(text) > MAX_TEXT:
        return f"{_escape(text[:MAX_TEXT])} [cut at {MAX_TEXT} of {len(text)} characters]"
    # Whatever has to be escaped is not printable; the reverse does not hold (U+00A0, U+200D).
    return text if text.isprintable() else _escape(text)


def _escape(text: str) -> str:
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode()


def _kind(char: str) -> int:
    if char.isupper():
        return _UPPER
    if char.isdigit():
        return _DIGIT
    return _LOWER if char.isalnum() else _OTHER


def _words(key: str) -> list[str]:
    """The words of a key, case folded: ``APIKey2`` is ``api``, ``key``, ``2`` (LOG-07)."""
    words: list[str] = []
    before = _OTHER
    for char in key:
        kind = _kind(char)
        if kind == before != _OTHER:
            words[-1] += char
        elif kind == _LOWER and before == _UPPER:
            # The last of several capitals may begin this word (APIKey) or end its own
            # (SECRETtoken): it stands alone, and a search over runs of words finds both readings.
            if len(words[-1]) == 1:
                words[-1] += char
            else:
                words[-1:] = [words[-1][:-1], words[-1][-1], char]
        elif kind != _OTHER:
            words.append(char)
        before = kind
    return [word.casefold() for word in words]


class Redactor:
    """Knows which keys are secret, and takes what stands under them out of structures.

    Args:
        keys: names of secrets besides `DEFAULT_REDACT_KEYS`; one without a letter or digit matches
            nothing.
    """

    __slots__ = ("_longest", "_names", "_verdicts")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        names = {"".join(_words(key)) for key in (*DEFAULT_REDACT_KEYS, *keys)}
        self._names = frozenset(names - {""})
        self._longest = max(map(len, self._names))
        self._verdicts: dict[str, bool] = {}

    def is_secret(self, key: str) -> bool:
        """Whether a value under `key` is to be replaced (LOG-07).

        True if some run of consecutive words of `key`, written together, is one of the names, or
        one followed by ``s``. Words end at whatever is neither letter nor digit, at a change of
        case, and between letters and digits.
        """
        if len(key) > MAX_KEY:
            return True
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[key] = self._matches(_words(key))
        return verdict

    def _matches(self, words: list[str]) -> bool:
        for start in range(len(words)):
            run = ""
            for end in range(start, len(words)):
                run += words[end]
                if run in self._names or (run.endswith("s") and run[:-1] in self._names):
                    return True
                if len(run) > self._longest:
                    break
        return False

    def redact(self, value: Any) -> Any:
        """`value` without secrets; the same object if there were none (LOG-06, LOG-08).

        Mappings, attrs and dataclass instances and named tuples that held one come back as dicts,
        tuples as tuples, other collections as lists.
        """
        return _Traversal(self, MAX_REDACT_VALUES).visit(value, 1)

    def for_log(self, value: Any) -> Any:
        """A copy of `value` without secrets, sanitized, of bounded size, that JSON can write.

        It shares nothing that can change with `value`. Rules: LOG-06 to LOG-15.
        """
        return _LogTraversal(self, MAX_LOG_VALUES).visit(value, 1)


def _unchanged(value: Any) -> Any:
    return value


def _integer(value: int) -> int | str:
    return value if value in _INTEGERS else sanitize(_read(repr, value))


def unused_name(name: str, taken: Collection[str]) -> str:
    """`name`, with as many ``_`` behind it as it takes not to be among `taken`."""
    while name in taken:
        name += "_"
    return name


def _read(tell: Callable[[Any], str], value: Any) -> str:
    """What `tell` (``repr``, ``str``, ...) says about a foreign object (LOG-14, LOG-15)."""
    try:
        return str.__str__(tell(value))
    except BaseException:  # as in _Traversal.visit
        return UNREADABLE


# Stands in for a field that its class does not show as it is in its ``repr``.
_HIDDEN: Any = object()


def _is_collection(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(
        value, str | bytes | bytearray | memoryview | Enum
    )


def _members(value: Any) -> Iterable[tuple[Any, Any]] | None:
    if isinstance(value, Mapping):
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


class _Traversal:
    """One walk through one structure; copies on write."""

    __slots__ = ("_budget", "_path", "_redactor")

    # What becomes of values of exactly these types, before anything else is asked about a value.
    scalars: Mapping[type, Callable[[Any], Any]] = dict.fromkeys(
        (str, int, float, bool, type(None)), _unchanged
    )

    def __init__(self, redactor: Redactor, budget: int) -> None:
        self._redactor = redactor
        self._budget = budget
        self._path: set[int] = set()  # ids of the containers that are being visited

    def visit(self, value: Any, level: int) -> Any:
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
        # Not only Exception: this ran the code of a foreign object, and whatever it raises,
        # SystemExit included, must not end the one who logs it (LOG-15).
        except BaseException:
            return UNREADABLE

    def _visit_members(self, value: Any, members: Iterable[tuple[Any, Any]], level: int) -> Any:
        result: dict[Any, Any] = {}
        changed = False
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
            result[self.key(key, label, result)] = clean
        return self.settle(value, result, changed)

    def _visit_items(self, value: Collection[Any], level: int) -> Any:
        result: list[Any] = []
        changed = False
        for item in value:
            if self._spent():
                result.append(TRUNCATED)
                changed = True
                break
            clean = self.visit(item, level + 1)
            changed = changed or clean is not item
            result.append(clean)
        return self.settle(value, result, changed)

    def _spent(self) -> bool:
        self._budget -= 1
        return self._budget < 0

    # What the two kinds of traversal do differently.

    def members(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        """The keyed members of `value`; None if it has none."""
        return _members(value)

    def leaf(self, value: Any, level: int) -> Any:
        """What a value that holds no others becomes."""
        return value

    def key(self, key: Any, label: str, taken: Mapping[Any, Any]) -> Any:
        """What `key` becomes in a mapping that has the keys `taken` already."""
        return key

    def settle(self, value: Any, result: Any, changed: bool) -> Any:
        """What the container `value` becomes, the dict or list `result` being its new content."""
        if not changed:
            return value
        return tuple(result) if type(result) is list and isinstance(value, tuple) else result


def _teller(value: Any) -> Callable[[Any], str]:
    if isinstance(value, str):
        return str.__str__
    if isinstance(value, date | time):
        return type(value).isoformat
    return str if isinstance(value, UUID) else repr


class _LogTraversal(_Traversal):
    """One walk that makes a copy fit for a log line."""

    __slots__ = ()

    scalars: Mapping[type, Callable[[Any], Any]] = {
        str: sanitize,
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
        if isinstance(value, bytes | bytearray) and len(value) > MAX_BYTES:
            return f"{bytes(value[:MAX_BYTES])!r} [cut at {MAX_BYTES} of {len(value)} bytes]"
        return sanitize(_read(_teller(value), value))

    def key(self, key: Any, label: str, taken: Mapping[Any, Any]) -> str:
        return unused_name(sanitize(label), taken)

    def settle(self, value: Any, result: Any, changed: bool) -> Any:
        # Always the copy: an unchanged dict subclass can show other members to orjson than to us.
        return result
