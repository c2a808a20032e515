"""Raw requests and handlers of one call, with a real server over every transport."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.client import Client, MCPError, StdioServer, connect
from foundation_rt.protocol.revisions import Revision
from tests.client.asking_server import make_server
from tests.support.http_server import serve_http
from tests.support.scripted_transport import BOTH, STATELESS, error_of

pytestmark = pytest.mark.usefixtures("forked")

APP = Path(__file__).parent / "asking_server.py"
ELICITATION = "elicitation/create"
LIVENESS = 60.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve_http(APP) as server:
        yield server.url


class Person:
    """Handlers that fill in a name, and keep what they were asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[Any] = []

    def capabilities(self, revision: Revision) -> Mapping[str, Any]:
        return {"elicitation": {"form": {}}}

    async def handle(self, method: str, params: Any, revision: Revision) -> Mapping[str, Any]:
        self.asked.append((method, params["message"]))
        return {"action": "accept", "content": {"name": self.name}}


class Nobody(Person):
    """Handlers that declare the same, and have been asked when a test fails."""

    async def handle(self, method: str, params: Any, revision: Revision) -> Mapping[str, Any]:
        raise AssertionError


@pytest.fixture(params=["stdio", "memory", "http"])
def target(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return make_server()
    if request.param == "http":
        return request.getfixturevalue("url")
    return StdioServer(sys.executable, ["-m", "foundation_rt", "serve", str(APP)])


@asynccontextmanager
async def connected(target: Any, revision: str, **options: Any) -> AsyncIterator[Client]:
    async with (
        asyncio.timeout(LIVENESS),
        connect(target, revision=revision, handlers=Nobody("nobody"), **options) as client,
    ):
        yield client


@pytest.mark.rule("CREQ-01", "CREQ-06", "CREQ-07", "QUEST-23")
@pytest.mark.parametrize("revision", BOTH)
async def test_results_errors_and_lists_come_as_they_are(target: Any, revision: str) -> None:
    async with connected(target, revision) as client:
        listed = await client.request_all("tools/list", meta={"trace": "t"})
        assert {"greet", "work"} <= {each["name"] for each in listed}
        (template,) = await client.request_all("resources/templates/list")
        assert template["uriTemplate"] == "note://{name}"
        read = await client.request("resources/read", {"uri": "note://a"})
        assert read["contents"][0]["text"] == "of a"
        assert ("resultType" in read) is (revision == STATELESS)
        error = await error_of(client.request("prompts/get", {"name": "none"}))
        assert isinstance(error, MCPError)
        assert error.wire is not None
        assert error.wire["code"] == error.original_code
        called = await client.request("tools/call", {"name": "work", "arguments": {"steps": "no"}})
        assert called["isError"] is True


@pytest.mark.rule("QUEST-23", "QUEST-24", "QUEST-28")
@pytest.mark.parametrize("revision", BOTH)
async def test_the_user_of_the_call_is_asked(target: Any, revision: str) -> None:
    async with connected(target, revision) as client:
        for name in ("Ann", "Bob"):
            person = Person(name)
            assert (await client.call("greet", handlers=person)).value() == f"Hello {name}"
            assert person.asked == [(ELICITATION, "Your name?")]


@pytest.mark.rule("CREQ-01", "QUEST-24", "QUEST-28")
@pytest.mark.parametrize("revision", BOTH)
async def test_rounds_are_handed_through(target: Any, revision: str) -> None:
    async with connected(target, revision) as client:
        person = Person("Ann")
        result = await client.request("tools/call", {"name": "greet"}, handlers=person)
        if revision == STATELESS:
            assert (result["resultType"], person.asked) == ("input_required", [])
            ((key, asked),) = result["inputRequests"].items()
            assert asked["method"] == ELICITATION
            answers = {key: {"action": "accept", "content": {"name": "Eve"}}}
            again = {"name": "greet", "inputResponses": answers}
            again["requestState"] = result["requestState"]
            result = await client.request("tools/call", again, handlers=person)
        else:
            assert len(person.asked) == 1
        name = "Eve" if revision == STATELESS else "Ann"
        assert result["content"][0]["text"] == f"Hello {name}"


@pytest.mark.rule("QUEST-24")
async def test_calls_at_once_over_http_ask_their_own_users(url: str) -> None:
    async with connected(url, BOTH[0]) as client:
        people = [Person(f"user {number}") for number in range(8)]
        results = await asyncio.gather(
            *(client.call("greet", handlers=person) for person in people)
        )
        assert [each.value() for each in results] == [f"Hello {each.name}" for each in people]
        assert all(len(each.asked) == 1 for each in people)


@pytest.mark.rule("CLIENT-57")
@pytest.mark.parametrize("revision", BOTH)
async def test_progress_keeps_a_call_alive(target: Any, revision: str) -> None:
    """The call takes longer than its time, but no step of it does."""
    async with connected(target, revision) as client:
        await client.initialize()
        call: dict[str, Any] = {"name": "work", "arguments": {"steps": 40}}
        result = await client.request("tools/call", call, timeout=1.5, max_timeout=LIVENESS)
        assert result["isError"] is False
        call["arguments"] = {"steps": 8}
        error = await error_of(client.request("tools/call", call, timeout=0.2))
        assert error.code == "E202"
