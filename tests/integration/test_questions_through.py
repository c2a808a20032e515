"""A server that stands before another hands its questions on to the client whose call asks."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from foundation_rt import ClientCapabilityError, ClientErrorResponse, Server, ToolContext
from foundation_rt.client import Client, ServerRequestRefused, connect
from tests.lab.peers.answering_client import AnsweringClient, accepted, value_of

pytestmark = pytest.mark.usefixtures("forked")

BEHIND = """
import asyncio
from foundation_rt import ClientErrorResponse, Server, ToolContext

server = Server("behind")
gate = asyncio.Event()

@server.tool
async def survey(ctx: ToolContext) -> list:
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = await ctx.elicit("Who?", form)
    ctx.report_progress(1, 2)
    words = await ctx.sample(f"Greet {answer.content['name']}", max_tokens=9)
    roots = await ctx.roots()
    return [words.text, [root.uri for root in roots]]

@server.tool
async def refused(ctx: ToolContext) -> list:
    try:
        await ctx.roots()
    except ClientErrorResponse as error:
        return [error.json_rpc_code, error.json_rpc_message, error.json_rpc_data]
    return []

@server.tool
async def give_up(ctx: ToolContext) -> str:
    asking = asyncio.ensure_future(ctx.roots())
    await gate.wait()
    asking.cancel()
    await asyncio.wait([asking])
    return "gave up" if asking.cancelled() else "answered"

@server.tool
async def release() -> None:
    gate.set()

if __name__ == "__main__":
    server.run()
"""


@define(eq=False)
class Questions:
    """Hands the requests of a server on to the client of a call."""

    context: ToolContext | None = None

    def capabilities(self, revision: Any) -> Mapping[str, Any]:
        return {"elicitation": {}, "sampling": {}, "roots": {}}

    async def handle(self, method: str, params: Any, revision: Any) -> Mapping[str, Any]:
        if self.context is None:
            raise ServerRequestRefused(-32601, "nobody to ask")
        given = params if isinstance(params, Mapping) else None
        try:
            return await self.context.request_client(method, given)
        except ClientErrorResponse as error:
            code, data = error.json_rpc_code or -32603, error.json_rpc_data
            raise ServerRequestRefused(code, error.json_rpc_message, data) from None
        except ClientCapabilityError as error:
            raise ServerRequestRefused(-32601, error.message) from None


@define(eq=False)
class Front:
    """A server whose tool calls one of the server behind."""

    behind: Client
    server: Server = field(factory=lambda: Server("front"))

    def __attrs_post_init__(self) -> None:
        @self.server.tool
        async def through(name: str, context: ToolContext) -> Any:
            result = await self.behind.request(
                "tools/call",
                {"name": name},
                handlers=Questions(context),
                on_progress=lambda done, total, message: context.notify(
                    "notifications/progress", {"progress": done, "total": total}
                ),
            )
            return value_of({"result": result})


@asynccontextmanager
async def front(place: str, folder: Path) -> AsyncIterator[Front]:
    target: Any
    if place == "memory":
        scope: dict[str, Any] = {"__name__": "behind"}
        exec(BEHIND, scope)
        target = scope["server"]
    else:
        file = folder / "behind.py"
        file.write_text(BEHIND)
        target = [sys.executable, str(file)]
    async with connect(target, revision="2025-11-25", handlers=Questions()) as behind:
        yield Front(behind)


places = pytest.mark.parametrize("place", ["memory", "stdio"])


@pytest.mark.rule("ASK-42", "NOTE-09")
@places
async def test_questions_of_a_call_pass_to_its_client(place: str, tmp_path: Path) -> None:
    async with front(place, tmp_path) as one:
        client = AnsweringClient(one.server)
        client.request(
            "tools/call", {"name": "through", "arguments": {"name": "survey"}}, progressToken="p"
        )
        form = await client.asked("elicitation/create")
        assert form["params"]["message"] == "Who?"
        client.answer(form, accepted(name="Ann"))
        progress = await client.next()
        assert progress["params"] == {"progressToken": "p", "progress": 1, "total": 2}
        sample = await client.asked("sampling/createMessage")
        assert sample["params"]["messages"][0]["content"]["text"] == "Greet Ann"
        text = {"type": "text", "text": "Hi"}
        client.answer(sample, {"role": "assistant", "model": "m", "content": text})
        client.answer(await client.asked("roots/list"), {"roots": [{"uri": "file:///a"}]})
        assert value_of(await client.next()) == ["Hi", ["file:///a"]]
        client.connection.close()


@pytest.mark.rule("ASK-44", "ASK-43")
@places
async def test_refusals_of_the_client_reach_the_server_as_they_came(
    place: str, tmp_path: Path
) -> None:
    async with front(place, tmp_path) as one:
        client = AnsweringClient(one.server)
        client.start("through", {"name": "refused"})
        client.refuse(await client.asked("roots/list"), -1, "no" * 400, data={"why": [1]})
        assert value_of(await client.next()) == [-1, "no" * 400, {"why": [1]}]
        client.connection.close()
        bare = AnsweringClient(one.server, capabilities={})
        bare.start("through", {"name": "refused"})
        code, message, _ = value_of(await bare.next())
        assert (code, "roots" in message) == (-32601, True)
        bare.connection.close()


@pytest.mark.rule("ASK-46")
@places
async def test_question_that_is_taken_back_is_taken_back_from_the_client(
    place: str, tmp_path: Path
) -> None:
    async with front(place, tmp_path) as one:
        client = AnsweringClient(one.server)
        client.start("through", {"name": "give_up"})
        asked = await client.asked("roots/list")
        await one.behind.call("release", {})
        withdrawn = await client.next()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert value_of(await client.next()) == "gave up"
        assert client.unread() == []
        client.connection.close()
