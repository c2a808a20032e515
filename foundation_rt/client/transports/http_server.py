"""The description of a server over HTTP; does not need httpx2."""

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
    """A server that is reached over HTTP.

    Args:
        url: its MCP endpoint; user and password in it are sent as basic authentication.
        headers: sent with every request, to this server only.
        auth: an `auth` of httpx2, for negotiated authentication.
        max_connections: most requests at one time, each on a connection of its own; others wait in
            order (CHTTP-10). Streams that only listen are not counted.

    Raises:
        UsageError: the URL, a header or the number is invalid.
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
