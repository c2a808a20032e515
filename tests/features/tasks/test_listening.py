"""Who listens for a task hears of every change of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.features.context import ToolContext
from foundation_rt.protocol.principal import Principal
from tests.features.tasks.harness import TaskClient, TaskHarness
from tests.features.tasks.test_asking import ANN, ask_a_name
from tests.features.tasks.test_tasks import sleep_a_second

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def heard(client: TaskClient) -> list[dict[str, Any]]:
    """Return the notifications about tasks, without the subscription."""
    told = []
    for message in client.received:
        if message.get("method") == "notifications/tasks":
            assert SUBSCRIPTION in message["params"].pop("_meta")
            told.append(message["params"])
    return told


def listen(client: TaskClient, *ids: str) -> list[str]:
    """Listen for tasks; return those that are acknowledged."""
    request_id = client.request("subscriptions/listen", notifications={"taskIds": list(ids)})
    acknowledged = client.received[-1]
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["_meta"][SUBSCRIPTION] == request_id
    known: list[str] = acknowledged["params"]["notifications"].get("taskIds", [])
    return known


@pytest.mark.rule("TASK-11")
async def test_every_change_is_notified_as_tasks_get_shows_it(clock: ManualClock) -> None:
    async def ask_later(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(0)  # with Python 3.12 a task begins at once
        return await ask_a_name(arguments, context)

    harness = TaskHarness(clock)
    harness.add("greet", ask_later)
    client, listener = harness.client(), harness.client()
    task_id = client.call("greet")["taskId"]
    assert listen(listener, task_id, "unknown") == [task_id]
    shown = []
    await asyncio.sleep(1)
    shown.append(client.get(task_id))
    [key] = shown[0]["inputRequests"]
    client.result("tasks/update", taskId=task_id, inputResponses={key: ANN})
    shown.append(client.get(task_id))
    shown.append(await client.ended(task_id))
    told = heard(listener)
    assert [{**each, "resultType": "complete"} for each in told] == shown
    assert [each["status"] for each in told] == ["input_required", "working", "completed"]
    assert all("method" not in message for message in client.received)


@pytest.mark.rule("TASK-11")
async def test_cancellation_is_notified(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    listen(client, task_id)
    client.result("tasks/cancel", taskId=task_id)
    await asyncio.sleep(2)
    assert [each["status"] for each in heard(client)] == ["cancelled"]


@pytest.mark.rule("TASK-02", "TASK-10", "TASK-11")
async def test_other_principals_are_not_notified(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    owner = harness.client(principal=Principal("ann"))
    task_id = owner.call("long")["taskId"]
    stranger = harness.client(principal=Principal("bob"))
    assert listen(stranger, task_id) == []
    error = harness.client({}).error("subscriptions/listen", notifications={"taskIds": [task_id]})
    assert error["code"] == -32021
    await owner.ended(task_id)
    assert heard(stranger) == heard(owner) == []
