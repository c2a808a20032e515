"""The client for scripts: the same methods, each of which blocks until it has its result.

::

    from foundation_rt.client.blocking import connect

    with connect("uvx some-server") as client:
        print(client.call("forecast", {"city": "Oslo"}, timeout=5).text)

It runs a `Client` on an event loop in a thread of its own (spec/client-blocking.md).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from functools import update_wrapper
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack
from weakref import finalize

from attrs import define, field

from . import connecting
from .client import Client
from .errors import ConnectionLostError
from .loop_thread import LoopEnded, LoopThread
from .resilience.circuit_breaker import CircuitState
from .session.handshake import ServerDescription
from .session.subscriptions import Subscription

if TYPE_CHECKING:
    from os import PathLike

    from .connecting import Target
    from .handlers.server_requests import ServerRequestHandlers
    from .options import ConnectOptions

Given = ParamSpec("Given")
Result = TypeVar("Result")


def _waits(
    method: Callable[Concatenate[Client, Given], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[BlockingClient, Given], Result]:
    """Return the blocking form of a coroutine method of `Client`."""

    def wait(self: BlockingClient, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return self.run(lambda: method(self.client, *args, **kwargs))

    update_wrapper(wait, method)
    return wait


def _asks(
    method: Callable[Concatenate[Client, Given], Result],
) -> Callable[Concatenate[BlockingClient, Given], Result]:
    """Return the blocking form of a plain method of `Client`, which runs on the client's thread."""

    def ask(self: BlockingClient, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        async def there() -> Result:
            return method(self.client, *args, **kwargs)

        return self.run(there)

    update_wrapper(ask, method)
    return ask


@define(eq=False, repr=False)
class BlockingClient:
    """A `Client` whose methods block; made by `connect`.

    It may be used from any number of threads. Callbacks (`on_progress`, `on_log`, ...) are called
    on its own thread and cannot use it; handlers of the server's requests can, unless they are
    `async def`.
    Inside a running event loop it works too, but blocks that loop: use `Client` there.

    Args:
        client: used by this object only.
    """

    client: Client
    _thread: LoopThread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = LoopThread(self.client.close)
        # Garbage collection must not block; the end of the interpreter waits for what is left.
        finalize(self, self._thread.end_soon).atexit = False

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and the thread; a second time does nothing.

        Calls of other threads end with a `ConnectionLostError`. Interrupted (Ctrl-C), it raises at
        once, and a server that does not want to end is killed.
        """
        self._thread.end()

    @property
    def is_closed(self) -> bool:
        """Return whether it has been closed, or is being closed."""
        return self._thread.is_ending

    initialize = _waits(Client.initialize)
    call = _waits(Client.call)
    list_tools = _waits(Client.list_tools)
    get_tool_schema = _waits(Client.get_tool_schema)
    list_resources = _waits(Client.list_resources)
    list_resource_templates = _waits(Client.list_resource_templates)
    list_prompts = _waits(Client.list_prompts)
    read_resource = _waits(Client.read_resource)
    get_prompt = _waits(Client.get_prompt)
    complete = _waits(Client.complete)
    request = _waits(Client.request)
    request_all = _waits(Client.request_all)
    ping = _waits(Client.ping)

    has_capability = _asks(Client.has_capability)
    tool_circuit_state = _asks(Client.tool_circuit_state)
    invalidate = _asks(Client.invalidate)
    label = _asks(Client.label)
    roots_changed = _asks(Client.roots_changed)

    @property
    def server(self) -> ServerDescription | None:
        """The server's description; None without a connection."""
        return _server(self)

    @property
    def circuit_state(self) -> CircuitState:
        """State of the server's circuit breaker; for health checks."""
        return _circuit_state(self)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The problems of tools in the latest list that cannot be used, a sentence each."""
        return _left_out(self)

    @property
    def stderr_tail(self) -> str:
        """The last stderr lines of the server's process, and how it ended; may be empty."""
        try:
            return _stderr_tail(self)
        except ConnectionLostError:
            return self.client.stderr_tail  # closed: it does not change any more

    def subscribe(self, *uris: str) -> BlockingSubscription:
        """Subscribe to changes of resources: ``with client.subscribe(uri) as changes``.

        It outlives lost connections, and connects again by itself.
        """
        return BlockingSubscription(self, self.client.subscribe(*uris))

    def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine on the client's thread, and wait for its result.

        Raises:
            ConnectionLostError: the client is closed, or was closed meanwhile.
            UsageError: this is the client's thread.
        """
        try:
            return self._thread.run(work)
        except LoopEnded:
            raise ConnectionLostError(
                "the client is closed", may_have_run=False, retryable=False
            ) from None
        except CancelledError:
            raise ConnectionLostError(
                "the client was closed", may_have_run=True, retryable=False
            ) from None

    def tell(self, function: Callable[[], object]) -> None:
        """Call `function` on the client's thread, soon; do nothing if the client is closed."""
        self._thread.tell(function)


@_asks
def _server(client: Client) -> ServerDescription | None:
    return client.server


@_asks
def _left_out(client: Client) -> tuple[str, ...]:
    return client.left_out


@_asks
def _circuit_state(client: Client) -> CircuitState:
    return client.circuit_state


@_asks
def _stderr_tail(client: Client) -> str:
    return client.stderr_tail


@define(eq=False, repr=False)
class BlockingSubscription:
    """A blocking iterator over the URIs of resources that have changed.

    It ends when it, or the client, is closed, which another thread may do. See `Subscription`.
    """

    _client: BlockingClient
    _subscription: Subscription

    def __enter__(self) -> BlockingSubscription:
        """Subscribe; returns when the server has confirmed.

        Raises:
            MCPError: it refused, or cannot be reached.
        """
        self._client.run(self._subscription.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> BlockingSubscription:
        return self

    def __next__(self) -> str:
        try:
            return self._client.run(self._subscription.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        except ConnectionLostError:
            if self._client.is_closed:
                raise StopIteration from None
            raise

    def close(self) -> None:
        """Unsubscribe; an iteration gets the changes received so far, then ends."""
        self._client.tell(self._subscription.close)


def connect(
    target: Target,
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    on_stderr: Callable[[str], object] | None = None,
    handlers: ServerRequestHandlers | None = None,
    **options: Unpack[ConnectOptions],
) -> BlockingClient:
    """Return a blocking client for a server; nothing is started or sent before it is used.

    Takes what `foundation_rt.client.connect` takes, and raises what that raises.
    """
    client = connecting.connect(
        target,
        headers=headers,
        env=env,
        cwd=cwd,
        on_stderr=on_stderr,
        handlers=handlers,
        **options,
    )
    return BlockingClient(client)
