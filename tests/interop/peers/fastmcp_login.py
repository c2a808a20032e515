"""`fastmcp.Client` 4 logs in at the server whose URL is its argument, and calls `who`."""

import asyncio
import sys

from fastmcp import Client


async def main() -> None:
    async with Client(sys.argv[1], auth="oauth") as client:
        print((await client.call_tool("who")).content[0].text.replace("\n", " "))


asyncio.run(main())
