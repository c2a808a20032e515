"""Challenges: the authorization that a request lacks. Pure (CAUTH-12, RFC 9110, 11.6.1).

A `WWW-Authenticate` may hold several challenges, whose parameters are separated by commas as the
challenges are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from attrs import frozen

_MOST = 20  # challenges, and parameters of each, that are read
_LONGEST = 16 * 1024  # characters that are read
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PART = re.compile(
    rf"[ \t,]*(?:(?P<name>{_TOKEN})[ \t]*=[ \t]*"
    rf'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>{_TOKEN}))'
    rf"|(?P<scheme>{_TOKEN})(?:[ \t]+(?P<token68>[A-Za-z0-9\-._~+/]+=*)(?=[ \t]*(?:,|$)))?)"
)


@frozen
class Challenge:
    """One challenge.

    Attributes:
        scheme: such as `bearer`, in lower case.
        parameters: by name in lower case.
    """

    scheme: str
    parameters: Mapping[str, str]

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that are needed; None if it names none."""
        named = tuple(self.parameters.get("scope", "").split())
        return named or None

    @property
    def lacks_scope(self) -> bool:
        """Return whether the token was good, but does not allow enough."""
        return self.parameters.get("error") == "insufficient_scope"


def read_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a `WWW-Authenticate`, as far as they can be read."""
    found: list[Challenge] = []
    parameters: dict[str, str] = {}
    for name, value in _parts(header[:_LONGEST]):
        if value is None:
            if len(found) == _MOST:
                break
            parameters = {}
            found.append(Challenge(name.lower(), parameters))
        elif found and len(parameters) < _MOST:
            parameters.setdefault(name.lower(), value)
    return found


def choose_challenge(header: str) -> Challenge:
    """Return the challenge to answer: that of `DPoP`, else of `Bearer`; an empty one if none is."""
    found = read_challenges(header)
    for scheme in ("dpop", "bearer"):
        for challenge in found:
            if challenge.scheme == scheme:
                return challenge
    return Challenge("bearer", {})


def _parts(header: str) -> Iterator[tuple[str, str | None]]:
    """Yield a scheme with None, and a parameter with its value."""
    at = 0
    while match := _PART.match(header, at):
        at = match.end()
        if match["scheme"] is not None:
            yield match["scheme"], None
        elif match["quoted"] is not None:
            yield match["name"], re.sub(r"\\(.)", r"\1", match["quoted"])
        else:
            yield match["name"], match["plain"]
