"""Dependencies of a handler: values that functions of its author make for one call (TYPED-70).

A plan is made when the handler is registered: the functions in the order in which they are called,
each once. A call runs them, then the handler, and closes in reverse order what generators and
context managers have opened. There are two ways, since a call runs in one of two places:

* a plan without coroutines, for a `def` handler: all of it where the handler runs;
* any other: on the event loop, and what may block in a worker thread.

An exception of the handler is raised in the generators at their `yield`, as in a `with` block. One
that they swallow is raised nevertheless: a call has one outcome.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ...errors import RegistrationError, UsageError
from ...protocol.plain_values import settled
from .function_signature import FunctionSignature
from .parameters import dependency_of
from .type_schema import UnsupportedType

if TYPE_CHECKING:
    from ..context import ToolContext

Overrides = Mapping[Callable[..., Any], Callable[..., Any]]
"""By function of a dependency, the one that is called instead of it (TYPED-75)."""


class DependencyKind(Enum):
    """The way in which the function of a dependency makes its value."""

    PLAIN = "returns it"
    COROUTINE = "returns it when awaited"
    CONTEXT = "returns a context manager of it"
    ASYNC_CONTEXT = "returns an asynchronous context manager of it"


_ON_LOOP = (DependencyKind.COROUTINE, DependencyKind.ASYNC_CONTEXT)


@frozen
class Step:
    """One function of a plan.

    Attributes:
        key: the function as the signature names it.
        call: the function that is called, with keyword arguments.
        kind: how `call` makes its value.
        context_name: its parameter that gets the context, if there is one.
        needs: by parameter, the key of the dependency that it gets.
    """

    key: Callable[..., Any]
    call: Callable[..., Any]
    kind: DependencyKind
    context_name: str | None
    needs: Mapping[str, Callable[..., Any]]

    def bind(self, context: Any, values: Mapping[Any, Any]) -> Callable[[], Any]:
        """Return the call of the function, with its arguments."""
        arguments = {name: values[key] for name, key in self.needs.items()}
        if self.context_name is not None:
            arguments[self.context_name] = context
        return partial(self.call, **arguments)


class Plan:
    """The dependencies of one handler.

    Args:
        signature: of the handler.
        needs: by parameter of the handler, the function of its dependency.

    Attributes:
        call: called with the context and the other arguments; calls the handler.
        is_async: calls need the event loop.
        is_plain: no function needs the loop, or opens anything.

    Raises:
        RegistrationError: a function cannot be a dependency, or needs itself; names the chain.
    """

    def __init__(
        self, signature: FunctionSignature, needs: Mapping[str, Callable[..., Any]]
    ) -> None:
        self._signature = signature
        self._awaits = signature.is_async
        self._needs = needs
        self._steps = self._make_steps({})
        kinds = {step.kind for step in self._steps}
        self.is_async = signature.is_async or not kinds.isdisjoint(_ON_LOOP)
        self.is_plain = not self.is_async and kinds <= {DependencyKind.PLAIN}
        self.call: Callable[[Any, dict[str, Any]], Any] = (
            self._call_on_loop if self.is_async else self._call_in_place
        )

    def _make_steps(self, overrides: Overrides) -> tuple[Step, ...]:
        steps: dict[Callable[..., Any], Step] = {}
        for name, function in self._needs.items():
            _add_steps(steps, function, overrides, self._signature, (name,), ())
        return tuple(steps.values())

    def _steps_for(self, context: ToolContext) -> tuple[Step, ...]:
        overrides = context.dependency_overrides
        return self._make_steps(overrides) if overrides else self._steps

    def _arguments(self, given: dict[str, Any], values: Mapping[Any, Any]) -> dict[str, Any]:
        return {**given, **{name: values[key] for name, key in self._needs.items()}}

    def _call_in_place(self, context: ToolContext, given: dict[str, Any]) -> Any:
        values: dict[Any, Any] = {}
        stack = ExitStack()
        try:
            for step in self._steps_for(context):
                context.abort_signal.raise_if_aborted()
                if step.kind in _ON_LOOP:
                    raise UsageError(_needs_loop(step, self._signature))
                made = step.bind(context, values)()
                is_opened = step.kind is DependencyKind.CONTEXT
                values[step.key] = stack.enter_context(made) if is_opened else made
            context.abort_signal.raise_if_aborted()
            result = self._signature.function(**self._arguments(given, values))
            if hasattr(type(result), "__await__"):
                return _settle(result, context, stack)
        except BaseException as error:
            stack.__exit__(type(error), error, error.__traceback__)
            raise
        stack.close()
        return result

    async def _call_on_loop(self, context: ToolContext, given: dict[str, Any]) -> Any:
        values: dict[Any, Any] = {}
        opened = _Opened(context)
        try:
            for step in self._steps_for(context):
                context.abort_signal.raise_if_aborted()
                values[step.key] = await opened.value_of(step, step.bind(context, values))
            context.abort_signal.raise_if_aborted()
            function = partial(self._signature.function, **self._arguments(given, values))
            made = function() if self._awaits else await context.run_in_worker(function)
            result = await settled(made)
        except BaseException as error:
            await opened.close(error)
            raise
        await opened.close(None)
        return result


async def _settle(awaitable: Awaitable[Any], context: ToolContext, stack: ExitStack) -> Any:
    """Await what a handler has returned; then close its dependencies where they were opened."""
    try:
        result = await settled(awaitable)
    except BaseException as error:
        await context.run_in_worker(stack.__exit__, type(error), error, error.__traceback__)
        raise
    await context.run_in_worker(stack.close)
    return result


class _Opened:
    """Generators and context managers that one call has opened, here and in worker threads."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._stack = AsyncExitStack()

    async def value_of(self, step: Step, make: Callable[[], Any]) -> Any:
        """Return the value of a dependency."""
        if step.kind is DependencyKind.COROUTINE:
            return await make()
        if step.kind is DependencyKind.ASYNC_CONTEXT:
            return await self._stack.enter_async_context(make())
        if step.kind is DependencyKind.PLAIN:
            return await self._context.run_in_worker(make)
        return await self._open_in_worker(make)

    async def _open_in_worker(self, make: Callable[[], Any]) -> Any:
        opened: list[Any] = []

        def enter() -> Any:
            manager = make()
            value = manager.__enter__()
            opened.append(manager)
            return value

        async def leave(kind: Any, error: Any, traceback: Any) -> None:
            for manager in opened:
                left = partial(manager.__exit__, kind, error, traceback)
                await self._context.run_in_worker(left)

        # Before it is opened: a cancelled call goes on when the thread has ended, and closes it.
        self._stack.push_async_exit(leave)
        return await self._context.run_in_worker(enter)

    async def close(self, error: BaseException | None) -> None:
        """Close all in reverse order, with the exception of the handler, if it raised one.

        A task is cancelled once, after its abort. What waits after that is bounded here.
        """
        import asyncio

        context = self._context
        seconds = context.cancel_grace_ms / 1000 if context.abort_signal.aborted else None
        kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
        try:
            async with asyncio.timeout(seconds) as bound:
                await self._stack.__aexit__(kind, error, traceback)
        except TimeoutError:
            if not bound.expired():
                raise
            waited = {"timeoutMs": context.cancel_grace_ms}
            context.logger.error("a dependency of an aborted call did not close", waited)


# -- the functions ---------------------------------------------------------------------------------


def _add_steps(
    steps: dict[Callable[..., Any], Step],
    function: Callable[..., Any],
    overrides: Overrides,
    user: FunctionSignature,
    path: tuple[str, ...],
    above: tuple[Callable[..., Any], ...],
) -> None:
    """Add `function` after those that it needs itself, unless it is there.

    Args:
        steps: of the plan so far.
        function: as the signature names it.
        overrides: see `Overrides`.
        user: the handler.
        path: the parameter of the handler, for messages.
        above: the functions that need this one.
    """
    if function in above:
        chain = " -> ".join(map(_name, (*above[above.index(function) :], function)))
        raise user.refusal(path[0], f"its dependencies go in a circle: {chain}")
    if function in steps:
        return
    called = overrides.get(function, function)
    call, kind = _callable(called)
    try:
        signature = FunctionSignature(called, "dependency", user.context_type, is_dependency=True)
        context_name, needs = _parameters(signature)
    except RegistrationError as error:
        raise user.refusal(path[0], str(error)) from None
    for needed in needs.values():
        _add_steps(steps, needed, overrides, user, path, (*above, function))
    steps[function] = Step(function, call, kind, context_name, needs)


def _parameters(signature: FunctionSignature) -> tuple[str | None, dict[str, Callable[..., Any]]]:
    """Return the parameter that gets the context, and the dependencies by parameter.

    Raises:
        RegistrationError: a parameter is neither, and has no default.
    """
    context_name: str | None = None
    needs: dict[str, Callable[..., Any]] = {}
    for parameter in signature.parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        try:
            hint = signature.hint(parameter)
        except UnsupportedType as error:
            hint, unresolved = None, f"; {error}"
        else:
            unresolved = ""
        is_passed = parameter.kind is not parameter.POSITIONAL_ONLY
        function = dependency_of(hint, parameter.default) if is_passed else None
        if function is not None:
            needs[parameter.name] = function
        elif hint is not None and signature.is_context(hint):
            context_name = parameter.name
        elif parameter.default is parameter.empty:
            raise signature.refusal(
                parameter.name,
                f"a dependency takes a ToolContext and dependencies alone{unresolved}",
            )
    return context_name, needs


def _callable(function: Callable[..., Any]) -> tuple[Callable[..., Any], DependencyKind]:
    """Return the function to call, and how it makes its value.

    A class whose instances are context managers, and a function that was decorated as one, open
    what they return. A context manager that a plain function returns belongs to somebody else.
    """
    code = function
    while isinstance(code, partial):
        code = code.func
    if inspect.isclass(code):
        if hasattr(code, "__aenter__"):
            return function, DependencyKind.ASYNC_CONTEXT
        has_enter = hasattr(code, "__enter__")
        return function, DependencyKind.CONTEXT if has_enter else DependencyKind.PLAIN
    code = code if inspect.isroutine(code) else type(code).__call__
    if inspect.isasyncgenfunction(code):
        return asynccontextmanager(function), DependencyKind.ASYNC_CONTEXT
    if inspect.isgeneratorfunction(code):
        return contextmanager(function), DependencyKind.CONTEXT
    if inspect.iscoroutinefunction(code):
        return function, DependencyKind.COROUTINE
    written = inspect.unwrap(code)
    if inspect.isasyncgenfunction(written):
        return function, DependencyKind.ASYNC_CONTEXT
    is_manager = inspect.isgeneratorfunction(written)
    return function, DependencyKind.CONTEXT if is_manager else DependencyKind.PLAIN


def _needs_loop(step: Step, signature: FunctionSignature) -> str:
    return (
        f"{signature.kind} {signature.name!r} runs in a worker thread, and the override of"
        f" {_name(step.key)} is a coroutine: override a `def` with a `def`"
    )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def make_plan(
    signature: FunctionSignature, dependencies: Mapping[str, Callable[..., Any]], *, inline: bool
) -> Callable[..., Any]:
    """Return the function that is called with the context and the arguments of `signature`.

    Its calls need the event loop if the signature `is_async` afterwards.

    Raises:
        RegistrationError: a dependency cannot be used, or not in place.
    """
    plan = Plan(signature, dependencies)
    if inline and not signature.is_async and not plan.is_plain:
        raise signature.refusal(
            next(iter(dependencies)),
            "inline=True takes dependencies that return their value: no coroutine, no generator",
        )
    signature.is_async = plan.is_async
    return plan.call
