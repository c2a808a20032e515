"""Servers over stdio that misbehave while they are called.

A call of the tool `play` carries with it what the server is to do about it. Whatever that is, the
call ends in its own result or in an `MCPError`; one that has reached the server never says that it
cannot have run; and the next call, to which the server does well, goes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt.client import (
    CallResult,
    CallTimeoutError,
    Client,
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
    StdioServer,
    connect,
)
from foundation_rt.client.resilience.retries import RetryPolicy
from tests.support.leaks import ResourceSnapshot, tasks
from tests.support.misbehaving_harness import ROOT, Acts, MisbehavingHarness
from tests.support.misbehaving_script import Act

LIVENESS = 60.0
"""Seconds after which a client counts as hanging."""

SOON = 0.3
"""Seconds that a call is given which is never answered."""

ANSWER: Act = ["answer"]
NOTHING: list[Act] = []


@asynccontextmanager
async def client_of(harness: MisbehavingHarness, **options: Any) -> AsyncIterator[Client]:
    command = harness.command
    server = StdioServer(command[0], command[1:], cwd=ROOT, shutdown_grace=0.2)
    async with connect(server, **options) as client:
        yield client


def run(
    scenario: Callable[[Client, MisbehavingHarness], Awaitable[None]],
    *starts: Acts,
    connected: bool = True,
    **options: Any,
) -> None:
    """Play `scenario` with a client and its server; nothing may hang, and nothing may be left.

    Args:
        connected: whether the server was started and introduced before, so that all the time of a
            call is for the server.
    """

    async def play(harness: MisbehavingHarness) -> None:
        async with asyncio.timeout(LIVENESS):
            async with client_of(harness, **options) as client:
                if connected:
                    await client.initialize()
                await scenario(client, harness)
        assert tasks() == []

    before = ResourceSnapshot.now()
    with MisbehavingHarness(*starts) as harness:
        asyncio.run(play(harness))
        ResourceSnapshot.now().must_equal(before)


async def call(
    client: Client, nonce: str, acts: list[Act] | None = None, **more: Any
) -> CallResult:
    """Make a call, and check that it is answered with its own nonce."""
    arguments = {"nonce": nonce} if acts is None else {"nonce": nonce, "acts": acts}
    result = await client.call("play", arguments, **more)
    assert (result.structured, result.text) == ({"nonce": nonce}, nonce)
    return result


async def error_of(awaitable: Awaitable[Any]) -> MCPError:
    try:
        result = await awaitable
    except MCPError as error:
        return error
    raise AssertionError(f"it went through: {result!r}")


HARMLESS: dict[str, list[Act]] = {
    "answers twice": [ANSWER, ANSWER],
    "answers somebody else first": [["answer", {"id": "nobody"}], ANSWER],
    "answers a number first": [["answer", {"id": 1}], ANSWER],
    "answers null first": [["answer", {"id": None}], ANSWER],
    "answers a list first": [["answer", {"id": [1]}], ANSWER],
    "prints a line": [["noise", "GET /mcp 200\n"], ANSWER],
    "prints JSON that is no message": [["noise", '5\n"x"\n[]\n{}\nnull\n[[]]\n{"a":1}\n'], ANSWER],
    "prints what is not UTF-8": [["noise", "\xff\xfe\x00\n"], ANSWER],
    "prints a thousand levels": [["noise", "[" * 100_000 + "\n"], ANSWER],
    "prints empty lines": [["noise", "\n\r\n \n" * 100], ANSWER],
    "writes a megabyte to stderr": [["stderr", 1_000_000], ANSWER],
    "tells what nobody knows": [
        ["flood", 3, {"jsonrpc": "2.0", "method": "notifications/nobody/knows", "params": {}}],
        ANSWER,
    ],
    "tells nonsense": [
        ["flood", 1, {"jsonrpc": "2.0", "method": "notifications/progress", "params": [1]}],
        ["flood", 1, {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}],
        ["flood", 1, {"jsonrpc": "2.0", "method": "notifications/message", "params": 5}],
        ["flood", 1, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}],
        [
            "flood",
            1,
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": {"a": []}},
            },
        ],
        ANSWER,
    ],
    "floods": [
        [
            "flood",
            20_000,
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 50}},
        ],
        ANSWER,
    ],
    "says that the list has changed, a thousand times": [
        ["flood", 1_000, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}],
        ANSWER,
    ],
    "tells progress that goes backwards": [
        ["progress", 5],
        ["progress", 3],
        ["progress", "x"],
        ["progress", None],
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
    "answers in a batch": [["noise", "[]\n"], ANSWER],
}
"""What a client takes, and gets its answer all the same."""


@pytest.mark.parametrize("acts", HARMLESS.values(), ids=HARMLESS)
def test_harmless_misbehaviour_leaves_the_response(acts: list[Act]) -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        await call(client, "first", acts)
        await call(client, "second")
        assert harness.nonces() == ["first", "second"]
        assert harness.events("malformed") == []
        assert len(harness.events("start")) == 1

    run(scenario)


UNUSABLE: dict[str, list[Act]] = {
    "a number": [["reply", {"result": 5}]],
    "a list": [["reply", {"result": []}]],
    "null": [["reply", {"result": None}]],
    "content that is a text": [["reply", {"result": {"content": "x"}}]],
    "blocks that are numbers": [["reply", {"result": {"content": [5, None]}}]],
    "is_error that is a text": [["reply", {"result": {"content": [], "isError": "yes"}}]],
    "what the schema of the output forbids": [
        ["reply", {"result": {"content": [], "structuredContent": {"nonce": 5}}}]
    ],
    "no structured content, though there is a schema": [
        ["reply", {"result": {"content": [{"type": "text", "text": "x"}]}}]
    ],
    "a page of another kind": [["reply", {"result": {"tools": [], "nextCursor": 5}}]],
}
"""Results that are none."""


@pytest.mark.parametrize("acts", UNUSABLE.values(), ids=UNUSABLE)
def test_a_result_that_cannot_be_used(acts: list[Act]) -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        error = await error_of(call(client, "first", acts))
        assert isinstance(error, InvalidResponseError)
        assert (error.code, error.may_have_run) == ("E209", True)
        await call(client, "second")
        assert harness.nonces() == ["first", "second"]

    run(scenario)


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
    "both": {"code": -32000, "message": "both"},
}
"""Errors that are none."""


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_an_error_that_is_none(error: Any) -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        found = await error_of(call(client, "first", timeout=SOON))
        assert found.code in ("E201", "E202", "E209")
        assert found.may_have_run
        assert len(str(found)) < 10_000
        await call(client, "second", [ANSWER])
        assert harness.nonces() == ["first", "second"]

    run(scenario, {"tools/call": [["reply", {"error": error}]]})


def test_a_result_and_an_error_at_once() -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        both: Act = ["answer", {"error": {"code": -32000, "message": "both"}}]
        await error_of(call(client, "first", [both], timeout=SOON))
        await call(client, "second")

    run(scenario)


UNANSWERED: dict[str, list[Act]] = {
    "says nothing": NOTHING,
    "answers nobody": [["answer", {"id": "nobody"}]],
    "answers with what is no JSON": [["raw", '{"jsonrpc": "2.0", "id": ']],
    "asks back what it was asked": [["reply", {"method": "tools/call"}]],
    "answers with a notification": [["reply", {"id": None, "method": "x"}]],
    "never answers, but tells progress": [["progress", 1], ["progress", 2]],
}
"""What a client has to wait for to the end of its patience."""


@pytest.mark.parametrize("acts", UNANSWERED.values(), ids=UNANSWERED)
def test_a_call_that_is_not_answered_ends_in_time(acts: list[Act]) -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        error = await error_of(call(client, "first", acts, timeout=SOON))
        assert isinstance(error, CallTimeoutError)
        assert (error.code, error.may_have_run) == ("E202", True)
        await call(client, "second")
        assert harness.nonces() == ["first", "second"]
        assert len(harness.messages("notifications/cancelled")) == 1

    run(scenario)


def test_half_a_line_spoils_the_next_one_and_no_more() -> None:
    """What follows half a line is part of it: two calls are lost, the third is not."""

    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        await error_of(call(client, "first", [["part", 0.5]], timeout=SOON))
        error = await error_of(call(client, "second", timeout=SOON))
        assert error.may_have_run
        await call(client, "third")

    run(scenario)


def test_responses_in_any_order_reach_their_calls() -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        count = 50
        calls = [
            call(client, f"call {each}", [["wait", f"call {each + 1}"], ANSWER])
            for each in range(count)
        ]
        await asyncio.gather(*calls, call(client, f"call {count}"))

    run(scenario)


def test_late_response_is_dropped() -> None:
    """It comes while another call waits, after its own was given up."""

    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        acts: list[Act] = [["wait", "notifications/cancelled"], ANSWER]
        await error_of(call(client, "first", acts, timeout=SOON))
        await call(client, "second")

    run(scenario)


def test_cancelled_call_returns_at_once_and_notifies_the_server() -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        waiting = asyncio.create_task(call(client, "first", [["wait", "never"]]))
        await call(client, "second")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await call(client, "third")
        assert len(harness.messages("notifications/cancelled")) == 1

    run(scenario)


def test_a_hundred_megabytes_are_refused() -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        error = await error_of(call(client, "first", [["huge", 100_000_000]]))
        assert isinstance(error, InvalidResponseError)
        assert error.may_have_run
        await call(client, "second")

    run(scenario)


def test_a_hundred_megabytes_of_log_cost_nothing() -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        await call(client, "first", [["stderr", 100_000_000], ANSWER])

    run(scenario)


DEATHS: dict[str, list[Act]] = {
    "exits": [["exit", 3]],
    "is killed": [["kill"]],
    "exits within its answer": [["part", 0.5], ["exit", 1]],
    "exits after noise": [["noise", "Traceback (most recent call last):"], ["exit", 1]],
    "closes its output": [["close", "stdout"]],
    "closes its output and ignores all": [["stubborn"], ["close", "stdout"], ["deaf"]],
    "leaves a process that holds its pipes": [["grandchild"], ["kill"]],
    "leaves one in another session": [["grandchild", "elsewhere"], ["kill"]],
}
"""What a server may end in while it is called."""


@pytest.mark.parametrize("acts", DEATHS.values(), ids=DEATHS)
def test_a_server_that_ends_during_a_call(acts: list[Act]) -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        error = await error_of(call(client, "first", acts))
        assert isinstance(error, ConnectionLostError)
        assert (error.code, error.may_have_run) == ("E201", True)
        await call(client, "second")
        assert harness.nonces() == ["first", "second"]
        assert len(harness.events("start")) == 2

    run(scenario)


@pytest.mark.parametrize("acts", DEATHS.values(), ids=DEATHS)
def test_retryable_call_is_repeated(acts: list[Act]) -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        result = await client.call("play_again", {"nonce": "first"})
        assert result.structured == {"nonce": "first"}
        assert harness.nonces() == ["first", "first"]

    run(scenario, {"tools/call": acts}, {})


def test_a_server_that_ends_under_many_calls_is_started_once() -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        count = 20
        waiting = [
            asyncio.create_task(error_of(call(client, f"call {each}", [["wait", "never"]])))
            for each in range(count)
        ]
        await error_of(call(client, "the last", [["wait", f"call {count - 1}"], ["kill"]]))
        for error in await asyncio.gather(*waiting):
            assert (error.code, error.may_have_run) == ("E201", True)
        await asyncio.gather(*(call(client, f"again {each}") for each in range(count)))
        assert len(harness.events("start")) == 2
        assert len(set(harness.nonces())) == len(harness.nonces()) == 2 * count + 1

    run(scenario)


def test_server_that_stops_reading_blocks_no_call() -> None:
    """The pipe to it is full: neither the next call nor the end waits longer than it may."""

    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        await error_of(call(client, "first", [["deaf"]], timeout=SOON))
        big = {"nonce": "second", "acts": ["x" * 1_000_000]}
        for _ in range(3):
            await error_of(client.call("play", big, timeout=SOON))
        error = await error_of(call(client, "third", timeout=SOON))
        assert error.code == "E202"

    run(scenario)


def test_a_server_that_is_gone_before_it_is_called() -> None:
    """It died between two calls; the next one goes to a new server, or says why not."""

    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        await call(client, "first", [ANSWER, ["kill"]])
        again = await asyncio.gather(call(client, "second"), return_exceptions=True)
        for error in again:
            assert not isinstance(error, BaseException) or isinstance(error, ConnectionLostError)
        await call(client, "third")
        assert harness.nonces().count("second") <= 1

    run(scenario)


def test_a_stubborn_server_is_killed_at_the_end() -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        await call(client, "first", [["stubborn"], ["grandchild"], ANSWER])

    run(scenario)


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
@pytest.mark.parametrize("acts", PAGES.values(), ids=PAGES)
def test_a_list_without_an_end_or_without_sense(acts: list[Act]) -> None:
    async def scenario(client: Client, harness: MisbehavingHarness) -> None:
        error = await error_of(client.call("play", {"nonce": "first"}))
        assert error.code in ("E209", "E204")
        assert not error.may_have_run
        assert harness.nonces() == []
        assert len(harness.messages("tools/list")) <= client.options.max_pages

    run(scenario, {"tools/list": acts}, connected=False, retries=RetryPolicy(max_attempts=1))
