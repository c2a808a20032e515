"""Calls that become tasks: from the request to the outcome, in virtual time."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import orjson
import pytest

from foundation_rt.clock import ManualClock
from foundation_rt.core.call_lifecycle import CallLifecycle
from foundation_rt.core.context import ToolContext
from foundation_rt.core.invocation import Invocation
from foundation_rt.core.tasks.support import EXTENSION, REQUIRED_CAPABILITIES
from foundation_rt.errors import RegistrationError, ToolError
from foundation_rt.protocol.principal import Principal
from foundation_rt.server import Server
from tests.core.tasks.scene import KEEP_MS, RUN_MS, WITH_TASKS, Scene, play
from tests.support.rig import HANDSHAKE

NAMES = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}


async def sleep_a_second(arguments: dict[str, Any], context: ToolContext) -> str:
    await asyncio.sleep(1)
    return "slept"


async def sleep_forever(arguments: dict[str, Any], context: ToolContext) -> str:
    await context.abort_signal.wait()
    context.abort_signal.raise_if_aborted()
    return "never"


async def fail(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ValueError("failed")


def text_of(task: dict[str, Any]) -> Any:
    [content] = task["result"]["content"]
    return orjson.loads(content["text"])


# -- who has the extension -----------------------------------------------------------------------


@pytest.mark.rule("TASK-16")
def test_a_server_has_the_extension_once_a_tool_has_tasks() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        client = stage.client()
        stage.add("plain", sleep_a_second, task=None)
        assert "extensions" not in client.result("server/discover")["capabilities"]
        assert client.error("tasks/get", taskId="x")["code"] == -32601
        stage.add("long", sleep_a_second)
        assert client.result("server/discover")["capabilities"]["extensions"] == {EXTENSION: {}}
        for method in ("tasks/list", "tasks/result"):
            assert client.error(method, taskId="x")["code"] == -32601

    play(scene)


@pytest.mark.rule("TASK-16")
def test_tasks_outlive_their_tool() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        stage.server.unregister("long")
        assert text_of(await client.ended(task_id)) == "slept"

    play(scene)


@pytest.mark.rule("TASK-01")
@pytest.mark.parametrize("capabilities", [{}, {"tasks": {}}, {"extensions": {"other": {}}}])
def test_a_client_without_the_extension_gets_plain_calls(capabilities: dict[str, Any]) -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client(capabilities)
        call = client.request("tools/call", name="long", arguments={}, task={"ttl": 1})
        await asyncio.sleep(2)
        assert client.answer(call)["result"]["resultType"] == "complete"
        assert client.outcome(call) == "slept"

    play(scene)


@pytest.mark.rule("TASK-01")
def test_a_handshake_client_has_no_tasks_whatever_it_declares() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        peer = stage.connect(handshake=False)
        peer.ask("initialize", {**HANDSHAKE, "capabilities": WITH_TASKS}, id="hello")
        assert "extensions" not in peer.answer("hello")["result"]["capabilities"]
        peer.notify("notifications/initialized")
        call = peer.start("long")
        await asyncio.sleep(2)
        assert peer.outcome(call) == "slept"
        assert peer.answer(peer.ask("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601

    play(scene)


@pytest.mark.rule("TASK-02")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_client_without_the_extension_is_told_what_it_lacks(method: str) -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        error = stage.client({}).error(method, taskId="x", inputResponses={})
        assert error["code"] == -32021
        assert error["data"]["requiredCapabilities"] == REQUIRED_CAPABILITIES

    play(scene)


@pytest.mark.rule("TASK-02")
def test_a_tool_that_requires_tasks_is_for_clients_that_have_them() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock, slots=1)
        stage.add("long", sleep_a_second, task="required")
        client = stage.client({})
        for _ in range(2):
            error = client.error("tools/call", name="long", arguments={})
            assert error["code"] == -32021
            assert error["data"]["requiredCapabilities"] == REQUIRED_CAPABILITIES
        stage.assert_all_ended()
        assert [each["outcome"] for each in stage.records] == ["protocol_error"] * 2
        assert stage.client().call("long")["resultType"] == "task"

    play(scene)


# -- becoming a task -----------------------------------------------------------------------------


@pytest.mark.rule("TASK-03", "TASK-17", "TASK-04")
def test_a_call_is_a_task_at_once() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        created = client.call("long", task={"ttl": 60_000})
        assert created.keys() == NAMES | {"resultType"}
        assert created["resultType"] == "task"
        assert created["status"] == "working"
        assert created["ttlMs"] == RUN_MS + KEEP_MS
        assert created["pollIntervalMs"] == 500
        assert created["createdAt"] == created["lastUpdatedAt"] == "2024-01-01T00:00:00.000Z"
        task_id = created["taskId"]
        assert client.get(task_id) == {**created, "resultType": "complete"}
        assert stage.slots_in_use == 1
        assert stage.records == []
        ended = await client.ended(task_id)
        assert ended.keys() == NAMES | {"resultType", "result"}
        assert ended["status"] == "completed"
        assert ended["result"]["isError"] is False
        assert ended["lastUpdatedAt"] == "2024-01-01T00:00:01.000Z"
        assert text_of(ended) == "slept"
        stage.assert_all_ended()
        [record] = stage.records
        assert record["outcome"] == "success"
        assert task_id not in str(stage.sink.lines)
        assert len(client.answers(1)) == 1

    play(scene)


@pytest.mark.rule("TASK-15")
def test_what_a_task_was_called_with_goes_with_its_end() -> None:
    held: list[weakref.ref[Invocation]] = []

    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        stage.add("fails", fail)
        client = stage.client()
        manager = stage.server.runtime.dispatcher.tasks.manager()
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

    play(scene)


@pytest.mark.rule("TASK-03")
@pytest.mark.parametrize(("after_ms", "is_task"), [(999, True), (1_001, False), (30_000, False)])
def test_a_call_becomes_a_task_when_it_takes_long(after_ms: int, is_task: bool) -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second, task_after_ms=after_ms)
        client = stage.client()
        call = client.request("tools/call", name="long", arguments={})
        await asyncio.sleep(0.9)
        assert client.answers(call) == []
        await asyncio.sleep(0.2)
        result = client.answer(call)["result"]
        assert result["resultType"] == ("task" if is_task else "complete")
        if is_task:
            assert text_of(await client.ended(result["taskId"])) == "slept"
        stage.assert_all_ended()
        assert len(stage.records) == 1

    play(scene)


@pytest.mark.rule("TASK-03", "TASK-04")
def test_a_handler_in_a_thread_can_be_a_task() -> None:
    async def scene(clock: ManualClock) -> None:
        released = threading.Event()

        def handler(arguments: dict[str, Any], context: ToolContext) -> str:
            assert released.wait(20)
            return "done"

        stage = Scene(clock)
        stage.add("long", handler)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        assert client.get(task_id)["status"] == "working"
        released.set()
        stage.assert_all_ended()
        assert text_of(client.get(task_id)) == "done"

    play(scene)


@pytest.mark.rule("TASK-03")
def test_a_deadline_that_comes_first_stays_the_deadline() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_forever, task_after_ms=2_000, timeout_ms=1_000)
        client = stage.client()
        call = client.request("tools/call", name="long", arguments={})
        await asyncio.sleep(1.1)
        assert client.outcome(call)["code"] == "TIMEOUT"

    play(scene)


@pytest.mark.rule("TASK-03")
def test_a_call_whose_client_has_gone_becomes_no_task() -> None:
    async def scene(clock: ManualClock) -> None:
        async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
            await asyncio.sleep(4)
            return "late"

        stage = Scene(clock)
        stage.add("long", stubborn, task_after_ms=1_000, timeout_ms=3_000)
        client = stage.client()
        client.request("tools/call", name="long", arguments={})
        client.connection.close()
        await asyncio.sleep(5)
        stage.assert_all_ended()
        [record] = stage.records
        assert record["outcome"] == "late_completed"  # disconnected, and then its deadline

    play(scene)


@pytest.mark.rule("TASK-03")
def test_a_cancelled_call_becomes_no_task() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_forever, task_after_ms=1_000)
        client = stage.client()
        call = client.request("tools/call", name="long", arguments={})
        client.notify("notifications/cancelled", {"requestId": call})
        await asyncio.sleep(2)
        assert client.answers(call) == []
        assert [each["outcome"] for each in stage.records] == ["aborted"]

    play(scene)


# -- how it ends ---------------------------------------------------------------------------------


@pytest.mark.rule("TASK-06")
def test_a_tool_error_completes_a_task() -> None:
    async def scene(clock: ManualClock) -> None:
        async def fail(arguments: dict[str, Any], context: ToolContext) -> None:
            raise ToolError("NOT_FOUND", "no such thing")

        stage = Scene(clock)
        stage.add("long", fail)
        client = stage.client()
        task = await client.ended(client.call("long")["taskId"])
        assert task["status"] == "completed"
        assert task["result"]["isError"] is True
        assert text_of(task)["code"] == "NOT_FOUND"
        assert [each["outcome"] for each in stage.records] == ["tool_error"]

    play(scene)


@pytest.mark.rule("TASK-06")
def test_a_json_rpc_error_fails_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(clock: ManualClock) -> None:
        def break_down(*arguments: Any) -> None:
            raise RuntimeError("a bug")

        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        monkeypatch.setattr(CallLifecycle, "answer", break_down)
        task = await client.ended(task_id)
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32603
        assert task["statusMessage"] == task["error"]["message"] == "Internal error"
        assert "result" not in task
        stage.assert_all_ended()
        assert len(stage.records) == 1

    play(scene)


@pytest.mark.rule("TASK-04", "TASK-06")
@pytest.mark.parametrize("after_ms", [0, 5_000])
def test_the_deadline_of_a_task_is_its_own(after_ms: int) -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_forever, task_after_ms=after_ms, timeout_ms=10_000)
        client = stage.client()
        call = client.request("tools/call", name="long", arguments={})
        await asyncio.sleep((after_ms + RUN_MS) / 1000 - 0.001)
        task_id = client.answer(call)["result"]["taskId"]
        assert client.get(task_id)["status"] == "working"
        await asyncio.sleep(0.002)
        task = client.get(task_id)
        assert task["status"] == "completed"
        assert text_of(task)["code"] == "TIMEOUT"
        assert text_of(task)["details"] == {"timeoutMs": RUN_MS}
        stage.assert_all_ended()
        assert [each["outcome"] for each in stage.records] == ["timeout"]

    play(scene)


@pytest.mark.rule("TASK-12")
def test_an_outcome_without_room_fails_its_task() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock, max_result_bytes=300)
        stage.add("long", sleep_a_second)
        client = stage.client()
        first, second = client.call("long")["taskId"], client.call("long")["taskId"]
        assert (await client.ended(first))["status"] == "completed"
        task = await client.ended(second)
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32603
        assert task["error"]["message"] == task["statusMessage"]

    play(scene)


@pytest.mark.rule("TASK-12")
def test_where_there_is_no_room_an_optional_task_is_a_plain_call() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock, max_tasks=1)
        stage.add("long", sleep_a_second)
        stage.add("later", sleep_a_second, task_after_ms=500)
        stage.add("strict", sleep_a_second, task="required")
        client = stage.client()
        assert client.call("long")["resultType"] == "task"
        plain = client.request("tools/call", name="long", arguments={})
        later = client.request("tools/call", name="later", arguments={})
        refused = client.request("tools/call", name="strict", arguments={})
        assert client.outcome(refused)["code"] == "RESOURCE_EXHAUSTED"
        assert client.outcome(refused)["details"] == {"reason": "task_limit", "maxTasks": 1}
        await asyncio.sleep(2)
        assert client.outcome(plain) == client.outcome(later) == "slept"
        stage.assert_all_ended()
        assert len(stage.records) == 4
        await asyncio.sleep((RUN_MS + KEEP_MS) / 1000)
        assert client.call("strict")["resultType"] == "task"

    play(scene)


@pytest.mark.rule("TASK-12")
def test_a_result_is_kept_for_its_time() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        await asyncio.sleep((RUN_MS + KEEP_MS) / 1000 - 0.001)
        assert text_of(client.get(task_id)) == "slept"
        await asyncio.sleep(0.002)
        error = client.error("tasks/get", taskId=task_id)
        assert (error["code"], error["data"]["reason"]) == (-32602, "task_not_found")

    play(scene)


# -- cancelling, leaving, stopping ---------------------------------------------------------------


@pytest.mark.rule("TASK-09")
def test_a_cancelled_task_is_cancelled_at_once_and_its_handler_aborted() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_forever)
        client, other = stage.client(), stage.client()
        task_id = client.call("long")["taskId"]
        for _ in range(2):
            assert other.result("tasks/cancel", taskId=task_id) == {"resultType": "complete"}
            task = client.get(task_id)
            assert task["status"] == "cancelled"
            assert task.keys() == NAMES | {"resultType"}
        await asyncio.sleep(1)
        stage.assert_all_ended()
        assert [each["outcome"] for each in stage.records] == ["aborted"]

    play(scene)


@pytest.mark.rule("TASK-09")
def test_what_comes_after_the_cancellation_changes_nothing() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        client.result("tasks/cancel", taskId=task_id)
        assert stage.slots_in_use == 1
        await asyncio.sleep(2)
        assert client.get(task_id)["status"] == "cancelled"
        stage.assert_all_ended()
        assert [each["outcome"] for each in stage.records] == ["late_completed"]

    play(scene)


@pytest.mark.rule("TASK-09")
def test_cancelling_what_has_ended_changes_nothing() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        task = await client.ended(task_id)
        assert client.result("tasks/cancel", taskId=task_id) == {"resultType": "complete"}
        responses = {"1": {"action": "accept"}}
        acknowledged = client.result("tasks/update", taskId=task_id, inputResponses=responses)
        assert acknowledged == {"resultType": "complete"}
        assert client.get(task_id) == task

    play(scene)


@pytest.mark.rule("TASK-09")
def test_a_task_outlives_its_request_and_its_connection() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        call = client.request("tools/call", name="long", arguments={})
        task_id = client.answer(call)["result"]["taskId"]
        client.notify("notifications/cancelled", {"requestId": call})
        client.received.clear()
        # The id of its request is free again.
        again = client.ask("ping", {"_meta": {}}, id=call)
        assert client.answers(again)
        client.connection.close()
        assert text_of(await stage.client().ended(task_id)) == "slept"
        assert [each["outcome"] for each in stage.records] == ["success"]

    play(scene)


@pytest.mark.rule("TASK-13")
def test_the_end_of_the_server_aborts_tasks() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_forever)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        stage.server.runtime.stop_tasks("shutdown")
        task = client.get(task_id)
        assert (task["status"], task["statusMessage"]) == ("cancelled", "The server has stopped.")
        stage.server.runtime.stop_tasks("shutdown")
        await asyncio.sleep(1)
        stage.assert_all_ended()
        assert [each["outcome"] for each in stage.records] == ["aborted"]

    play(scene)


# -- whose it is ---------------------------------------------------------------------------------


@pytest.mark.rule("TASK-10")
def test_a_task_belongs_to_who_called() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        owner = stage.client(principal=Principal("ann", frozenset({"all"}), "app"))
        task_id = owner.call("long")["taskId"]
        same = stage.client(principal=Principal("ann", frozenset(), "app"))
        assert same.get(task_id)["status"] == "working"
        for stranger in (Principal("bob"), Principal("ann"), None):
            client = stage.client(principal=stranger)
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                error = client.error(method, taskId=task_id, inputResponses={})
                assert (error["code"], error["data"]["reason"]) == (-32602, "task_not_found")
        assert text_of(await owner.ended(task_id)) == "slept"

    play(scene)


@pytest.mark.rule("TASK-10")
def test_ids_of_tasks_cannot_be_guessed() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock, slots=100)
        stage.add("long", sleep_a_second)
        client = stage.client()
        ids = {client.call("long")["taskId"] for _ in range(100)}
        assert len(ids) == 100
        assert all(len(each) >= 43 for each in ids)  # 256 bits, 6 in each character

    play(scene)


@pytest.mark.rule("TASK-10")
@pytest.mark.parametrize("params", [{}, {"taskId": 5}, {"taskId": None}, {"taskId": ["x"]}])
def test_an_id_that_is_none_is_refused(params: dict[str, Any]) -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = stage.client().error(method, **params)
            assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_params")

    play(scene)


# -- what it says meanwhile ----------------------------------------------------------------------


@pytest.mark.rule("TASK-07")
def test_progress_is_told_in_the_status_and_nothing_is_sent() -> None:
    async def scene(clock: ManualClock) -> None:
        async def talk(arguments: dict[str, Any], context: ToolContext) -> str:
            context.report_progress(1, 3, "one")
            await asyncio.sleep(1)
            context.log("error", "a log message")
            context.report_progress(2)
            context.report_progress(3, 3, "x" * 2_000)
            await asyncio.sleep(1)
            return "done"

        stage = Scene(clock)
        stage.add("long", talk, task_after_ms=500)
        client = stage.client()
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

    play(scene)


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
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], said: str) -> None:
    server = Server()
    with pytest.raises(RegistrationError, match=said):

        @server.tool(**options)
        def tool() -> None: ...


@pytest.mark.rule("TASK-03")
def test_the_typed_way_to_say_it() -> None:
    server = Server()

    @server.tool(task="required", task_after_ms=20)
    async def tool() -> None: ...

    registered = server.get("tool")
    assert registered is not None and registered.task is not None
    assert registered.task.required
    assert registered.task.after_ms == 20


# -- races ---------------------------------------------------------------------------------------


@pytest.mark.rule("TASK-05", "TASK-09")
def test_whoever_comes_too_late_changes_nothing() -> None:
    """A handler ends on one connection while its client cancels on another."""

    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        manager = stage.server.runtime.dispatcher.tasks.manager()
        task, call = manager.running(task_id), manager.call_of(task_id)
        assert task is not None
        assert call is not None
        ended = await client.ended(task_id)
        dispatcher = stage.server.runtime.dispatcher
        assert dispatcher.cancel_call(call) == dispatcher.stop_tasks("shutdown") == []
        assert dispatcher.calls.disconnect(call, "shutdown") == []
        assert manager.give_up(task) == []
        assert manager.respond(task, {"1": {}}) == []
        manager.set_message(task, "too late")
        assert client.get(task_id) == ended

    play(scene)


@pytest.mark.rule("TASK-04")
def test_a_bug_before_it_is_a_task_ends_it_as_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(clock: ManualClock) -> None:
        def break_down(*arguments: Any) -> None:
            raise RuntimeError("a bug")

        stage = Scene(clock)
        stage.add("long", sleep_a_second, task_after_ms=5_000)
        client = stage.client()
        call = client.request("tools/call", name="long", arguments={})
        monkeypatch.setattr(CallLifecycle, "answer", break_down)
        await asyncio.sleep(2)
        assert client.answer(call)["error"]["code"] == -32603
        stage.assert_all_ended()
        assert len(stage.records) == 1

    play(scene)


@pytest.mark.rule("TASK-10")
def test_responses_have_to_be_an_object() -> None:
    async def scene(clock: ManualClock) -> None:
        stage = Scene(clock)
        stage.add("long", sleep_a_second)
        client = stage.client()
        task_id = client.call("long")["taskId"]
        for responses in (None, [], "x"):
            error = client.error("tasks/update", taskId=task_id, inputResponses=responses)
            assert (error["code"], error["data"]["reason"]) == (-32602, "invalid_params")

    play(scene)


@pytest.mark.rule("TASK-13")
def test_a_server_without_tasks_has_none_to_stop() -> None:
    Server().runtime.stop_tasks("shutdown")
