"""`connect`: makes a client for a server that is named or described."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from attrs import fields

from ..errors import UsageError
from .callbacks import check_plain
from .client import Client
from .handlers.client_handlers import ClientHandlers
from .options import from_environment
from .session.session_link import TransportFactory
from .targets import HttpServer, StdioServer, describe
from .transports.transport import Transport

if TYPE_CHECKING:
    from os import PathLike

    from httpx2 import Auth

    from ..base.mcp_json import ServerEntry
    from ..server import Server
    from .auth.authorizer import Authorizer
    from .auth.descriptions import Authorization
    from .handlers.server_requests import ServerRequestHandlers
    from .options import ConnectOptions

    Target = (
        str
        | PathLike[str]
        | Sequence[str]
        | Mapping[str, Any]
        | Server
        | StdioServer
        | HttpServer
        | ServerEntry
        | TransportFactory
    )

_HANDLERS = tuple(each.name for each in fields(ClientHandlers) if each.init)


def connect(
    target: Target,
    *,
    headers: Mapping[str, str] | None = None,
    auth: Auth | Authorization | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    on_stderr: Callable[[str], object] | None = None,
    handlers: ServerRequestHandlers | None = None,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Return a client for a server; nothing is started or sent before it is used.

    ::

        async with connect("uvx some-server") as client:
            result = await client.call("forecast", {"city": "Oslo"}, timeout=5)

    It has to be closed, as `async with` does. A program that ends without closing it leaves the
    processes behind that its servers have started, and servers that ignore the end of input.

    Args:
        target: a command line, or a list of its words; a URL (needs the extra `client`); a `Path`
            of a program, of a `.py` file, or of a `.json` file that lists one server as
            `mcpServers`; the dict of such a file, or of one entry in it; a `ServerEntry` of one; a
            `StdioServer` or a `HttpServer`; a `Server` of this process; or a function that makes
            transports.
        headers: for a URL, sent with every request: `{"Authorization": "Bearer ..."}`.
        auth: for a URL; how the client is authorized: `OAuth(login=browser_login())`,
            `ClientCredentials`, `WorkloadIdentity`, `EnterpriseManaged`, or an `auth` of httpx2.
        env: for a command; added to the few variables that every child gets.
        cwd: for a command; the folder it runs in.
        on_stderr: for a command, is given every line that it writes on stderr; a plain function.
        handlers: answer the requests of the server, instead of `sampling`, `elicitation` and so on.
        options: those of `ClientOptions` (`timeout`, `require`, `revision`, ...) and those of
            `ClientHandlers` (`sampling`, `elicitation`, `elicitation_url`, `roots`, ...).

    Raises:
        TypeError: there is no option of that name.
        ConfigError: an option, or a variable of the environment, cannot be used.
        UsageError: the target cannot be understood, or a callback is an `async def` function.
        MissingExtraError: it is a URL, and the extra `client` is not installed.
    """
    given: dict[str, Any] = {**options}
    single = {name: given.pop(name) for name in _HANDLERS if name in given}
    if handlers is not None and single:
        raise UsageError(f"handlers takes the place of {', '.join(single)}: give one of both")
    target = describe(target, headers, env, cwd, auth)
    authorizer = _authorizer(target)
    make_transport = _transport_factory(target, on_stderr, authorizer)
    if handlers is None:
        handlers = ClientHandlers(**single)
    client = Client(make_transport, from_environment(given), handlers)
    if authorizer is not None:
        authorizer.pause, authorizer.resume = client.watch.pause, client.watch.resume
    return client


def _authorizer(target: Any) -> Authorizer | None:
    """Return what authorizes all sessions of the client; None without a description of that."""
    if not isinstance(target, HttpServer) or target.auth is None:
        return None
    from .transports.http import authorizer_of

    return authorizer_of(target)


def _transport_factory(
    target: Any, on_stderr: Callable[[str], object] | None, authorizer: Authorizer | None
) -> TransportFactory:
    from .transports.stdio import ChildProcessTransport

    if isinstance(target, StdioServer):
        check_plain("on_stderr", on_stderr)
        return lambda: ChildProcessTransport(target, on_stderr=on_stderr)
    if on_stderr is not None:
        raise UsageError("on_stderr goes with a command")
    return _other_transport_factory(target, authorizer)


def _other_transport_factory(target: Any, authorizer: Authorizer | None) -> Callable[[], Transport]:
    from ..server import Server

    if isinstance(target, Server):
        from .transports.memory import MemoryTransport

        return lambda: MemoryTransport(target)
    if isinstance(target, HttpServer):
        from .transports.http import HttpTransport

        return lambda: HttpTransport(target, authorizer=authorizer)
    if callable(target):
        made: Callable[[], Transport] = target
        return made
    raise UsageError(
        "connect takes a command line, a list of words, a URL, a Path, a dict of mcpServers, a "
        f"StdioServer, a HttpServer, a Server or a function that makes transports, not {target!r}"
    )
