"""Calls of the stateless mode that ask their client, from request to request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from foundation_rt import (
    Elicit,
    ElicitUrl,
    Roots,
    Sample,
    ToolContext,
    ToolDefinition,
    UrlElicitationRequired,
)
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import SecuritySection
from foundation_rt.base.config.settings import ServerConfig, ServerSection
from foundation_rt.features.server_requests.request_state import MAX_STATE_BYTES
from foundation_rt.protocol.principal import Principal
from tests.lab.peers.answering_client import AnsweringClient, accepted, value_of
from tests.lab.servers.fixture import ServerFixture

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
STATELESS = "2026-07-28"


@pytest.fixture
def fixture(options: dict[str, Any]) -> Iterator[ServerFixture]:
    """Yield a server with the handlers below."""
    fixture = ServerFixture(**options)
    add_handlers(fixture)
    yield fixture
    fixture.assert_all_ended()


@pytest.fixture
@asynccontextmanager
async def client(fixture: ServerFixture) -> AsyncIterator[AnsweringClient]:
    """Yield a stateless client."""
    yield AnsweringClient(fixture.server, STATELESS)


def add_handlers(fixture: ServerFixture) -> None:
    @fixture.server.tool
    async def greet(ctx: ToolContext, greeting: str = "Hello") -> str:
        name = await ctx.elicit("Who?", NAME, key="user_name")
        sure = await ctx.elicit("Sure?", {"type": "object", "properties": {}})
        return f"{greeting}, {name.content['name']}! {sure.action}" if name.content else "nobody"

    @fixture.server.tool
    async def everything(ctx: ToolContext) -> list[str]:
        return sorted(
            await ctx.ask({"name": Elicit("Who?", NAME), "text": Sample("Hi", 5), "roots": Roots()})
        )

    @fixture.server.tool
    async def files(ctx: ToolContext) -> str:
        if ctx.client.name != "visitor":
            raise UrlElicitationRequired(ElicitUrl("Connect", "https://x.example/"))
        return "files"

    @fixture.server.prompt
    async def hail(ctx: ToolContext) -> str:
        return f"Hail {(await ctx.elicit('Who?', NAME)).content['name']}"

    @fixture.server.resource("note://{id}")
    async def note(id: int, ctx: ToolContext) -> str:
        return f"{id}: {len(await ctx.roots())}"


def asked_of(response: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the requests and the state of a response that asks."""
    result = response["result"]
    assert result["resultType"] == "input_required"
    assert result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
    return result["inputRequests"], result["requestState"]


@pytest.mark.rule("ASK-10", "ASK-13", "ASK-14")
async def test_call_is_retried_until_it_has_a_result(
    fixture: ServerFixture, client: AnsweringClient
) -> None:
    server_requests, state = asked_of(await client.call("greet"))
    message = {"message": "Who?", "requestedSchema": NAME}
    assert server_requests == {"user_name": {"method": "elicitation/create", "params": message}}
    responses = {"user_name": accepted(name="Ann")}
    second = await client.call("greet", inputResponses=responses, requestState=state)
    server_requests, next_state = asked_of(second)
    assert [*server_requests] == ["1"]
    assert next_state != state
    response = await client.call(
        "greet", inputResponses={"1": {"action": "decline"}}, requestState=next_state
    )
    assert response["result"]["resultType"] == "complete"
    assert value_of(response) == "Hello, Ann! decline"
    assert [record["outcome"] for record in fixture.records] == ["success"] * 3
    assert [record.get("resultType") for record in fixture.records] == ["input_required"] * 2 + [
        None
    ]


@pytest.mark.rule("ASK-14", "ASK-15")
async def test_retry_goes_on_in_any_process_with_same_key() -> None:
    def client_of(**options: Any) -> AnsweringClient:
        fixture = ServerFixture(**options)
        add_handlers(fixture)
        return AnsweringClient(fixture.server, STATELESS)

    config = ServerConfig(security=SecuritySection(state_key="ab" * 32))
    _, state = asked_of(await client_of(config=config).call("greet"))
    responses = {"user_name": accepted(name="Ann")}
    answer = await client_of(config=config).call(
        "greet", inputResponses=responses, requestState=state
    )
    assert [*asked_of(answer)[0]] == ["1"]
    answer = await client_of().call("greet", requestState=state)
    assert answer["error"]["data"]["reason"] == "state_tampered"


@pytest.mark.rule("ASK-11", "ASK-12")
@pytest.mark.parametrize(
    "responses", [{}, {"wrong_key": accepted(name="x")}, {"user_name": 12345}, {"user_name": None}]
)
async def test_missing_answer_is_asked_for_again(
    responses: dict[str, Any], fixture: ServerFixture, client: AnsweringClient
) -> None:
    server_requests, _ = asked_of(await client.call("greet", inputResponses=responses))
    assert [*server_requests] == ["user_name"]


@pytest.mark.rule("ASK-20")
async def test_answer_that_state_did_not_ask_for_is_dropped(
    fixture: ServerFixture, client: AnsweringClient
) -> None:
    responses = {"user_name": accepted(name="Ann"), "1": accepted(), "more": accepted(x=1)}
    server_requests, state = asked_of(await client.call("greet"))
    assert [*server_requests] == ["user_name"]
    # The second request was not asked yet when these came.
    along = {"inputResponses": responses, "requestState": state}
    server_requests, _ = asked_of(await client.call("greet", **along))
    assert [*server_requests] == ["1"]


@pytest.mark.rule("ASK-11", "ASK-33")
@pytest.mark.parametrize(
    ("along", "reason"),
    [
        ({"inputResponses": None}, "invalid_params"),
        ({"inputResponses": []}, "invalid_params"),
        ({"requestState": 5}, "invalid_params"),
        ({"requestState": None}, "invalid_params"),
        ({"requestState": ""}, "state_tampered"),
        ({"requestState": "e30=.00"}, "state_tampered"),
    ],
)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "greet"}),
        ("tools/call", {"name": "plain"}),
        ("prompts/get", {"name": "hail"}),
        ("resources/read", {"uri": "note://5"}),
    ],
)
async def test_malformed_answers_are_refused(
    method: str,
    params: dict[str, Any],
    along: dict[str, Any],
    reason: str,
    fixture: ServerFixture,
    client: AnsweringClient,
) -> None:
    fixture.server.register(
        ToolDefinition("plain", "", {"type": "object"}), lambda arguments, context: 1
    )
    client.request(method, {**params, **along})
    messages = [await client.next()]
    if messages[0].get("method"):  # the list of tools has changed
        messages = [await client.next()]
    error = messages[0]["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, reason)
    assert error["data"]["correlationId"]
    assert fixture.slots_in_use == 0


@pytest.mark.rule("ASK-32", "ASK-33")
async def test_state_is_valid_for_one_request_and_principal(
    fixture: ServerFixture, client: AnsweringClient
) -> None:
    _, state = asked_of(await client.call("greet"))
    for tool, arguments in (("greet", {"greeting": "Hi"}), ("everything", {})):
        error = (await client.call(tool, arguments, requestState=state))["error"]
        assert (error["code"], error["data"]["reason"]) == (-32602, "state_foreign")
    client.connection.session.principal = Principal("ann")
    error = (await client.call("greet", requestState=state))["error"]
    assert error["data"]["reason"] == "state_foreign"
    _, hers = asked_of(await client.call("greet"))
    client.connection.session.principal = Principal("bob")
    error = (await client.call("greet", requestState=hers))["error"]
    assert error["data"]["reason"] == "state_foreign"


@pytest.mark.rule("ASK-32", "ASK-33")
async def test_expired_state_is_refused() -> None:
    clock = ManualClock()
    config = ServerConfig(server=ServerSection(input_ttl_ms=60_000))
    fixture = ServerFixture(config, clock)
    add_handlers(fixture)
    client = AnsweringClient(fixture.server, STATELESS)
    _, state = asked_of(await client.call("greet"))
    clock.advance(timedelta(minutes=1).total_seconds() - 0.001)
    asked_of(await client.call("greet", requestState=state))
    clock.advance(0.001)
    error = (await client.call("greet", requestState=state))["error"]
    assert (error["code"], error["data"]["reason"]) == (-32602, "state_expired")


@pytest.mark.rule("ASK-32")
async def test_handler_that_changes_its_arguments_can_be_retried(
    fixture: ServerFixture, client: AnsweringClient
) -> None:
    async def handler(arguments: dict[str, Any], context: ToolContext) -> int:
        arguments.clear()
        return len(await context.roots())

    fixture.server.register(ToolDefinition("careless", "", {"type": "object"}), handler)
    _, state = asked_of(await client.call("careless", {"a": 1}))
    responses = {"1": {"roots": []}}
    answer = await client.call("careless", {"a": 1}, inputResponses=responses, requestState=state)
    assert value_of(answer) == 0


@pytest.mark.rule("ASK-03", "ASK-29")
async def test_several_requests_share_one_round(
    fixture: ServerFixture, client: AnsweringClient
) -> None:
    server_requests, state = asked_of(await client.call("everything"))
    assert {key: one["method"] for key, one in server_requests.items()} == {
        "name": "elicitation/create",
        "text": "sampling/createMessage",
        "roots": "roots/list",
    }
    content = {"type": "text", "text": "Hello"}
    responses = {
        "name": accepted(name="Ann"),
        "text": {"role": "assistant", "model": "m", "content": content},
        "roots": {"roots": []},
    }
    answer = await client.call("everything", inputResponses=responses, requestState=state)
    assert value_of(answer) == ["name", "roots", "text"]


@pytest.mark.rule("ASK-22", "ASK-05")
async def test_missing_client_capability_is_an_error(
    fixture: ServerFixture, client: AnsweringClient
) -> None:
    client.capabilities = {"roots": {}}
    error = (await client.call("everything"))["error"]
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {
        "elicitation": {"form": {}},
        "sampling": {},
    }
    assert (fixture.records[0]["outcome"], fixture.records[0]["errorCode"]) == (
        "tool_error",
        "INVALID_ARGUMENT",
    )


@pytest.mark.rule("ASK-41")
async def test_url_elicitation_required_is_answered_with_pages(
    fixture: ServerFixture, client: AnsweringClient
) -> None:
    server_requests, state = asked_of(await client.call("files"))
    page = {"mode": "url", "message": "Connect", "url": "https://x.example/"}
    assert server_requests == {"page-1": {"method": "elicitation/create", "params": page}}
    responses = {"page-1": {"action": "accept"}}
    meta = {"io.modelcontextprotocol/clientInfo": {"name": "visitor"}}
    params = {"name": "files", "inputResponses": responses, "requestState": state}
    client.request("tools/call", params, **meta)
    assert value_of(await client.next()) == "files"
    client.capabilities = {"elicitation": {}}
    error = (await client.call("files"))["error"]
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"elicitation": {"url": {}}}


@pytest.mark.rule("ASK-15")
async def test_too_large_state_ends_call_with_error(
    fixture: ServerFixture, client: AnsweringClient
) -> None:
    responses = {"user_name": accepted(name="x" * MAX_STATE_BYTES)}
    _, state = asked_of(await client.call("greet"))
    along = {"inputResponses": responses, "requestState": state}
    answer = value_of(await client.call("greet", **along))
    assert answer["code"] == "RESOURCE_EXHAUSTED"
    assert answer["details"] == {"reason": "input_state_too_large"}


@pytest.mark.rule("ASK-02", "ASK-10")
@pytest.mark.parametrize(
    ("method", "params", "key", "answer"),
    [
        ("prompts/get", {"name": "hail"}, "1", accepted(name="Ann")),
        ("resources/read", {"uri": "note://5"}, "1", {"roots": []}),
    ],
)
async def test_prompts_and_resources_can_ask_client(
    method: str,
    params: dict[str, Any],
    key: str,
    answer: Any,
    fixture: ServerFixture,
    client: AnsweringClient,
) -> None:
    client.request(method, params)
    server_requests, state = asked_of(await client.next())
    assert [*server_requests] == [key]
    client.request(method, {**params, "inputResponses": {key: answer}, "requestState": state})
    result = (await client.next())["result"]
    assert result["resultType"] == "complete"
    client.capabilities = {}
    client.request(method, params)
    assert (await client.next())["error"]["code"] == -32021


@pytest.mark.rule("ASK-29")
@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
def test_middleware_passes_requests_to_client_on(revision: str) -> None:
    fixture, seen = ServerFixture(), []

    @fixture.server.middleware
    async def watch(call: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except Exception as error:  # what a request of the server unwinds is none
            seen.append(error)
            raise

    add_handlers(fixture)

    async def run() -> None:
        client = AnsweringClient(fixture.server, revision)
        if revision == STATELESS:
            server_requests, _ = asked_of(await client.call("greet"))
            assert [*server_requests] == ["user_name"]
        else:
            client.start("greet")
            await client.asked("elicitation/create")
            client.connection.close()
            await client.settle()

    asyncio.run(run())
    assert [type(error).__name__ for error in seen] == ["AbortError"] * (revision != STATELESS)


@pytest.mark.rule("ASK-02")
@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
async def test_completion_cannot_ask_client(
    revision: str, fixture: ServerFixture, client: AnsweringClient
) -> None:
    @fixture.server.completion("note://{id}", "id")
    async def ids(value: str, ctx: ToolContext) -> list[str]:
        await ctx.roots()
        return []

    own = AnsweringClient(fixture.server, revision)
    reference = {"type": "ref/resource", "uri": "note://{id}"}
    argument = {"name": "id", "value": ""}
    own.request("completion/complete", {"ref": reference, "argument": argument})
    answer = await own.next()
    assert answer["error"]["code"] == -32603
    [failure] = fixture.logged("handler failed")
    assert "cannot ask the client" in failure["error"]["message"]
