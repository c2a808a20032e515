"""The selection of the headers that handlers get: those that the operator allows (HEAD-16)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import define

from ..errors import UsageError
from ..kernel.session import NO_HEADERS
from ..protocol.http_headers import RequestHeaders
from .headers import UNSAFE, malformed

if TYPE_CHECKING:
    from ..base.config.settings import ServerConfig
    from .asgi import HttpRefusal

_SESSION = "mcp-session-id"


@define(eq=False, repr=False)
class HeaderSelection:
    """Reads the allowed headers of every request.

    Args:
        names: the allowed ones, in lower case.
    """

    _names: frozenset[bytes]

    def read(self, raw: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str] | HttpRefusal:
        """Return the allowed headers of a request, or why it is refused (HEAD-16, HEAD-17).

        Args:
            raw: the headers of the ASGI scope, with names in lower case.
        """
        if not self._names:
            return NO_HEADERS
        found: dict[str, str] = {}
        for name, value in raw:
            if name not in self._names:
                continue
            text, key = value.decode("latin-1").strip(" \t"), name.decode()
            if key in found:
                return malformed(name, "stands in the request more than once")
            if UNSAFE.search(text) is not None:
                return malformed(name, "holds a character that no header may hold")
            found[key] = text
        return RequestHeaders(found) if found else NO_HEADERS


def make_header_selection(config: ServerConfig) -> HeaderSelection:
    """Return the selection that `http.request_headers` asks for.

    Raises:
        UsageError: a header among them carries the server's own credentials (HEAD-18).
    """
    names = {name.lower() for name in config.http.request_headers}
    for name in sorted(names & _own_credentials(config)):
        raise UsageError(
            f"http.request_headers: {name} carries credentials for this server, which no handler"
            " gets: let clients send what the handlers need in a header of its own"
        )
    return HeaderSelection(frozenset(name.encode() for name in names))


def _own_credentials(config: ServerConfig) -> set[str]:
    """Return the headers that the server itself takes credentials from."""
    own = {_SESSION}  # with `http.no_auth`, all that it takes to act in the session
    if config.http.api_keys:
        own |= {"authorization", "x-api-key"}
    if config.has_issuer():
        own.add("authorization")
    return own
