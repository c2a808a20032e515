"""Whatever a chat has been through, every vendor takes its next message (LLM-115)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pytest
from attrs import define, evolve, field
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.apps.host.chat import ChatMessage, Role, ToolPhase
from foundation_rt.apps.host.llm.model_service import ModelService
from foundation_rt.apps.host.llm.service import LLMFailure, LLMServiceError
from foundation_rt.apps.host.llm.vendor import VendorProvider
from foundation_rt.apps.host.orchestrator import MemoryHistories
from tests.lab.host.chat import Desk, ScriptedModel, call, chat, problem
from tests.lab.models.chats import TOOLS, Chat, options, user
from tests.lab.models.fake_models import FakeModels
from tests.lab.sizes import examples

T = TypeVar("T")

PROVIDERS = ("openai", "anthropic", "gemini")
PICTURES = [
    {"mimeType": mime, "data": base64.b64encode(data).decode()}
    for mime, data in (
        ("image/png", b"\x89PNG\r\n\x1a\n..."),
        ("image/png", b"\xff\xd8\xff..."),  # its bytes are another type's
        ("image/png", b""),
        ("image/jpeg", b"no picture at all"),
    )
]


@define
class Wires:
    """A strict server of all wires, and a service for each; they serve many examples."""

    loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop)
    fake: FakeModels = field(factory=lambda: FakeModels([["ok"]], is_strict=True))
    services: list[ModelService] = field(factory=list)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop of the services."""
        return self.loop.run_until_complete(work)

    async def refusals(self, history: Sequence[ChatMessage]) -> list[str]:
        """Return what strict vendors refuse of the next message of a chat."""
        self.fake.refusals.clear()
        for service in self.services:
            for tools in (TOOLS, ()):
                sent = [*history, user("and now?")]
                stream = service.generate_chat_message(sent, tools, {}, options())
                with suppress(LLMServiceError):
                    assert [each.content async for each in stream] == ["ok"]
        return [*self.fake.refusals]


@contextmanager
def strict_wires() -> Iterator[Wires]:
    """Yield strict wires."""
    wires = Wires()
    wires.run(wires.fake.__aenter__())
    wires.services = [wires.fake.service(provider) for provider in PROVIDERS]
    try:
        yield wires
    finally:
        wires.run(wires.fake.__aexit__())
        wires.loop.close()


# -- any messages in any order

TEXTS = st.sampled_from([None, "", " \n", "a", "b", "\ud800", "ü"])
IDS = st.sampled_from(["c1", "c2", "call_" + "x" * 60, "functions.f:0", ""])
NAMES = st.sampled_from(["demo:echo", "demo:sleep", "2fast:do", "", "ü ü", "gone:tool"])


@st.composite
def messages(draw: st.DrawFn) -> ChatMessage:
    """Return any message that a store may have."""
    kind = draw(st.sampled_from(["user", "text", "note", "call", "outcome"]))
    number = draw(st.integers(0, 10**9))
    metadata: dict[str, Any] = {}
    if draw(st.booleans()):
        metadata["answer"] = draw(st.sampled_from(["a1", "a2"]))
    if kind in ("user", "outcome"):
        metadata["pictures"] = draw(st.lists(st.sampled_from(PICTURES), max_size=2))
    base = ChatMessage(id=f"m{number}", role=Role.USER, content=draw(TEXTS), metadata=metadata)
    if kind == "call":
        arguments = draw(st.sampled_from([{"arguments": {"message": "x"}}, {"arguments": 5}, None]))
        return evolve(
            base,
            role=Role.ASSISTANT,
            content=None,
            tool_name=draw(NAMES),
            call_id=draw(IDS),
            data=arguments,
        )
    if kind == "outcome":
        phase = draw(st.sampled_from([ToolPhase.COMPLETE, ToolPhase.PROGRESS]))
        return evolve(base, role=Role.TOOL, call_id=draw(IDS), kind=phase)
    roles = {"user": Role.USER, "text": Role.ASSISTANT, "note": Role.SYSTEM}
    return evolve(base, role=roles[kind])


@pytest.mark.rule("LLM-115", "LLM-20", "LLM-21", "LLM-22")
@pytest.mark.parametrize("takes_pictures", [False, True])
def test_any_messages_are_written_so_that_every_vendor_takes_them(
    takes_pictures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not takes_pictures:
        monkeypatch.setattr(VendorProvider, "picture_types_for", lambda *_: ())

    @settings(max_examples=examples(100))
    @given(history=st.lists(messages(), max_size=9))
    def check(history: list[ChatMessage]) -> None:
        assert wires.run(wires.refusals(history)) == []

    with strict_wires() as wires:
        check()


# -- turns that end in any way

STEPS = st.sampled_from(
    [
        "I look. ",
        " ",
        call("desk:find", "c1", word="a"),
        call("desk:note", "c1", text="a"),
        call("desk:fail", "c2", message=""),
        call("desk:draw"),
        call("desk:hold", text="a"),
        call("nowhere:tool"),
        call("desk:find", "c3", word=5),
        problem("The call could not be read."),
        LLMServiceError("no", failure=LLMFailure.BAD_REQUEST, model="m"),
        LLMServiceError("no", failure=LLMFailure.TRANSIENT, model="m"),
        RuntimeError("a bug"),
        "hang",
    ]
)
ANSWERS = st.lists(st.lists(STEPS, max_size=4), min_size=1, max_size=3)
ENDS = st.tuples(st.sampled_from(["stop", "leave", "stay"]), st.integers(1, 9))


async def run_turns(turns: Sequence[tuple[Any, tuple[str, int]]]) -> Sequence[ChatMessage]:
    """Run turns; each is ended after some events by Stop, or since its reader goes."""
    histories, model = MemoryHistories(), ScriptedModel(takes_pictures=True)
    desk = Desk()
    desk.gate.set()
    limits: dict[str, Any] = {"approve_all": True, "retry_attempts": 0, "turn_timeout_ms": 300}
    async with chat(model, desk, histories=histories, **limits) as orchestrator:
        for answers, (end, after) in turns:
            model.answers = [
                [asyncio.Event() if step == "hang" else step for step in steps] for steps in answers
            ]
            events = orchestrator.handle_input("session", "go on")
            seen = 0
            async for _ in events:
                seen += 1
                if seen == after and end == "stop":
                    orchestrator.stop("session")
                elif seen == after and end == "leave":
                    break
            await events.aclose()
        return orchestrator.get_history("session")


@pytest.mark.rule("LLM-115", "TURN-07", "TURN-08", "TURN-16")
def test_turns_that_end_in_any_way_leave_a_chat_that_goes_on() -> None:
    @settings(max_examples=examples(100))
    @given(turns=st.lists(st.tuples(ANSWERS, ENDS), min_size=1, max_size=3))
    def check(turns: Any) -> None:
        assert wires.run(wires.refusals(wires.run(run_turns(turns)))) == []

    with strict_wires() as wires:
        check()


# -- one picture that a vendor refuses


@pytest.mark.rule("LLM-22")
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Could not process image"),
        (500, "image input is not supported - hint: you may need to provide the mmproj"),
        (400, "messages[0].content must be a string"),
        (400, "Request payload size exceeds the limit: 20971520 bytes."),
        (413, "Request exceeds the maximum size"),
    ],
)
async def test_pictures_that_a_vendor_refuses_are_left_out(
    status: int, message: str, provider: str
) -> None:
    async with FakeModels([[{"status": status, "message": message}], ["ok"]]) as it:
        talk = Chat(it.service(provider))
        talk.history.append(evolve(user("x"), metadata={"pictures": PICTURES[:1]}))
        assert (await talk.say("y"))[0].content == "ok"
        sent = [PICTURES[0]["data"] in str(each.body) for each in it.requests]
    assert sent == [True, False]
