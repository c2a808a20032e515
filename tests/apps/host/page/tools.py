"""The server whose tools the page's tests use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import frozen

from foundation_rt import Server, ToolAnnotations, ToolContext

server = Server("tools", version="1.0.0")

server.skills_from(Path(__file__).with_name("skills"))

READ_ONLY = ToolAnnotations(read_only=True)


@frozen
class Parcel:
    """Where a parcel goes."""

    name: str
    count: int = 1


@server.tool(annotations=READ_ONLY)
def weather(city: str) -> list[dict[str, object]]:
    """Tell the weather of the next days."""
    return [{"city": city, "day": "Mon", "degrees": 4}, {"city": city, "day": "Tue", "degrees": 7}]


@server.tool
def keep(values: list[Any]) -> list[Any]:
    """Keep values."""
    return values


@server.tool
def remove(path: str) -> str:
    """Remove a file for good."""
    return f"removed {path}"


@server.tool(annotations=READ_ONLY)
async def post(context: ToolContext) -> str:
    """Ask where a parcel goes, and send it."""
    answer = await context.elicit("Where shall the parcel go?", Parcel)
    return f"{answer.action}: {answer.content}"


@server.tool(annotations=READ_ONLY)
async def wait(context: ToolContext) -> None:
    """Wait until the call is aborted."""
    context.report_progress(3, 10, "waiting")
    await context.abort_signal.wait()
    context.abort_signal.raise_if_aborted()
