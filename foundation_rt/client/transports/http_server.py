"""A server over HTTP, named: what a program can say before httpx2 is there to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from .headers import check_headers, split_url

if TYPE_CHECKING:
    from httpx2 import Auth


@frozen(eq=False, repr=False)
class HttpServer:
    """A server that is spoken to over HTTP.

    Args:
        url: its MCP endpoint; user and password in it are sent as basic authentication.
        headers: sent with every request, as a token is; to nobody else.
        auth: of httpx2, for what has to be negotiated.

    Raises:
        UsageError: the address is none, or a header cannot be sent.
    """

    url: str
    headers: Mapping[str, str] = field(factory=dict)
    auth: Auth | None = None

    def __attrs_post_init__(self) -> None:
        split_url(self.url)
        check_headers(self.headers)
