"""The program whose page the tests use."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Annotated, Any, Literal

from attrs import frozen

from foundation_rt import (
    AgentContext,
    AgentMessage,
    Constraints,
    ErrorCode,
    Image,
    Server,
    ToolAnnotations,
    ToolContext,
    ToolError,
)

server = Server("shop", version="2.1.0")
server.skills_from(Path(__file__).with_name("skills"))


def drawing(width: int = 160, height: int = 60) -> bytes:
    """Return a PNG of bars."""
    rows = (
        b"\0" + bytes(200 if y > (x // 20 * 37) % height else 60 for x in range(width))
        for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> [x](javascript:alert(3)) \u202etxt"


@frozen
class Address:
    """Where it goes."""

    street: str
    zip: Annotated[str, Constraints(pattern=r"^\d{5}$")]
    country: Literal["NO", "DE", "FR"] = "DE"


@frozen
class Line:
    """A line of an order."""

    article: str
    count: Annotated[int, Constraints(minimum=1, maximum=99)] = 1


@frozen
class Guest:
    """Who comes."""

    name: str
    people: Annotated[int, Constraints(minimum=1, maximum=12)]


@frozen
class Sale:
    """What was sold."""

    article: str
    pieces: int
    price: float | None


@server.tool
async def order(
    customer: str,
    lines: list[Line],
    address: Address,
    context: ToolContext,
    code: int | str | None = None,
    labels: dict[str, str] | None = None,
    express: bool = False,
) -> dict[str, Any]:
    """Order goods.

    The order is **priced** and kept.

    Args:
        customer: Name or number.
    """
    await context.info("order received", customer=customer)
    rows = [{"article": each.article, "count": each.count} for each in lines]
    return {"number": 4711, "customer": customer, "zip": address.zip, "code": code, "lines": rows}


@server.tool
async def wait(pages: int, context: ToolContext) -> None:
    """Wait until the call is cancelled."""
    await context.report_progress(3, pages, "page three")
    await context.warning("slow page", page=3)
    await context.abort_signal.wait()
    context.abort_signal.raise_if_aborted()


@server.tool
async def book(context: ToolContext) -> str:
    """Book by a form."""
    answer = await context.elicit("Who comes?", Guest)
    return f"{answer.action} {answer.content}"


@server.tool
async def pay(context: ToolContext) -> str:
    """Pay on a page of the bank."""
    answer = await context.elicit_url("Please pay.", "https://pay.example.com/bill?amount=20")
    return answer.action


@server.tool
async def sum_up(text: str, context: ToolContext) -> str:
    """Sum up a text with the model of the client."""
    answer = await context.sample(f"Sum up: {text}", system_prompt="Be brief.", max_tokens=100)
    return f"model said {answer.text}"


@server.tool
async def sales(context: ToolContext) -> list[Sale]:
    """List the sales of a month."""
    await context.info("counted", sales=3)
    await context.warning("a price is missing", article="washer")
    return [Sale("bolt", 120, 8.5), Sale("nut", 80, 4.25), Sale("washer", 400, None)]


@server.tool
async def file_form(request: str) -> dict[str, Any]:
    """Let the clerk file a form."""
    message = AgentMessage("form", "A38")
    return await server.agents.send_request("clerk", message, request_id=request, timeout_ms=20_000)


@server.tool(annotations=ToolAnnotations(destructive=True))
def remove(article: str) -> str:
    """Remove an article for good."""
    raise ToolError(ErrorCode.NOT_FOUND, f"There is no article {article}.")


@server.tool(annotations=ToolAnnotations(read_only=True))
def report() -> list[Any]:
    """Report with a picture, a table and a text."""
    return [Image(drawing(), "image/png"), "# Sales\n\nThey were **good**.\n", HOSTILE]


@server.tool
def flood() -> list[Any]:
    """Return what would be very many nodes."""
    table = f"{'|' * 5_001}\n{'|-' * 5_000}|\n" + "|\n" * 2_000
    deep = "[" * 45_000 + "]" * 45_000
    texts = ["[" * 45_000, "*a " * 33_000, table, deep, "line\n" * 49_000, "end"]
    return [Image(drawing(), "image/png"), *texts]


@server.tool(task="optional", timeout_ms=60_000)
async def survey(context: ToolContext) -> str:
    """Ask, as a task."""
    await context.report_progress(1, 2, "asking")
    answer = await context.elicit("Which dessert?", ["cake", "cheese"])
    return f"One {answer.content}."


@server.tool
def restock() -> str:
    """Change the resource."""
    server.resource_updated("shop://stock")
    return "restocked"


@server.resource("shop://stock", mime_type="text/markdown")
def stock() -> str:
    """List the stock."""
    return "# Stock\n\nBolts."


@server.resource("shop://articles/{kind}/{number}")
def article(kind: Literal["bolt", "nut"], number: str) -> dict[str, str]:
    """One article."""
    return {"kind": kind, "number": number}


@server.prompt
def offer(customer: str, tone: Literal["kind", "strict"] = "kind") -> str:
    """Write an offer."""
    return f"Write a {tone} offer to {customer}."


async def clerk(message: AgentMessage, context: AgentContext) -> dict[str, Any]:
    """Count what it is sent."""
    context.state["seen"] = context.state.get("seen", 0) + 1
    if message.payload == "A38":  # nobody has ever filed it
        await context.abort_signal.wait()
    return {"seen": context.state["seen"]}


server.agents.register_agent("clerk", clerk)
