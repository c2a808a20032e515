"""`logging/setLevel`, and `context.log` and `report_progress`, as clients see them."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import AbortSignal, SessionLog, ToolContext, UsageError
from foundation_rt.protocol.peer import LOGGING_LEVELS
from tests.lab.peers.answering_client import PREFIX, AnsweringClient, value_of
from tests.lab.servers.fixture import ServerFixture

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"


@pytest.fixture
def fixture() -> Iterator[ServerFixture]:
    fixture = ServerFixture()

    @fixture.server.tool
    async def say(ctx: ToolContext, levels: list[str]) -> None:
        for level in levels:
            ctx.log(level, {"said": level}, "mouth")

    yield fixture
    fixture.assert_all_ended()


async def levels_said(client: AnsweringClient, request_id: int) -> list[str]:
    """Return the levels of the messages that come before the answer."""
    levels = []
    while True:
        message = await client.next()
        if "method" not in message:
            assert message["id"] == request_id
            return levels
        assert message["method"] == "notifications/message"
        level = message["params"]["level"]
        assert message["params"] == {"level": level, "logger": "mouth", "data": {"said": level}}
        levels.append(level)


@pytest.mark.rule("NOTE-04", "NOTE-05")
async def test_client_gets_log_messages_from_its_level_on(fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server)
    everything = {"levels": [*LOGGING_LEVELS]}
    assert await levels_said(client, client.start("say", everything)) == [*LOGGING_LEVELS[1:]]
    for level in LOGGING_LEVELS:
        client.request("logging/setLevel", {"level": level})
        assert (await client.next())["result"] == {}
        wanted = [*LOGGING_LEVELS[LOGGING_LEVELS.index(level) :]]
        assert await levels_said(client, client.start("say", everything)) == wanted


@pytest.mark.rule("NOTE-06")
@pytest.mark.parametrize("params", [{}, {"level": None}, {"level": "warn"}, {"level": ["info"]}])
async def test_unknown_level_is_refused(params: dict[str, Any], fixture: ServerFixture) -> None:
    client = AnsweringClient(fixture.server)
    client.request("logging/setLevel", params)
    assert (await client.next())["error"]["code"] == -32602
    assert await levels_said(client, client.start("say", {"levels": ["info"]})) == ["info"]


@pytest.mark.rule("NOTE-05")
async def test_new_level_applies_to_running_calls(fixture: ServerFixture) -> None:
    heard = asyncio.Event()

    @fixture.server.tool
    async def slowly(ctx: ToolContext) -> None:
        ctx.log("info", 1)
        await heard.wait()
        ctx.log("info", 2)
        ctx.log("error", 3)

    client = AnsweringClient(fixture.server)
    client.start("slowly")
    assert (await client.next())["params"] == {"level": "info", "data": 1}
    client.request("logging/setLevel", {"level": "error"})
    assert (await client.next())["result"] == {}
    heard.set()
    assert (await client.next())["params"]["data"] == 3


@pytest.mark.rule("NOTE-05")
@pytest.mark.parametrize("wanted", [None, "debug", "warning", "emergency"])
async def test_stateless_request_sets_its_own_level(
    wanted: str | None, fixture: ServerFixture
) -> None:
    client = AnsweringClient(fixture.server, STATELESS)
    meta = {} if wanted is None else {f"{PREFIX}logLevel": wanted}
    params = {"name": "say", "arguments": {"levels": [*LOGGING_LEVELS]}}
    request_id = client.request("tools/call", params, **meta)
    first = len(LOGGING_LEVELS) if wanted is None else LOGGING_LEVELS.index(wanted)
    assert await levels_said(client, request_id) == [*LOGGING_LEVELS[first:]]
    client.request("logging/setLevel", {"level": "debug"})
    assert (await client.next())["error"]["code"] == -32601
    # Nothing is taken over from one request to the next.
    assert await levels_said(client, client.start("say", {"levels": ["error"]})) == []


@pytest.mark.rule("NOTE-04", "NOTE-06")
async def test_handler_with_unknown_level_gets_usage_error(
    fixture: ServerFixture,
) -> None:
    context = ToolContext(
        "run", "correlation", AbortSignal(), ServerFixture().server.runtime.logger
    )
    with pytest.raises(UsageError, match="debug, info"):
        context.log("warn", "x")
    context.log("emergency", "there is nobody to hear it")
    context.report_progress(1)


@pytest.mark.rule("NOTE-04")
async def test_messages_to_client_are_not_in_server_log(fixture: ServerFixture) -> None:
    @fixture.server.tool
    async def note(ctx: ToolContext) -> None:
        ctx.logger.info("for the operator")
        ctx.log("info", "for the client")

    client = AnsweringClient(fixture.server)
    client.start("note")
    assert (await client.next())["params"]["data"] == "for the client"
    await client.next()
    assert client.unread() == []
    assert len(fixture.logged("for the operator")) == 1
    assert fixture.logged("for the client") == []


# -- the log of the session -----------------------------------------------------------------------


class Job:
    """A tool that starts what goes on after its call; keeps the log of each session."""

    def __init__(self, fixture: ServerFixture) -> None:
        self.logs: list[SessionLog] = []

        @fixture.server.tool
        def start(ctx: ToolContext) -> str:
            self.logs.append(ctx.session_log)
            return "started"

    def tell(self, level: str, data: object, logger: str | None = None) -> None:
        """Log from another thread."""
        thread = threading.Thread(target=self.logs[-1].log, args=(level, data, logger))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.rule("NOTE-07")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", HANDSHAKE])
async def test_session_log_goes_on_after_the_answer_to_its_session_alone(
    fixture: ServerFixture, revision: str
) -> None:
    job = Job(fixture)
    client, other = (AnsweringClient(fixture.server, revision) for _ in range(2))
    assert value_of(await client.call("start")) == "started"
    job.tell("info", {"done": 0}, "jobs")
    assert (await client.next()) == {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info", "data": {"done": 0}, "logger": "jobs"},
    }
    job.logs[-1].log("error", None)  # on the loop of the host
    assert (await client.next())["params"] == {"level": "error", "data": None}
    job.tell("debug", "not wanted")
    await client.settle()
    assert client.unread() == other.unread() == []


@pytest.mark.rule("NOTE-05", "NOTE-07")
async def test_session_log_has_the_level_of_the_session_at_that_moment(
    fixture: ServerFixture,
) -> None:
    job = Job(fixture)
    client = AnsweringClient(fixture.server)
    await client.call("start")
    client.request("logging/setLevel", {"level": "error"})
    assert (await client.next())["result"] == {}
    job.tell("warning", 1)
    job.tell("error", 2)
    assert (await client.next())["params"]["data"] == 2


@pytest.mark.rule("NOTE-08")
async def test_stateless_call_has_a_session_log_without_effect(fixture: ServerFixture) -> None:
    job = Job(fixture)
    client = AnsweringClient(fixture.server, STATELESS)
    call = {"name": "start", "arguments": {}}
    request_id = client.request("tools/call", call, **{f"{PREFIX}logLevel": "debug"})
    assert (await client.next())["id"] == request_id
    job.tell("emergency", "anyone?")
    await client.settle()
    assert client.unread() == []


@pytest.mark.rule("NOTE-08")
async def test_stateless_call_on_a_connection_with_a_session_logs_nothing_to_it(
    fixture: ServerFixture,
) -> None:
    job = Job(fixture)
    client = AnsweringClient(fixture.server)
    meta = {"protocolVersion": STATELESS, "clientCapabilities": {}, "logLevel": "debug"}
    call = {"name": "start", "arguments": {}}
    client.request("tools/call", call, **{f"{PREFIX}{name}": meta[name] for name in meta})
    assert value_of(await client.next()) == "started"
    job.tell("emergency", "anyone?")
    await client.settle()
    assert client.unread() == []


@pytest.mark.rule("NOTE-07")
@pytest.mark.parametrize("ending", ["closed", "dropped"])
def test_session_log_keeps_no_session(ending: str) -> None:
    fixture = ServerFixture()
    logs = []

    @fixture.server.tool(inline=True)
    def start(ctx: ToolContext) -> None:
        logs.append(ctx.session_log)

    peer = fixture.connect()
    peer.answer(peer.start("start"))
    gone = weakref.ref(peer.connection.session)
    if ending == "closed":
        peer.connection.close()
    peer.take()
    logs[0].log("info", 1)
    assert [each["method"] for each in peer.take()] == (
        ["notifications/message"] if ending == "dropped" else []
    )
    del peer
    gc.collect()
    assert gone() is None
    logs[0].log("info", 2)


@pytest.mark.rule("NOTE-06", "NOTE-07")
async def test_session_log_refuses_what_cannot_be_sent(fixture: ServerFixture) -> None:
    job = Job(fixture)
    for revision in (HANDSHAKE, STATELESS):
        client = AnsweringClient(fixture.server, revision)
        await client.call("start")
        with pytest.raises(UsageError, match="a log message is debug"):
            job.logs[-1].log("warn", 1)
    client = AnsweringClient(fixture.server)
    await client.call("start")
    with pytest.raises(TypeError):
        job.logs[-1].log("info", object())
    context = ToolContext("run", "id", AbortSignal(), fixture.server.runtime.logger)
    with pytest.raises(UsageError, match="made by hand"):
        _ = context.session_log


# -- progress --------------------------------------------------------------------------------------


async def progress_of(client: AnsweringClient, request_id: int) -> list[dict[str, Any]]:
    """Return the params of the progress that comes before the answer."""
    found = []
    while True:
        message = await client.next()
        if "method" not in message:
            assert message["id"] == request_id
            return found
        assert message["method"] == "notifications/progress"
        found.append(message["params"])


@pytest.mark.rule("NOTE-01")
@pytest.mark.parametrize("token", ["a", 5, ""])
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", HANDSHAKE, STATELESS])
async def test_progress_is_sent_to_client_with_token(
    revision: str, token: Any, fixture: ServerFixture
) -> None:
    @fixture.server.tool
    async def work(ctx: ToolContext) -> None:
        ctx.report_progress(1, 2, "half")
        ctx.report_progress(2.5, math.inf)

    client = AnsweringClient(fixture.server, revision)
    request_id = client.request("tools/call", {"name": "work"}, progressToken=token)
    half = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
    if revision == "2024-11-05":
        del half["message"]
    last = {"progressToken": token, "progress": 2.5}
    assert await progress_of(client, request_id) == [half, last]


@pytest.mark.rule("NOTE-01")
@pytest.mark.parametrize("meta", [{}, *({"progressToken": each} for each in (None, 1.5, True, []))])
async def test_progress_without_token_is_not_sent(
    meta: dict[str, Any], fixture: ServerFixture
) -> None:
    @fixture.server.tool
    async def work(ctx: ToolContext) -> str:
        ctx.report_progress(1)
        return "done"

    client = AnsweringClient(fixture.server)
    client.request("tools/call", {"name": "work"}, **meta)
    assert value_of(await client.next()) == "done"


@pytest.mark.rule("NOTE-02")
@given(st.lists(st.integers(-5, 5) | st.floats()))
def test_progress_that_does_not_increase_is_not_sent(values: list[float]) -> None:
    async def scenario(fixture: ServerFixture) -> None:
        @fixture.server.tool
        async def work(ctx: ToolContext) -> None:
            for value in values:
                ctx.report_progress(value)

        client = AnsweringClient(fixture.server)
        request_id = client.request("tools/call", {"name": "work"}, progressToken="t")
        sent = [each["progress"] for each in await progress_of(client, request_id)]
        expected: list[float] = []
        for value in values:
            if math.isfinite(value) and (not expected or value > expected[-1]):
                expected.append(value)
        assert sent == expected

    asyncio.run(scenario(ServerFixture()))


@pytest.mark.rule("NOTE-02")
async def test_progress_of_several_threads_increases(fixture: ServerFixture) -> None:
    @fixture.server.tool
    def work(ctx: ToolContext) -> None:
        together = threading.Barrier(4)

        def count() -> None:
            together.wait(20)
            for value in range(200):
                ctx.report_progress(value)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

    client = AnsweringClient(fixture.server)
    request_id = client.request("tools/call", {"name": "work"}, progressToken="t")
    sent = [each["progress"] for each in await progress_of(client, request_id)]
    assert sent == [*range(200)]
    assert await asyncio.to_thread(fixture.server.runtime.engine.wait_idle, 20)


@pytest.mark.rule("NOTE-03")
@pytest.mark.parametrize("ending", ["cancelled", "closed"])
async def test_nothing_is_sent_for_call_that_is_not_pending(
    ending: str, fixture: ServerFixture
) -> None:
    aborted = asyncio.Event()

    @fixture.server.tool
    async def work(ctx: ToolContext) -> None:
        ctx.report_progress(1)
        await ctx.abort_signal.wait()
        ctx.report_progress(2)
        ctx.log("emergency", "too late")
        aborted.set()

    client = AnsweringClient(fixture.server)
    request_id = client.request("tools/call", {"name": "work"}, progressToken="t")
    assert (await client.next())["params"]["progress"] == 1
    if ending == "cancelled":
        client.write(method="notifications/cancelled", params={"requestId": request_id})
    else:
        client.connection.close()
    await asyncio.wait_for(aborted.wait(), 20)
    await client.settle()
    assert client.unread() == []
