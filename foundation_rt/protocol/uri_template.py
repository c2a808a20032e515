"""URIs, and URI templates of RFC 6570 level 1, both ways (spec/mcp-resources.md).

A template is literal text with variables in braces: ``task://{project}/{id}``. `UriTemplate.expand`
makes a URI from values, `UriTemplate.match` values from a URI, each the inverse of the other.

The value of a variable is never more than a part of one path segment. So a handler that uses it in
a path, of a file for example, cannot be made to leave the intended folder (MRES-09).

Matching takes time linear in the length of the URI. Between two variables there is literal text,
and the first variable ends at its first occurrence. If a later one were right, the first would be
too, because the text in between then belongs to one segment. Nothing is tried twice.
"""

from __future__ import annotations

from collections.abc import Mapping

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
_SEPARATORS = frozenset("/\\\0")


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
    return "".join(
        character
        if character in _UNRESERVED
        else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in text
    )


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


def is_traversal(uri: str) -> bool:
    """Return whether `uri` has a segment ``.`` or ``..``, or NUL, percent-encoded or not."""
    decoded = percent_decode(uri)
    if decoded is None or "\0" in decoded:
        return True
    segments = decoded.replace("\\", "/").replace("?", "/").replace("#", "/").split("/")
    return "." in segments or ".." in segments


@frozen
class UriTemplate:
    """A URI template; made by `parse_template`.

    Attributes:
        text: the template as its author wrote it.
        variables: the names of the variables, in order.
        literals: the texts before, between and after them: one more than there are variables.
    """

    text: str
    variables: tuple[str, ...]
    literals: tuple[str, ...]

    @property
    def rank(self) -> tuple[int, str]:
        """Return the sort key by which more specific templates come first (MRES-08)."""
        return -sum(map(len, self.literals)), self.text

    def expand(self, values: Mapping[str, str]) -> str:
        r"""Return the URI in which each variable has its value.

        Raises:
            KeyError: a variable has no value.
            InvalidUri: a value is not allowed: it is empty, is or produces a segment ``.`` or
                ``..``, or holds ``/``, ``\`` or NUL.
        """
        parts = [self.literals[0]]
        for name, literal in zip(self.variables, self.literals[1:], strict=True):
            if not _is_allowed(values[name]):
                raise InvalidUri(f"{name!r} must be part of one path segment")
            parts += [percent_encode(values[name]), literal]
        uri = "".join(parts)
        if is_traversal(uri):
            raise InvalidUri("must not have . or .. as a path segment")
        return uri

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in `uri`; None if it does not match."""
        first, *between = self.literals
        if not uri.startswith(first):
            return None
        found = {}
        start = len(first)
        for name, literal in zip(self.variables, between, strict=True):
            end = self._end(uri, start, name, literal)
            value = None if end < 0 else _read_variable(uri[start:end])
            if value is None:
                return None
            found[name] = value
            start = end + len(literal)
        return None if is_traversal(uri) else found

    def _end(self, uri: str, start: int, name: str, literal: str) -> int:
        """Return the end of the variable that begins at `start`; negative if there is none."""
        if name == self.variables[-1]:
            end = len(uri) - len(literal)
            return end if end > start and uri.endswith(literal) else -1
        end = uri.find(literal, start + 1)
        while end >= 0 and "%" in uri[max(start, end - 2) : end]:  # not the digits of a %XX
            end = uri.find(literal, end + 1)
        return end


def parse_template(text: str) -> UriTemplate:
    """Parse a template.

    Raises:
        InvalidUri: it is not of level 1, has no variable, or its variables are ambiguous.
    """
    variables: list[str] = []
    first, *expressions = text.split("{")
    literals = [first]
    for expression in expressions:
        name, closed, literal = expression.partition("}")
        _check_variable(name, closed, literal, variables)
        if variables and not literals[-1]:
            raise InvalidUri(f"must have something between {variables[-1]!r} and {name!r}")
        variables.append(name)
        literals.append(literal)
    if not variables:
        raise InvalidUri("must have a variable, as in task://{id}")
    if ":" not in first:
        raise InvalidUri("must begin with a scheme, as in task://{id}")
    if len(text) > MAX_URI_LENGTH:
        raise InvalidUri(f"must have 1 to {MAX_URI_LENGTH} characters")
    # With a letter for each variable the literal text is checked as a URI.
    example = "x".join(literals)
    check_uri(example)
    if is_traversal(example):
        raise InvalidUri("must not have . or .. as a path segment")
    return UriTemplate(text, tuple(variables), tuple(literals))


def _check_variable(name: str, closed: str, literal: str, known: list[str]) -> None:
    if not closed or "}" in literal:
        raise InvalidUri("has a brace without its other half")
    if not name or not _VARIABLE.issuperset(name):
        raise InvalidUri(
            f"has {{{name}}}: a variable is letters, digits and _ in braces (RFC 6570, level 1)"
        )
    if name in known:
        raise InvalidUri(f"has the variable {name!r} twice")


def _read_variable(raw: str) -> str | None:
    """Return the value that `raw` encodes; None if no variable can have it."""
    if not _NEVER.isdisjoint(raw) or not frozenset("/?#").isdisjoint(raw):
        return None
    value = percent_decode(raw)
    return value if value is not None and _is_allowed(value) else None


def _is_allowed(value: str) -> bool:
    """Return whether a variable can have `value`, whatever its neighbours."""
    return bool(value) and _SEPARATORS.isdisjoint(value)
