"""A task asks, and is answered by `tasks/update`; before a call is one, it asks in rounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt.clock import ManualClock
from foundation_rt.core.context import ToolContext
from foundation_rt.server_requests.elicitation import Elicit, ElicitUrl
from foundation_rt.server_requests.errors import ClientCapabilityError, UrlElicitationRequired
from tests.core.tasks.scene import WITH_TASKS, Client, Scene, play
from tests.core.tasks.test_tasks import text_of

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


def update(client: Client, task_id: str, responses: dict[str, Any]) -> None:
    acknowledged = client.result("tasks/update", taskId=task_id, inputResponses=responses)
    assert acknowledged == {"resultType": "complete"}


@pytest.mark.rule("TASK-18", "TASK-19")
def test_a_task_waits_for_its_answer_where_it_is() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("greet", ask_a_name)
        client = stage.client()
        task_id = client.call("greet")["taskId"]
        await asyncio.sleep(10)
        task = client.get(task_id)
        assert task["status"] == "input_required"
        [(key, asked)] = task["inputRequests"].items()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "Your name?"
        update(client, task_id, {"unknown": ANN})
        assert client.get(task_id) == task
        update(stage.client(), task_id, {key: ANN})
        assert client.get(task_id)["status"] == "working"
        task = await client.ended(task_id)
        assert text_of(task) == "Hello, Ann!"
        assert len(stage.records) == 1

    play(scene)


@pytest.mark.rule("TASK-19")
def test_some_answers_may_come_before_others() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("greet", ask_two)
        client = stage.client()
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

    play(scene)


@pytest.mark.rule("TASK-19")
@pytest.mark.parametrize("answer", [5, {"action": "maybe"}, {"action": "accept", "content": {}}])
def test_an_answer_that_cannot_be_used_is_asked_for_again(answer: Any) -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("greet", ask_a_name)
        client = stage.client()
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

    play(scene)


@pytest.mark.rule("TASK-18")
def test_several_questions_at_once() -> None:
    async def scene(clock: ManualClock) -> None:
        async def ask(arguments: dict[str, Any], context: ToolContext) -> list[str]:
            answers = await context.ask({"a": Elicit("A?", NAME), "b": Elicit("B?", NAME)})
            return [answers["a"].content["name"], answers["b"].action]

        stage = Scene(clock)
        stage.add("greet", ask)
        client = stage.client()
        task_id = client.call("greet")["taskId"]
        await asyncio.sleep(1)
        asked = client.get(task_id)["inputRequests"]
        by_message = {one["params"]["message"]: key for key, one in asked.items()}
        update(client, task_id, {by_message["A?"]: ANN, by_message["B?"]: {"action": "decline"}})
        assert text_of(await client.ended(task_id)) == ["Ann", "decline"]

    play(scene)


@pytest.mark.rule("TASK-18")
def test_what_a_handler_gives_up_is_not_asked_any_more() -> None:
    async def scene(clock: ManualClock) -> None:
        async def impatient(arguments: dict[str, Any], context: ToolContext) -> str:
            try:
                async with asyncio.timeout(1):
                    await context.elicit("Your name?", NAME)
            except TimeoutError:
                await asyncio.sleep(1)
            return "anonymous"

        stage = Scene(clock)
        stage.add("greet", impatient)
        client = stage.client()
        task_id = client.call("greet")["taskId"]
        await asyncio.sleep(0.5)
        [key] = client.get(task_id)["inputRequests"]
        await asyncio.sleep(1)
        assert client.get(task_id)["status"] == "working"
        update(client, task_id, {key: ANN})
        assert text_of(await client.ended(task_id)) == "anonymous"

    play(scene)


@pytest.mark.rule("TASK-18", "TASK-09")
def test_a_task_that_waits_is_unwound_when_it_is_cancelled() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("greet", ask_a_name)
        client = stage.client()
        task_id = client.call("greet")["taskId"]
        await asyncio.sleep(1)
        client.result("tasks/cancel", taskId=task_id)
        task = client.get(task_id)
        assert task["status"] == "cancelled"
        assert "inputRequests" not in task
        await asyncio.sleep(0.001)  # not the grace
        stage.assert_all_ended()
        assert [each["outcome"] for each in stage.records] == ["aborted"]

    play(scene)


@pytest.mark.rule("TASK-18")
def test_who_asks_after_the_end_is_unwound() -> None:
    async def scene(clock: ManualClock) -> None:
        async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
            await context.abort_signal.wait()
            return await ask_a_name(arguments, context)

        stage = Scene(clock)
        stage.add("greet", stubborn)
        client = stage.client()
        task_id = client.call("greet")["taskId"]
        await asyncio.sleep(1)
        client.result("tasks/cancel", taskId=task_id)
        await asyncio.sleep(0.001)
        stage.assert_all_ended()
        assert [each["outcome"] for each in stage.records] == ["aborted"]

    play(scene)


@pytest.mark.rule("TASK-18")
def test_a_client_that_cannot_be_asked_fails_the_task() -> None:
    async def scene(clock: ManualClock) -> None:
        async def ask(arguments: dict[str, Any], context: ToolContext) -> str:
            with pytest.raises(ClientCapabilityError):
                await context.elicit("Your name?", NAME)
            return await ask_a_name(arguments, context)

        stage = Scene(clock)
        stage.add("greet", ask)
        client = stage.client({"extensions": WITH_TASKS["extensions"]})
        task = await client.ended(client.call("greet")["taskId"])
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32021

    play(scene)


@pytest.mark.rule("TASK-08")
def test_rounds_come_before_the_task() -> None:
    async def scene(clock: ManualClock) -> None:
        async def greet_slowly(arguments: dict[str, Any], context: ToolContext) -> str:
            greeting = await ask_a_name(arguments, context)
            await asyncio.sleep(1)
            again = await context.elicit("Your other name?", NAME)
            return f"{greeting} {again.content['name']}"

        stage = Scene(clock)
        stage.add("greet", greet_slowly, task="required", task_after_ms=200)
        client = stage.client()
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
        assert [each["outcome"] for each in stage.records] == ["success", "success"]

    play(scene)


@pytest.mark.rule("TASK-08")
def test_a_call_that_is_unwound_for_a_question_becomes_no_task() -> None:
    async def scene(clock: ManualClock) -> None:
        async def tidy(arguments: dict[str, Any], context: ToolContext) -> str:
            try:
                return await ask_a_name(arguments, context)
            finally:
                await asyncio.sleep(1)

        stage = Scene(clock)
        stage.add("greet", tidy, task_after_ms=200)
        client = stage.client()
        call = client.request("tools/call", name="greet", arguments={})
        await asyncio.sleep(2)
        assert client.answer(call)["result"]["resultType"] == "input_required"
        stage.assert_all_ended()

    play(scene)


@pytest.mark.rule("TASK-18")
def test_a_task_cannot_end_with_a_question() -> None:
    async def scene(clock: ManualClock) -> None:
        async def send_away(arguments: dict[str, Any], context: ToolContext) -> str:
            raise UrlElicitationRequired(ElicitUrl("Sign in.", "https://example.com/"))

        stage = Scene(clock)
        stage.add("greet", send_away)
        client = stage.client({**WITH_TASKS, "elicitation": {"url": {}}})
        task = await client.ended(client.call("greet")["taskId"])
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32603
        assert "question" in task["error"]["message"]

    play(scene)


@pytest.mark.rule("TASK-19")
def test_an_answer_may_come_when_the_loop_of_its_handler_is_no_more() -> None:
    stages: list[Scene] = []
    ids: list[str] = []

    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("greet", ask_a_name)
        stages.append(stage)
        ids.append(stage.client().call("greet")["taskId"])
        await asyncio.sleep(1)

    play(scene)  # its loop cancels the handler, which takes its question back
    manager = stages[0].server.runtime.dispatcher.tasks.manager()
    assert manager.running(ids[0]) is None
    assert stages[0].records[0]["outcome"] == "tool_error"


@pytest.mark.rule("TASK-18")
def test_nobody_is_asked_for_a_task_that_has_ended() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("greet", ask_a_name)
        client = stage.client()
        task_id = client.call("greet")["taskId"]
        manager = stage.server.runtime.dispatcher.tasks.manager()
        task = manager.running(task_id)
        assert task is not None
        client.result("tasks/cancel", taskId=task_id)
        assert manager.add_requests(task, {"a": {}}, lambda key, response: None) == []
        assert client.get(task_id)["status"] == "cancelled"

    play(scene)
