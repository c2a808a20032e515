"""Prompts and resources of the servers, for people: listed, read, and refused in bounded ways."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import Any

import orjson
import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Audio, PromptMessage, ResourceLink, Server, Text
from foundation_rt.apps.coordinator import ServerState
from foundation_rt.apps.host.web.offers import (
    MAX_LISTED,
    MAX_LISTED_BYTES,
    Offers,
)
from foundation_rt.apps.web_page.requests import MAX_RUNNING, PageRequestError
from foundation_rt.base.exact_json import dumps
from foundation_rt.base.mcp_json import ServerSettings
from tests.lab.host.server import Hosting, hosting
from tests.lab.peers.script_memory import MemoryHarness
from tests.lab.waiting import until

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def make_server(going: asyncio.Event | None = None) -> Server:
    """Return a server with prompts and resources."""
    server = Server("notes", version="1.0.0", config={"logging": {"level": "error"}})

    @server.prompt
    def review(language: str, style: str = "short") -> str:
        """Review some code."""
        return f"Review this {language}, {style}."

    @server.completion("review", "language")
    def languages(value: str) -> list[str]:
        return [each for each in ("python", "perl", "rust") if each.startswith(value)]

    @server.resource("note://today", mime_type="text/plain")
    def today() -> str:
        """Say what is on today."""
        return "Buy milk."

    @server.resource("note://large")
    def large() -> str:
        return "x" * 800_000

    @server.resource("note://empty")
    def empty() -> str:
        return ""

    @server.resource("note://picture", mime_type="image/png")
    def picture() -> bytes:
        return PNG

    @server.prompt
    def endless() -> str:
        return "x" * 32_769

    @server.resource("note://slow")
    async def slow() -> str:
        if going is not None:
            await going.wait()
        return "done"

    return server


async def ready(one: Hosting) -> None:
    """Wait until the server is there."""
    await until(
        lambda: one.request("GET", "/api/status"),
        "the server is ready",
        lambda answer: orjson.loads(answer[2])["servers"][0]["state"] == "ready",
    )


async def ask(one: Hosting, path: str, **asked: Any) -> tuple[int, Any]:
    """Send a request; return its status and its answer."""
    body = orjson.dumps({"server": "notes", **asked})
    status, _, answer = await one.request("POST", path, body=body)
    return status, orjson.loads(answer)


@pytest.mark.rule("HOST-65")
async def test_messages_of_a_prompt_say_who_speaks_and_what_is_not_shown() -> None:
    server = make_server()

    @server.prompt
    def talk() -> list[PromptMessage]:
        link = ResourceLink("note://today", "today")
        return [
            PromptMessage("user", Text("Hello.")),
            PromptMessage("assistant", link),
            PromptMessage("user", Audio(b"wav", "audio/wav")),
        ]

    async with hosting(servers={"notes": server}) as one:
        await ready(one)
        _, found = await ask(one, "/api/prompt", name="talk", arguments={})
        words = [
            "User:",
            "Hello.",
            "Assistant:",
            "note://today",
            "User:",
            "[audio: not shown here]",
        ]
        assert found == {"text": "\n\n".join(words), "attachments": []}


@pytest.mark.rule("HOST-64")
async def test_server_that_lists_without_end_or_fails_has_what_has_come() -> None:
    harness = MemoryHarness("2025-11-25")
    pages = [["answer", {"result": {"prompts": [{"name": "a"}], "nextCursor": "again"}}]]
    capabilities = {"prompts": {}, "resources": {}}
    harness.play(
        {
            "initialize": [["answer", {"capabilities": capabilities}]],
            "prompts/list": pages,
            "resources/list": [["answer", {"error": {"code": -32603, "message": "no"}}]],
        }
    )
    async with hosting(servers={"bad": harness.make_transport}) as one:
        await ready(one)
        for _ in range(2):  # what is kept is the same
            _, _, body = await one.request("GET", "/api/offers")
            offers = orjson.loads(body)
            assert [each["name"] for each in offers["prompts"]] == ["a"] * 10
            assert offers["resources"] == []
        body = orjson.dumps({"server": "bad", "name": "a", "argument": "x", "value": ""})
        status, _, answer = await one.request("POST", "/api/completion", body=body)
        assert (status, orjson.loads(answer)) == (200, {"values": []})


@pytest.mark.rule("HOST-64", "HOST-65")
async def test_prompts_and_resources_are_listed_and_read() -> None:
    async with hosting(servers={"notes": make_server()}) as one:
        await ready(one)
        _, _, body = await one.request("GET", "/api/offers")
        offers = orjson.loads(body)
        _, prompt = offers["prompts"]
        assert (prompt["server"], prompt["name"]) == ("notes", "review")
        assert [each["name"] for each in prompt["arguments"]] == ["language", "style"]
        assert "note://today" in [each["uri"] for each in offers["resources"]]
        given = {"language": "python"}
        status, found = await ask(one, "/api/prompt", name="review", arguments=given)
        assert (status, found) == (200, {"text": "Review this python, short.", "attachments": []})
        asked = {"name": "review", "argument": "language", "value": "p", "arguments": {}}
        assert await ask(one, "/api/completion", **asked) == (200, {"values": ["python", "perl"]})
        _, found = await ask(one, "/api/resource", uri="note://today")
        [attachment] = found["attachments"]
        assert (attachment["name"], b64decode(attachment["data"])) == ("today", b"Buy milk.")
        _, found = await ask(one, "/api/resource", uri="note://picture")
        assert b64decode(found["attachments"][0]["data"]) == PNG


@pytest.mark.rule("HOST-64", "HOST-65")
async def test_what_servers_refuse_and_what_is_wrong_is_said() -> None:
    async with hosting(servers={"notes": make_server()}) as one:
        await ready(one)
        for path, asked, status in [
            ("/api/prompt", {"name": "review", "arguments": {}}, 502),
            ("/api/prompt", {"name": "nothing"}, 502),
            ("/api/prompt", {"name": "endless"}, 413),
            ("/api/prompt", {"name": "review", "server": "other"}, 404),
            ("/api/prompt", {"name": "review", "arguments": {"language": 1}}, 400),
            ("/api/prompt", {"name": "review", "arguments": []}, 400),
            ("/api/prompt", {"name": ""}, 400),
            ("/api/resource", {"uri": "note://none"}, 502),
            ("/api/resource", {"uri": 7}, 400),
            ("/api/resource", {"uri": "note://large"}, 422),
            ("/api/resource", {"uri": "note://empty"}, 422),
            ("/api/completion", {"name": "review", "argument": "language"}, 400),
        ]:
            found = await ask(one, path, **asked)
            assert found[0] == status, (path, asked, found)
            assert found[1]["error"]["message"]
        assert (await one.request("POST", "/api/offers"))[0] == 405


@pytest.mark.rule("HOST-65")
async def test_a_principal_has_a_few_requests_at_once() -> None:
    going = asyncio.Event()
    async with hosting(servers={"notes": make_server(going)}) as one:
        await ready(one)
        slow = (ask(one, "/api/resource", uri="note://slow") for _ in range(10))
        asked = [asyncio.create_task(each) for each in slow]
        done, rest = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < len(asked) - MAX_RUNNING:
            more, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert {each.result()[0] for each in done} == {429}
        going.set()
        assert [(await each)[0] for each in rest] == [200] * MAX_RUNNING


@frozen
class Hostile:
    """A coordinator whose only server answers everything with one value."""

    result: dict[str, Any]
    settings: ServerSettings = field(factory=ServerSettings)
    state: ServerState = ServerState.READY

    @property
    def states(self) -> dict[str, Hostile]:
        """Return the server."""
        return {"s": self}

    def server(self, name: str) -> Hostile:
        """Return the server."""
        return self

    def has_capability(self, name: str) -> bool:
        """Return True."""
        return True

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the value."""
        return self.result


@pytest.mark.rule("HOST-64")
async def test_a_list_has_a_bounded_size() -> None:
    arguments = [{"name": "é" * 3_000, "description": "x" * 3_000}] * 80
    prompts = [{"name": "p", "arguments": arguments}] * 500
    offers = Offers(Hostile({"prompts": prompts, "resources": prompts}))  # type: ignore[arg-type]
    listed = await offers.listed("p")
    assert len(listed["resources"]) == 500
    assert 0 < len(listed["prompts"]) < 20
    assert len(dumps(listed["prompts"])) <= MAX_LISTED_BYTES
    assert {len(each["name"]) for each in listed["prompts"][0]["arguments"]} == {256}


@pytest.mark.rule("HOST-65")
@pytest.mark.parametrize("data", [None, 7, "%%%", "", "/wA="])
async def test_what_no_message_takes_is_refused_at_once(data: object) -> None:
    said = {"messages": [{"role": "user", "content": {"type": "image", "data": data}}]}
    offers = Offers(Hostile(said))  # type: ignore[arg-type]
    with pytest.raises(PageRequestError, match="cannot be attached"):
        await offers.prompt("p", "s", "n", {})


MEMBERS = ["prompts", "resources", "messages", "contents", "content", "resource", "completion"]
MEMBERS += ["values", "arguments", "name", "uri", "type", "text", "blob", "data", "nextCursor"]
WORDS = st.sampled_from(["text", "image", "resource", "resource_link", "x" * 5_000]) | st.text()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(MEMBERS), inner),
)


@pytest.mark.rule("HOST-64", "HOST-65")
@given(st.dictionaries(st.sampled_from(MEMBERS), VALUES))
def test_whatever_a_server_answers_is_used_or_refused(result: dict[str, Any]) -> None:
    async def ask_all() -> None:
        offers = Offers(Hostile(result))  # type: ignore[arg-type]
        listed = await offers.listed("p")
        assert all(len(each) <= MAX_LISTED for each in listed.values())
        assert len(dumps(listed)) < 200_000
        assert all(len(each) <= 300 for each in await offers.complete("p", "s", "n", {}, {}))
        for asked in (offers.prompt("p", "s", "n", {}), offers.resource("p", "s", "u")):
            try:
                dumps(await asked)
            except PageRequestError as error:
                assert error.status in (413, 422, 502)

    asyncio.run(ask_all())
