"""Middleware: plain callables around the handler of every call.

A middleware is `async def f(call, proceed)`. It awaits `proceed()`, which runs the inner middleware
and the handler and returns the handler's value, and returns a value itself. It may return another
value, raise `ToolError` to refuse the call, or not proceed at all (OPS-08).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import RegistrationError
from ..registry.tools import is_async_callable

if TYPE_CHECKING:
    from ..core.invocation import Invocation
    from ..engine.executor import Proceed

    Middleware = Callable[[Invocation, Proceed], Awaitable[Any]]


def check_middleware(middleware: Any) -> None:
    """Check that `middleware` can be called as one.

    Raises:
        RegistrationError: it is not `async def`, or does not take two arguments.
    """
    if not (is_async_callable(middleware) and _takes_two(middleware)):
        name = getattr(middleware, "__qualname__", repr(middleware))
        raise RegistrationError(f"middleware {name!r}: write `async def {name}(call, proceed)`")


def _takes_two(middleware: Callable[..., Any]) -> bool:
    try:
        inspect.signature(middleware).bind(None, None)
    except TypeError:
        return False
    return True


def wrap(middleware: Iterable[Middleware], call: Invocation, handler: Proceed) -> Proceed:
    """Return `handler` with all of `middleware` around it, the first outermost (OPS-07)."""
    proceed = handler
    for each in reversed(tuple(middleware)):
        proceed = partial(each, call, proceed)
    return proceed
