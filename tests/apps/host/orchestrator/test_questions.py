"""What servers ask during a call, over real connections of both protocol modes."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import (
    Audio,
    ElicitUrl,
    ErrorCode,
    Image,
    SamplingMessage,
    Server,
    ServerRequestError,
    Text,
    ToolContext,
    ToolError,
    UrlElicitationRequired,
)
from foundation_rt.apps.coordinator import Coordinator
from foundation_rt.apps.host.chat import THOUGHT, ChatMessage, Role
from foundation_rt.apps.host.events import ServerMessage
from foundation_rt.apps.host.llm.service import LLMFailure, LLMServiceError
from foundation_rt.apps.host.orchestrator import (
    ConversationOrchestrator,
    MemoryHistories,
    OrchestratorSettings,
    connection_options,
)
from foundation_rt.client import connect
from tests.lab.host.chat import (
    READS,
    Act,
    Heard,
    ScriptedModel,
    approving,
    call,
    chat,
    plans_with,
    say,
)

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def asking() -> Server:
    """Return a server whose tools ask."""
    server = Server("asks")
    server.override("logging", level="error")

    @server.tool(annotations=READS)
    async def who(ctx: ToolContext) -> str:
        answer = await ctx.elicit("Who are you?", NAME)
        return f"{answer.action} {answer.content}"

    @server.tool(annotations=READS)
    async def pay(ctx: ToolContext) -> str:
        return (await ctx.elicit_url("Pay", "https://pay.example/", elicitation_id="e")).action

    @server.tool(annotations=READS)
    async def think(ctx: ToolContext, tokens: int = 100) -> str:
        try:
            said = await ctx.sample("What is 6 * 7?", max_tokens=tokens, stop_sequences=["END"])
        except ServerRequestError as error:
            raise ToolError(ErrorCode.INTERNAL, f"refused: {error}") from None
        return f"{said.text} ({said.model}, {said.stop_reason})"

    @server.tool(annotations=READS)
    async def look(ctx: ToolContext) -> str:
        blocks = (Text("What is it?"), Image(b"png", "image/png"), Audio(b"wav", "audio/wav"))
        message = SamplingMessage("user", blocks)
        return (await ctx.sample(message, system_prompt="Be brief.")).text

    @server.tool(annotations=READS)
    async def places(ctx: ToolContext) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    return server


def answering(found: ConversationOrchestrator, action: str, content: Any = None) -> Act:
    def act(event: ServerMessage) -> None:
        if event.type == "question" and "message" in event.payload:
            question_id = event.payload["questionId"]
            assert not found.answer("other", question_id, "decline")
            assert found.answer("session", question_id, action, content)
            assert not found.answer("session", question_id, "cancel")

    return act


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def revision(request: pytest.FixtureRequest) -> str:
    """Return a revision with sessions, and one without."""
    return str(request.param)


async def asked(
    tool: str, act: Callable[[ConversationOrchestrator], Act] | None = None, **settings: Any
) -> tuple[Heard, str]:
    """Return the events of a turn with one call, and what the model read of it."""
    model = ScriptedModel([[call(f"asks:{tool}")]])
    async with chat(model, {"asks": asking()}, **settings) as orchestrator:
        heard = await say(orchestrator, act=None if act is None else act(orchestrator))
        return heard, model.asked[1].last.content or ""


@pytest.mark.rule("TURN-61")
@pytest.mark.parametrize(
    ("action", "content", "read"),
    [
        ("accept", {"name": "Ada"}, "accept {'name': 'Ada'}"),
        ("decline", None, "decline None"),
        ("cancel", {"name": "ignored"}, "cancel None"),
    ],
)
async def test_form_is_shown_and_its_answer_goes_to_the_server(
    action: str, content: Any, read: str, revision: str
) -> None:
    act = partial(answering, action=action, content=content)
    heard, got = await asked("who", act, revision=revision)
    shown, ended = heard.of("question")
    assert (shown["kind"], shown["message"], shown["server"]) == ("form", "Who are you?", "asks")
    assert shown["schema"]["properties"] == NAME["properties"]
    assert shown["tool"] == "asks:who"
    assert shown["callId"] == heard.of("status")[0]["callId"]
    assert ended == {"questionId": shown["questionId"], "action": action}
    assert "answer" in [each.get("awaiting") for each in heard.of("status")]
    assert read in got


@pytest.mark.rule("TURN-61")
async def test_page_is_shown_and_never_fetched(revision: str) -> None:
    heard, got = await asked("pay", partial(answering, action="accept"), revision=revision)
    shown = heard.of("question")[0]
    assert (shown["kind"], shown["url"]) == ("url", "https://pay.example/")
    assert "accept" in got


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-61")
async def test_question_that_nobody_answers_is_cancelled() -> None:
    heard, got = await asked("who")
    assert heard.of("question")[1]["action"] == "expired"
    assert "cancel" in got


async def sampled(
    answer: list[Any], decision: str = "once", *, revision: str | None = None, **arguments: Any
) -> tuple[Heard, str]:
    model = ScriptedModel([[call("asks:think", **arguments)], answer, ["done"]])
    async with chat(model, {"asks": asking()}, revision=revision) as orchestrator:
        heard = await say(orchestrator, act=approving(orchestrator, decision))
    outcome = heard.outcomes()[0]["data"]
    return heard, str(outcome)


@pytest.mark.rule("TURN-62", "TURN-63")
async def test_server_gets_the_model_after_an_approval(revision: str) -> None:
    heard, got = await sampled(["4", "2"], revision=revision)
    shown, decided = heard.of("approval")
    assert shown["tool"] == "asks:sampling/createMessage"
    assert shown["arguments"]["messages"][0]["content"]["text"] == "What is 6 * 7?"
    assert decided["decision"] == "once"
    assert "42 (test:model, endTurn)" in got
    assert heard.text == "done"  # what the server got is not said to people


@pytest.mark.rule("TURN-63")
@pytest.mark.parametrize("takes_pictures", [True, False])
async def test_model_reads_what_the_server_sends_as_far_as_it_takes_it(
    takes_pictures: bool, revision: str
) -> None:
    hidden = ChatMessage(id="t", role=Role.ASSISTANT, content="hm", metadata={THOUGHT: True})
    answers = [[call("asks:look")], [hidden, "a cat"]]
    model = ScriptedModel(answers, takes_pictures=takes_pictures)
    async with chat(model, {"asks": asking()}, revision=revision, approve_all=True) as orchestrator:
        heard = await say(orchestrator)
    prompt, message = model.asked[1].history
    assert prompt.content == "Be brief."
    left_out = "" if takes_pictures else "\n[image: left out]"
    assert message.content == f"What is it?{left_out}\n[audio: left out]"
    png = {"mimeType": "image/png", "data": b64encode(b"png").decode()}
    assert message.metadata == ({"pictures": [png]} if takes_pictures else {})
    assert heard.outcomes()[0]["data"]["result"]["content"][0]["text"] == "a cat"


@pytest.mark.rule("TURN-63")
async def test_sampling_ends_where_the_server_says() -> None:
    assert "4 (test:model, stopSequence)" in (await sampled(["4E", "ND2"]))[1]
    assert "word (test:model, maxTokens)" in (await sampled(["word " * 50], tokens=1))[1]


@pytest.mark.rule("TURN-62")
async def test_refused_sampling_is_an_error_of_the_server_s_request(revision: str) -> None:
    heard, got = await sampled(["done"], "deny", revision=revision)
    assert heard.of("approval")[1]["decision"] == "deny"
    assert "User rejected sampling request" in got


@pytest.mark.rule("TURN-63")
async def test_model_that_fails_is_an_error_of_the_server_s_request(revision: str) -> None:
    failure = LLMServiceError("503 secret", failure=LLMFailure.TRANSIENT, model="m")
    _, got = await sampled([failure], revision=revision)
    assert "The language model failed" in got
    assert "secret" not in got


@pytest.mark.rule("TURN-63")
async def test_server_cannot_use_the_model_without_end() -> None:
    server = Server("asks")
    server.override("logging", level="error")
    count = 0

    @server.tool(annotations=READS)
    async def loop(ctx: ToolContext) -> int:
        nonlocal count
        while True:
            try:
                await ctx.sample("again", max_tokens=5, key=str(count))
            except ServerRequestError:
                return count
            count += 1

    model = ScriptedModel()
    settings: dict[str, Any] = {"approve_all": True, "max_samplings": 3, "revision": "2025-11-25"}
    model.choose = lambda asked: (
        ["x"] if asked.tools == [] else ["done"] if len(asked.history) > 1 else [call("asks:loop")]
    )
    async with chat(model, {"asks": server}, **settings) as orchestrator:
        await say(orchestrator)
    assert count == 3


@pytest.mark.rule("TURN-62")
async def test_tool_that_is_named_as_sampling_is_a_tool() -> None:
    server = Server("asks")
    server.override("logging", level="error")

    @server.tool(name="sampling/createMessage")
    async def think(ctx: ToolContext) -> str:
        return (await ctx.sample("What is 6 * 7?", max_tokens=9)).text

    model = ScriptedModel()
    wanted = [[call("asks:sampling/createMessage")], ["forty-two"], ["done"]]
    model.answers = wanted * 2
    async with chat(model, {"asks": server}, revision="2025-11-25") as orchestrator:
        act = approving(orchestrator, "always")
        heard = [await say(orchestrator, act=act) for _ in "ab"]
    kinds = [each.get("kind") for each in heard[0].of("approval")]
    assert kinds == ["tool", None, "sampling", None]
    assert heard[1].of("approval") == []


@pytest.mark.rule("TURN-66")
@pytest.mark.parametrize(("action", "calls"), [("accept", 2), ("decline", 1)])
async def test_call_that_needs_a_visit_is_made_again_after_it(action: str, calls: int) -> None:
    server, called = Server("asks"), list[int]()
    server.override("logging", level="error")

    @server.tool(annotations=READS)
    def private() -> str:
        called.append(1)
        if len(called) == 1:
            raise UrlElicitationRequired(ElicitUrl("Sign in", "https://in.example/", "id"))
        return "welcome"

    model = ScriptedModel([[call("asks:private")]])
    async with chat(model, {"asks": server}, revision="2025-11-25") as orchestrator:
        heard = await say(orchestrator, act=answering(orchestrator, action))
    assert heard.of("question")[0]["url"] == "https://in.example/"
    assert len(called) == calls
    assert heard.outcomes()[0]["isError"] is (action == "decline")


@pytest.mark.rule("TURN-64")
async def test_roots_are_settings(tmp_path: Path, revision: str) -> None:
    _, got = await asked("places", roots=[tmp_path], revision=revision)
    assert tmp_path.as_uri() in got


@pytest.mark.rule("TURN-65")
async def test_stop_ends_what_servers_ask(revision: str) -> None:
    def stopping(host: ConversationOrchestrator) -> Act:
        def act(event: ServerMessage) -> None:
            if event.type in ("question", "approval"):
                host.stop("session")

        return act

    for tool, kind, ended in (
        ("who", "question", {"action": "cancel"}),
        ("think", "approval", {"decision": "stopped"}),
    ):
        model = ScriptedModel([[call(f"asks:{tool}")]])
        async with chat(model, {"asks": asking()}, revision=revision) as orchestrator:
            heard = await say(orchestrator, act=stopping(orchestrator))
        assert heard.end["state"] == "stopped"
        assert len(heard.of(kind)) == 2
        assert ended.items() <= heard.of(kind)[1].items()


@pytest.mark.rule("TURN-60")
async def test_what_belongs_to_no_call_is_declined() -> None:
    async with connect(asking(), **connection_options()) as client:
        assert "decline" in (await client.call("who")).text
        assert "decline" in (await client.call("pay")).text
    async with connect(asking(), revision="2025-11-25", **connection_options()) as client:
        assert (await client.call("think")).is_error


@pytest.mark.rule("TURN-60")
async def test_two_calls_at_once_over_one_connection_guess_nothing() -> None:
    server, both = Server("asks"), asyncio.Barrier(2)

    @server.tool(annotations=READS)
    async def who(ctx: ToolContext) -> str:
        await both.wait()
        answer = await ctx.elicit("Who are you?", NAME)
        await both.wait()
        return f"{answer.action}"

    model = ScriptedModel([[call("asks:who")], [call("asks:who")]])
    options = {**connection_options(), "revision": "2025-06-18"}
    source = partial(plans_with, {"asks": server}, trust=True)
    async with Coordinator.from_plans(source, connections=options) as coordinator:
        orchestrator = ConversationOrchestrator(
            model, coordinator, MemoryHistories(), OrchestratorSettings()
        )
        turns = [say(orchestrator, session=each) for each in "ab"]
        for heard in await asyncio.gather(*turns):
            assert heard.of("question") == []
    outcomes = [each for asked in model.asked for each in asked.history if each.role is Role.TOOL]
    assert ["decline" in (each.content or "") for each in outcomes] == [True, True]
