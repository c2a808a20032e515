"""How a handler of a feature is run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import define

from .tools import ExecutionMode, check_scopes, is_async_callable

if TYPE_CHECKING:
    from .checks import DefinitionChecks
    from .tools import Handler


@define(eq=False, repr=False)
class HandlerSpec:
    """A handler, and how it is run.

    Args:
        handler: called with a dict of arguments and a `ToolContext`.
        execution: where it runs.
        timeout_ms: deadline in ms; None means `tools.default_timeout_ms`.
        scopes: what the principal of a call must have been granted, all of it.
    """

    handler: Handler
    execution: ExecutionMode
    timeout_ms: int | None
    scopes: frozenset[str] = frozenset()


def make_handler_spec(
    checks: DefinitionChecks,
    handler: Handler,
    execution: ExecutionMode | None,
    timeout_ms: int | None,
    scopes: Iterable[str] = (),
) -> HandlerSpec:
    """A `HandlerSpec`; by default `async def` runs as a task and anything else in a worker thread.

    Raises:
        RegistrationError: it cannot be run so.
    """
    checks.handler(handler)
    checks.timeout(timeout_ms)
    if execution is None:
        execution = ExecutionMode.ASYNC if is_async_callable(handler) else ExecutionMode.THREAD
    elif execution is ExecutionMode.INLINE and is_async_callable(handler):
        raise checks.refusal("inline=True is for def, not for async def")
    return HandlerSpec(handler, execution, timeout_ms, check_scopes(checks.what, scopes))
