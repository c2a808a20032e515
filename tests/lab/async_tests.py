"""How a test that is a coroutine function runs: `async def test_...`.

It runs in a loop of its own for at most `PATIENCE` seconds, and must leave no task behind. If it,
or a fixture of it, has the fixture `clock`, the time of the loop is that of the clock (see
`virtual_loop`); so it is with `pytest.mark.virtual_time`, for a test that does not look at the
clock. The fixture `loop_factory` of a module makes another loop.

An argument that is an async context manager is entered in the loop: the test gets what it yields.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from tests.lab.checks.leaks import tasks
from tests.lab.clock.virtual_loop import VirtualLoop

PATIENCE = 180.0
"""Seconds after which a test in real time counts as hanging."""

GRACE, VIRTUAL_GRACE = 20.0, 600.0
"""Seconds that a task may take to end after its test, in real and in virtual time."""


def run_test(test: Callable[..., Any], names: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Run a coroutine function with the arguments `names`; `values` are those of all fixtures."""
    clock, factory = values.get("clock"), values.get("loop_factory")
    if clock is not None:
        factory = lambda: VirtualLoop(clock)  # noqa: E731

    async def whole() -> None:
        async with asyncio.timeout(None if clock else PATIENCE), AsyncExitStack() as stack:
            arguments = {}
            for name in names:
                value = values[name]
                if isinstance(value, AbstractAsyncContextManager):
                    value = await stack.enter_async_context(value)
                arguments[name] = value
            await test(**arguments)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=VIRTUAL_GRACE if clock else GRACE)
        assert not tasks(), f"tasks that are left: {tasks()}"

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(whole())
