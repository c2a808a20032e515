"""Hears from PostgreSQL that other processes may have changed something.

On a connection of its own, which is made again, with growing pauses, for as long as it takes. What
was said meanwhile is lost, so the callback is called once for all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
from attrs import define

from .connections import Connections

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


@define(eq=False, repr=False)
class Listener:
    """Calls `callback` for what others notify on `channel`, a name in quotes."""

    _connections: Connections
    _channel: str
    _callback: Callable[[], object]

    async def run(self) -> None:
        """Listen until cancelled."""
        call_soon = asyncio.get_running_loop().call_soon  # what it raises is not for us to handle
        pause = _FIRST_PAUSE_S
        while True:
            try:
                connection = await self._connections.connect()
                async with connection:
                    await connection.execute(f"LISTEN {self._channel}".encode())
                    pause = _FIRST_PAUSE_S
                    call_soon(self._callback)
                    async for notify in connection.notifies():
                        if not self._connections.is_own(notify.pid):
                            call_soon(self._callback)
            except psycopg.Error:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
