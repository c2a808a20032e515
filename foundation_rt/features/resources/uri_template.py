"""URIs and URI templates of RFC 6570, both ways (spec/mcp-resources.md).

A template is literal text with variables in braces: ``task://{project}/{id}``. `UriTemplate.expand`
makes a URI from values, `UriTemplate.match` values from a URI, each the inverse of the other.

A variable stands for a part of one path segment, in which a ``/`` of its value is ``%2F``. One
variable of a template may stand for several segments: ``{+path}``, or ``{path*}`` as other servers
write it. At its end a template may have parameters of a query: ``{?page,size}``. No value has a
segment ``.`` or ``..``, and none begins with ``/``. So a handler that uses a value in a path, of a
file for example, cannot be made to leave the intended folder (MRES-09).

Matching takes time linear in the length of the URI. Between two variables there is literal text.
A variable before the wide one ends at the first occurrence of the text after it. If a later one
were right, the first would be too, because the text in between then belongs to one segment. A
variable after the wide one begins after the last occurrence of the text before it, for the same
reason. The wide one has the rest; without one, the last variable has. Nothing is tried twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from attrs import frozen

MAX_URI_LENGTH = 2048
"""The most characters of a URI or of a template (MRES-01)."""

_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_DIGITS = frozenset("0123456789")
_HEXADECIMAL = frozenset("0123456789ABCDEFabcdef")
_UNRESERVED = _LETTERS | _DIGITS | frozenset("-._~")
_SCHEME = _LETTERS | _DIGITS | frozenset("+-.")
_VARIABLE = _LETTERS | _DIGITS | frozenset("_")
# Neither RFC 3986 allows these in a URI, nor RFC 3987 in an IRI.
_NEVER = frozenset(map(chr, range(0x21))) | frozenset('\x7f"<>\\^`{|}')
_ENCODED = re.compile("%[0-9A-Fa-f]{2}|[^\\x00-\\x7f]+")
_AUTHORITY = re.compile("//([^/?#@]*@)?")

# The percent itself last: each round decodes once.
_ESCAPES = (("%2e", "."), ("%2f", "/"), ("%5c", "\\"), ("%00", "\0"), ("%25", "%"))

_MAX_ENCODINGS = 8
"""A value that is percent-encoded more often than this is refused, as one that hides ``..`` is."""


class InvalidUri(ValueError):
    """The URI or the template is invalid; the message is a predicate: "must begin with ..."."""


def check_uri(uri: str) -> None:
    """Raise unless `uri` is an absolute URI of RFC 3986 or RFC 3987.

    Raises:
        InvalidUri: it is not.
    """
    if not uri or len(uri) > MAX_URI_LENGTH:
        raise InvalidUri(f"must have 1 to {MAX_URI_LENGTH} characters")
    scheme, colon, rest = uri.partition(":")
    if not (colon and rest and scheme[:1] in _LETTERS and _SCHEME.issuperset(scheme)):
        raise InvalidUri("must begin with a scheme, as in task://all")
    if not _NEVER.isdisjoint(uri):
        raise InvalidUri('must not hold white space, control characters or any of "<>\\^`{|}')
    try:
        uri.encode()
    except UnicodeEncodeError:
        raise InvalidUri("must be valid Unicode") from None
    if percent_decode(uri) is None:
        raise InvalidUri("has a % that is not followed by two digits of a character in UTF-8")


def percent_encode(text: str) -> str:
    """Return `text` with all but the unreserved characters of RFC 3986 written as ``%XX``."""
    from urllib.parse import quote  # no start needs it

    return quote(text, safe="")


def percent_decode(text: str) -> str | None:
    """Decode each ``%XX`` in `text` once; return None if one is malformed, or it is not UTF-8."""
    head, *escaped = text.split("%")
    if not escaped:
        return text
    try:
        decoded = bytearray(head.encode())
        for part in escaped:
            if not (len(part) > 1 and _HEXADECIMAL.issuperset(part[:2])):
                return None
            decoded.append(int(part[:2], 16))
            decoded += part[2:].encode()
        return decoded.decode()
    except UnicodeError:
        return None


def normalize_uri(uri: str) -> str:
    """Return the same text for equivalent URIs (RFC 3986, section 6.2.2; MRES-26).

    Segments ``.`` and ``..`` stay: no resource has them.
    """
    scheme, colon, rest = _normalize_encoding(uri).partition(":")
    user = _AUTHORITY.match(rest)
    if user is not None:
        host = re.split("[/?#]", rest[user.end() :], maxsplit=1)[0]
        rest = user[0] + host.lower() + rest[user.end() + len(host) :]
    return scheme.lower() + colon + rest


def _normalize_encoding(uri: str) -> str:
    """Return `uri` with what has to be percent-encoded in capital digits, and nothing else so."""
    return _ENCODED.sub(_normal_form, uri)


def _normal_form(found: re.Match[str]) -> str:
    text = found[0]
    if text[0] != "%":
        return "".join(f"%{byte:02X}" for byte in text.encode(errors="surrogatepass"))
    character = chr(int(text[1:], 16))
    return character if character in _UNRESERVED else text.upper()


def is_traversal(uri: str) -> bool:
    """Return whether `uri` has a segment ``.`` or ``..``, or NUL, percent-encoded or not."""
    decoded = percent_decode(uri)
    if decoded is None or "\0" in decoded:
        return True
    return _has_dots(decoded.replace("?", "/").replace("#", "/"))


def _has_dots(text: str) -> bool:
    segments = text.replace("\\", "/").split("/")
    return "." in segments or ".." in segments


@frozen
class UriTemplate:
    """A URI template; made by `parse_template`.

    Attributes:
        text: the template as its author wrote it.
        path: the names of the variables of the path, in order.
        literals: the texts before, between and after them: one more than there are variables;
            percent-encoded as `match` has URIs.
        wide: the name of the variable that stands for several segments; None without one.
        query: the names of the parameters of the query, which a URI may leave out.
    """

    text: str
    path: tuple[str, ...]
    literals: tuple[str, ...]
    wide: str | None = None
    query: tuple[str, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of all variables, in order."""
        return self.path + self.query

    @property
    def shape(self) -> tuple[object, ...]:
        """Return a value that is the same for templates with the same URIs."""
        wide = None if self.wide is None else self.path.index(self.wide)
        return self.literals, wide, frozenset(self.query)

    @property
    def rank(self) -> tuple[int, bool, str]:
        """Return the sort key by which more specific templates come first (MRES-08)."""
        return -sum(map(len, self.literals)), self.wide is not None, self.text

    def expand(self, values: Mapping[str, str]) -> str:
        r"""Return the URI in which each variable has its value.

        A parameter of the query without a value is left out.

        Raises:
            KeyError: a variable of the path has no value.
            InvalidUri: a value is not allowed: it has an empty segment, is or produces a segment
                ``.`` or ``..``, or holds ``\`` or NUL (MRES-09).
        """
        parts = [self.literals[0]]
        for name, literal in zip(self.path, self.literals[1:], strict=True):
            parts += [self._encode(name, values[name]), literal]
        given = [name for name in self.query if name in values]
        for mark, name in zip("?" + "&" * len(given), given, strict=False):
            if _is_way_out(values[name]):
                raise InvalidUri(f"{name!r} must not have . or .. as a path segment")
            parts.append(f"{mark}{name}={percent_encode(values[name])}")
        uri = "".join(parts)
        if is_traversal(uri):
            raise InvalidUri("must not have . or .. as a path segment")
        return uri

    def _encode(self, name: str, value: str) -> str:
        if not _is_allowed(value, is_wide=name == self.wide):
            raise InvalidUri(f"{name!r} must be path segments, none of them empty, . or ..")
        encoded = percent_encode(value)
        return encoded.replace("%2F", "/") if name == self.wide else encoded

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in `uri`; None if it does not match.

        A parameter that the query of the URI leaves out has no value.
        """
        uri = _normalize_encoding(uri)
        path, mark, query = uri.partition("?") if self.query else (uri, "", "")
        parts = self._split(path)
        if parts is None or is_traversal(uri):
            return None
        found: dict[str, str] = {}
        for name, raw in zip(self.path, parts, strict=True):
            is_wide = name == self.wide
            value = percent_decode(raw) if _is_plain(raw, "?#" if is_wide else "/?#") else None
            if value is None or not _is_allowed(value, is_wide=is_wide):
                return None
            found[name] = value
        if mark and not self._read_query(query, found):
            return None
        return found

    def _split(self, text: str) -> list[str] | None:
        """Return the raw values of the variables of the path; None if `text` does not match."""
        if not self.path:
            return [] if text == self.literals[0] else None
        first, *between, last = self.literals
        start, end = len(first), len(text) - len(last)
        if start >= end or not (text.startswith(first) and text.endswith(last)):
            return None
        wide = len(self.path) - 1 if self.wide is None else self.path.index(self.wide)
        before, after = [], []
        for literal in between[:wide]:
            found = _outside_escape(text, text.find, literal, start + 1, end)
            if found < 0:
                return None
            before.append(text[start:found])
            start = found + len(literal)
        for literal in reversed(between[wide:]):
            found = _outside_escape(text, text.rfind, literal, start + 1, end - 1)
            if found < 0:
                return None
            after.append(text[found + len(literal) : end])
            end = found
        return [*before, text[start:end], *reversed(after)]

    def _read_query(self, query: str, found: dict[str, str]) -> bool:
        """Add the parameters of `query`; return whether each is known, given once and allowed."""
        for pair in query.split("&"):
            name, _, raw = pair.partition("=")
            value = None if not _is_plain(raw, "#") else percent_decode(raw)
            if name not in self.query or name in found or value is None or _is_way_out(value):
                return False
            found[name] = value
        return True


def parse_template(text: str) -> UriTemplate:
    """Parse a template.

    Raises:
        InvalidUri: it has no variable, its variables are ambiguous, or it has an expression that
            is not among those of MRES-06.
    """
    body, query = _split_query(text)
    names: list[str] = []
    wide: str | None = None
    first, *expressions = body.split("{")
    literals = [first]
    for expression in expressions:
        inner, closed, literal = expression.partition("}")
        if not closed or "}" in literal:
            raise InvalidUri("has a brace without its other half")
        name = inner.removeprefix("+").removesuffix("*")
        _check_variable(name, inner, names)
        if name != inner:
            if wide is not None:
                raise InvalidUri(f"has two variables of several segments: {wide!r} and {name!r}")
            wide = name
        if names and not literals[-1]:
            raise InvalidUri(f"must have something between {names[-1]!r} and {name!r}")
        names.append(name)
        literals.append(literal)
    for name in query:
        _check_variable(name, "?" + ",".join(query), names)
        names.append(name)
    path = tuple(names[: len(literals) - 1])
    _check_literals(text, literals, has_variables=bool(names))
    return UriTemplate(text, path, tuple(map(_normalize_encoding, literals)), wide, query)


def _split_query(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the template without the expression of its query, and the names in that."""
    body, mark, query = text.partition("{?")
    if not mark:
        return text, ()
    if not query.endswith("}") or "{" in query:
        raise InvalidUri("must end after {?...}: the query is its last part")
    if "?" in body or "#" in body:
        raise InvalidUri("has {?...} after a ? or a #: write every parameter in {?...}")
    return body, tuple(query[:-1].split(","))


def _check_literals(text: str, literals: list[str], *, has_variables: bool) -> None:
    if not has_variables:
        raise InvalidUri("must have a variable, as in task://{id}")
    if ":" not in literals[0]:
        raise InvalidUri("must begin with a scheme, as in task://{id}")
    if len(text) > MAX_URI_LENGTH:
        raise InvalidUri(f"must have 1 to {MAX_URI_LENGTH} characters")
    # With a letter for each variable the literal text is checked as a URI.
    example = "x".join(literals)
    check_uri(example)
    if is_traversal(example):
        raise InvalidUri("must not have . or .. as a path segment")


def _check_variable(name: str, expression: str, known: list[str]) -> None:
    if not name or not _VARIABLE.issuperset(name):
        raise InvalidUri(
            f"has {{{expression}}}: write {{name}}, {{+name}} or {{name*}} for several segments, "
            "or {?name,name} at the end; a name is letters, digits and _"
        )
    if name in known:
        raise InvalidUri(f"has the variable {name!r} twice")


def _outside_escape(
    text: str, find: Callable[[str, int, int], int], literal: str, start: int, end: int
) -> int:
    """Return where `find` finds `literal`, but not in the two digits of a %XX; -1: nowhere."""
    at = find(literal, start, end)
    while at >= 0 and "%" in text[max(0, at - 2) : at]:
        start, end = (at + 1, end) if find == text.find else (start, at + len(literal) - 1)
        at = find(literal, start, end)
    return at


def _is_plain(raw: str, excluded: str) -> bool:
    return _NEVER.isdisjoint(raw) and frozenset(excluded).isdisjoint(raw)


def _is_allowed(value: str, *, is_wide: bool) -> bool:
    """Return whether a variable can have `value`, whatever its neighbours (MRES-09, MRES-25)."""
    if not all(value.split("/")) or "\\" in value or "\0" in value:
        return False
    return not ((is_wide or "/" in value) and _is_way_out(value))


def _is_way_out(value: str) -> bool:
    """Return whether `value` has NUL or a segment ``.`` or ``..``, however often encoded.

    Other escapes may be malformed: a handler that decodes the value once more may pass over them.
    """
    text = value.lower()
    for _ in range(_MAX_ENCODINGS):
        if "\0" in text or _has_dots(text):
            return True
        decoded = text
        for escape, character in _ESCAPES:
            decoded = decoded.replace(escape, character)
        if decoded == text:
            return False
        text = decoded
    return True
