"""The types of settings, and the checks of their limits.

A kind accepts a value or not, and describes the values that it expects. It never shows a value,
which may be a secret (CONF-01).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from attrs import Attribute


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


class AddressRange(Pattern):
    """An IP address or a network of them."""

    def __init__(self) -> None:
        super().__init__(
            "[0-9A-Fa-f:.]{2,45}(/[0-9]{1,3})?", "an address or a network such as 10.0.0.0/8"
        )

    def accepts(self, value: object) -> bool:
        from ipaddress import ip_network

        try:
            return super().accepts(value) and bool(ip_network(str(value), strict=False))
        except ValueError:
            return False


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


_PORT = "(:[0-9]{1,5})?"
_HOST = r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\])" + _PORT
_REST_OF_URL = "(/[A-Za-z0-9._~%!&'()*+,;=:@/?-]*)?"
_LOOPBACK = r"http://(localhost|127\.0\.0\.1|\[::1\])" + _PORT

KEY_NAME = KeyName()
FILE_PATH = Pattern(
    "[^\\u0000-\\u001f\\u007f-\\u009f]{1,4095}", "the path of a file", optional=True
)
HTTP_PATH = Pattern(
    "/([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?", "a path such as /mcp", default="/mcp"
)
HOST_NAME = Pattern(rf"\*|{_HOST}", "a host such as example.com or example.com:8443, or *")
WORKER_ADDRESS = Pattern(
    r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[1-9][0-9]{0,4})?",
    "an address of this host such as 10.0.0.5 or 10.0.0.5:7000",
    optional=True,
)
ADDRESS_RANGE = AddressRange()
ORIGIN = Pattern(rf"\*|[a-z][a-z0-9+.-]*://{_HOST}", "an origin such as https://example.com, or *")
_KEY = "[A-Za-z0-9._~+/-]{16,256}=*"
_SCOPE = r"[!#-\[\]-~]+"
API_KEY = Pattern(
    f"{_KEY}|[A-Za-z0-9._-]{{1,64}}:{_KEY}(:{_SCOPE}( {_SCOPE})*)?",
    "KEY, NAME:KEY or NAME:KEY:SCOPES, where KEY has at least 16 of the characters"
    " A-Z a-z 0-9 . _ ~ + / - and SCOPES have a space between them",
    is_secret=True,
)
ISSUER_URL = Pattern(
    f"(https://{_HOST}|{_LOOPBACK}){_REST_OF_URL}",
    "an https:// URL, or an http:// one of this machine",
    optional=True,
)
RESOURCE_URL = Pattern(
    f"https?://{_HOST}{_REST_OF_URL}", "an https:// or http:// URL without #", optional=True
)
SCOPE = Pattern(_SCOPE, "a scope of OAuth 2.1")
TOOL_LIMIT = Pattern(
    "[A-Za-z0-9_./-]{1,256}=(0|[1-9][0-9]{0,5}|1000000)",
    "NAME=CALLS: the name of a tool, and 0 to 1000000 calls",
)
HEADER_NAME = Pattern("[A-Za-z0-9._-]{1,64}", "the name of a header, such as X-Tenant")
CLIENT_ID = Pattern("[ -~]{1,2048}", "1 to 2048 characters of ASCII", optional=True)
CLIENT_SECRET = Pattern(
    "[ -~]{1,2048}", "1 to 2048 characters of ASCII", optional=True, is_secret=True
)
PROVIDERS = ("github", "google", "entra", "oidc", "oauth")
PROVIDER = Pattern("|".join(PROVIDERS), f"one of {', '.join(PROVIDERS)}", optional=True)
TENANT = Pattern(
    "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "the id of a directory", optional=True
)
PARAMETER = Pattern("[A-Za-z0-9._~-]{1,64}=[ -~]{0,512}", "NAME=VALUE")
ALLOWED = Pattern(
    r"\*|(sub|org):[!-~]{1,256}|[!-?A-~]{0,64}@[A-Za-z0-9.-]{1,253}",
    "sub:ID, an email address, @DOMAIN, org:NAME or *",
)
REDIRECT_URI = Pattern(
    f"loopback|https://{_HOST}{_REST_OF_URL}",
    "loopback, or an https:// URL without #",
    default="loopback",
)
STATE_KEY = Pattern(
    "([0-9A-Fa-f]{2}){32,64}", "32 to 64 bytes in hexadecimal", optional=True, is_secret=True
)
