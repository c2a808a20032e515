"""The handshake mode: a server sends requests, and whatever a client does with them has an end."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from foundation_rt import (
    AbortError,
    AbortSignal,
    AnswerTimeoutError,
    ClientCapabilityError,
    ClientErrorResponse,
    Elicit,
    ElicitUrl,
    InvalidClientResult,
    Roots,
    Sample,
    ToolContext,
    ToolError,
    UrlElicitationRequired,
    UsageError,
)
from foundation_rt.base.config.settings import ServerConfig, ServerSection, ToolsSection
from foundation_rt.base.principal_shares import Limit, Quota
from foundation_rt.features.server_requests.feature import ClientInput
from foundation_rt.features.server_requests.open_requests import SessionRequests, open_requests
from foundation_rt.features.server_requests.requests import PreparedRequest
from tests.lab.peers.answering_client import AnsweringClient, accepted, value_of
from tests.lab.servers.fixture import ServerFixture

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
Test = Callable[[ServerFixture], Coroutine[Any, Any, None]]


def on_a_loop(test: Test) -> Callable[[], None]:
    """Run a test on an event loop, with a server of its own that is idle in the end."""

    @functools.wraps(test)
    def run() -> None:
        rig = ServerFixture(level="debug")
        asyncio.run(test(rig))
        rig.assert_all_ended()

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for a fixture `rig`
    return run


@pytest.mark.rule("ASK-01", "ASK-17")
@on_a_loop
async def test_handler_waits_for_the_response(rig: ServerFixture) -> None:
    @rig.server.tool
    async def greet(ctx: ToolContext) -> str:
        name = (await ctx.elicit("Who?", NAME)).content
        reply = await ctx.sample(f"Greet {name}", max_tokens=9)
        roots = await ctx.roots()
        return f"{reply.text} {[root.uri for root in roots]}"

    client = AnsweringClient(rig.server)
    call = client.start("greet")
    form = await client.asked("elicitation/create")
    assert form["params"] == {"message": "Who?", "requestedSchema": NAME}
    client.answer(form, accepted(name="Ann"))
    sample = await client.asked("sampling/createMessage")
    assert "Ann" in sample["params"]["messages"][0]["content"]["text"]
    text = {"type": "text", "text": "Hi Ann"}
    client.answer(sample, {"role": "assistant", "model": "m", "content": text})
    roots = await client.asked("roots/list")
    client.answer(roots, {"roots": [{"uri": "file:///a"}]})
    response = await client.next()
    assert response["id"] == call
    assert value_of(response) == "Hi Ann ['file:///a']"
    assert len({form["id"], sample["id"], roots["id"]}) == 3
    assert not open_requests(client.connection.session)


@pytest.mark.rule("ASK-03", "ASK-17")
@on_a_loop
async def test_concurrent_requests_are_answered_in_any_order(rig: ServerFixture) -> None:
    @rig.server.tool
    async def both(ctx: ToolContext) -> list[Any]:
        answers = await ctx.ask({"name": Elicit("Who?", NAME), "roots": Roots()})
        return [*answers, answers["name"].action, len(answers["roots"])]

    client = AnsweringClient(rig.server)
    client.start("both")
    form, roots = await client.asked("elicitation/create"), await client.asked("roots/list")
    client.answer(roots, {"roots": []})
    client.answer(form, {"action": "decline"})
    response = value_of(await client.next())
    assert sorted(response[:2]) == ["name", "roots"]
    assert response[2:] == ["decline", 0]


@pytest.mark.rule("ASK-08", "ASK-17")
@pytest.mark.parametrize(
    ("code", "message", "seen"),
    [
        (-1, "User rejected", (-1, "User rejected")),
        ("x", ["y"], (None, "no reason was given")),
    ],
)
def test_error_response_is_raised_in_the_handler(code: Any, message: Any, seen: Any) -> None:
    found: list[ClientErrorResponse] = []

    async def scene(rig: ServerFixture) -> None:
        @rig.server.tool
        async def ask(ctx: ToolContext) -> None:
            try:
                await ctx.ask({"a": Roots(), "b": Roots()})
            except ClientErrorResponse as error:
                found.append(error)
                raise

        client = AnsweringClient(rig.server)
        client.start("ask")
        first, second = await client.asked("roots/list"), await client.asked("roots/list")
        client.refuse(first, code, message)
        withdrawn = await client.next()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == second["id"]
        error = value_of(await client.next())
        assert (error["code"], error["details"]["reason"]) == ("INTERNAL", "client_refused")
        client.answer(second, {"roots": []})  # too late: dropped
        await client.settle()
        assert client.unread() == []

    on_a_loop(scene)()
    [error] = found
    assert (error.json_rpc_code, error.json_rpc_message) == seen


@pytest.mark.rule("ASK-27")
@on_a_loop
async def test_invalid_result_is_raised_in_the_handler(rig: ServerFixture) -> None:
    @rig.server.tool
    async def ask(ctx: ToolContext) -> str:
        with pytest.raises(InvalidClientResult):
            await ctx.elicit("Who?", NAME)
        with pytest.raises(InvalidClientResult):
            await ctx.roots()
        return "caught"

    client = AnsweringClient(rig.server)
    client.start("ask")
    client.answer(await client.asked("elicitation/create"), accepted(name=5))
    client.write(id=(await client.asked("roots/list"))["id"], result=None, error=None)
    assert value_of(await client.next()) == "caught"


@pytest.mark.rule("ASK-04", "ASK-22", "ASK-05")
@on_a_loop
async def test_request_without_the_declared_capability_is_refused(rig: ServerFixture) -> None:
    seen: list[ClientCapabilityError] = []

    @rig.server.tool
    async def ask(ctx: ToolContext) -> None:
        try:
            await ctx.ask({"a": Elicit("Who?", NAME), "b": Sample("x", 1), "c": Roots()})
        except ClientCapabilityError as error:
            seen.append(error)
            raise

    client = AnsweringClient(rig.server, capabilities={"roots": {}})
    error = value_of(await client.call("ask"))
    assert error["code"] == "INVALID_ARGUMENT"
    assert error["details"] == {
        "reason": "missing_client_capability",
        "requiredCapabilities": {"elicitation": {"form": {}}, "sampling": {}},
    }
    assert seen[0].required_capabilities == error["details"]["requiredCapabilities"]


@pytest.mark.rule("ASK-34")
@pytest.mark.parametrize("ending", ["cancelled", "disconnected"])
def test_aborted_call_cancels_its_requests(ending: str) -> None:
    ended: list[str] = []

    async def scene(rig: ServerFixture) -> None:
        @rig.server.tool
        async def ask(ctx: ToolContext) -> None:
            try:
                await ctx.elicit("Who?", NAME)
            except AbortError as error:
                ended.append(str(error))
                with pytest.raises(AbortError):
                    await ctx.roots()  # nobody is there to be asked
                raise

        client = AnsweringClient(rig.server)
        call = client.start("ask")
        server_request = await client.asked("elicitation/create")
        if ending == "disconnected":
            client.connection.close()
            await client.settle()
            assert client.unread() == []
        else:
            client.write(method="notifications/cancelled", params={"requestId": call})
            withdrawn = await client.next()
            assert withdrawn["method"] == "notifications/cancelled"
            assert withdrawn["params"]["requestId"] == server_request["id"]
        assert not open_requests(client.connection.session)
        await client.settle()
        client.answer(server_request, accepted(name="late"))
        await client.settle()
        assert client.unread() == []

    on_a_loop(scene)()
    assert ended == [ending]


@pytest.mark.rule("ASK-17", "RPC-07")
@pytest.mark.parametrize("id_", [1, None, "server-2", ["server-1"], "server-1 ", True])
def test_response_to_an_unknown_request_is_dropped(id_: Any) -> None:
    async def scene(rig: ServerFixture) -> None:
        @rig.server.tool
        async def ask(ctx: ToolContext) -> int:
            return len(await ctx.roots())

        client = AnsweringClient(rig.server)
        client.start("ask")
        server_request = await client.asked("roots/list")
        client.write(id=id_, result={"roots": [{"uri": "x:forged"}]})
        await client.settle()
        assert len(rig.logged("response dropped: nothing was asked")) == 1
        client.answer(server_request, {"roots": []})
        client.answer(server_request, {"roots": [{"uri": "x:again"}]})
        assert value_of(await client.next()) == 0
        assert len(rig.logged("response dropped: nothing was asked")) == 2

    on_a_loop(scene)()


@pytest.mark.rule("ASK-17")
@on_a_loop
async def test_response_on_another_connection_is_ignored(rig: ServerFixture) -> None:
    @rig.server.tool
    async def ask(ctx: ToolContext) -> int:
        return len(await ctx.roots())

    client, stranger = AnsweringClient(rig.server), AnsweringClient(rig.server)
    client.start("ask")
    server_request = await client.asked("roots/list")
    stranger.answer(server_request, {"roots": [{"uri": "x:forged"}]})
    await client.settle()
    assert client.unread() == []
    client.answer(server_request, {"roots": []})
    assert value_of(await client.next()) == 0


@pytest.mark.rule("ASK-35", "RES-17")
@on_a_loop
async def test_requests_beyond_the_limit_are_refused_and_none_is_sent(rig: ServerFixture) -> None:
    @rig.server.tool
    async def ask(ctx: ToolContext, count: int) -> None:
        await ctx.ask({str(number): Roots() for number in range(count)})

    client, other = AnsweringClient(rig.server), AnsweringClient(rig.server)
    client.start("ask", {"count": 999})
    asked = [await client.asked("roots/list") for _ in range(999)]
    other.start("ask", {"count": 2})
    error = value_of(await other.next())
    assert error["code"] == "RESOURCE_EXHAUSTED"
    assert error["details"] == {"reason": "too_many_server_requests", "maxServerRequests": 1000}
    for server_request in asked:
        client.answer(server_request, {"roots": []})
    assert value_of(await client.next()) is None
    assert rig.server.runtime.engine.part(ClientInput).open_requests.used() == {}
    assert not open_requests(client.connection.session)


@pytest.mark.rule("ASK-18")
@on_a_loop
async def test_only_the_client_of_a_page_is_notified_of_its_completion(rig: ServerFixture) -> None:
    @rig.server.tool
    async def pay(ctx: ToolContext, named: str) -> str:
        return (await ctx.elicit_url("Pay", "https://pay.example/", elicitation_id=named)).action

    client, other = AnsweringClient(rig.server), AnsweringClient(rig.server)
    client.start("pay", {"named": "bill-1"})
    page = await client.asked("elicitation/create")
    assert page["params"]["elicitationId"] == "bill-1"
    client.answer(page, {"action": "accept"})
    assert value_of(await client.next()) == "accept"
    rig.server.elicitation_completed("unknown")
    rig.server.elicitation_completed("bill-1")
    rig.server.elicitation_completed("bill-1")  # told once
    done = await client.next()
    assert done["method"] == "notifications/elicitation/complete"
    assert done["params"] == {"elicitationId": "bill-1"}
    await client.settle()
    assert client.unread() == other.unread() == []


@pytest.mark.rule("ASK-41")
@on_a_loop
async def test_call_that_requires_a_page_ends_with_its_own_error(rig: ServerFixture) -> None:
    @rig.server.tool
    async def files(ctx: ToolContext) -> None:
        raise UrlElicitationRequired(
            ElicitUrl("Connect", "https://x.example/a", "one"),
            ElicitUrl("Agree", "https://x.example/b"),
        )

    client = AnsweringClient(rig.server)
    error = (await client.call("files"))["error"]
    assert error["code"] == -32042
    pages = error["data"]["elicitations"]
    assert [page["url"] for page in pages] == ["https://x.example/a", "https://x.example/b"]
    assert {page["mode"] for page in pages} == {"url"}
    rig.server.elicitation_completed(pages[1]["elicitationId"])
    assert (await client.next())["params"] == {"elicitationId": pages[1]["elicitationId"]}

    for revision, capabilities in (
        ("2025-11-25", {"elicitation": {}}),
        ("2025-06-18", {"elicitation": {"url": {}}}),
    ):
        unable = AnsweringClient(rig.server, revision, capabilities)
        error = value_of(await unable.call("files"))
        assert error["details"]["requiredCapabilities"] == {"elicitation": {"url": {}}}


@pytest.mark.rule("ASK-02")
@on_a_loop
async def test_handler_in_a_thread_can_ask_from_a_loop_of_its_own(rig: ServerFixture) -> None:
    """Nothing here belongs to the loop of the host."""

    @rig.server.tool
    def ask(ctx: ToolContext) -> int:
        return len(asyncio.run(ctx.roots()))

    client = AnsweringClient(rig.server)
    client.start("ask")
    server_request = await client.asked("roots/list")
    client.answer(server_request, {"roots": []})
    assert value_of(await client.next()) == 0
    # The worker hands its reply over before it is done with the call.
    assert await asyncio.to_thread(rig.server.runtime.engine.wait_idle, 20)


def test_firing_after_the_loop_was_closed_does_not_fail() -> None:
    """A handler's own loop may end while its requests are open."""
    rig = ServerFixture()

    @rig.server.tool
    def ask(ctx: ToolContext) -> str:
        async def briefly() -> None:
            asked = asyncio.ensure_future(ctx.roots())
            await asyncio.sleep(0)
            asked.cancel()

        asyncio.run(briefly())
        return "done"

    async def scene() -> None:
        client = AnsweringClient(rig.server)
        client.start("ask")
        server_request = await client.asked("roots/list")
        assert (await client.next())["method"] == "notifications/cancelled"
        client.answer(server_request, {"roots": []})
        assert value_of(await client.next()) == "done"

    asyncio.run(scene())
    rig.assert_all_ended()


def test_context_without_a_call_cannot_send_requests() -> None:
    context = ToolContext(
        "run", "correlation", AbortSignal(), ServerFixture().server.runtime.logger
    )
    with pytest.raises(UsageError, match="no client"):
        asyncio.run(context.roots())


@pytest.mark.rule("ASK-36")
def test_deadline_is_paused_during_a_server_request() -> None:
    rig = ServerFixture(ServerConfig(tools=ToolsSection(default_timeout_ms=1)))

    @rig.server.tool
    async def ask(ctx: ToolContext) -> str:
        await ctx.ask({"roots": Roots(), "form": Elicit("Who?", NAME)})
        await ctx.roots(key="again")
        return "patient"

    @rig.server.tool
    async def ask_and_dally(ctx: ToolContext) -> None:
        await ctx.roots()
        await ctx.abort_signal.wait()

    @rig.server.tool
    async def dally(ctx: ToolContext) -> None:
        await ctx.abort_signal.wait()

    async def scene() -> None:
        client = AnsweringClient(rig.server)
        client.start("ask")
        first = await client.asked("roots/list")
        form = await client.asked("elicitation/create")
        await let_a_deadline_pass(client)
        client.answer(first, {"roots": []})
        client.answer(form, accepted(name="Ann"))
        second = await client.asked("roots/list")
        await let_a_deadline_pass(client)
        client.answer(second, {"roots": []})
        assert value_of(await client.next()) == "patient"
        client.start("ask_and_dally")
        server_request = await client.asked("roots/list")
        await let_a_deadline_pass(client)
        client.answer(server_request, {"roots": []})
        assert value_of(await client.next())["code"] == "TIMEOUT"

    async def let_a_deadline_pass(client: AnsweringClient) -> None:
        client.start("dally")
        assert value_of(await client.next())["code"] == "TIMEOUT"

    asyncio.run(scene())
    rig.assert_all_ended()


@pytest.mark.rule("ASK-37")
def test_request_without_a_response_times_out() -> None:
    rig = ServerFixture(ServerConfig(server=ServerSection(input_ttl_ms=1)))

    @rig.server.tool
    async def ask(ctx: ToolContext) -> None:
        await ctx.roots()

    @rig.server.tool
    async def ask_again(ctx: ToolContext) -> str:
        with pytest.raises(AnswerTimeoutError):
            await ctx.roots()
        return "gave up"

    async def scene() -> None:
        client = AnsweringClient(rig.server)
        for name in ("ask", "ask_again"):
            client.start(name)
            server_request = await client.asked("roots/list")
            withdrawn = await client.next()
            assert withdrawn["params"]["requestId"] == server_request["id"]
            value = value_of(await client.next())
            if name == "ask":
                assert value["code"] == "TIMEOUT"
                assert value["details"] == {"reason": "no_answer", "timeoutMs": 1}
            else:
                assert value == "gave up"
        assert not open_requests(client.connection.session)

    asyncio.run(scene())
    rig.assert_all_ended()


async def test_error_after_a_server_request_is_the_handlers_own() -> None:
    rig = ServerFixture()

    @rig.server.tool
    async def ask(ctx: ToolContext) -> None:
        await ctx.roots()
        raise ToolError("NOT_FOUND", "no such thing")

    client = AnsweringClient(rig.server)
    client.start("ask")
    client.answer(await client.asked("roots/list"), {"roots": []})
    assert value_of(await client.next())["code"] == "NOT_FOUND"


class Silent:
    """A channel to a client whose call ends just before it is asked."""

    def __init__(self, signal: AbortSignal) -> None:
        self.signal = signal

    def request(self, call: str, request: PreparedRequest, on_response: Any) -> None:
        asyncio.get_running_loop().call_soon(self.signal.fire, "cancelled")

    def cancel_requests(self, call: str, request_ids: list[str]) -> None:
        assert request_ids == []

    def pause_deadline(self, call: str) -> None:
        pass

    def resume_deadline(self, call: str) -> None:
        pass


@pytest.mark.rule("ASK-34")
def test_request_of_an_ended_call_waits_for_the_abort_signal() -> None:
    signal = AbortSignal()
    quota = Quota(
        ServerConfig(), Limit(1, "requests", "maxServerRequests", "too_many_server_requests")
    )
    sender, call = cast("Any", Silent(signal)), cast("Any", "call")
    strategy = SessionRequests(sender, call, None, signal, 60_000, quota)
    requests = {"a": PreparedRequest("roots/list", {}, lambda answer: answer)}
    with pytest.raises(AbortError, match="cancelled"):
        asyncio.run(asyncio.wait_for(strategy.exchange(requests), 20))


@pytest.mark.rule("ASK-38")
@on_a_loop
async def test_task_left_behind_by_a_call_cannot_send_requests(rig: ServerFixture) -> None:
    left: list[asyncio.Task[Any]] = []
    ended = asyncio.Event()

    @rig.server.tool
    async def leave(ctx: ToolContext) -> str:
        async def ask() -> None:
            await ended.wait()
            await ctx.roots()

        left.append(asyncio.create_task(ask()))
        return "gone"

    client = AnsweringClient(rig.server)
    assert value_of(await client.call("leave")) == "gone"
    ended.set()
    with pytest.raises(UsageError, match="has ended"):
        await asyncio.wait_for(left[0], 20)
    assert client.unread() == []
