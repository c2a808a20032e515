"""What pyright (strict) and mypy (--strict) both have to see of the public names; never run.

Each `type: ignore` marks a wrong use. Where a checker would let it pass, the mark is an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, assert_type

from pydantic import BaseModel

from foundation_rt import (
    Constraints,
    Depends,
    ElicitResult,
    Image,
    ModelPreferences,
    Principal,
    PromptMessage,
    SampleResult,
    Server,
    Text,
    ToolContext,
    ToolResult,
    ToolUse,
)
from foundation_rt.client import CallResult, Client, ReadResult, ToolSchema, blocking, connect
from foundation_rt.testing import TestClient


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


# -- dependencies --------------------------------------------------------------------------------


def rows(ctx: ToolContext[State]) -> Iterator[Rows]:
    yield {"columns": [ctx.state.greeting]}


async def guest(rows: Annotated[Rows, Depends(rows)]) -> Guest:
    return Guest(name=rows["columns"][0])


@server.tool
async def depends(
    found: Annotated[Guest, Depends(guest)],
    default: Rows = Depends(rows),
) -> ToolResult:
    assert_type(found, Guest)
    assert_type(default, Rows)
    return ToolResult([Text(found.name)], structured={"columns": default["columns"]})


Depends("guest")  # type: ignore[arg-type]
server.dependency_overrides[guest] = lambda: Guest(name="Bob")


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


# -- resources and prompts -----------------------------------------------------------------------


@server.resource("guests://{name}")
async def resource(name: str) -> bytes | str:
    return name


@server.prompt
def prompt(name: str) -> list[PromptMessage]:
    return [PromptMessage("user", name)]


assert_type(prompt("Ann"), list[PromptMessage])


# -- clients -------------------------------------------------------------------------------------


async def use(target: Server | str) -> None:
    async with connect(target) as client:
        assert_type(client, Client)
        assert_type(await client.list_tools(), tuple[ToolSchema, ...])
        result = await client.call("plain", {"city": "Oslo"})
        assert_type(result, CallResult)
        assert_type(result.value(), Any)
        assert_type(result.text, str)
        assert_type(await client.read_resource("guests://Ann"), ReadResult)
        await client.call("plain", city="Oslo")  # type: ignore[call-arg]
    async with TestClient(server) as local:
        assert_type(await local.call("plain", city="Oslo"), Any)
        assert_type(await local.list_tools(), list[dict[str, Any]])


def use_without_asyncio() -> None:
    with blocking.connect("uvx some-server") as client:
        assert_type(client.call("plain", {"city": "Oslo"}), CallResult)
