"""The conversation of an entrant with the one who measures, on stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable


async def serve(unit: Callable[[], Awaitable[object]]) -> None:
    """Do what is asked in lines of "clients units"; answer each with seconds and CPU seconds."""
    for _ in range(20):
        await unit()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        clients, units = map(int, line.split())
        left = iter(range(units))

        async def client(left: object = left) -> None:
            for _ in left:  # type: ignore[attr-defined]
                await unit()

        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(client() for _ in range(clients)))
        done = (time.perf_counter() - started, time.process_time() - cpu)
        print(json.dumps(done), flush=True)
