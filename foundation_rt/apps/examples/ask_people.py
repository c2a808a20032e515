"""Questions to the user: forms, choices, and a page for what must not pass through the client.

::

    foundation-rt serve foundation_rt.examples.ask_people

It works in every revision that has questions: from 2025-06-18 on, pages from 2025-11-25 on. In
older ones a call is an error that names what the client lacks. With the newest one a tool runs
again from its start when the user has answered: it does nothing before its last question that must
not happen twice.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated

from attrs import frozen

from foundation_rt import Constraints, Server, ToolContext

server = Server("restaurant", version="1.0.0")

bookings: list[tuple[str, date, int]] = []


@frozen
class Guest:
    """The guest.

    Attributes:
        name: for the list at the door.
        people: how many come.
        day: the day of the visit.
    """

    name: str
    people: Annotated[int, Constraints(minimum=1, maximum=12)]
    day: date


@server.tool
async def book_table(context: ToolContext) -> str:
    """Book a table: the user fills in a form."""
    answer = await context.elicit("Who comes, and when?", Guest)
    if answer.content is None:
        return "Nothing was booked."
    guest = answer.content
    bookings.append((guest.name, guest.day, guest.people))
    return f"Booked for {guest.people} on {guest.day}, in the name of {guest.name}."


@server.tool
async def order_dessert(context: ToolContext) -> str:
    """Order a dessert: the user chooses one."""
    answer = await context.elicit("What would you like?", ["cake", "ice cream", "cheese"])
    return f"One {answer.content}." if answer.accepted else "No dessert."


@server.tool
async def pay(amount: float, context: ToolContext) -> str:
    """Pay a bill: the user visits a page, so that no card number reaches the model.

    Args:
        amount: In euros.
    """
    page = f"https://pay.example.com/bill?amount={amount:.2f}"
    answer = await context.elicit_url(f"Please pay {amount:.2f} euros.", page)
    return "The page was opened." if answer.accepted else "The bill is still open."


if __name__ == "__main__":
    server.run()
