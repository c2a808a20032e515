"""The conversation of an entrant with the one who measures, on stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable


async def serve(unit: Callable[[float], Awaitable[object]]) -> None:
    """Do what is asked in lines of "clients units pause"; answer with seconds and CPU seconds.

    Args:
        unit: does one unit, whose handler pauses for so many seconds.
    """
    for _ in range(20):
        await unit(0)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        clients, units, pause = map(int, line.split())
        left = iter(range(units))

        async def client(left: object = left, pause: int = pause) -> None:
            for _ in left:  # type: ignore[attr-defined]
                await unit(pause)

        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client() for _ in range(clients)))
        done = (time.perf_counter() - started, time.process_time() - cpu)
        print(json.dumps(done), flush=True)
