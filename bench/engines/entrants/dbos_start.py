"""A workflow without steps: `start_workflow_async`, and its result."""

import asyncio
import logging
import sys

from dbos import DBOS
from serving import serve

DBOS(config={"name": "bench", "system_database_url": sys.argv[1], "run_admin_server": False})
logging.disable()


@DBOS.workflow()
async def work(number: int) -> int:
    """Answer with what came."""
    return number


async def unit() -> int:
    """Start, and wait for the result."""
    handle = await DBOS.start_workflow_async(work, 1)
    return await handle.get_result()


async def main() -> None:
    """Serve."""
    DBOS.launch()
    await serve(unit)
    DBOS.destroy()


asyncio.run(main())
