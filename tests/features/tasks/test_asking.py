"""A task asks, and is answered by `tasks/update`; before a call is one, it asks in rounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.features.context import ToolContext
from foundation_rt.features.server_requests.elicitation import Elicit, ElicitUrl
from foundation_rt.features.server_requests.errors import (
    ClientCapabilityError,
    UrlElicitationRequired,
)
from foundation_rt.features.tasks.feature import Tasks
from tests.features.tasks.harness import WITH_TASKS, TaskClient, TaskHarness, run
from tests.features.tasks.test_tasks import text_of

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ANN = {"action": "accept", "content": {"name": "Ann"}}


async def ask_a_name(arguments: dict[str, Any], context: ToolContext) -> str:
    answer = await context.elicit("Your name?", NAME)
    return f"Hello, {answer.content['name']}!" if answer.content else answer.action


async def ask_two(arguments: dict[str, Any], context: ToolContext) -> list[str]:
    one, two = await asyncio.gather(
        context.elicit("One?", NAME, key="one"), context.elicit("Two?", NAME, key="two")
    )
    return [one.content["name"], two.content["name"]]


def update(client: TaskClient, task_id: str, responses: dict[str, Any]) -> None:
    acknowledged = client.result("tasks/update", taskId=task_id, inputResponses=responses)
    assert acknowledged == {"resultType": "complete"}


@pytest.mark.rule("TASK-18", "TASK-19")
async def test_task_waits_for_answer_in_its_handler(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("greet", ask_a_name)
    client = harness.client()
    task_id = client.call("greet")["taskId"]
    await asyncio.sleep(10)
    task = client.get(task_id)
    assert task["status"] == "input_required"
    [(key, asked)] = task["inputRequests"].items()
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["message"] == "Your name?"
    update(client, task_id, {"unknown": ANN})
    assert client.get(task_id) == task
    update(harness.client(), task_id, {key: ANN})
    assert client.get(task_id)["status"] == "working"
    task = await client.ended(task_id)
    assert text_of(task) == "Hello, Ann!"
    assert len(harness.records) == 1


@pytest.mark.rule("TASK-19")
async def test_answers_may_come_one_by_one(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("greet", ask_two)
    client = harness.client()
    task_id = client.call("greet")["taskId"]
    await asyncio.sleep(1)
    one, two = client.get(task_id)["inputRequests"]
    update(client, task_id, {two: ANN})
    await asyncio.sleep(1)
    task = client.get(task_id)
    assert task["status"] == "input_required"
    assert list(task["inputRequests"]) == [one]
    bob = {"action": "accept", "content": {"name": "Bob"}}
    update(client, task_id, {two: bob, one: bob})
    assert text_of(await client.ended(task_id)) == ["Bob", "Ann"]


@pytest.mark.rule("TASK-19")
@pytest.mark.parametrize("answer", [5, {"action": "maybe"}, {"action": "accept", "content": {}}])
async def test_invalid_answer_is_asked_for_again(answer: Any, clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("greet", ask_a_name)
    client = harness.client()
    task_id = client.call("greet")["taskId"]
    await asyncio.sleep(1)
    [first] = client.get(task_id)["inputRequests"]
    update(client, task_id, {first: answer})
    await asyncio.sleep(1)
    [second] = client.get(task_id)["inputRequests"]
    assert second != first
    update(client, task_id, {first: ANN})
    assert client.get(task_id)["status"] == "input_required"
    update(client, task_id, {second: ANN})
    assert text_of(await client.ended(task_id)) == "Hello, Ann!"


@pytest.mark.rule("TASK-18")
async def test_several_requests_at_once(clock: ManualClock) -> None:
    async def ask(arguments: dict[str, Any], context: ToolContext) -> list[str]:
        answers = await context.ask({"a": Elicit("A?", NAME), "b": Elicit("B?", NAME)})
        return [answers["a"].content["name"], answers["b"].action]

    harness = TaskHarness(clock)
    harness.add("greet", ask)
    client = harness.client()
    task_id = client.call("greet")["taskId"]
    await asyncio.sleep(1)
    asked = client.get(task_id)["inputRequests"]
    by_message = {one["params"]["message"]: key for key, one in asked.items()}
    update(client, task_id, {by_message["A?"]: ANN, by_message["B?"]: {"action": "decline"}})
    assert text_of(await client.ended(task_id)) == ["Ann", "decline"]


@pytest.mark.rule("TASK-18")
async def test_request_that_handler_gives_up_is_removed(clock: ManualClock) -> None:
    async def impatient(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            async with asyncio.timeout(1):
                await context.elicit("Your name?", NAME)
        except TimeoutError:
            await asyncio.sleep(1)
        return "anonymous"

    harness = TaskHarness(clock)
    harness.add("greet", impatient)
    client = harness.client()
    task_id = client.call("greet")["taskId"]
    await asyncio.sleep(0.5)
    [key] = client.get(task_id)["inputRequests"]
    await asyncio.sleep(1)
    assert client.get(task_id)["status"] == "working"
    update(client, task_id, {key: ANN})
    assert text_of(await client.ended(task_id)) == "anonymous"


@pytest.mark.rule("TASK-18", "TASK-09")
async def test_cancellation_ends_wait_of_task_for_answer(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("greet", ask_a_name)
    client = harness.client()
    task_id = client.call("greet")["taskId"]
    await asyncio.sleep(1)
    client.result("tasks/cancel", taskId=task_id)
    task = client.get(task_id)
    assert task["status"] == "cancelled"
    assert "inputRequests" not in task
    await asyncio.sleep(0.001)  # not the grace
    harness.assert_all_ended()
    assert [each["outcome"] for each in harness.records] == ["aborted"]


@pytest.mark.rule("TASK-18")
async def test_request_after_end_of_task_is_aborted(clock: ManualClock) -> None:
    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
        await context.abort_signal.wait()
        return await ask_a_name(arguments, context)

    harness = TaskHarness(clock)
    harness.add("greet", stubborn)
    client = harness.client()
    task_id = client.call("greet")["taskId"]
    await asyncio.sleep(1)
    client.result("tasks/cancel", taskId=task_id)
    await asyncio.sleep(0.001)
    harness.assert_all_ended()
    assert [each["outcome"] for each in harness.records] == ["aborted"]


@pytest.mark.rule("TASK-18")
async def test_task_of_client_without_capability_fails(clock: ManualClock) -> None:
    async def ask(arguments: dict[str, Any], context: ToolContext) -> str:
        with pytest.raises(ClientCapabilityError):
            await context.elicit("Your name?", NAME)
        return await ask_a_name(arguments, context)

    harness = TaskHarness(clock)
    harness.add("greet", ask)
    client = harness.client({"extensions": WITH_TASKS["extensions"]})
    task = await client.ended(client.call("greet")["taskId"])
    assert task["status"] == "failed"
    assert task["error"]["code"] == -32021


@pytest.mark.rule("TASK-08")
async def test_call_asks_in_rounds_before_it_is_a_task(clock: ManualClock) -> None:
    async def greet_slowly(arguments: dict[str, Any], context: ToolContext) -> str:
        greeting = await ask_a_name(arguments, context)
        await asyncio.sleep(1)
        again = await context.elicit("Your other name?", NAME)
        return f"{greeting} {again.content['name']}"

    harness = TaskHarness(clock)
    harness.add("greet", greet_slowly, task="required", task_after_ms=200)
    client = harness.client()
    first = client.request("tools/call", name="greet", arguments={})
    await asyncio.sleep(0.1)
    asked = client.answer(first)["result"]
    assert asked["resultType"] == "input_required"
    assert "taskId" not in asked
    [key] = asked["inputRequests"]
    retry = {"inputResponses": {key: ANN}, "requestState": asked["requestState"]}
    second = client.request("tools/call", name="greet", arguments={}, **retry)
    await asyncio.sleep(0.5)
    handle = client.answer(second)["result"]
    assert handle["resultType"] == "task"
    assert handle.keys().isdisjoint({"requestState", "inputRequests"})
    await asyncio.sleep(1)
    [key] = client.get(handle["taskId"])["inputRequests"]
    update(client, handle["taskId"], {key: ANN})
    assert text_of(await client.ended(handle["taskId"])) == "Hello, Ann! Ann"
    assert [each["outcome"] for each in harness.records] == ["success", "success"]


@pytest.mark.rule("TASK-08")
async def test_call_that_ends_with_request_does_not_become_task(clock: ManualClock) -> None:
    async def tidy(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            return await ask_a_name(arguments, context)
        finally:
            await asyncio.sleep(1)

    harness = TaskHarness(clock)
    harness.add("greet", tidy, task_after_ms=200)
    client = harness.client()
    call = client.request("tools/call", name="greet", arguments={})
    await asyncio.sleep(2)
    assert client.answer(call)["result"]["resultType"] == "input_required"
    harness.assert_all_ended()


@pytest.mark.rule("TASK-18")
async def test_task_that_ends_with_request_fails(clock: ManualClock) -> None:
    async def send_away(arguments: dict[str, Any], context: ToolContext) -> str:
        raise UrlElicitationRequired(ElicitUrl("Sign in.", "https://example.com/"))

    harness = TaskHarness(clock)
    harness.add("greet", send_away)
    client = harness.client({**WITH_TASKS, "elicitation": {"url": {}}})
    task = await client.ended(client.call("greet")["taskId"])
    assert task["status"] == "failed"
    assert task["error"]["code"] == -32603
    assert "request to the client" in task["error"]["message"]


@pytest.mark.rule("TASK-19")
def test_answer_after_loop_of_handler_closed_is_ignored() -> None:
    harnesses: list[TaskHarness] = []
    ids: list[str] = []

    async def scenario(clock: ManualClock) -> None:
        harness = TaskHarness(clock)
        harness.add("greet", ask_a_name)
        harnesses.append(harness)
        ids.append(harness.client().call("greet")["taskId"])
        await asyncio.sleep(1)

    run(scenario)  # its loop cancels the handler, which cancels its request
    manager = harnesses[0].server.runtime.dispatcher.parts[Tasks].manager()
    assert manager.running(ids[0]) is None
    assert harnesses[0].records[0]["outcome"] == "tool_error"


@pytest.mark.rule("TASK-18")
async def test_ended_task_shows_no_requests(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("greet", ask_a_name)
    client = harness.client()
    task_id = client.call("greet")["taskId"]
    manager = harness.server.runtime.dispatcher.parts[Tasks].manager()
    task = manager.running(task_id)
    assert task is not None
    client.result("tasks/cancel", taskId=task_id)
    assert manager.add_requests(task, {"a": {}}, lambda key, response: None) == []
    assert client.get(task_id)["status"] == "cancelled"
