"""Calls that go on between the rounds of a stateless client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt.apps.gateway.parked_calls import (
    InputRequests,
    ParkedCall,
    ParkedCalls,
    UnknownParkedCall,
)
from foundation_rt.errors import ErrorCode, ToolError

LONG_MS = 60_000


def make(ttl_ms: int = LONG_MS, most: int = 10) -> ParkedCalls:
    return ParkedCalls(ttl_ms, most)


async def two_requests(parked: ParkedCall) -> dict[str, Any]:
    first = await parked.request("elicitation/create", {"message": "Name?"})
    second = await parked.request("roots/list", None)
    return {"first": first, "second": second}


def asked(event: dict[str, Any] | InputRequests) -> dict[str, tuple[str, Any]]:
    assert isinstance(event, InputRequests)
    return {key: (each.method, each.params) for key, each in event.requests.items()}


@pytest.mark.rule("GATE-22")
async def test_call_goes_on_between_the_rounds() -> None:
    calls = make()
    first = await calls.begin("me", None, two_requests)
    assert isinstance(first, InputRequests)
    assert asked(first) == {
        "elicitation/create-1": ("elicitation/create", {"message": "Name?"}),
    }
    second = await calls.resume(
        "me", None, first.parked, {"elicitation/create-1": {"action": "accept"}}
    )
    assert isinstance(second, InputRequests)
    assert asked(second) == {"roots/list-2": ("roots/list", None)}
    result = await calls.resume("me", None, second.parked, {"roots/list-2": {"roots": []}})
    assert result == {"first": {"action": "accept"}, "second": {"roots": []}}
    assert len(calls) == 0


@pytest.mark.rule("GATE-22")
async def test_unanswered_request_is_asked_again() -> None:
    calls = make()
    first = await calls.begin("me", None, two_requests)
    assert isinstance(first, InputRequests)
    again = await calls.resume("me", None, first.parked, {"another": {}})
    assert asked(again) == asked(first)
    await calls.close()


@pytest.mark.rule("GATE-22")
async def test_requests_of_one_moment_come_together() -> None:
    async def call(parked: ParkedCall) -> dict[str, Any]:
        responses = await asyncio.gather(
            parked.request("roots/list", 1), parked.request("roots/list", 2)
        )
        return {"responses": responses}

    calls = make()
    event = await calls.begin("me", None, call)
    assert isinstance(event, InputRequests)
    assert asked(event) == {"roots/list-1": ("roots/list", 1), "roots/list-2": ("roots/list", 2)}
    result = await calls.resume(
        "me", None, event.parked, {"roots/list-1": {}, "roots/list-2": {"x": 1}}
    )
    assert result == {"responses": [{}, {"x": 1}]}


@pytest.mark.rule("GATE-22")
async def test_call_of_another_owner_or_process_is_unknown() -> None:
    calls = make()
    event = await calls.begin("me", None, two_requests)
    assert isinstance(event, InputRequests)
    with pytest.raises(UnknownParkedCall):
        await calls.resume("you", None, event.parked, {})
    with pytest.raises(UnknownParkedCall):
        await make().resume("me", None, event.parked, {})
    assert isinstance(await calls.resume("me", None, event.parked, {}), InputRequests)
    await calls.close()


@pytest.mark.rule("GATE-22")
async def test_call_that_is_not_taken_up_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def call(parked: ParkedCall) -> dict[str, Any]:
        try:
            return await parked.request("roots/list", None)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    calls = make(ttl_ms=1)
    event = await calls.begin("me", None, call)
    assert isinstance(event, InputRequests)
    async with asyncio.timeout(20):
        await cancelled.wait()
    assert len(calls) == 0
    with pytest.raises(UnknownParkedCall):
        await calls.resume("me", None, event.parked, {})


@pytest.mark.rule("GATE-22")
async def test_cancelled_request_cancels_its_call() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def call(parked: ParkedCall) -> dict[str, Any]:
        began.set()
        try:
            await asyncio.sleep(LONG_MS)
        finally:
            cancelled.set()
        return {}

    request = asyncio.create_task(make().begin("me", None, call))
    async with asyncio.timeout(20):
        await began.wait()
        request.cancel()
        await cancelled.wait()
    with pytest.raises(asyncio.CancelledError):
        await request


@pytest.mark.rule("GATE-22")
async def test_parked_calls_of_an_owner_are_bounded() -> None:
    calls = make(most=2)
    for owner in ("me", "me", "you"):
        assert isinstance(await calls.begin(owner, None, two_requests), InputRequests)
    with pytest.raises(ToolError) as refused:
        await calls.begin("me", None, two_requests)
    assert refused.value.code is ErrorCode.RESOURCE_EXHAUSTED
    assert len(calls) == 3
    await calls.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.rule("GATE-22")
async def test_failure_of_the_call_is_that_of_the_request() -> None:
    async def call(parked: ParkedCall) -> dict[str, Any]:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await make().begin("me", None, call)
