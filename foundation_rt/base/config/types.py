"""Settings, the parts of sections: their types, and the checks of their limits.

A kind accepts a value or not, and describes the values that it expects. It never shows a value,
which may be a secret (CONF-01).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from attrs import Attribute, field, fields, frozen

from ..shown import Compared

_Value = TypeVar("_Value")


class SettingError(ValueError):
    """A value that its setting does not accept; the message lacks the value, which may be a secret.

    `key` is the name of the setting within its section; `expected` completes "expected ...".
    """

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"{key}: expected {expected}")
        self.key = key
        self.expected = expected


class Kind(ABC):
    """The type of a setting: an attrs validator with a description of the values it expects."""

    expected: str
    """Completes the sentence "expected ..."."""

    is_secret = False
    """Set if the value is never shown (CONF-05)."""

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Return whether `value` may be the value of the setting."""

    def __call__(self, instance: object, attribute: Attribute[Any], value: object) -> None:
        """Raise `SettingError` unless the setting accepts `value`."""
        if not self.accepts(value):
            raise SettingError(attribute.name, self.expected)


class Integer(Kind):
    """A whole number from `minimum` to `maximum`; neither ``True`` nor ``5.0`` is one."""

    def __init__(self, minimum: int, maximum: int, unit: str = "") -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.unit = unit
        self.expected = f"an integer from {minimum} to {maximum}" + (f" ({unit})" if unit else "")

    def accepts(self, value: object) -> bool:
        return type(value) is int and self.minimum <= value <= self.maximum


class Flag(Kind):
    """True or false."""

    expected = "true or false"

    def accepts(self, value: object) -> bool:
        return type(value) is bool


class Line(Kind):
    """A short line of text."""

    max_length = 256
    expected = f"a string of 1 to {max_length} characters without control characters"

    def accepts(self, value: object) -> bool:
        return type(value) is str and 0 < len(value) <= self.max_length and _is_printable(value)


class Choice(Kind):
    """One of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.expected = "one of " + ", ".join(words)

    def accepts(self, value: object) -> bool:
        return type(value) is str and value in self.words


class Pattern(Kind):
    """A string that matches a regular expression.

    Args:
        pattern: a regular expression that the whole string matches, with the same meaning in JSON
            Schema as in Python.
        expected: the same in words.
        optional: None is accepted as well.
        is_secret: the value is never shown.
        default: a value that matches: a start with it compiles no expression.
    """

    def __init__(
        self,
        pattern: str,
        expected: str,
        *,
        optional: bool = False,
        is_secret: bool = False,
        default: str | None = None,
    ) -> None:
        self.pattern = pattern
        self.default = default
        self.expected = expected
        self.optional = optional
        self.is_secret = is_secret

    def accepts(self, value: object) -> bool:
        if value is None:
            return self.optional
        if type(value) is not str or not _is_printable(value):
            return False
        if value == self.default:
            return True
        return re.fullmatch(self.pattern, value) is not None


class KeyName(Pattern):
    """A name of keys: it has a letter or a digit (LOG-07)."""

    def __init__(self) -> None:
        text = "[^\\u0000-\\u001f\\u007f-\\u009f]"
        other = "[^\\u0000-/:-@\\[-`\\{-\\u009f]"  # neither control nor punctuation of ASCII
        super().__init__(
            f"(?={text}*{other}){text}{{1,256}}",
            "1 to 256 characters, of which one is a letter or a digit and none a control character",
        )

    def accepts(self, value: object) -> bool:
        return super().accepts(value) and any(map(str.isalnum, str(value)))


class ListOf(Kind):
    """A tuple of values that `item` accepts."""

    def __init__(self, item: Choice | Pattern) -> None:
        self.item = item
        self.is_secret = item.is_secret
        self.expected = f"a list, each item {item.expected}"

    def accepts(self, value: object) -> bool:
        return type(value) is tuple and all(map(self.item.accepts, value))


class VariableName(Kind):
    """The name of an environment variable, or None; secret, as it may be the token by mistake."""

    is_secret = True
    expected = "the name of an environment variable (letters, digits and _, no digit first)"

    def accepts(self, value: object) -> bool:
        # An identifier of Python in ASCII is exactly a variable name of POSIX.
        return value is None or (type(value) is str and value.isascii() and value.isidentifier())


POSTGRES_SCHEMES = ("postgresql", "postgres")
"""The schemes of the URLs of PostgreSQL databases; libpq takes both."""

_REDIS = {
    "redis": "redis://HOST:PORT/DATABASE",
    "rediss": "rediss://HOST:PORT/DATABASE",
    "unix": "unix:///PATH",
}
REDIS_SCHEMES = tuple(_REDIS)
"""The schemes of URLs of a Redis server."""


class StoreUrl(Kind):
    """A word, or the URL of a store; secret, since it may hold a password.

    Args:
        words: the values besides URLs.
        schemes: of the URLs.
    """

    is_secret = True

    def __init__(self, words: tuple[str, ...], schemes: tuple[str, ...]) -> None:
        self.words = words
        self.schemes = schemes
        urls = ", ".join(_REDIS.get(scheme, f"{scheme}:...") for scheme in schemes)
        self.expected = f"{', '.join(words)}, or {urls}"

    def accepts(self, value: object) -> bool:
        if type(value) is not str or not _is_printable(value):
            return False
        scheme, separator, rest = value.partition(":")
        if value in self.words:
            return True
        if scheme not in self.schemes or not separator or not rest:
            return False
        return scheme not in _REDIS or _is_of_redis(value)


class Section(Kind):
    """A group of settings, held by an instance of `cls`."""

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        self.expected = f"an instance of {cls.__name__}"

    def accepts(self, value: object) -> bool:
        return isinstance(value, self.cls)


class DeferredSection(Section):
    """A section that is imported, and made with its defaults, when it is first read.

    Most starts need few of the sections, and to define them all would take a tenth of a start.
    It stands in the class of the configuration in place of what was not given: a descriptor, which
    an instance that has the section does not use.

    Args:
        module: that has the class, in the package of this one.
        name: of the class.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name
        self.expected = f"an instance of {name}"

    @property
    def cls(self) -> type[Any]:  # type: ignore[override]
        from importlib import import_module

        cls: type[Any] = getattr(import_module(f"{__package__}.{self._module}"), self._name)
        return cls

    def accepts(self, value: object) -> bool:
        return value is NOT_GIVEN or super().accepts(value)

    def join(self, config: type[Any], member: str) -> None:
        """Make the section the member of that name of a configuration."""
        self._member = member
        setattr(config, member, self)

    def __get__(self, config: object, owner: type | None = None) -> Any:
        return self if config is None else vars(config).setdefault(self._member, self.cls())


NOT_GIVEN: Any = object()
"""The default of a deferred section."""


def _is_of_redis(url: str) -> bool:
    """Return whether the client of Redis takes a URL; True without it, when nothing can."""
    from ...errors import MissingExtraError

    try:
        from ..redis_link import is_url
    except MissingExtraError:
        return True
    return is_url(url)


def _is_printable(text: str) -> bool:
    # A lone surrogate, as an undecodable environment variable holds it, cannot be sent as UTF-8.
    return not any(c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff" for c in text)


KEY_NAME = KeyName()
FILE_PATH = Pattern(
    "[^\\u0000-\\u001f\\u007f-\\u009f]{1,4095}", "the path of a file", optional=True
)
SCOPE_TEXT = r"[!#-\[\]-~]+"
SCOPE = Pattern(SCOPE_TEXT, "a scope of OAuth 2.1")
STATE_KEY = Pattern(
    "([0-9A-Fa-f]{2}){32,64}", "32 to 64 bytes in hexadecimal", optional=True, is_secret=True
)


def setting(default: _Value, kind: Kind, meaning: str) -> _Value:
    """Define a setting: an attribute of a section (CONF-01).

    Args:
        default: a value that `kind` accepts.
        kind: the type of the setting; where it `is_secret`, the value is never shown (CONF-05).
        meaning: one sentence for the operator.
    """
    return field(
        default=default, validator=kind, repr=not kind.is_secret, metadata={"meaning": meaning}
    )


def flag(default: bool, meaning: str) -> bool:
    """Define a setting that is true or false."""
    return setting(default, Flag(), meaning)


def milliseconds(default: int, meaning: str, *, minimum: int = 1) -> int:
    """Define a time from `minimum` to 2**31 - 1, in milliseconds."""
    return setting(default, Integer(minimum, 2**31 - 1, "milliseconds"), meaning)


def byte_count(default: int, meaning: str, *, minimum: int = 1) -> int:
    """Define a size from `minimum` to 2**40, in bytes."""
    return setting(default, Integer(minimum, 2**40, "bytes"), meaning)


def group(default: _Value) -> _Value:
    """Define a table of settings within a section; `default` is an instance of its class."""
    # One default instance serves every configuration: it never changes.
    return field(default=default, validator=Section(type(default)))


def deferred(module: str, name: str) -> Any:
    """Define a section of ours that few starts need; see `DeferredSection`."""
    return field(default=NOT_GIVEN, validator=DeferredSection(module, name))


@frozen(eq=False, repr=False)
class Settings(Compared):
    """The base of all sections, also of those of applications (CONF-24).

    A section is a frozen attrs class; `setting` and `group` make its attributes. Sections are
    compared by value, and their representation has no secret.

    Raises:
        SettingError: a ValueError: a setting does not accept its value.
    """

    # attrs would generate this for each section.
    def __repr__(self) -> str:
        shown = (each.name for each in fields(type(self)) if each.repr)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({values})"
