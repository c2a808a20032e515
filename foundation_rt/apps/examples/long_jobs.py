"""A job that takes long: progress, cancellation, and a task that outlives its request.

::

    foundation-rt serve foundation_rt.examples.long_jobs

A client that knows tasks gets a handle after two seconds, and asks for the outcome when it suits
(spec/tasks.md). Any other client waits, and sees the progress.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from foundation_rt import Constraints, Server, ToolContext

server = Server("long-jobs", version="1.0.0")

Pages = Annotated[int, Constraints(minimum=1, maximum=500)]
Limit = Annotated[int, Constraints(minimum=2, maximum=5_000_000)]


@server.tool(task="optional", task_after_ms=2000, timeout_ms=600_000)
async def index_pages(pages: Pages, context: ToolContext) -> dict[str, int]:
    """Index pages of a site; takes a tenth of a second a page.

    Args:
        pages: How many.
    """
    words = 0
    for page in range(1, pages + 1):
        await asyncio.sleep(0.1)  # the work; a client that cancels ends it here
        words += 17 * page
        await context.report_progress(page, pages, f"page {page} of {pages}")
    await context.info("indexed", pages=pages, words=words)
    return {"pages": pages, "words": words}


@server.tool(timeout_ms=600_000)
def count_primes(below: Limit, context: ToolContext) -> int:
    """Count primes; a `def` runs in a worker thread and asks itself whether it is still wanted."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for number in range(2, int(below**0.5) + 1):
        context.abort_signal.raise_if_aborted()
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve)


if __name__ == "__main__":
    server.run()
