"""A server over HTTP, named: what a program can say before httpx2 is there to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from ...errors import UsageError
from .http_headers import check_headers, split_url

if TYPE_CHECKING:
    from httpx2 import Auth


@frozen(eq=False, repr=False)
class HttpServer:
    """A server that is spoken to over HTTP.

    Args:
        url: its MCP endpoint; user and password in it are sent as basic authentication.
        headers: sent with every request, as a token is; to nobody else.
        auth: of httpx2, for what has to be negotiated.
        max_connections: requests that may be under way at one time, each on a connection of its
            own; the others wait in turn (CHTTP-10). Streams that only listen are not counted.

    Raises:
        UsageError: the address is none, a header cannot be sent, or the number is none.
    """

    url: str
    headers: Mapping[str, str] = field(factory=dict)
    auth: Auth | None = None
    max_connections: int = 100

    def __attrs_post_init__(self) -> None:
        split_url(self.url)
        check_headers(self.headers)
        most: object = self.max_connections
        if type(most) is not int or most < 1:
            raise UsageError(f"max_connections is a whole number, at least 1, not {most!r}")
