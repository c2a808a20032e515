"""What a host is told of messages, as it happens (AACP-29)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...errors import StructuredError
from .types import Envelope

if TYPE_CHECKING:
    from .runner import NodeRunner

MessageHook = Callable[[Envelope], Awaitable[None]]
CompletedHook = Callable[[str], Awaitable[None]]
FailedHook = Callable[[str, StructuredError], Awaitable[None]]


def attach_hooks(
    runner: NodeRunner,
    on_received: MessageHook | None,
    on_completed: CompletedHook | None,
    on_failed: FailedHook | None,
) -> None:
    """Have a runner call the hooks that there are; what none wants to know is not gathered."""

    async def settle(message_id: str, error: StructuredError | None) -> None:
        if error is not None:
            if on_failed is not None:
                await on_failed(message_id, error)
        elif on_completed is not None:
            await on_completed(message_id)

    runner.on_received = on_received
    if on_completed is not None or on_failed is not None:
        runner.on_settled = settle
    runner.node.notices = runner.on_received is not None or runner.on_settled is not None
