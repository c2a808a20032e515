"""The endpoint in both protocol modes: answers, streams, and the end of both."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from foundation_rt import ToolContext
from tests.lab.places.services import need_redis
from tests.lab.servers.asgi import (
    META,
    PATIENCE,
    REVISION,
    Visit,
    ask,
    call,
    open_session,
    post,
    request,
    visit,
)
from tests.lab.servers.http_harness import HttpHarness, harness
from tests.lab.waiting import block_until, until

PROGRESS = {"_meta": {"progressToken": "p"}}


@pytest.fixture(name="harness")
def fixture(options: dict[str, Any]) -> AbstractAsyncContextManager[HttpHarness]:
    """Return a harness of its own, with these settings of the section `http`."""
    return harness(**options)


def count_living(marker: str) -> int:
    """Return how many dicts of this process have the key `marker`."""
    gc.collect()
    return sum(marker in each for each in gc.get_objects() if type(each) is dict)


# -- the stateless mode --------------------------------------------------------------------------


@pytest.mark.rule("HTTP-28")
async def test_open_request_keeps_no_message(harness: HttpHarness) -> None:
    marker = "nobody-reads-this"
    params = {"notifications": {}, marker: {marker: ["x"]}}
    open_request = ask(harness.app, "subscriptions/listen", params)
    del params
    await open_request.until(lambda: b"acknowledged" in open_request.body)
    assert count_living(marker) == 0
    open_request.leave()
    await open_request.finish()


@pytest.mark.rule("HTTP-28")
async def test_running_call_keeps_only_its_arguments(
    harness: HttpHarness,
) -> None:
    marker = "nobody-reads-this"
    session = await open_session(harness.app)
    params = {"name": "wait", "arguments": {"tag": "a"}, marker: {marker: ["x"]}}
    running = session.post(request("tools/call", params))
    del params
    await harness.until(lambda: harness.entered)
    assert count_living(marker) == 0
    harness.go.set()
    await running.finish()


@pytest.mark.rule("REV-11")
async def test_session_keeps_little_of_large_client_description(harness: HttpHarness) -> None:
    large = {f"{number:x}": {} for number in range(1_500)}
    params = {"protocolVersion": "2025-11-25", "capabilities": large, "clientInfo": large}
    message = request("initialize", params)
    await post(harness.app, message).finish()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            assert (await post(harness.app, message).finish()).status == 200
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 20 * 16 * 1024  # unbounded, it was 410 KiB each


@pytest.mark.rule("HTTP-06")
async def test_message_before_reply_starts_stream(harness: HttpHarness) -> None:
    params = {"name": "progress", "arguments": {"count": 3}, "_meta": {**META, **PROGRESS["_meta"]}}
    headers = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": "progress"}
    answer = await post(harness.app, request("tools/call", params, "a"), headers).finish()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-accel-buffering"] == "no"
    *told, last = answer.messages
    assert [each["params"]["progress"] for each in told] == [1, 2, 3]
    assert last["id"] == "a" and "result" in last
    assert all("id" not in event for event in answer.events)  # nothing can be resumed there


@pytest.mark.rule("HTTP-10")
async def test_stateless_disconnect_cancels_call(harness: HttpHarness) -> None:
    open_call = call(harness.app, "wait", tag="left")
    other = call(harness.app, "wait", tag="stays")
    await harness.until(lambda: len(harness.entered) == 2)
    open_call.leave()
    await open_call.finish()
    running = {
        each.arguments["tag"]: each.phase.name for each in harness.server.runtime.engine.running
    }
    assert running["left"] == "DISCONNECTED"
    harness.go.set()
    assert (await other.finish()).json["result"]["content"][0]["text"] == "stays"
    await harness.idle()
    assert not harness.app._service.endpoint._open


@pytest.mark.rule("HTTP-09")
@pytest.mark.options(keep_alive_ms=20)
async def test_long_call_is_kept_alive_by_comments(harness: HttpHarness) -> None:
    open_call = call(harness.app, "wait", tag="long")
    await open_call.until(lambda: open_call.body.count(b":\n\n") >= 2)
    assert open_call.headers["content-type"] == "text/event-stream"
    harness.go.set()
    await open_call.finish()
    assert [each["id"] for each in open_call.messages] == [1]


@pytest.mark.rule("HTTP-16")
async def test_listeners_are_ended_when_server_stops(harness: HttpHarness) -> None:
    params = {"notifications": {"toolsListChanged": True}}
    listening = ask(harness.app, "subscriptions/listen", params, "s")
    await listening.until(lambda: listening.messages)
    harness.server.tool(name="another")(lambda: None)
    await listening.until(lambda: len(listening.messages) == 2)
    harness.app.begin_stop()
    await listening.finish()
    acknowledged, changed, final = listening.messages
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert changed["method"] == "notifications/tools/list_changed"
    assert final["id"] == "s" and final["result"]["resultType"] == "complete"
    assert listening.ended
    refused = await call(harness.app, "echo", text="late").finish()
    assert refused.status == 503
    assert (await visit(harness.app, "GET", "/readyz").finish()).status == 503


# -- sessions ------------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-05")
async def test_deleting_session_aborts_its_calls(harness: HttpHarness) -> None:
    session = await open_session(harness.app)
    open_call = session.call("wait", 3, tag="gone")
    listening = session.get()
    await harness.until(lambda: harness.entered)
    await listening.until(lambda: listening.events)
    await session.delete().finish()
    await open_call.finish()
    await listening.finish()
    assert open_call.messages == [] and open_call.ended
    phases = [each.phase.name for each in harness.server.runtime.engine.running]
    assert phases == ["DISCONNECTED"]


@pytest.mark.rule("HTTP-76", "HTTP-77")
async def test_slash_after_path_is_served_and_wrong_path_names_the_right_one(
    harness: HttpHarness,
) -> None:
    listing = orjson.dumps(request("tools/list", {"_meta": META}))
    headers = {"mcp-protocol-version": REVISION, "mcp-method": "tools/list"}
    for app, mount in ((harness.app, ""), (Starlette(routes=[Mount("/a", harness.app)]), "/a")):
        served = await visit(app, "POST", f"{mount}/mcp/", headers, listing).finish()
        assert served.json["result"]["tools"]
        for path, status in (("/sse/", 405), ("/messages/", 404)):
            legacy = await visit(app, "POST", f"{mount}{path}", headers, listing).finish()
            assert legacy.status == status and "endpoint is at" not in legacy.body.decode()
        wrong = await visit(app, "POST", f"{mount}/mpc", headers, listing).finish()
        assert wrong.status == 404
        assert f"the MCP endpoint is at {mount}/mcp" in wrong.json["error"]["message"]


@pytest.mark.rule("HTTP-31")
async def test_duplicate_id_is_refused_and_its_call_continues(harness: HttpHarness) -> None:
    session = await open_session(harness.app)
    first = session.call("wait", 5, tag="first")
    await harness.until(lambda: harness.entered)
    second = await session.call("echo", 5, text="second").finish()
    assert second.json["id"] is None
    assert second.json["error"]["data"]["reason"] == "duplicate_id"
    harness.go.set()
    await first.finish()
    assert first.json["result"]["content"][0]["text"] == "first"


@pytest.mark.rule("HTTP-25")
async def test_batch_leaves_out_cancelled_calls_and_waits_for_others(harness: HttpHarness) -> None:
    session = await open_session(harness.app, "2025-03-26")
    waiting = [
        request("tools/call", {"name": "wait", "arguments": {"tag": "a"}}, "a"),
        request("tools/call", {"name": "wait", "arguments": {"tag": "b"}}, "b"),
    ]
    batch = session.post(waiting)
    await harness.until(lambda: len(harness.entered) == 2)
    await session.post(cancelled("a")).finish()
    harness.go.set()
    await batch.finish()
    assert [each["id"] for each in reply_of(batch)] == ["b"]


def reply_of(visit: Visit) -> Any:
    """Return what a response ends with, as JSON or as an event."""
    return visit.json if visit.headers["content-type"] == "application/json" else visit.messages[-1]


def cancelled(request_id: object) -> dict[str, Any]:
    """Return a notification that cancels a request."""
    params = {"requestId": request_id}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


@pytest.mark.rule("HTTP-26")
async def test_response_of_cancelled_request_ends(harness: HttpHarness) -> None:
    session = await open_session(harness.app)
    open_call = session.call("wait", 5, tag="cancelled")
    other = session.call("wait", 6, tag="other")
    await harness.until(lambda: len(harness.entered) == 2)
    assert (await session.post(cancelled(5)).finish()).status == 202
    await open_call.finish()
    assert open_call.messages == []
    assert not other.ended
    harness.go.set()
    await other.finish()
    [channel] = harness.app._service.endpoint.sessions
    assert not channel._streams and not channel.is_busy


@pytest.mark.rule("HTTP-26")
async def test_cancellation_takes_no_reply_from_another_request(harness: HttpHarness) -> None:
    free = threading.Event()

    @harness.server.tool
    def held() -> str:
        free.wait(PATIENCE)
        return "held"

    session = await open_session(harness.app)
    [channel] = harness.app._service.endpoint.sessions
    in_flight = channel.connection.session.in_flight
    session.call("wait", 5, tag="first")
    other = session.call("held", 6)
    await until(lambda: {5, 6} <= in_flight.keys(), "both calls run")
    session.post(cancelled(5))
    again = session.call("wait", 5, tag="again")
    # The handler ends in its thread before the next turn, in which its reply comes after those two.
    free.set()
    block_until(lambda: 6 not in in_flight, "the handler ends")
    await other.finish()
    assert reply_of(other)["result"]["content"][0]["text"] == "held"
    await harness.until(lambda: "again" in harness.entered)
    harness.go.set()
    await again.finish()
    assert reply_of(again)["result"]["content"][0]["text"] == "again"


@pytest.mark.rule("HTTP-05")
async def test_ended_session_keeps_nothing(harness: HttpHarness) -> None:
    events = harness.app._service.endpoint.events
    for _ in range(3):
        session = await open_session(harness.app)
        soon = session.call("wait", 1, tag="soon")
        late = session.call("wait", 2, tag="late")
        await late.until(lambda: late.events)  # noqa: B023 -- awaited in the same turn
        third = session.call("wait", 3, tag="third")
        await session.delete().finish()
        for each in (soon, late, third):
            await each.finish()
    assert events.size == 0 and not events._sessions


@pytest.mark.rule("HTTP-08")
async def test_server_request_is_sent_in_response_of_its_call(harness: HttpHarness) -> None:
    session = await open_session(harness.app, capabilities={"roots": {}})
    listening = session.get()
    open_call = session.call("ask_roots", 2)
    await open_call.until(lambda: open_call.messages)
    server_request = open_call.messages[0]
    assert server_request["method"] == "roots/list"
    answer = {
        "jsonrpc": "2.0",
        "id": server_request["id"],
        "result": {"roots": [{"uri": "file:///a"}]},
    }
    assert (await session.post(answer).finish()).status == 202
    await open_call.finish()
    assert open_call.messages[-1]["result"]["content"][0]["text"] == "1"
    assert listening.messages == []
    await session.delete().finish()
    await listening.finish()


# -- streams that outlast connections ------------------------------------------------------------


@pytest.mark.rule("HTTP-07", "HTTP-13")
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_result_is_fetched_after_lost_connection(revision: str, harness: HttpHarness) -> None:
    session = await open_session(harness.app, revision)
    open_call = session.call("wait", 5, tag="patient")
    await open_call.until(lambda: open_call.events)
    first = open_call.events[0]
    assert first["retry"] == "1000"
    assert ("data" in first) == (revision == "2025-11-25")
    open_call.leave()
    await open_call.finish()
    assert harness.ended == {}
    harness.go.set()
    await harness.idle()
    resumed = await session.get(first["id"]).finish()
    assert [each["id"] for each in resumed.messages] == [5]
    assert resumed.messages[0]["result"]["content"][0]["text"] == "patient"
    # What was told can be told again, and nothing follows it.
    last = resumed.events[-1]["id"]
    assert (await session.get(last).finish()).messages == []


@pytest.mark.rule("HTTP-13")
async def test_live_stream_is_resumed(harness: HttpHarness) -> None:
    session = await open_session(harness.app)
    open_call = session.call("wait", 5, tag="live")
    await open_call.until(lambda: open_call.events)
    resumed = session.get(open_call.events[0]["id"])
    await open_call.finish()  # a message is sent in one place only
    assert open_call.messages == []
    harness.go.set()
    await resumed.finish()
    assert [each["id"] for each in resumed.messages] == [5]


@pytest.mark.rule("HTTP-13")
async def test_unknown_events_are_not_resumed(harness: HttpHarness) -> None:
    session, other = await open_session(harness.app), await open_session(harness.app)
    open_call = other.call("wait", 5, tag="other")
    await open_call.until(lambda: open_call.events)
    for event_id in ("nonsense", "0123456789abcdef-0", open_call.events[0]["id"]):
        refused = await session.get(event_id).finish()
        assert refused.status == 400, event_id
        assert refused.json["error"]["data"]["reason"] == "unknown_event"
    assert not open_call.ended
    harness.go.set()
    await open_call.finish()
    assert open_call.messages


@pytest.mark.rule("HTTP-15")
@pytest.mark.options(retry_ms=5)
async def test_client_reconnects_after_close_stream(harness: HttpHarness) -> None:
    session = await open_session(harness.app)
    open_call = await session.call("let_go", 5, tag="later").finish()
    assert open_call.headers["content-type"] == "text/event-stream"
    assert open_call.messages == []
    assert [each.get("retry") for each in open_call.events] == ["5", "5"]
    resumed = session.get(open_call.events[0]["id"])
    await harness.until(lambda: harness.entered)
    harness.go.set()
    await resumed.finish()
    assert [each["id"] for each in resumed.messages] == [5]


@pytest.mark.rule("HTTP-15")
async def test_close_stream_does_nothing_without_resumption(harness: HttpHarness) -> None:
    harness.go.set()
    stateless = await call(harness.app, "let_go", tag="a").finish()
    assert stateless.json["result"]["content"][0]["text"] == "a"
    harness.go.clear()
    session = await open_session(harness.app, "2025-06-18")
    older = session.call("let_go", 1, tag="b")
    await harness.until(lambda: "b" in harness.entered)
    harness.go.set()
    await older.finish()
    streamed = older.headers["content-type"] == "text/event-stream"
    reply = older.messages[0] if streamed else older.json
    assert reply["result"]["content"][0]["text"] == "b"


@pytest.mark.rule("HTTP-12")
async def test_notifications_go_to_latest_get_stream(harness: HttpHarness) -> None:
    session = await open_session(harness.app)
    harness.server.tool(name="unheard")(lambda: None)
    await asyncio.sleep(0)
    first = session.get()
    await first.until(lambda: first.messages)  # said before anybody listened
    second = session.get()
    await first.finish()
    await second.until(lambda: second.events)
    harness.server.tool(name="heard")(lambda: None)
    await second.until(lambda: second.messages)
    assert len(first.messages) == len(second.messages) == 1
    second.leave()
    await second.finish()
    harness.server.tool(name="missed")(lambda: None)
    await asyncio.sleep(0)
    third = session.get(second.events[-1]["id"])
    await third.until(lambda: third.messages)
    third.leave()
    await third.finish()
    assert len(third.messages) == 1


@pytest.mark.rule("HTTP-12", "NOTE-07")
async def test_session_log_goes_to_get_stream_of_its_session(harness: HttpHarness) -> None:
    logs = []

    @harness.server.tool
    def start(context: ToolContext) -> str:
        logs.append(context.session_log)
        return "started"

    session, other = await open_session(harness.app), await open_session(harness.app)
    streams = [session.get(), other.get()]
    await session.call("start", 1).finish()
    await asyncio.to_thread(logs[0].log, "info", {"done": 100}, "jobs")
    await streams[0].until(lambda: streams[0].messages)
    params = {"level": "info", "data": {"done": 100}, "logger": "jobs"}
    assert [each["params"] for each in streams[0].messages if "message" in each["method"]] == [
        params
    ]
    for stream in streams:
        stream.leave()
        await stream.finish()
    assert not [each for each in streams[1].messages if "message" in each["method"]]
    assert (await session.delete().finish()).status in (200, 204)
    logs[0].log("info", "the session has ended")


@pytest.mark.rule("HTTP-12")
@pytest.mark.options(max_events=4)
async def test_first_listener_gets_kept_notifications(harness: HttpHarness) -> None:
    session = await open_session(harness.app)
    uris = [f"note://{number}" for number in range(6)]
    for uri in uris:
        subscribe = request("resources/subscribe", {"uri": uri})
        assert "result" in (await session.post(subscribe).finish()).json
    for uri in uris:
        harness.server.resource_updated(uri)
        await asyncio.sleep(0)
    first = session.get()
    await first.until(lambda: len(first.messages) == 4)
    assert [each["params"]["uri"] for each in first.messages] == uris[2:]
    # A later event names one that can be resumed from.
    first.leave()
    await first.finish()
    again = session.get(first.events[0]["id"])
    await again.until(lambda: len(again.messages) == 3)
    again.leave()
    await again.finish()


@pytest.mark.rule("HTTP-14")
async def test_stream_of_another_process_is_replayed(harness: HttpHarness) -> None:
    from foundation_rt.http.event_store import SessionRecord

    events = harness.app._service.endpoint.events
    events.open("elsewhere", SessionRecord(None, "2025-11-25"))
    trail = events.begin("elsewhere")
    first = trail.record(b"")
    trail.record(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    headers = {"mcp-session-id": "elsewhere", "last-event-id": first}
    going = await visit(harness.app, "GET", headers=headers).finish()
    assert [each["id"] for each in going.messages] == [1]
    assert going.events[-1] == {"retry": "1000"}  # more may come: ask again
    trail.end()
    ended = await visit(harness.app, "GET", headers=headers).finish()
    assert "retry" not in ended.events[-1]
    events.open("foreign", SessionRecord("somebody", "2025-11-25"))
    headers["mcp-session-id"] = "foreign"
    assert (await visit(harness.app, "GET", headers=headers).finish()).status == 404


@pytest.mark.rule("HTTP-14")
async def test_processes_with_shared_store_resume_each_others_streams() -> None:
    url = need_redis()

    async with harness(event_store=url) as here, harness(event_store=url) as there:
        session = await open_session(here.app)
        open_call = session.call("wait", 5, tag="a")
        await open_call.until(lambda: open_call.events)
        first = open_call.events[0]["id"]
        here.go.set()
        await open_call.finish()
        headers = {**session.headers, "last-event-id": first}
        async with asyncio.timeout(20):
            while not (told := await visit(there.app, "GET", headers=headers).finish()).messages:
                assert told.status in (200, 400, 404)  # what was said is written behind
        assert [each["id"] for each in told.messages] == [5]
        assert (await session.delete().finish()).status == 204


@pytest.mark.rule("HTTP-17")
@pytest.mark.parametrize("extensions", [True, False])
async def test_client_that_does_not_read_is_cut_off_without_effect_on_others(
    extensions: bool, harness: HttpHarness
) -> None:
    params = {"notifications": {"resourceSubscriptions": ["note://a"]}}
    headers = {"mcp-protocol-version": REVISION, "mcp-method": "subscriptions/listen"}
    import orjson

    body = orjson.dumps(request("subscriptions/listen", params | {"_meta": META}))
    slow = visit(harness.app, "POST", headers=headers, body=body, extensions=extensions)
    await slow.until(lambda: slow.messages)
    slow.read(on=False)
    quick = ask(harness.app, "subscriptions/listen", params, 2)
    await quick.until(lambda: quick.messages)
    told = 0
    while not slow.task.done():
        harness.server.resource_updated("note://a")
        told += 1
        if told % 100 == 0:
            await asyncio.sleep(0)
        assert told < 100_000
    assert slow.cut == extensions
    await quick.until(lambda: len(quick.messages) == told + 1)
    quick.leave()
    await quick.finish()
    await slow.finish()
    assert not harness.app._service.endpoint._open
