"""What pyright (strict) and mypy (--strict) both have to see of the public names; never run.

Each `type: ignore` marks a wrong use. Where a checker would let it pass, the mark is an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict, assert_type

from pydantic import BaseModel

from foundation_rt import (
    Constraints,
    ElicitResult,
    Image,
    ModelPreferences,
    Principal,
    SampleResult,
    Server,
    Text,
    ToolContext,
    ToolUse,
)


@dataclass
class State:
    """What a lifespan hook yields."""

    greeting: str


class Guest(BaseModel):
    name: str
    people: int = 1


class Rows(TypedDict):
    columns: list[str]


server = Server("types", version="1.0.0")


@server.lifespan
async def opened(_: Server) -> AsyncIterator[State]:
    yield State("Hello")


# -- tools: the decorators return the function as it was -----------------------------------------


@server.tool
def plain(city: str, days: Annotated[int, Constraints(minimum=1)] = 3) -> Rows:
    return {"columns": [city] * days}


@server.tool(name="other", tags={"a"}, visible=lambda principal: principal is not None)
async def typed(
    guest: Guest, unit: Literal["c", "f"], ctx: ToolContext[State]
) -> list[Text | Image]:
    assert_type(ctx.state, State)
    assert_type(ctx.principal, Principal | None)
    assert_type(ctx.headers, Mapping[str, str])
    return [Text(f"{ctx.state.greeting}, {guest.name}, {unit}")]


assert_type(plain("Oslo"), Rows)
plain("Oslo", "3")  # type: ignore[arg-type]


async def call_it(ctx: ToolContext[State]) -> None:
    assert_type(await typed(Guest(name="Ann"), "c", ctx), list[Text | Image])
    await typed(Guest(name="Ann"), "k", ctx)  # type: ignore[arg-type]


server.tool(visible=5)  # type: ignore[call-overload]


# -- questions -----------------------------------------------------------------------------------


@server.tool
async def ask(ctx: ToolContext) -> str:
    answer = await ctx.elicit("Who comes?", Guest)
    assert_type(answer, ElicitResult[Guest])
    assert_type(answer.action, Literal["accept", "decline", "cancel"])
    print(answer.content.name)  # type: ignore[union-attr]
    if answer.content is None:
        return answer.action
    assert_type(answer.content, Guest)
    assert_type(answer.content.people, int)
    number = await ctx.elicit("How many?", int)
    assert_type(number.data, int | None)
    dessert = await ctx.elicit("Which?", ["cake", "cheese"])
    assert_type(dessert.content, str | None)
    if dessert.content is not None:
        assert_type(dessert.content, str)
    await ctx.elicit("Which?", 5)  # type: ignore[call-overload]

    said = await ctx.sample(
        "Say it.", max_tokens=9, model_preferences=ModelPreferences(hints=["a"])
    )
    assert_type(said, SampleResult)
    assert_type(said.text, str)
    assert_type(said.tool_uses, tuple[ToolUse, ...])
    await ctx.sample("Say it.", max_tokens="9")  # type: ignore[arg-type]
    await ctx.info("asked", guest=answer.content.name)
    await ctx.report_progress(1, 2, "half")
    return said.text
