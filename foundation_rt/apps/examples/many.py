"""Two servers as one: each has a file, a state and tests of its own, and clients see one server.

::

    foundation-rt serve foundation_rt.examples.many
    foundation-rt call foundation_rt.examples.many:server shop_order item=tea count=2

The names of a mounted server get its prefix. What it registers later appears at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from attrs import define, field

from foundation_rt import ErrorCode, Server, ToolContext, ToolError


@define
class Stock:
    """The goods of the shop.

    Attributes:
        items: how many there are of each.
    """

    items: dict[str, int] = field(factory=lambda: {"tea": 10, "coffee": 3})


shop = Server("shop", version="1.0.0")


@shop.lifespan
async def open_shop(_: Server) -> AsyncIterator[Stock]:
    """Open the stock for as long as the outer server runs."""
    yield Stock()


@shop.tool
def order(item: str, count: int, ctx: ToolContext[Stock]) -> str:
    """Order something."""
    left = ctx.state.items.get(item, 0)
    if not 0 < count <= left:
        raise ToolError(ErrorCode.INVALID_ARGUMENT, f"There are {left} of {item!r}.")
    ctx.state.items[item] = left - count
    shop.resource_updated("stock://all")
    return f"{count} of {item} ordered"


@shop.resource("stock://all")
def stock(ctx: ToolContext[Stock]) -> dict[str, int]:
    """Return how many there are of each item."""
    return ctx.state.items


weather = Server("weather", version="1.0.0")


@weather.tool
def forecast(city: str) -> str:
    """Return the weather of a city."""
    return f"It rains in {city}."


server = Server("many", version="1.0.0")
server.mount(shop, prefix="shop")
server.mount(weather, prefix="weather")


if __name__ == "__main__":
    server.run()
