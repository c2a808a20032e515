"""The WebSocket of a host: sessions, frames, limits, tabs, users, and the end of the server."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import orjson
import pytest
from websockets.exceptions import InvalidStatus

from foundation_rt.apps.host.texts import MAINTENANCE, RATE_LIMITED, WELCOME
from tests.apps.host.orchestrator.test_questions import asking
from tests.lab.checks.leaks import tasks
from tests.lab.host.chat import ScriptedModel, call
from tests.lab.host.server import Hosting, host_server, hosting
from tests.lab.sizes import size
from tests.lab.waiting import until

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
KEYS = {"api_keys": (f"alice:{ALICE}", f"bob:{BOB}")}


@pytest.mark.rule("HOST-10", "HOST-13", "HOST-27")
async def test_new_chat_is_greeted_and_answered() -> None:
    async with hosting([["Hello ", "you"]]) as one, one.page() as page:
        greeting = page.frames[0]
        assert greeting["type"] == "connection"
        assert greeting["payload"] == {
            "state": "connected",
            "message": WELCOME,
            "sessionId": page.session,
        }
        servers = await page.until("servers")
        assert servers["payload"]["servers"][0]["id"] == "demo"
        await page.turn("hi")
        assert page.text == "Hello you"
        assert page.numbers == list(range(1, len(page.numbers) + 1))
        assert all("seq" not in each for each in page.frames if each["type"] == "servers")
        assert not any(
            page.session in orjson.dumps(each).decode()
            for each in page.frames
            if each["type"] != "connection"
        )


@pytest.mark.rule("HOST-11", "HOST-29")
async def test_chat_is_continued_behind_any_event() -> None:
    async with hosting([["one ", "two"], ["three"]]) as one:
        async with one.page() as page:
            await page.turn("a")
            session, seen = page.session, [each for each in page.frames if "seq" in each]
        for after in range(len(seen) + 1):
            async with one.page(session, after) as page:
                assert page.frames[0]["payload"]["state"] == "reconnected"
                while len(page.numbers) < len(seen) - after:
                    await page.next()
                assert [each for each in page.frames if "seq" in each] == seen[after:]
        for wrong in (len(seen) + 1, -1, "x"):
            async with one.page(session, wrong) as page:  # type: ignore[arg-type]
                history = await page.until("history")
                assert history["payload"]["seq"] == len(seen)
                assert [each["role"] for each in history["payload"]["messages"]] == [
                    "user",
                    "assistant",
                ]


@pytest.mark.rule("CHAT-40")
async def test_a_message_goes_on_from_an_earlier_one_of_its_chat_only() -> None:
    async with hosting([["one"], ["two"], ["three"]]) as one, one.page() as page:
        for number in (1, 2):
            await page.say(f"say {number}", id=f"m{number}")
            await page.until("turn", state="finished")
        for wrong in ("m9", 1, "", [], "m" * 300):
            await page.say("c", id="m3", after=wrong)
            error = await page.until("error", path="payload.after")
            assert error["payload"]["code"] == "invalid_message"
        await page.say("c", id="m3", after="m1")
        user = await page.until("user")
        assert user["payload"] == {"messageId": "m3", "text": "c", "after": "m1"}
        await page.until("turn", state="finished")
        read = [message.content for message in one.model.asked[-1].history]
        assert read == ["say 1", "one", "c"]


@pytest.mark.rule("HOST-12", "HTTP-40")
async def test_foreign_and_unknown_chats_are_new_ones() -> None:
    async with hosting(server=host_server(KEYS)) as one:
        async with one.page(key=ALICE) as alice:
            await alice.turn("a secret")
            for session in (alice.session, "x" * 5000, "%00"):
                async with one.page(session, 0, key=BOB) as bob:
                    assert bob.session != alice.session
                    error = await bob.until("error")
                    assert error["payload"]["code"] == "unknown_session"
                    await bob.turn("mine")
                    assert "a secret" not in orjson.dumps(bob.frames).decode()
            headers = {"X-API-Key": BOB}
            path = f"/api/sessions/{alice.session}"
            for method, where in (("GET", path), ("DELETE", path), ("GET", path + "/export")):
                assert (await one.request(method, where, headers))[0] == 404
            await alice.turn("still here")
        with pytest.raises(InvalidStatus) as error_:
            async with one.page(key="wrong"):
                pass
        assert error_.value.response.status_code == 401


@pytest.mark.rule("HOST-21", "HOST-22", "HOST-25")
async def test_bad_frames_are_answered_and_the_connection_stays() -> None:
    async with hosting() as one, one.page() as page:
        for text in ("no json", '{"type":"x"}', '{"type":"message","payload":{"text":""}}'):
            await page.connection.send(text)
            error = await page.until("error", code="invalid_message")
            assert set(error["payload"]) == {"code", "message", "path"}
        await page.say("x" * 32_769, id="m9")
        error = await page.until("error")
        assert "32768" in error["payload"]["message"]
        assert (error["payload"]["path"], error["payload"]["id"]) == ("payload.text", "m9")
        await page.send("ping")
        await page.until("pong")
        await page.turn("works")


@pytest.mark.rule("HOST-23")
async def test_binary_and_long_messages_close() -> None:
    async with hosting() as one:
        async with one.page() as page:
            await page.connection.send(b"\0")
            assert await page.close_code() == 1003
        async with one.page() as page:
            await page.connection.send("x" * (1024 * 1024 + 1))
            assert await page.close_code() == 1009


@pytest.mark.rule("HOST-24", "CHAT-09")
async def test_too_many_messages_are_refused_by_their_id() -> None:
    async with hosting() as one, one.page() as page:
        for number in range(10):
            await page.say("x", id=f"m{number}")
            await page.until("turn", state="finished")
        await page.say("x", id="m10")
        error = await page.until("error")
        assert error["payload"] == {"code": "RATE_LIMITED", "message": RATE_LIMITED, "id": "m10"}


@pytest.mark.rule("HOST-24", "CHAT-10")
async def test_too_many_waiting_turns_are_refused() -> None:
    going = asyncio.Event()
    async with hosting([[going, "x"]]) as one, one.page() as page:
        await page.say("first")
        await page.until("turn", state="started")
        for number in range(9):
            await page.say("x", id=f"m{number}")
        assert (await page.until("error"))["payload"]["code"] == "TOO_MANY_TURNS"
        going.set()


@pytest.mark.rule("HOST-19", "CHAT-14")
async def test_eleventh_connection_of_a_chat_is_refused() -> None:
    async with hosting() as one, one.page() as first:
        pages = [one.page(first.session, 0) for _ in range(9)]
        for page in pages:
            await page.__aenter__()
        async with one.page(first.session, 0) as eleventh:
            assert eleventh.frames[0]["payload"]["state"] == "error"
            assert (await eleventh.until("error"))["payload"]["code"] == "TOO_MANY_CONNECTIONS"
            assert await eleventh.close_code() == 1013
        for page in pages:
            await page.__aexit__(None, None, None)
        async with one.page(first.session, 0) as again:
            assert again.frames[0]["payload"]["state"] == "reconnected"


@pytest.mark.rule("HOST-25")
async def test_silent_client_is_closed() -> None:
    async with hosting(server=host_server(host={"silence_ms": 200})) as one, one.page() as page:
        assert await page.close_code() == 4408


@pytest.mark.rule("HOST-26")
async def test_client_that_reads_nothing_is_closed_and_comes_back() -> None:
    many = ["x" * 16_000] * 60
    async with hosting([many] * 6) as one:
        async with one.page() as page:
            session = page.session
            page.connection.transport.pause_reading()
            raw: socket.socket = page.connection.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            async with one.page(session, 0) as other:
                for _ in range(6):
                    await other.turn("much")
            page.connection.transport.resume_reading()
            assert await page.close_code() == 4409
        async with one.page(session, page.seq) as back:
            frames = page.frames + back.frames
            while not any(each["type"] in ("turn", "history") for each in back.frames):
                frames.append(await back.next())


@pytest.mark.rule("HOST-29", "CHAT-17")
async def test_two_tabs_see_the_same_and_the_first_approval_counts() -> None:
    answers = [[call("demo:echo", "c1", message="hi")], ["done"]]
    async with hosting(answers) as one, one.page() as left, one.page(left.session, 0) as right:
        await left.say("echo")
        asked = (await right.until("approval"))["payload"]
        await left.until("approval")
        await right.send("approval", callId=asked["callId"], decision="deny")
        await right.until("approval", decision="deny")
        await left.send("approval", callId=asked["callId"], decision="once")
        await left.until("turn", state="finished")
        await right.until("turn", state="finished")
        assert [each for each in left.frames if "seq" in each] == [
            each for each in right.frames if "seq" in each
        ]
        assert [each["payload"].get("decision") for each in left.of("approval")] == [
            None,
            "deny",
        ]


async def test_stop_ends_the_turn() -> None:
    async with hosting([["begun ", asyncio.Event()]]) as one, one.page() as page:
        await page.say("go")
        await page.until("text")
        await page.send("stop")
        await page.until("turn", state="stopped")
        assert one.model.running == 0


@pytest.mark.rule("HOST-28")
async def test_stopping_server_lets_the_turn_end() -> None:
    before = len(tasks())
    going = asyncio.Event()
    async with hosting([["begun ", going, "ended"]]) as one:
        async with one.page() as busy, one.page() as idle:
            await busy.say("go")
            await busy.until("text")
            one.serving.stop()
            for page in (busy, idle):
                stopping = await page.until("connection", state="reconnecting")
                assert stopping["payload"]["message"] == MAINTENANCE
            assert await idle.close_code() == 1012
            await busy.say("more", id="m2")
            error = await busy.until("error")
            assert error["payload"] == {"code": "MAINTENANCE", "message": MAINTENANCE, "id": "m2"}
            going.set()
            await busy.until("turn", state="finished")
            assert busy.text == "begun ended"
            assert await busy.close_code() == 1012
        await one.task
    assert len(tasks()) == before


@pytest.mark.rule("HOST-28")
async def test_turn_that_does_not_end_is_cut_off_in_time() -> None:
    budget = 5_000 if sys.platform == "win32" else 1_000  # ms; a server of Wine ends in seconds
    server = host_server(server={"shutdown_timeout_ms": budget})
    async with hosting([["begun ", asyncio.Event()]], server=server) as one:
        async with one.page() as page:
            await page.say("go")
            await page.until("text")
            one.serving.stop()
            assert await page.close_code() == 1012
        await one.task
        await until(lambda: not one.model.running, "the model, which was cancelled, ends")


@pytest.mark.rule("HOST-29", "CHAT-08")
async def test_turns_with_cuts_are_answered_once_and_leave_nothing() -> None:
    before = len(tasks())
    async with hosting(store="memory") as one:
        one.model.choose = lambda asked: ["one ", "two ", f"{asked.last.content}"]
        for chat in range(size(4, 100)):
            await _chat_with_cuts(one, chat)
        assert one.model.running == 0
        await until(lambda: not one.host.connections, "no connection is left")
    assert len(tasks()) == before


async def _chat_with_cuts(one: Hosting, chat: int) -> None:
    """Say ten things; cut the connection after a few frames of each, and come back."""
    session, events = None, list[Any]()
    for number in range(10):
        is_over = False
        for cut in range(12):
            after = len(events) if session else None
            async with one.page(session, after) as page:
                session = session or page.session
                await page.say(f"{chat}-{number}", id=f"m{number}")
                allowed = (chat * 7 + number * 3 + cut) % 9 + cut
                for _ in range(allowed):
                    frame = await page.next()
                    if frame["type"] == "turn" and frame["payload"]["state"] == "finished":
                        is_over = True
                        break
                events += [each for each in page.frames if "seq" in each]
                page.connection.transport.abort()
            if is_over:
                break
        assert is_over
    assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
    said = [each["payload"]["text"] for each in events if each["type"] == "user"]
    assert said == [f"{chat}-{number}" for number in range(10)]
    text = "".join(each["payload"]["content"] for each in events if each["type"] == "text")
    assert text == "".join(f"one two {each}" for each in said)


@pytest.mark.rule("HOST-10", "CHAT-17")
async def test_answer_of_the_page_reaches_the_server_that_asks() -> None:
    model = [[call("asks:who")], ["done"]]
    server = host_server(host={"approve_all": True})
    async with hosting(model, server=server, servers={"asks": asking()}) as one:
        async with one.page() as page:
            await page.say("who")
            asked = (await page.until("question"))["payload"]
            given = {"action": "accept", "content": {"name": "Ada"}}
            await page.send("answer", questionId=asked["questionId"], **given)
            await page.until("turn", state="finished")
        assert "accept {'name': 'Ada'}" in (one.model.asked[1].last.content or "")


@pytest.mark.rule("HOST-01")
async def test_model_that_fails_by_a_bug_stops_no_start() -> None:
    async def broken(_: ScriptedModel) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(ScriptedModel, "initialize", broken)
        async with hosting([["Hello"]]) as one, one.page() as page:
            await page.turn("hi")
            assert page.text == "Hello"
