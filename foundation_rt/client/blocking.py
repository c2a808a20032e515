"""The client for scripts: the same methods, each of which blocks until it has its result.

::

    from foundation_rt.client.blocking import connect

    with connect("uvx some-server") as client:
        print(client.call("forecast", {"city": "Oslo"}, timeout=5).text)

It runs a `Client` on an event loop in a thread of its own (spec/client-blocking.md).

The loop starts when it is made. It ends when `LoopThread.end` is called, when its user is
collected, or with the interpreter (BLOCK-05). A caller blocks until its work is done, so code on
the loop must not call `LoopThread.run`. Work and the order to end are given to the loop under one
lock: work that was accepted before the end is done, later work is refused. So no caller waits for a
loop that has stopped.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import finalize

from attrs import define, field

from ..base.abort import call_in_loop
from ..errors import UsageError
from . import connecting
from .client import Client
from .errors import ConnectionLostError
from .resilience.circuit_breaker import CircuitState
from .session.handshake import ServerDescription
from .session.subscriptions import Subscription

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
        return self.read(lambda: method(self.client, *args, **kwargs))

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

    def __exit__(self, *exception: object) -> None:
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
    read_app = _waits(Client.read_app)
    skills = _waits(Client.skills)
    skill = _waits(Client.skill)
    read_skill = _waits(Client.read_skill)
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
        return self.read(lambda: self.client.server)

    @property
    def circuit_state(self) -> CircuitState:
        """State of the server's circuit breaker; for health checks."""
        return self.read(lambda: self.client.circuit_state)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The problems of tools in the latest list that cannot be used, a sentence each."""
        return self.read(lambda: self.client.left_out)

    @property
    def stderr_tail(self) -> str:
        """The last stderr lines of the server's process, and how it ended; may be empty."""
        try:
            return self.read(lambda: self.client.stderr_tail)
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

    def read(self, function: Callable[[], Result]) -> Result:
        """Call a plain function on the client's thread; see `run`."""

        async def there() -> Result:
            return function()

        return self.run(there)

    def tell(self, function: Callable[[], object]) -> None:
        """Call `function` on the client's thread, soon; do nothing if the client is closed."""
        self._thread.tell(function)


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

    def __exit__(self, *exception: object) -> None:
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


def _blocking(make: Callable[Given, Client]) -> Callable[Given, BlockingClient]:
    def connect(*args: Given.args, **kwargs: Given.kwargs) -> BlockingClient:
        """Return a blocking client for a server; nothing is started or sent before it is used.

        Takes what `foundation_rt.client.connect` takes, and raises what that raises.
        """
        return BlockingClient(make(*args, **kwargs))

    return update_wrapper(connect, make, ("__name__", "__qualname__"), ())


connect = _blocking(connecting.connect)

log = logging.getLogger("foundation_rt.client")

_POLL_SECONDS = (
    0.5  # seconds; a signal that comes just before a lock is waited for interrupts nothing
)
_LEFTOVER_SECONDS = (
    1.0  # seconds in which what still runs must end, once what it works with has ended
)
_EXIT_SECONDS = 15.0  # that the interpreter waits before it cuts the end short
_ABORT_SECONDS = 5.0  # for an end that was cut short; a killed process is gone in ms
_STEP_SECONDS = 0.5  # for one step of it


class LoopEnded(Exception):
    """The loop takes no work any more."""


@define(eq=False, repr=False)
class _Work(Generic[Result]):
    """Work that a thread gives the loop, and can cancel from the first moment on.

    The future of `run_coroutine_threadsafe` is not enough: the thread may be interrupted after the
    loop has started the work, and before that function has returned the future (BLOCK-03).

    Args:
        begin: makes the coroutine.
    """

    begin: Callable[[], Coroutine[Any, Any, Result]]
    _task: asyncio.Task[Any] | None = field(default=None, init=False)
    _is_withdrawn: bool = field(default=False, init=False)

    async def run(self) -> Result:
        """Run the coroutine, on the loop."""
        if self._is_withdrawn:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self.begin()

    def withdraw(self) -> None:
        """Cancel it, on the loop; do nothing if it has ended."""
        self._is_withdrawn = True
        if self._task is not None:
            self._task.cancel()


@define(eq=False, repr=False)
class LoopThread:
    """Runs coroutines for other threads.

    Args:
        last: the last work of the loop; bounded in time. It may be cancelled once for each of its
            steps, and has to leave nothing behind even then.

    Attributes:
        is_ending: whether it takes no work any more.

    Raises:
        RuntimeError: the system starts no thread.
    """

    _last: Callable[[], Coroutine[Any, Any, object]]
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop, init=False)
    # Reentrant: `end_soon` is called in garbage collection, which may begin anywhere.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    is_ending: bool = field(default=False, init=False)
    _stop: asyncio.Event = field(factory=asyncio.Event, init=False)
    _abort: asyncio.Event = field(factory=asyncio.Event, init=False)
    _thread: threading.Thread = field(init=False)
    _process: int = field(factory=os.getpid, init=False)
    # Not `join`: until Python 3.13 a thread whose `join` was interrupted counts as ended.
    _gone: threading.Event = field(factory=threading.Event, init=False)

    def __attrs_post_init__(self) -> None:
        name = "foundation-rt-client"
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise
        atexit.register(self._exit)

    def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run the coroutine that `work` makes; return what it returns, raise what it raises.

        An interrupt of the waiting thread cancels it (BLOCK-03).

        Raises:
            LoopEnded: the loop has been told to end.
            UsageError: this is the thread of the loop, or a process that was forked.
            concurrent.futures.CancelledError: the loop has ended meanwhile.
        """
        if threading.current_thread() is self._thread:
            raise UsageError(
                "a callback of a blocking client runs on the client's own thread, which cannot "
                "wait for itself: call the client from another thread"
            )
        if self._is_forked:
            raise UsageError("a process that was forked needs a client of its own: make one there")
        asked = _Work(work)
        try:
            with self._lock:
                if self.is_ending:
                    raise LoopEnded
                future = asyncio.run_coroutine_threadsafe(asked.run(), self._loop)
            return _outcome(future)
        except BaseException:
            call_in_loop(self._loop, asked.withdraw)
            raise

    def tell(self, function: Callable[[], object]) -> None:
        """Call `function` on the loop, soon; do nothing if the loop is ending."""
        if self._is_forked:
            return
        with self._lock:
            if not self.is_ending:
                self._loop.call_soon_threadsafe(function)

    def end_soon(self) -> None:
        """Start the end, and do not wait for it."""
        if self._is_forked:
            return
        with self._lock:
            if not self.is_ending:
                self.is_ending = True
                self._loop.call_soon_threadsafe(self._stop.set)

    def end(self) -> None:
        """End the loop and wait for it; an interrupt meanwhile cuts the end short (BLOCK-04)."""
        if threading.current_thread() is self._thread:
            self.end_soon()  # a callback; it ends when that has returned
            return
        if self._is_forked:
            return
        try:
            self.end_soon()
            while not self._gone.wait(_POLL_SECONDS):
                pass
        except BaseException:
            self._abort_shutdown()
            raise
        self._thread.join()

    @property
    def _is_forked(self) -> bool:
        """Return whether this is a forked process, which has neither the thread nor its loop.

        The lock may be held for ever here, by a thread of the parent.
        """
        return os.getpid() != self._process

    def _exit(self) -> None:
        """End the loop when the interpreter ends."""
        if self._is_forked:
            return
        has_gone = False
        try:
            self.end_soon()
            has_gone = self._gone.wait(_EXIT_SECONDS)
        finally:
            if not has_gone:
                self._abort_shutdown()
                self._gone.wait(_ABORT_SECONDS)

    def _abort_shutdown(self) -> None:
        call_in_loop(self._loop, self._abort.set)

    # -- in the thread

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()
            atexit.unregister(self._exit)
            self._gone.set()

    async def _main(self) -> None:
        await self._stop.wait()
        await self._shut_down()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_LEFTOVER_SECONDS)
            for other in others:
                other.cancel()
            await asyncio.wait(others, timeout=_LEFTOVER_SECONDS)
        await self._loop.shutdown_asyncgens()

    async def _shut_down(self) -> None:
        """Run the last work; when the end is cut short, cancel it step by step."""
        last = asyncio.ensure_future(self._last())
        hurry = asyncio.ensure_future(self._abort.wait())
        await asyncio.wait([last, hurry], return_when=asyncio.FIRST_COMPLETED)
        while not last.done():
            last.cancel()
            await asyncio.wait([last], timeout=_STEP_SECONDS)
        hurry.cancel()
        if not last.cancelled() and last.exception() is not None:
            log.error("a client could not be closed", exc_info=last.exception())


def _outcome(future: Future[Result]) -> Result:
    while True:
        try:
            return future.result(_POLL_SECONDS)
        except TimeoutError:
            if future.done():  # its own
                return future.result()
