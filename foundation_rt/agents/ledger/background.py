"""A coordinator that runs as long as its server does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...errors import describe_exception

if TYPE_CHECKING:
    from ...logs.logger import StructuredLogger
    from .coordinator import AgentCoordinatorV2

_START_RETRY_SECONDS = 5.0

_LAST_GRACE_SECONDS = 0.2
"""For handlers when the server ends: its calls have had their time already."""


async def run_until_cancelled(coordinator: AgentCoordinatorV2, logger: StructuredLogger) -> None:
    """Start a coordinator, again and again until that succeeds; stop it when this is cancelled."""
    try:
        while True:
            try:
                await coordinator.start()
                break
            except Exception as error:
                described = {"error": describe_exception(error)}
                logger.error("agents not started; it is tried again", described)
                await asyncio.sleep(_START_RETRY_SECONDS)
        await asyncio.get_running_loop().create_future()
    finally:
        await coordinator.stop(_LAST_GRACE_SECONDS)
