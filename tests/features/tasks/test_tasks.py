"""Calls that become tasks: from the request to the outcome, in virtual time."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import orjson
import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.errors import RegistrationError, ToolError
from foundation_rt.features.context import ToolContext
from foundation_rt.features.tasks.feature import Tasks
from foundation_rt.features.tasks.support import EXTENSION, REQUIRED_CAPABILITIES, TaskSupport
from foundation_rt.kernel.call_lifecycle import CallLifecycle
from foundation_rt.kernel.invocation import Invocation
from foundation_rt.protocol.principal import Principal
from foundation_rt.server import Server
from tests.features.tasks.harness import KEEP_MS, RUN_MS, WITH_TASKS, TaskHarness
from tests.lab.servers.fixture import HANDSHAKE

NAMES = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}


async def sleep_a_second(arguments: dict[str, Any], context: ToolContext) -> str:
    await asyncio.sleep(1)
    return "slept"


async def sleep_forever(arguments: dict[str, Any], context: ToolContext) -> str:
    await context.abort_signal.wait()
    context.abort_signal.raise_if_aborted()
    return "never"


async def fail(arguments: dict[str, Any], context: ToolContext) -> str:
    await asyncio.sleep(0)  # with Python 3.12 a task begins at once
    raise ValueError("failed")


def text_of(task: dict[str, Any]) -> Any:
    [content] = task["result"]["content"]
    return orjson.loads(content["text"])


# -- who has the extension -----------------------------------------------------------------------


@pytest.mark.rule("TASK-16")
async def test_tool_with_tasks_adds_extension(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    client = harness.client()
    harness.add("plain", sleep_a_second, task=None)
    assert "extensions" not in client.result("server/discover")["capabilities"]
    assert client.error("tasks/get", taskId="x")["code"] == -32601
    harness.add("long", sleep_a_second)
    assert client.result("server/discover")["capabilities"]["extensions"] == {EXTENSION: {}}
    for method in ("tasks/list", "tasks/result"):
        assert client.error(method, taskId="x")["code"] == -32601


@pytest.mark.rule("TASK-16")
async def test_task_outlives_its_tool(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    harness.server.unregister("long")
    assert text_of(await client.ended(task_id)) == "slept"


@pytest.mark.rule("TASK-01")
@pytest.mark.parametrize("capabilities", [{}, {"tasks": {}}, {"extensions": {"other": {}}}])
async def test_client_without_extension_gets_plain_calls(
    capabilities: dict[str, Any], clock: ManualClock
) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client(capabilities)
    call = client.request("tools/call", name="long", arguments={}, task={"ttl": 1})
    await asyncio.sleep(2)
    assert client.answer(call)["result"]["resultType"] == "complete"
    assert client.outcome(call) == "slept"


@pytest.mark.rule("TASK-01")
async def test_client_with_handshake_has_no_tasks(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    peer = harness.connect(handshake=False)
    peer.ask("initialize", {**HANDSHAKE, "capabilities": WITH_TASKS}, id="hello")
    assert "extensions" not in peer.answer("hello")["result"]["capabilities"]
    peer.notify("notifications/initialized")
    call = peer.start("long")
    await asyncio.sleep(2)
    assert peer.outcome(call) == "slept"
    assert peer.answer(peer.ask("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601


@pytest.mark.rule("TASK-02")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_task_methods_need_extension(method: str, clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    error = harness.client({}).error(method, taskId="x", inputResponses={})
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == REQUIRED_CAPABILITIES


@pytest.mark.rule("TASK-02")
async def test_tool_that_requires_tasks_needs_extension(clock: ManualClock) -> None:
    harness = TaskHarness(clock, slots=1)
    harness.add("long", sleep_a_second, task="required")
    client = harness.client({})
    for _ in range(2):
        error = client.error("tools/call", name="long", arguments={})
        assert error["code"] == -32021
        assert error["data"]["requiredCapabilities"] == REQUIRED_CAPABILITIES
    harness.assert_all_ended()
    assert [each["outcome"] for each in harness.records] == ["protocol_error"] * 2
    assert harness.client().call("long")["resultType"] == "task"


# -- becoming a task -----------------------------------------------------------------------------


@pytest.mark.rule("TASK-03", "TASK-17", "TASK-04")
async def test_call_is_task_at_once_by_default(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    created = client.call("long", task={"ttl": 60_000})
    assert created.keys() == NAMES | {"resultType"}
    assert created["resultType"] == "task"
    assert created["status"] == "working"
    assert created["ttlMs"] == RUN_MS + KEEP_MS
    assert created["pollIntervalMs"] == 500
    assert created["createdAt"] == created["lastUpdatedAt"] == "2024-01-01T00:00:00.000Z"
    task_id = created["taskId"]
    assert client.get(task_id) == {**created, "resultType": "complete"}
    assert harness.slots_in_use == 1
    assert harness.records == []
    ended = await client.ended(task_id)
    assert ended.keys() == NAMES | {"resultType", "result"}
    assert ended["status"] == "completed"
    assert ended["result"]["isError"] is False
    assert ended["lastUpdatedAt"] == "2024-01-01T00:00:01.000Z"
    assert text_of(ended) == "slept"
    harness.assert_all_ended()
    [record] = harness.records
    assert record["outcome"] == "success"
    assert task_id not in str(harness.sink.lines)
    assert len(client.answers(1)) == 1


@pytest.mark.rule("TASK-15")
async def test_ended_task_does_not_keep_its_arguments(clock: ManualClock) -> None:
    held: list[weakref.ref[Invocation]] = []

    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    harness.add("fails", fail)
    client = harness.client()
    manager = harness.server.runtime.dispatcher.parts[Tasks].manager()
    gc.collect()
    gc.disable()  # what reference counting does not free is in a cycle, and stays
    try:
        for tool in ("long", "long", "fails"):
            created = client.call(tool)
            held.extend(map(weakref.ref, manager.calls()))
            if len(held) == 2:
                client.result("tasks/cancel", taskId=created["taskId"])
            await client.ended(created["taskId"])
        await asyncio.sleep(2)
        assert len(held) == 3
        assert [each() for each in held] == [None, None, None]
    finally:
        gc.enable()


@pytest.mark.rule("TASK-03")
@pytest.mark.parametrize(("after_ms", "is_task"), [(999, True), (1_001, False), (30_000, False)])
async def test_long_call_becomes_task(after_ms: int, is_task: bool, clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second, task_after_ms=after_ms)
    client = harness.client()
    call = client.request("tools/call", name="long", arguments={})
    await asyncio.sleep(0.9)
    assert client.answers(call) == []
    await asyncio.sleep(0.2)
    result = client.answer(call)["result"]
    assert result["resultType"] == ("task" if is_task else "complete")
    if is_task:
        assert text_of(await client.ended(result["taskId"])) == "slept"
    harness.assert_all_ended()
    assert len(harness.records) == 1


@pytest.mark.rule("TASK-03", "TASK-04")
async def test_handler_in_thread_can_become_task(clock: ManualClock) -> None:
    released = threading.Event()

    def handler(arguments: dict[str, Any], context: ToolContext) -> str:
        assert released.wait(20)
        return "done"

    harness = TaskHarness(clock)
    harness.add("long", handler)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    assert client.get(task_id)["status"] == "working"
    released.set()
    harness.assert_all_ended()
    assert text_of(client.get(task_id)) == "done"


@pytest.mark.rule("TASK-03")
async def test_deadline_before_after_ms_stays_deadline(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_forever, task_after_ms=2_000, timeout_ms=1_000)
    client = harness.client()
    call = client.request("tools/call", name="long", arguments={})
    await asyncio.sleep(1.1)
    assert client.outcome(call)["code"] == "TIMEOUT"


@pytest.mark.rule("TASK-03")
async def test_call_of_disconnected_client_does_not_become_task(clock: ManualClock) -> None:
    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(4)
        return "late"

    harness = TaskHarness(clock)
    harness.add("long", stubborn, task_after_ms=1_000, timeout_ms=3_000)
    client = harness.client()
    client.request("tools/call", name="long", arguments={})
    client.connection.close()
    await asyncio.sleep(5)
    harness.assert_all_ended()
    [record] = harness.records
    assert record["outcome"] == "late_completed"  # disconnected, and then its deadline


@pytest.mark.rule("TASK-03")
async def test_cancelled_call_does_not_become_task(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_forever, task_after_ms=1_000)
    client = harness.client()
    call = client.request("tools/call", name="long", arguments={})
    client.notify("notifications/cancelled", {"requestId": call})
    await asyncio.sleep(2)
    assert client.answers(call) == []
    assert [each["outcome"] for each in harness.records] == ["aborted"]


# -- how it ends ---------------------------------------------------------------------------------


@pytest.mark.rule("TASK-06")
async def test_tool_error_completes_task(clock: ManualClock) -> None:
    async def fail(arguments: dict[str, Any], context: ToolContext) -> None:
        raise ToolError("NOT_FOUND", "no such thing")

    harness = TaskHarness(clock)
    harness.add("long", fail)
    client = harness.client()
    task = await client.ended(client.call("long")["taskId"])
    assert task["status"] == "completed"
    assert task["result"]["isError"] is True
    assert text_of(task)["code"] == "NOT_FOUND"
    assert [each["outcome"] for each in harness.records] == ["tool_error"]


@pytest.mark.rule("TASK-06")
async def test_json_rpc_error_fails_task(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    def break_down(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    monkeypatch.setattr(CallLifecycle, "answer", break_down)
    task = await client.ended(task_id)
    assert task["status"] == "failed"
    assert task["error"]["code"] == -32603
    assert task["statusMessage"] == task["error"]["message"] == "Internal error"
    assert "result" not in task
    harness.assert_all_ended()
    assert len(harness.records) == 1


@pytest.mark.rule("TASK-04", "TASK-06")
@pytest.mark.parametrize("after_ms", [0, 5_000])
async def test_task_has_its_own_deadline(after_ms: int, clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_forever, task_after_ms=after_ms, timeout_ms=10_000)
    client = harness.client()
    call = client.request("tools/call", name="long", arguments={})
    await asyncio.sleep((after_ms + RUN_MS) / 1000 - 0.001)
    task_id = client.answer(call)["result"]["taskId"]
    assert client.get(task_id)["status"] == "working"
    await asyncio.sleep(0.002)
    task = client.get(task_id)
    assert task["status"] == "completed"
    assert text_of(task)["code"] == "TIMEOUT"
    assert text_of(task)["details"] == {"timeoutMs": RUN_MS}
    harness.assert_all_ended()
    assert [each["outcome"] for each in harness.records] == ["timeout"]


@pytest.mark.rule("TASK-12")
async def test_outcome_without_room_fails_task(clock: ManualClock) -> None:
    harness = TaskHarness(clock, max_result_bytes=300)
    harness.add("long", sleep_a_second)
    client = harness.client()
    first, second = client.call("long")["taskId"], client.call("long")["taskId"]
    assert (await client.ended(first))["status"] == "completed"
    task = await client.ended(second)
    assert task["status"] == "failed"
    assert task["error"]["code"] == -32603
    assert task["error"]["message"] == task["statusMessage"]


@pytest.mark.rule("TASK-12")
async def test_optional_task_without_room_is_plain_call(clock: ManualClock) -> None:
    harness = TaskHarness(clock, max_tasks=1)
    harness.add("long", sleep_a_second)
    harness.add("later", sleep_a_second, task_after_ms=500)
    harness.add("strict", sleep_a_second, task="required")
    client = harness.client()
    assert client.call("long")["resultType"] == "task"
    plain = client.request("tools/call", name="long", arguments={})
    later = client.request("tools/call", name="later", arguments={})
    refused = client.request("tools/call", name="strict", arguments={})
    assert client.outcome(refused)["code"] == "RESOURCE_EXHAUSTED"
    assert client.outcome(refused)["details"] == {"reason": "task_limit", "maxTasks": 1}
    await asyncio.sleep(2)
    assert client.outcome(plain) == client.outcome(later) == "slept"
    harness.assert_all_ended()
    assert len(harness.records) == 4
    await asyncio.sleep((RUN_MS + KEEP_MS) / 1000)
    assert client.call("strict")["resultType"] == "task"


@pytest.mark.rule("TASK-12")
async def test_result_is_kept_until_task_expires(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    await asyncio.sleep((RUN_MS + KEEP_MS) / 1000 - 0.001)
    assert text_of(client.get(task_id)) == "slept"
    await asyncio.sleep(0.002)
    error = client.error("tasks/get", taskId=task_id)
    assert (error["code"], error["data"]["reason"]) == (-32602, "task_not_found")


# -- cancelling, leaving, stopping ---------------------------------------------------------------


@pytest.mark.rule("TASK-09")
async def test_cancelled_task_ends_at_once_and_aborts_handler(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_forever)
    client, other = harness.client(), harness.client()
    task_id = client.call("long")["taskId"]
    for _ in range(2):
        assert other.result("tasks/cancel", taskId=task_id) == {"resultType": "complete"}
        task = client.get(task_id)
        assert task["status"] == "cancelled"
        assert task.keys() == NAMES | {"resultType"}
    await asyncio.sleep(1)
    harness.assert_all_ended()
    assert [each["outcome"] for each in harness.records] == ["aborted"]


@pytest.mark.rule("TASK-09")
async def test_result_after_cancellation_is_ignored(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    client.result("tasks/cancel", taskId=task_id)
    assert harness.slots_in_use == 1
    await asyncio.sleep(2)
    assert client.get(task_id)["status"] == "cancelled"
    harness.assert_all_ended()
    assert [each["outcome"] for each in harness.records] == ["late_completed"]


@pytest.mark.rule("TASK-09")
async def test_cancelling_ended_task_has_no_effect(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    task = await client.ended(task_id)
    assert client.result("tasks/cancel", taskId=task_id) == {"resultType": "complete"}
    responses = {"1": {"action": "accept"}}
    acknowledged = client.result("tasks/update", taskId=task_id, inputResponses=responses)
    assert acknowledged == {"resultType": "complete"}
    assert client.get(task_id) == task


@pytest.mark.rule("TASK-09")
async def test_task_outlives_its_request_and_connection(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    call = client.request("tools/call", name="long", arguments={})
    task_id = client.answer(call)["result"]["taskId"]
    client.notify("notifications/cancelled", {"requestId": call})
    client.received.clear()
    # The id of its request is free again.
    again = client.ask("ping", {"_meta": {}}, id=call)
    assert client.answers(again)
    client.connection.close()
    assert text_of(await harness.client().ended(task_id)) == "slept"
    assert [each["outcome"] for each in harness.records] == ["success"]


@pytest.mark.rule("TASK-13")
async def test_stopping_server_aborts_tasks(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_forever)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    harness.server.runtime.stop_features("shutdown")
    task = client.get(task_id)
    assert (task["status"], task["statusMessage"]) == ("cancelled", "The server has stopped.")
    harness.server.runtime.stop_features("shutdown")
    await asyncio.sleep(1)
    harness.assert_all_ended()
    assert [each["outcome"] for each in harness.records] == ["aborted"]


# -- whose it is ---------------------------------------------------------------------------------


@pytest.mark.rule("TASK-10")
async def test_task_belongs_to_principal_of_call(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    owner = harness.client(principal=Principal("ann", frozenset({"all"}), "app"))
    task_id = owner.call("long")["taskId"]
    same = harness.client(principal=Principal("ann", frozenset(), "app"))
    assert same.get(task_id)["status"] == "working"
    for stranger in (Principal("bob"), Principal("ann"), None):
        client = harness.client(principal=stranger)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = client.error(method, taskId=task_id, inputResponses={})
            assert (error["code"], error["data"]["reason"]) == (-32602, "task_not_found")
    assert text_of(await owner.ended(task_id)) == "slept"


@pytest.mark.rule("TASK-10")
async def test_task_ids_cannot_be_guessed(clock: ManualClock) -> None:
    harness = TaskHarness(clock, slots=100)
    harness.add("long", sleep_a_second)
    client = harness.client()
    ids = {client.call("long")["taskId"] for _ in range(100)}
    assert len(ids) == 100
    assert all(len(each) >= 43 for each in ids)  # 256 bits, 6 in each character


@pytest.mark.rule("TASK-10")
@pytest.mark.parametrize("params", [{}, {"taskId": 5}, {"taskId": None}, {"taskId": ["x"]}])
async def test_invalid_task_id_is_refused(params: dict[str, Any], clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        error = harness.client().error(method, **params)
        assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_params")


# -- what it says meanwhile ----------------------------------------------------------------------


@pytest.mark.rule("TASK-07")
async def test_progress_of_task_is_in_its_status_only(clock: ManualClock) -> None:
    async def talk(arguments: dict[str, Any], context: ToolContext) -> str:
        context.report_progress(1, 3, "one")
        await asyncio.sleep(1)
        context.log("error", "a log message")
        context.report_progress(2)
        context.report_progress(3, 3, "x" * 2_000)
        await asyncio.sleep(1)
        return "done"

    harness = TaskHarness(clock)
    harness.add("long", talk, task_after_ms=500)
    client = harness.client()
    client.meta = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}
    call = client.request("tools/call", name="long", arguments={})
    await asyncio.sleep(0.6)
    progress, _ = client.take() if not client.answers(call) else client.received
    assert progress["method"] == "notifications/progress"
    task_id = client.answer(call)["result"]["taskId"]
    client.received.clear()
    await asyncio.sleep(0.6)
    assert client.received == []
    assert client.get(task_id)["statusMessage"] == "x" * 1_024
    client.received.clear()
    task = await client.ended(task_id)
    assert text_of(task) == "done"
    assert all("method" not in message for message in client.received)


# -- saying that a tool has tasks ----------------------------------------------------------------


@pytest.mark.rule("TASK-03")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": "maybe"}, '"optional" or "required"'),
        ({"task": True}, '"optional" or "required"'),
        ({"task": "optional", "task_after_ms": -1}, "whole number of milliseconds"),
        ({"task": "optional", "task_after_ms": 1.5}, "whole number of milliseconds"),
        ({"task_after_ms": 5}, "needs task as well"),
        ({"task": "optional", "inline": True}, "inline"),
    ],
)
def test_invalid_task_options_are_refused(options: dict[str, Any], said: str) -> None:
    server = Server()
    with pytest.raises(RegistrationError, match=said):

        @server.tool(**options)
        def tool() -> None: ...


@pytest.mark.rule("TASK-03")
def test_decorator_accepts_task_options() -> None:
    server = Server()

    @server.tool(task="required", task_after_ms=20)
    async def tool() -> None: ...

    registered = server.get("tool")
    assert registered is not None and (support := registered.parts.get(TaskSupport))
    assert support.required
    assert support.after_ms == 20


# -- races ---------------------------------------------------------------------------------------


@pytest.mark.rule("TASK-05", "TASK-09")
async def test_changes_after_end_of_task_have_no_effect(clock: ManualClock) -> None:
    """A handler ends on one connection while its client cancels on another."""
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    manager = harness.server.runtime.dispatcher.parts[Tasks].manager()
    task, call = manager.running(task_id), manager.call_of(task_id)
    assert task is not None
    assert call is not None
    ended = await client.ended(task_id)
    dispatcher = harness.server.runtime.dispatcher
    assert dispatcher.cancel_call(call) == dispatcher.parts[Tasks].stopping("shutdown") == []
    assert dispatcher.calls.disconnect(call, "shutdown") == []
    assert manager.give_up(task) == []
    assert manager.respond(task, {"1": {}}) == []
    manager.set_message(task, "too late")
    assert client.get(task_id) == ended


@pytest.mark.rule("TASK-04")
async def test_bug_before_promotion_ends_call_as_plain_call(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    def break_down(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second, task_after_ms=5_000)
    client = harness.client()
    call = client.request("tools/call", name="long", arguments={})
    monkeypatch.setattr(CallLifecycle, "answer", break_down)
    await asyncio.sleep(2)
    assert client.answer(call)["error"]["code"] == -32603
    harness.assert_all_ended()
    assert len(harness.records) == 1


@pytest.mark.rule("TASK-10")
async def test_responses_that_are_not_an_object_are_refused(clock: ManualClock) -> None:
    harness = TaskHarness(clock)
    harness.add("long", sleep_a_second)
    client = harness.client()
    task_id = client.call("long")["taskId"]
    for responses in (None, [], "x"):
        error = client.error("tasks/update", taskId=task_id, inputResponses=responses)
        assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_params")


@pytest.mark.rule("TASK-13")
def test_stop_of_server_without_tasks_does_nothing() -> None:
    Server().runtime.stop_features("shutdown")
