"""The tools of `serve` without an application: one that answers at once, and one that waits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from ..features.context import ToolContext
from ..server import Server

if TYPE_CHECKING:
    from ..base.config.sections import Settings
    from ..protocol.tool_annotations import ToolAnnotations


def demo_server(
    sections: Mapping[str, type[Settings]] | None = None, reads: ToolAnnotations | None = None
) -> Server:
    """Return a server with `echo` and `sleep`, besides `health`, which every server has.

    Args:
        sections: of the application that it runs in, whose variables it has to know.
        reads: annotations of `sleep`, where clients ask people before calls.
    """
    server = Server("foundation-rt-demo", sections=sections)

    @server.tool(inline=True)
    def echo(message: Annotated[str, "What to send back."]) -> dict[str, str]:
        """Send a message back."""
        return {"message": message}

    @server.tool(annotations=reads)
    async def sleep(
        ms: Annotated[int, "How long to sleep, in milliseconds."], *, ctx: ToolContext
    ) -> dict[str, int]:
        """Sleep, unless the call is aborted first."""
        import asyncio

        with suppress(TimeoutError):
            async with asyncio.timeout(ms / 1000):
                await ctx.abort_signal.wait()
        ctx.abort_signal.raise_if_aborted()
        return {"sleptMs": ms}

    return server
