"""Prompts and resources as tools, for clients that have tools alone."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt import RegistrationError, Server, ToolError
from foundation_rt.testing import TestClient


def make_server() -> Server:
    server = Server("notes")

    @server.prompt
    def review(language: str, tone: str = "dry") -> str:
        """Review code."""
        return f"Review {language}, {tone}."

    @server.prompt(visible=lambda principal: False)
    async def secret() -> str:
        return "never"

    @server.resource("notes://today")
    async def today() -> str:
        """Return notes."""
        return "milk"

    @server.resource("image://{name}", mime_type="image/png")
    def image(name: str) -> bytes:
        return name.encode()

    @server.resource("notes://secret", visible=lambda principal: False)
    def hidden() -> str:
        return "never"

    server.expose_prompts_as_tools()
    server.expose_resources_as_tools()
    return server


@pytest.mark.rule("PROMPT-12")
@pytest.mark.parametrize("revision", ["2024-11-05", "2026-07-28"])
async def test_prompts_are_listed_and_filled_in_by_tools(revision: str) -> None:
    async with TestClient(make_server(), revision=revision) as client:
        listed = await client.call("list_prompts")
        assert [each["name"] for each in listed["prompts"]] == ["review"]
        found = await client.call("get_prompt", name="review", arguments={"language": "C"})
        [message] = found["messages"]
        assert message["content"]["text"] == "Review C, dry."
        for given, said in (
            ({"name": "secret"}, "There is no such prompt"),
            ({"name": "none"}, "There is no such prompt"),
            ({"name": "review"}, "the argument 'language' is required"),
            ({"name": "review", "arguments": {"x": "1"}}, "the prompt has no argument 'x'"),
            ({"name": "review", "arguments": {"language": 1}}, "Invalid arguments"),
        ):
            with pytest.raises(ToolError, match=said):
                await client.call("get_prompt", **given)
        with pytest.raises(ToolError, match="no such cursor"):
            await client.call("list_prompts", cursor="x")


@pytest.mark.rule("MRES-27", "APP-01")
async def test_page_of_an_app_is_read_by_the_tool_under_its_uri() -> None:
    server = Server("shop")
    server.app("ui://orders", "<p>Orders</p>")
    server.expose_resources_as_tools()
    async with TestClient(server) as client:
        found = await client.call("read_resource", uri="ui://orders")
    assert found == "<p>Orders</p>"


@pytest.mark.rule("MRES-27")
@pytest.mark.parametrize("revision", ["2024-11-05", "2026-07-28"])
async def test_resources_are_listed_and_read_by_tools(revision: str) -> None:
    async with TestClient(make_server(), revision=revision) as client:
        listed = await client.call("list_resources")
        assert [each["uri"] for each in listed["resources"]] == ["notes://today"]
        templates = await client.call("list_resources", templates=True)
        assert [each["uriTemplate"] for each in templates["resourceTemplates"]] == [
            "image://{name}"
        ]
        assert await client.call("read_resource", uri="notes://today") == "milk"
        [block] = (await client.call("read_resource", uri="image://cat"))["content"]
        assert (block["type"], block["resource"]["mimeType"]) == ("resource", "image/png")
        for uri in ("notes://secret", "notes://none"):
            with pytest.raises(ToolError, match="Resource not found"):
                await client.call("read_resource", uri=uri)


@pytest.mark.rule("PROMPT-12", "MRES-27")
async def test_they_only_read_and_come_in_pages() -> None:
    server = make_server()
    for number in range(150):
        server.resource(f"many://{number:03}", name=f"n{number}")(lambda: "x")
    async with TestClient(server) as client:
        tools = {each["name"]: each for each in await client.list_tools()}
        for name in ("list_prompts", "get_prompt", "list_resources", "read_resource"):
            assert tools[name]["annotations"]["readOnlyHint"] is True
        first = await client.call("list_resources")
        rest: Any = await client.call("list_resources", cursor=first["nextCursor"])
        uris = [each["uri"] for page in (first, rest) for each in page["resources"]]
        assert len(uris) == 151 and len(set(uris)) == 151 and "nextCursor" not in rest
    with pytest.raises(RegistrationError, match="list_prompts"):
        server.expose_prompts_as_tools()
