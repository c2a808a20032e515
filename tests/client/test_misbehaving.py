"""One script of misbehaviours, over memory, stdio and HTTP.

A call of the tool `play` carries with it what the server is to do about it. Whatever that is, the
call ends in its own result or in an `MCPError`; one that has reached the server never says that it
cannot have run; and the next call, to which the server does well, goes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from foundation_rt.client import CallTimeoutError, InvalidResponseError
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import ONCE, MemoryHarness, error_of
from tests.lab.peers.script_processes import (
    ANSWER,
    HANDSHAKE,
    SOON,
    MisbehavingHarness,
    MisbehavingHttpHarness,
    call,
    client_of,
)
from tests.lab.sizes import cases

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module", autouse=True)
def http() -> Iterator[MisbehavingHttpHarness]:
    """Start a server for all tests, before any of them notes what is there."""
    with MisbehavingHttpHarness() as harness:
        yield harness


@pytest.fixture(params=["memory", "stdio", "http"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ExitStack() as stack:
        if request.param == "memory":
            harness: Any = MemoryHarness(HANDSHAKE)
        elif request.param == "stdio":
            harness = stack.enter_context(MisbehavingHarness({}))
        else:
            harness = request.getfixturevalue("http")
            harness.play({})
            harness.forget()
        yield harness


over_two = pytest.mark.parametrize(
    "server", cases(["memory", "http"], ["memory", "stdio", "http"]), indirect=True
)
"""A message that is wrong is so over stdio as in memory: lines are read alike."""


def on_a_stream(server: Any, acts: list[Act]) -> list[Act]:
    """Return acts that send more than one message: over HTTP that takes a stream."""
    return [["stream"], *acts] if isinstance(server, MisbehavingHttpHarness) else acts


def note(method: str, params: Any, times: int = 1) -> Act:
    message = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}
    return ["flood", times, message]


HARMLESS: dict[str, list[Act]] = {
    "answers twice": [ANSWER, ANSWER],
    "answers somebody else first": [["answer", {"id": "nobody"}], ANSWER],
    "answers a number first": [["answer", {"id": 1}], ANSWER],
    "answers null first": [["answer", {"id": None}], ANSWER],
    "answers a list first": [["answer", {"id": [1]}], ANSWER],
    "tells what nobody knows": [note("nobody/knows", {}, 3), ANSWER],
    "tells nonsense": [
        note("progress", [1]),
        note("progress", {}),
        note("message", 5),
        note("cancelled", {}),
        note("cancelled", {"requestId": {"a": []}}),
        ANSWER,
    ],
    "floods": [note("message", {"data": "x" * 50}, 5_000), ANSWER],
    "says that the list has changed, a thousand times": [
        note("tools/list_changed", {}, 1_000),
        ANSWER,
    ],
    "tells progress that goes backwards": [
        *(["progress", value] for value in (5, 3, "x", None)),
        ANSWER,
    ],
    "pings": [["ask", "ping", {}], ["wait", "answer"], ANSWER],
    "asks what nobody declared": [
        ["ask", "sampling/createMessage", {"messages": [], "maxTokens": 1}],
        ["wait", "answer"],
        ["ask", "elicitation/create", {"message": "?", "requestedSchema": {}}],
        ["wait", "answer"],
        ["ask", "roots/list", {}],
        ["wait", "answer"],
        ["ask", "nobody/knows", [1]],
        ["wait", "answer"],
        ANSWER,
    ],
    "asks without waiting": [*[["ask", "sampling/createMessage", "x"]] * 500, ANSWER],
}
"""What a client takes, and gets its answer all the same."""


@pytest.mark.parametrize("acts", HARMLESS.values(), ids=HARMLESS)
async def test_harmless_misbehaviour_leaves_the_response(server: Any, acts: list[Act]) -> None:
    async with client_of(server) as client:
        await call(client, "first", on_a_stream(server, acts))
        await call(client, "second")
        assert server.nonces() == ["first", "second"]
        assert server.events("malformed") == []
        assert len(server.events("start")) <= 1


UNUSABLE: dict[str, Any] = {
    "a number": 5,
    "a list": [],
    "null": None,
    "content that is a text": {"content": "x"},
    "blocks that are numbers": {"content": [5, None]},
    "is_error that is a text": {"content": [], "isError": "yes"},
    "what the schema of the output forbids": {"content": [], "structuredContent": {"nonce": 5}},
    "no structured content, though there is a schema": {"content": [{"type": "text", "text": "x"}]},
    "a page of another kind": {"tools": [], "nextCursor": 5},
}
"""Results that are none."""


@over_two
@pytest.mark.parametrize("result", UNUSABLE.values(), ids=UNUSABLE)
async def test_a_result_that_cannot_be_used(server: Any, result: Any) -> None:
    async with client_of(server) as client:
        error = await error_of(call(client, "first", [["reply", {"result": result}]]))
        assert isinstance(error, InvalidResponseError)
        assert (error.code, error.may_have_run) == ("E209", True)
        await call(client, "second")
        assert server.nonces() == ["first", "second"]


ERRORS: dict[str, Any] = {
    "a text": "no",
    "a number": 5,
    "a list": [],
    "empty": {},
    "a code that is a text": {"code": "-32601", "message": "x"},
    "a code that is a fraction": {"code": 1.5, "message": "x"},
    "a code that is huge": {"code": 10**30, "message": "x"},
    "a code that is true": {"code": True, "message": "x"},
    "a message that is a list": {"code": -32603, "message": ["x"], "data": {"uri": 5}},
    "a message of a megabyte": {"code": -32603, "message": "x" * 1_000_000},
}
"""Errors that are none."""


@over_two
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("act", ["reply", "answer"], ids=["alone", "beside a result"])
async def test_an_error_that_is_none(server: Any, act: str, error: Any) -> None:
    server.play({"tools/call": [[act, {"error": error}]]})
    async with client_of(server) as client:
        found = await error_of(call(client, "first", timeout=SOON))
        assert found.code in ("E201", "E202", "E209")
        assert found.may_have_run
        assert len(str(found)) < 10_000
        await call(client, "second", [ANSWER])
        assert server.nonces() == ["first", "second"]


UNANSWERED: dict[str, list[Act]] = {
    "says nothing": [],
    "answers nobody": [["answer", {"id": "nobody"}], ["wait", "never"]],
    "answers with what is no JSON": [["raw", '{"jsonrpc": "2.0", "id": '], ["wait", "never"]],
    "asks back what it was asked": [["reply", {"method": "tools/call"}], ["wait", "never"]],
    "answers with a notification": [["reply", {"id": None, "method": "x"}], ["wait", "never"]],
    "never answers, but tells progress": [["progress", 1], ["progress", 2]],
}
"""What a client has to wait for to the end of its patience, unless what came ends the call."""


@pytest.mark.parametrize("acts", UNANSWERED.values(), ids=UNANSWERED)
async def test_a_call_that_is_not_answered_ends_in_time(server: Any, acts: list[Act]) -> None:
    async with client_of(server) as client:
        error = await error_of(call(client, "first", on_a_stream(server, acts), timeout=SOON))
        assert isinstance(error, CallTimeoutError | InvalidResponseError)
        assert error.may_have_run
        await call(client, "second")
        assert server.nonces() == ["first", "second"]
        cancelled = len(server.messages("notifications/cancelled"))
        assert cancelled == isinstance(error, CallTimeoutError)


async def test_responses_in_any_order_reach_their_calls(server: Any) -> None:
    count = 30
    async with client_of(server) as client:
        calls = [
            call(client, f"call {each}", [["wait", f"call {each + 1}"], ANSWER])
            for each in range(count)
        ]
        await asyncio.gather(*calls, call(client, f"call {count}"))


@pytest.mark.parametrize("server", ["stdio", "http"], indirect=True)
async def test_a_hundred_megabytes_are_refused(server: Any) -> None:
    async with client_of(server) as client:
        error = await error_of(call(client, "first", [["huge", 100_000_000]]))
        assert isinstance(error, InvalidResponseError)
        assert error.may_have_run
        await call(client, "second")


PAGES: dict[str, list[Act]] = {
    "pages without an end": [["page"]],
    "the same page again": [["answer", {"result": {"tools": [], "nextCursor": "x"}}]],
    "a cursor that is a number": [["answer", {"result": {"tools": [], "nextCursor": 5}}]],
    "tools that are none": [["answer", {"result": {"tools": [5, {}, {"name": 5}, None]}}]],
    "tools that are an object": [["answer", {"result": {"tools": {}}}]],
    "no tools": [["answer", {"result": {}}]],
    "a number": [["answer", {"result": 5}]],
}
"""Lists that are none."""


@pytest.mark.rule("CLIENT-22")
@over_two
@pytest.mark.parametrize("acts", PAGES.values(), ids=PAGES)
async def test_a_list_without_an_end_or_without_sense(server: Any, acts: list[Act]) -> None:
    server.play({"tools/list": acts})
    async with client_of(server, introduced=False, retries=ONCE) as client:
        error = await error_of(client.call("play", {"nonce": "first"}))
        assert error.code in ("E209", "E204")
        assert not error.may_have_run
        assert server.nonces() == []
        assert len(server.messages("tools/list")) <= client.options.max_pages
