"""A task; it keeps no results, so the answer is the end of the task in this process."""

import asyncio
import logging
import sys
from itertools import count

import procrastinate
from serving import serve

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=sys.argv[1]))
logging.disable()
waiting: dict[int, asyncio.Future[None]] = {}
numbers = count()
QUEUE = sys.argv[2]  # another process could not tell the one who waits
SERVED = [QUEUE, "p0"] if QUEUE == "standby" else [QUEUE]


@app.task
async def work(number: int, pause: float) -> None:
    """Tell the one who waits, if that is here."""
    if pause:
        await asyncio.sleep(pause)
    if number in waiting:
        waiting.pop(number).set_result(None)


async def unit(pause: float) -> None:
    """Defer, and wait for the end."""
    number = next(numbers)
    waiting[number] = future = asyncio.get_running_loop().create_future()
    await work.configure(queue=QUEUE).defer_async(number=number, pause=pause)
    await future


async def main() -> None:
    """Serve."""
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(
            app.run_worker_async(queues=SERVED, concurrency=32, install_signal_handlers=False)
        )
        await serve(unit)
        worker.cancel()


asyncio.run(main())
