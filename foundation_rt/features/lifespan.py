"""The lifespan of a server: hooks entered before the first message and left after the last.

A hook takes the server, and is an async context manager or an async generator that yields once.
Hooks nest in the order of their registration: the first is entered first and left last (OPS-01).

One task enters and leaves all hooks: task groups and cancel scopes, which a hook may open, have to
be closed in the task that opened them. A transport holds the lifespan from `start` to `stop`. The
first holder enters the hooks and the last one leaves them, so two transports of one process, or two
clients of a test, share them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import define, field

from ..errors import RegistrationError, UsageError, describe_exception
from ..kernel.engine.shutdown import HANDLER_SHARE
from .callables import takes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator

    from ..base.logs.logger import StructuredLogger
    from ..kernel.runtime import Runtime
    from .embedding import Embedding

    LifespanHook = (
        Callable[[Any], AbstractAsyncContextManager[Any]]
        | Callable[[Any], AsyncGenerator[Any, None]]
    )

Server = TypeVar("Server")


class LifespanError(UsageError):
    """A lifespan hook could not be entered; the message names the hook and the reason."""


@define(eq=False, repr=False)
class _Life:
    """The hooks from the first entry to the last exit."""

    task: asyncio.Task[None] = field(init=False)
    entered: asyncio.Future[None]
    leave: asyncio.Event
    holders: int = field(default=0, init=False)
    entering: str = field(default="", init=False)


@define(eq=False, repr=False)
class Lifespan(Generic[Server]):
    """The hooks of one server, and their state.

    Args:
        server: passed to every hook.

    Attributes:
        state: the values that the hooks yielded (OPS-02); None while they are not entered.
        after_initialize: whether `initialize` may be answered before the hooks are entered: every
            one of them allows it (OPS-40).
    """

    _server: Server
    state: Any = field(default=None, init=False)
    after_initialize: bool = field(default=True, init=False)
    _hooks: list[tuple[str, Callable[[Server], AbstractAsyncContextManager[Any]]]] = field(
        factory=list, init=False
    )
    _life: _Life | None = field(default=None, init=False)
    _logger: StructuredLogger | None = field(default=None, init=False)

    def add(self, hook: LifespanHook, *, after_initialize: bool = False) -> None:
        """Add a hook, which is entered after the hooks added before it.

        Args:
            hook: to be entered.
            after_initialize: whether it may be entered after `initialize` was answered.

        Raises:
            RegistrationError: `hook` is neither a context manager nor a generator.
        """
        name = getattr(hook, "__qualname__", repr(hook))
        self._hooks.append((name, _as_context_manager(name, hook)))
        self.after_initialize = self.after_initialize and after_initialize

    def attach_logger(self, logger: StructuredLogger) -> None:
        """Log to `logger` from now on."""
        self._logger = logger

    @property
    def is_open(self) -> bool:
        """Return whether all hooks have been entered and none has been left."""
        life = self._life
        return life is not None and life.entered.done() and not life.leave.is_set()

    @property
    def holders(self) -> int:
        """Return the number of holders."""
        return 0 if self._life is None else self._life.holders

    async def start(self) -> None:
        """Hold the lifespan: enter the hooks, or wait until another holder has entered them.

        Raises:
            LifespanError: a hook failed; the hooks before it have been left again.
            UsageError: the lifespan is held on another event loop.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        while self._life is not None and self._life.leave.is_set():
            self._check_loop(self._life, loop)
            await asyncio.wait([self._life.task])
        life = self._life
        if life is None:
            self._life = life = _Life(loop.create_future(), asyncio.Event())
            life.task = loop.create_task(self._live(life), name="foundation-rt-lifespan")
        self._check_loop(life, loop)
        life.holders += 1
        try:
            await asyncio.shield(life.entered)
        except asyncio.CancelledError:
            life.holders -= 1
            if life.holders == 0:
                life.leave.set()
                if not life.entered.done():
                    life.task.cancel()
            raise

    async def stop(self, timeout: float) -> None:
        """Release the lifespan; the last holder leaves the hooks, in reverse order.

        The exception of a hook is logged, and the others are left nevertheless.

        Args:
            timeout: seconds that leaving may take. After `HANDLER_SHARE` of it the hooks are
                cancelled, with a warning; at its end they are left behind.
        """
        import asyncio

        life = self._life
        if life is None:
            return
        if not life.leave.is_set():
            life.holders -= 1
            if life.holders:
                return
            life.leave.set()
        await asyncio.wait([life.task], timeout=timeout * HANDLER_SHARE)
        if life.task.done():
            return
        self._log("warn", "lifespan hook takes too long to stop: cancelled", {})
        life.task.cancel()
        await asyncio.wait([life.task], timeout=timeout * (1 - HANDLER_SHARE))
        self._forget(life)

    def _check_loop(self, life: _Life, loop: asyncio.AbstractEventLoop) -> None:
        if life.task.get_loop() is not loop:
            raise UsageError("the lifespan of this server is held on another event loop")

    async def _live(self, life: _Life) -> None:
        """Enter the hooks, wait, and leave them, all in this task."""
        try:
            async with AsyncExitStack() as stack:
                await self.enter(stack, life)
                life.entered.set_result(None)
                await life.leave.wait()
        # Every exception, SystemExit included, ends this task and is passed to the holders.
        except BaseException as error:
            self._report(life, error)
        finally:
            self._forget(life)

    async def enter(self, stack: AsyncExitStack, life: _Life | None = None) -> None:
        """Enter the hooks in this task, to be left by `stack`; see `Server.mount` (MOUNT-05)."""
        values = []
        for name, hook in self._hooks:
            if life is not None:
                life.entering = name
            values.append(await stack.enter_async_context(hook(self._server)))
        self.state = _merge([value for value in values if value is not None])

    def _report(self, life: _Life, error: BaseException) -> None:
        import asyncio

        described = describe_exception(error)
        if life.leave.is_set() and isinstance(error, asyncio.CancelledError):
            life.entered.cancel()  # if it is pending: its only holder was cancelled
        elif not life.entered.done():
            problem = f"{described['type']}: {described['message']}"
            advice = f"lifespan hook {life.entering!r} failed to start: {problem}"
            # The hook has said what its user has to change.
            failure = LifespanError(str(error) if isinstance(error, UsageError) else advice)
            failure.__cause__ = error
            life.entered.set_exception(failure)
            fields = {"hook": life.entering, "error": described}
            self._log("error", "lifespan hook failed to start", fields)
        elif not isinstance(error, asyncio.CancelledError):
            # By itself, for example because a task of its task group failed.
            problem = "failed to stop" if life.leave.is_set() else "ended before the server"
            self._log("error", f"lifespan hook {problem}", {"error": described})

    def _forget(self, life: _Life) -> None:
        if self._life is life:
            self._life = self.state = None

    def _log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        if self._logger is not None:
            self._logger.log(level, message, fields)


@define(eq=False, repr=False)
class Lifetime:
    """Holds the lifespan for an embedding host, and returns its state (OPS-06).

    `async with` in a host with an event loop; `with` in one without, whose hooks run on the loop
    thread that its coroutine handlers run on.

    Args:
        runtime: of the server.
        embedding: returns what runs the hooks for a host without an event loop.
    """

    _runtime: Runtime
    _embedding: Callable[[], Embedding]

    async def __aenter__(self) -> Any:
        await self._runtime.start_lifespan()
        return self._state

    async def __aexit__(self, *error: object) -> None:
        await self._stop()

    def __enter__(self) -> Any:
        if self._runtime.lifespan is not None:
            self._embedding().run_in_background(self._runtime.start_lifespan)
        return self._state

    def __exit__(self, *error: object) -> None:
        if self._runtime.needs_closing:
            self._embedding().run_in_background(self._stop)

    async def _stop(self) -> None:
        await self._runtime.stop_lifespan()
        await self._runtime.close_features()

    @property
    def _state(self) -> Any:
        lifespan = self._runtime.lifespan
        return None if lifespan is None else lifespan.state


def _as_context_manager(
    name: str, hook: Any
) -> Callable[[Server], AbstractAsyncContextManager[Any]]:
    if inspect.isasyncgenfunction(hook):
        hook = asynccontextmanager(hook)
    elif inspect.iscoroutinefunction(hook) or inspect.isgeneratorfunction(hook):
        raise _refusal(name)
    if not takes(hook, 1):
        raise _refusal(name)
    manager: Callable[[Server], AbstractAsyncContextManager[Any]] = hook
    return manager


def _refusal(name: str) -> RegistrationError:
    return RegistrationError(
        f"lifespan hook {name!r}: write `async def {name}(server)` with one `yield`,"
        " or a function of the server that returns an async context manager"
    )


def _merge(values: list[Any]) -> Any:
    """Return the state for handlers, from the values that the hooks yielded (OPS-02)."""
    if len(values) < 2:
        return values[0] if values else None
    merged: dict[Any, Any] = {}
    for value in values:
        if not isinstance(value, Mapping):
            raise TypeError(
                "several hooks yield something: each must yield a mapping,"
                f" not {type(value).__name__}"
            )
        twice = merged.keys() & value.keys()
        if twice:
            raise ValueError(f"two hooks yield {sorted(map(str, twice))}")
        merged |= value
    return merged
