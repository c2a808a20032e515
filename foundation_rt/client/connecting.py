"""`connect`: from what names a server to a client for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ..errors import UsageError
from .answering.questions import Questions
from .client import Client
from .failing.callbacks import check_plain
from .options import from_environment
from .sessions.channel import Channel
from .sessions.link import ChannelMaker

if TYPE_CHECKING:
    from ..server import Server
    from .connect_options import ConnectOptions
    from .transports.http_server import HttpServer
    from .transports.stdio import StdioServer

    Target = str | Server | StdioServer | HttpServer | ChannelMaker

_QUESTIONS = ("sampling", "sampling_tools", "elicitation", "elicitation_url", "roots")


def connect(
    target: Target,
    *,
    headers: Mapping[str, str] | None = None,
    on_stderr: Callable[[str], object] | None = None,
    **options: Unpack[ConnectOptions],
) -> Client:
    """A client for a server; nothing is started or sent before it is used.

    ::

        async with connect("uvx some-server") as client:
            result = await client.call("forecast", {"city": "Oslo"}, timeout=5)

    It has to be closed, as `async with` does it. A program that ends without that leaves behind
    what its servers have started, and a server that does not end when its input does.

    Args:
        target: a command line; a URL (needs the extra `client`); a `StdioServer` or a `HttpServer`,
            where more is to be said; a `Server` of this process; or a function that makes channels.
        headers: for a URL, sent with every request: `{"Authorization": "Bearer ..."}`.
        on_stderr: for a command, is given every line that it writes on stderr; a plain function.
        options: what `ClientOptions` has (`timeout`, `require`, `revision`, ...), and what
            `Questions` has (`sampling`, `elicitation`, `elicitation_url`, `roots`, ...).

    Raises:
        TypeError: there is no option of that name.
        ConfigError: an option, or a variable of the environment, cannot be used.
        UsageError: the target cannot be understood, or a callback is an `async def` function.
        MissingExtraError: it is a URL, and the extra `client` is not installed.
    """
    given: dict[str, Any] = {**options}
    handlers = {name: given.pop(name) for name in _QUESTIONS if name in given}
    make_channel = _channel_maker(target, headers, on_stderr)
    return Client(make_channel, from_environment(given), Questions(**handlers))


def is_url(text: str) -> bool:
    """Whether a text is an address, of HTTP or not: `ftp://host` is refused, and no command."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://\S*", text) is not None


def _channel_maker(
    target: Any, headers: Mapping[str, str] | None, on_stderr: Callable[[str], object] | None
) -> Callable[[], Channel]:
    from .transports.stdio import StdioChannel, StdioServer

    if isinstance(target, str):
        target = target.strip()  # as a line of a file has it; with a blank it would be a command
        if is_url(target):
            from .transports.http_server import HttpServer

            target = HttpServer(target, headers=dict(headers or {}))
            headers = None
        else:
            target = StdioServer.from_command_line(target)
    if headers is not None:
        raise UsageError("headers go with a URL")
    if isinstance(target, StdioServer):
        check_plain("on_stderr", on_stderr)
        return lambda: StdioChannel(target, on_stderr=on_stderr)
    if on_stderr is not None:
        raise UsageError("on_stderr goes with a command")
    return _other_channel_maker(target)


def _other_channel_maker(target: Any) -> Callable[[], Channel]:
    from ..server import Server
    from .transports.http_server import HttpServer

    if isinstance(target, Server):
        from .transports.memory import MemoryChannel

        return lambda: MemoryChannel(target)
    if isinstance(target, HttpServer):
        from .transports.http import HttpChannel

        return lambda: HttpChannel(target)
    if callable(target):
        made: Callable[[], Channel] = target
        return made
    raise UsageError(
        "connect takes a command line, a URL, a StdioServer, a HttpServer, a Server or a function "
        f"that makes channels, not {target!r}"
    )
