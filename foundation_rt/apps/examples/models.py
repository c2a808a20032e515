"""Pydantic models as parameters and results: an order, its lines, and the rules that they keep.

::

    pip install pydantic
    foundation-rt serve foundation_rt.examples.models

The schema that clients see is that of the model, and a validator that refuses a value names its
path. The server imports no pydantic unless the program does.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, field_validator

from foundation_rt import ErrorCode, Server, ToolError

server = Server("orders", version="1.0.0")


class OrderLine(BaseModel):
    """A line of an order."""

    article: str = Field(min_length=3, description="What is ordered.")
    quantity: int = Field(default=1, ge=1, le=99)
    price: float = Field(gt=0, description="Of one piece, in euros.")


class Order(BaseModel):
    """An order of a customer."""

    customer: str
    lines: list[OrderLine] = Field(min_length=1)

    @field_validator("customer")
    @classmethod
    def _has_a_name(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("a customer has a name")
        return value.strip()


class Receipt(BaseModel):
    """The confirmation of an order."""

    number: int
    total: float


orders: list[Order] = []


@server.tool
def place_order(order: Order) -> Receipt:
    """Place an order; return its number and what it costs."""
    orders.append(order)
    total = sum(Decimal(str(line.price)) * line.quantity for line in order.lines)
    return Receipt(number=len(orders), total=float(total))


@server.tool
def find_order(number: Annotated[int, Field(ge=1)]) -> Order:
    """Return an order by its number."""
    if number > len(orders):
        raise ToolError(ErrorCode.NOT_FOUND, f"There is no order {number}.")
    return orders[number - 1]


if __name__ == "__main__":
    server.run()
