"""The demo server of `host`, `ask` and `gateway --demo`: with tools that show what pages can show.

`serve` without an application does without them: it starts as fast as a server can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from ..features.context import ToolContext
from ..features.signatures.constraints import Constraints
from ..protocol.tool_annotations import ToolAnnotations
from ..server import Server
from .demo import demo_server

if TYPE_CHECKING:
    from ..base.config.sections import Settings

_READS = ToolAnnotations(read_only=True)
_STEP_SECONDS = 0.25

_PLANETS = (
    ("Mercury", 4_879, 0, "rock"),
    ("Venus", 12_104, 0, "rock"),
    ("Earth", 12_756, 1, "rock"),
    ("Mars", 6_792, 2, "rock"),
    ("Jupiter", 142_984, 95, "gas"),
    ("Saturn", 120_536, 146, "gas"),
    ("Uranus", 51_118, 28, "ice"),
    ("Neptune", 49_528, 16, "ice"),
)


def showing_server(sections: Mapping[str, type[Settings]] | None = None) -> Server:
    """Return the demo server with `countdown` and `planets`, too.

    `echo` says nothing of itself, so people are asked before it is called; the others only read.

    Args:
        sections: see `demo_server`.
    """
    server = demo_server(sections, _READS)

    @server.tool(annotations=_READS)
    async def countdown(
        start: Annotated[
            int, "The number to begin with.", Constraints(minimum=1, maximum=100)
        ] = 10,
        *,
        ctx: ToolContext,
    ) -> dict[str, int]:
        """Count down to zero, and report the progress."""
        import asyncio

        for step in range(start):
            await ctx.report_progress(step, start, f"{start - step} ...")
            await asyncio.sleep(_STEP_SECONDS)
        return {"counted": start}

    @server.tool(inline=True, annotations=_READS, output_schema=True)
    def planets(
        moons: Annotated[int, "List those with at least so many moons."] = 0,
    ) -> dict[str, list[dict[str, Any]]]:
        """List the planets of the sun, with their diameters and moons."""
        rows = [
            {"planet": name, "diameterKm": diameter, "moons": count, "madeOf": kind}
            for name, diameter, count, kind in _PLANETS
            if count >= moons
        ]
        return {"planets": rows}

    return server
