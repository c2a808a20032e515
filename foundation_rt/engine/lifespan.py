"""What lives as long as a server serves: opened before the first message, closed after the last.

A hook is given the server and is an async context manager, or an async generator that yields once.
Hooks nest in the order of their registration: the first is entered first and left last (OPS-01).

One task of its own enters and leaves all of them: task groups and cancel scopes, which a hook may
open, have to be closed in the task that opened them. Whoever serves holds the lifespan from `start`
to `stop`; it is entered for the first holder and left after the last, so that two transports of
one process, or two clients of a test, share one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from attrs import define, field

from ..errors import RegistrationError, UsageError, describe_exception
from .shutdown import HANDLER_SHARE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator

    from ..logs.logger import StructuredLogger

    LifespanHook = (
        Callable[[Any], AbstractAsyncContextManager[Any]]
        | Callable[[Any], AsyncGenerator[Any, None]]
    )

Server = TypeVar("Server")


class LifespanError(UsageError):
    """A lifespan hook could not be entered; the message names it and says why."""


@define(eq=False, repr=False)
class _Life:
    """The hooks once entered, until they have been left."""

    task: asyncio.Task[None] = field(init=False)
    entered: asyncio.Future[None]
    leave: asyncio.Event
    holders: int = field(default=0, init=False)
    entering: str = field(default="", init=False)


@define(eq=False, repr=False)
class Lifespan(Generic[Server]):
    """The hooks of one server, and what they yielded.

    Args:
        server: is given to every hook.

    Attributes:
        state: what the hooks yielded (OPS-02); None while they are not entered.
    """

    _server: Server
    state: Any = field(default=None, init=False)
    _hooks: list[tuple[str, Callable[[Server], AbstractAsyncContextManager[Any]]]] = field(
        factory=list, init=False
    )
    _life: _Life | None = field(default=None, init=False)
    _logger: StructuredLogger | None = field(default=None, init=False)

    def add(self, hook: LifespanHook) -> None:
        """Add a hook, to be entered after those that are there.

        Raises:
            RegistrationError: `hook` is neither of the two things that a hook can be.
        """
        name = getattr(hook, "__qualname__", repr(hook))
        self._hooks.append((name, _as_context_manager(name, hook)))

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
        """How many hold it."""
        return 0 if self._life is None else self._life.holders

    async def start(self) -> None:
        """Hold the lifespan: enter the hooks, or wait until another holder has entered them.

        Raises:
            LifespanError: a hook failed; those entered before it have been left again.
            UsageError: it is held on another event loop.
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
        """Hold the lifespan no more; the last holder leaves the hooks, in reverse order.

        A hook that raises is logged, and the others are left all the same.

        Args:
            timeout: seconds that leaving may take. At four fifths of it what has not ended is
                cancelled, at its end left behind, with a WARN.
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
        """Enter the hooks, wait, leave them: in this one task."""
        try:
            async with AsyncExitStack() as stack:
                values = []
                for life.entering, hook in self._hooks:
                    values.append(await stack.enter_async_context(hook(self._server)))
                self.state = _merge([value for value in values if value is not None])
                life.entered.set_result(None)
                await life.leave.wait()
        # Whatever it is, SystemExit included: it ends this task, and is told to whoever waits.
        except BaseException as error:
            self._report(life, error)
        finally:
            self._forget(life)

    def _report(self, life: _Life, error: BaseException) -> None:
        import asyncio

        described = describe_exception(error)
        if life.leave.is_set() and isinstance(error, asyncio.CancelledError):
            life.entered.cancel()  # if it is not done: nobody waits for it
        elif not life.entered.done():
            what = f"{described['type']}: {described['message']}"
            told = LifespanError(f"lifespan hook {life.entering!r} failed to start: {what}")
            told.__cause__ = error
            life.entered.set_exception(told)
            fields = {"hook": life.entering, "error": described}
            self._log("error", "lifespan hook failed to start", fields)
        elif not isinstance(error, asyncio.CancelledError):
            # By itself: a task group in it, say, lost one of its tasks.
            what = "failed to stop" if life.leave.is_set() else "ended before the server"
            self._log("error", f"lifespan hook {what}", {"error": described})

    def _forget(self, life: _Life) -> None:
        if self._life is life:
            self._life = self.state = None

    def _log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        if self._logger is not None:
            self._logger.log(level, message, fields)


class LifespanHolder(Protocol):
    """Holds a lifespan while it serves: a runtime."""

    @property
    def lifespan(self) -> Lifespan[Any] | None:
        """The hooks; None if there are none."""

    @property
    def has_resources(self) -> bool:
        """Return whether there is anything to release when serving ends."""

    async def start_lifespan(self) -> None:
        """Enter the hooks, unless another holder has."""

    async def stop_lifespan(self) -> None:
        """Leave the hooks, unless another holder needs them."""

    async def close_middleware(self) -> None:
        """Close the connections of the middleware."""

    def run_in_background(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `function()` on the loop thread of a host without a loop; wait for its end."""


@define(eq=False, repr=False)
class Lifetime:
    """Holds the lifespan for an embedding host, and returns its state (OPS-06).

    `async with` in a host with an event loop; `with` in one without, whose hooks run on the loop
    thread that its coroutine handlers run on.
    """

    _holder: LifespanHolder

    async def __aenter__(self) -> Any:
        await self._holder.start_lifespan()
        return self._state

    async def __aexit__(self, *error: object) -> None:
        await self._stop()

    def __enter__(self) -> Any:
        if self._holder.lifespan is not None:
            self._holder.run_in_background(self._holder.start_lifespan)
        return self._state

    def __exit__(self, *error: object) -> None:
        if self._holder.has_resources:
            self._holder.run_in_background(self._stop)

    async def _stop(self) -> None:
        await self._holder.stop_lifespan()
        await self._holder.close_middleware()

    @property
    def _state(self) -> Any:
        lifespan = self._holder.lifespan
        return None if lifespan is None else lifespan.state


def _as_context_manager(
    name: str, hook: Any
) -> Callable[[Server], AbstractAsyncContextManager[Any]]:
    if inspect.isasyncgenfunction(hook):
        hook = asynccontextmanager(hook)
    elif inspect.iscoroutinefunction(hook) or inspect.isgeneratorfunction(hook):
        raise _refusal(name)
    try:
        inspect.signature(hook).bind(None)
    except TypeError:
        raise _refusal(name) from None
    except ValueError:
        pass  # a callable that does not tell its parameters
    manager: Callable[[Server], AbstractAsyncContextManager[Any]] = hook
    return manager


def _refusal(name: str) -> RegistrationError:
    return RegistrationError(
        f"lifespan hook {name!r}: write `async def {name}(server)` with one `yield`,"
        " or a function of the server that returns an async context manager"
    )


def _merge(values: list[Any]) -> Any:
    """What handlers see of what hooks yielded (OPS-02)."""
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
