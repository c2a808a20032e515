"""Resources that change: clients subscribe and are notified.

::

    foundation-rt serve foundation_rt.examples.streams

A lifespan hook owns what runs beside the calls, here a task that reads a sensor. It starts before
the first message and ends with the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import gauss

from foundation_rt import ErrorCode, Server, ToolContext, ToolError

SECONDS = 1.0

server = Server("weather", version="1.0.0")

readings: dict[str, list[float]] = {"oslo": [4.0], "bergen": [7.0]}


def take(station: str, degrees: float) -> None:
    """Add a reading; notify the clients that have subscribed to the station."""
    readings[station] = [*readings[station][-59:], round(degrees, 1)]
    server.resource_updated(f"weather://{station}")


async def watch() -> None:
    """Read the sensors for ever."""
    while True:
        await asyncio.sleep(SECONDS)
        for station, known in readings.items():
            take(station, known[-1] + gauss(0, 0.2))


@server.lifespan
async def sensors(server: Server) -> AsyncIterator[None]:
    """Watch the sensors while the server serves."""
    task = asyncio.create_task(watch())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@server.resource("weather://{station}")
def station(station: str) -> dict[str, object]:
    """Return the last readings of a station, the newest last."""
    if station not in readings:
        raise ToolError(ErrorCode.NOT_FOUND, f"There is no station {station}.")
    return {"station": station, "degrees": readings[station]}


@server.tool
async def calibrate(station: str, degrees: float, context: ToolContext) -> str:
    """Set the reading of a station."""
    if station not in readings:
        raise ToolError(ErrorCode.NOT_FOUND, f"There is no station {station}.")
    take(station, degrees)
    await context.info("calibrated", station=station)
    return f"{station}: {degrees} degrees"


if __name__ == "__main__":
    server.run()
