"""Pages and applications of the author, served over HTTP beside MCP.

A server without any does not import this.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..errors import RegistrationError, UsageError

if TYPE_CHECKING:
    from ..protocol.principal import Principal

_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")

HttpPage = Callable[["Principal | None"], Any]
"""A function of the application that answers GET at a path; see `Server.http_get`."""

HttpMiddleware = Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]
"""Takes an ASGI application and returns one around it; see `Server.http_middleware`."""


@frozen(eq=False)
class MountedApp:
    """The ASGI application of the author, as `Server.http_app` was given it.

    Attributes:
        app: called for requests and WebSockets.
        public: paths that need no credential; one that ends with `/` stands for all below it.
        page_token: one more key, of the application's page; None: it has none.
        websocket: whether it takes WebSockets.
        endpoint: whether MCP is served beside it.
    """

    app: Callable[..., Awaitable[None]]
    public: tuple[str, ...] = ()
    page_token: str | None = field(default=None, repr=False)
    websocket: bool = True
    endpoint: bool = True

    def __attrs_post_init__(self) -> None:
        for path in self.public:
            if not path.startswith("/"):
                raise UsageError(f"http_app: a public path begins with /, as {'/' + path!r} does")


def check_path(path: object, taken: Container[object]) -> None:
    """Raise `RegistrationError` unless a page can have this path (HTTP-38).

    Args:
        path: of the page.
        taken: the paths of other pages.
    """
    if not isinstance(path, str) or _PATH.fullmatch(path) is None:
        raise RegistrationError(f"http_get: {path!r} is no path such as /status")
    if path in taken:
        raise RegistrationError(f"http_get: {path} is taken")
