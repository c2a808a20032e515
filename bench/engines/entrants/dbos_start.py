"""A workflow without steps: `start_workflow_async`, and its result."""

import asyncio
import logging
import sys

from dbos import DBOS
from serving import serve

DBOS(config={"name": "bench", "system_database_url": sys.argv[1], "run_admin_server": False})
logging.disable()


@DBOS.workflow()
async def work(pause: float) -> float:
    """Answer with what came."""
    if pause:
        await asyncio.sleep(pause)
    return pause


async def unit(pause: float) -> float:
    """Start, and wait for the result."""
    handle = await DBOS.start_workflow_async(work, pause)
    return await handle.get_result()


async def main() -> None:
    """Serve."""
    DBOS.launch()
    await serve(unit)
    DBOS.destroy()


asyncio.run(main())
