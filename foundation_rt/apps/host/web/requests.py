"""Requests of pages: their members, what is wrong with one, and room for some at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from attrs import define, field

from ...web_page.responses import read_body, read_object

if TYPE_CHECKING:
    from ...web_page.responses import Receive, Scope

MAX_RUNNING = 8
"""Requests of one principal at once."""
_MAX_FIELDS = 20


class PageRequestError(Exception):
    """A request that has no result.

    Attributes:
        status: of HTTP.
        code: for programs.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def invalid(expected: str) -> PageRequestError:
    """Return the error of a request that a page should not have sent."""
    return PageRequestError(400, "invalid_request", expected)


def query(scope: Scope, name: str) -> str:
    """Return a parameter of the query of a URL; "" without it."""
    text: str = scope.get("query_string", b"").decode("latin-1")
    return parse_qs(text, max_num_fields=_MAX_FIELDS).get(name, [""])[-1]


async def object_of(receive: Receive, most: int) -> dict[str, Any]:
    """Return the object in the body of a request, of at most so many bytes."""
    found = read_object(await read_body(receive, most))
    if found is None:
        raise invalid(f"the body: expected a JSON object of at most {most} bytes")
    return found


def text_of(body: Mapping[str, Any], name: str, longest: int, fewest: int = 1) -> str:
    """Return a text of a body."""
    value = body.get(name)
    if type(value) is not str or not fewest <= len(value) <= longest:
        raise invalid(f"{name}: expected a text of {fewest} to {longest} characters")
    return value


@define(eq=False)
class Room:
    """Room for some requests of each principal at once."""

    _most: int
    _running: dict[str, int] = field(factory=dict, init=False)

    @contextmanager
    def of(self, principal: str) -> Iterator[None]:
        """Count a request of a principal while it runs.

        Raises:
            PageRequestError: there is no room for it.
        """
        count = self._running.get(principal, 0)
        if count >= self._most:
            raise PageRequestError(429, "RATE_LIMITED", f"at most {self._most} requests at once")
        self._running[principal] = count + 1
        try:
            yield
        finally:
            self._running[principal] -= 1
            if not self._running[principal]:
                del self._running[principal]
