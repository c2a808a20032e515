"""A chat for tests of the host: a model that says what a test wants, and servers of this process.

A model's answers are a list: each is a list of steps, taken one by one. A text is said; `call(...)`
is a call; an exception is raised; an `asyncio.Event` is waited for; a number of seconds is slept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from attrs import define, evolve, field

from foundation_rt import ErrorCode, Image, Server, ToolAnnotations, ToolContext, ToolError
from foundation_rt.apps.coordinator import Coordinator, ServerPlan, plans_of
from foundation_rt.apps.host.chat import ChatMessage, Role, TokenUsage
from foundation_rt.apps.host.events import ServerMessage
from foundation_rt.apps.host.llm.service import GenerationOptions, ModelTool
from foundation_rt.apps.host.orchestrator import (
    ConversationOrchestrator,
    MemoryHistories,
    OrchestratorSettings,
    connection_options,
)

Answers = Iterable[Sequence[Any]]


def call(tool: str, _id: str | None = None, **arguments: Any) -> ChatMessage:
    """Return a call, as a model makes it."""
    return ChatMessage(
        id=f"m-{_id}" if _id else "",
        role=Role.ASSISTANT,
        data={"arguments": arguments},
        tool_name=tool,
        call_id=_id,
    )


def problem(text: str) -> ChatMessage:
    """Return what the text mode says of a call that cannot be read."""
    metadata = {"problem": "malformed_tool_call"}
    return ChatMessage(id="", role=Role.SYSTEM, content=text, metadata=metadata)


@define
class Asked:
    """One request to the model."""

    history: list[ChatMessage]
    tools: list[ModelTool]
    prompts: dict[str, str]
    options: GenerationOptions

    @property
    def last(self) -> ChatMessage:
        """The newest message."""
        return self.history[-1]


class ScriptedModel:
    """A model that gives its answers in order; when there are no more, it says "done"."""

    label = "test:model"
    notes = ()

    def __init__(
        self, answers: Answers = (), *, takes_pictures: bool = False, max_tools: int | None = None
    ) -> None:
        self.max_tools = max_tools
        self.answers = list(answers)
        self.takes_pictures = takes_pictures
        self.models: list[str] = []
        self.asked: list[Asked] = []
        self.running = 0
        self.usage: dict[str, TokenUsage] = {}
        self.choose: Callable[[Asked], Sequence[Any]] | None = None
        self._ids = 0

    async def initialize(self) -> None:
        """Do nothing."""

    async def list_models(self) -> list[str]:
        """Return the models."""
        return self.models

    async def generate_chat_message(
        self,
        history: Sequence[ChatMessage],
        tool_definitions: Sequence[ModelTool],
        server_tool_prompts: Mapping[str, str],
        options: GenerationOptions,
    ) -> AsyncGenerator[ChatMessage, None]:
        """Give the next answer."""
        asked = Asked([*history], [*tool_definitions], dict(server_tool_prompts), options)
        self.asked.append(asked)
        if self.choose is not None:
            steps = self.choose(asked)
        else:
            steps = self.answers.pop(0) if self.answers else ["done"]
        self._ids += 1
        text_id = f"text-{self._ids}"
        self.running += 1
        used = self.usage.get(options.session_id, TokenUsage())
        self.usage[options.session_id] = used + TokenUsage(10, 1)
        try:
            for step in steps:
                if isinstance(step, str):
                    yield ChatMessage(id=text_id, role=Role.ASSISTANT, content=step)
                elif isinstance(step, ChatMessage):
                    yield step
                elif isinstance(step, BaseException):
                    raise step
                elif isinstance(step, asyncio.Event):
                    await step.wait()
                else:
                    await asyncio.sleep(step)
        finally:
            self.running -= 1

    def tool_notes(self, tool: ModelTool) -> Sequence[str]:
        """Change nothing."""
        return ()

    def abort_generation(self, request_id: str) -> bool:
        """Abort nothing."""
        return False

    def estimate_token_count(self, text: str) -> int:
        """Count a token for each four bytes."""
        return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4

    def get_token_usage(self, session_id: str) -> TokenUsage | None:
        """Return the usage so far."""
        return self.usage.get(session_id)

    def forget_usage(self, session_id: str) -> None:
        """Forget it."""
        self.usage.pop(session_id, None)

    async def close(self) -> None:
        """Do nothing."""


Act = Callable[[ServerMessage], object]


@define
class Heard:
    """The events of one turn."""

    events: list[ServerMessage] = field(factory=list)

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the payloads of one type."""
        return [event.payload for event in self.events if event.type == kind]

    @property
    def text(self) -> str:
        """All text, one after the other."""
        return "".join(payload["content"] for payload in self.of("text"))

    @property
    def end(self) -> Mapping[str, Any]:
        """The last event, which ends the turn."""
        assert self.events[-1].type == "turn"
        return self.events[-1].payload

    def outcomes(self) -> list[Mapping[str, Any]]:
        """Return the payloads about calls that have ended."""
        return [payload for payload in self.of("status") if payload["state"] == "complete"]


async def say(
    orchestrator: ConversationOrchestrator,
    text: str = "hello",
    *,
    session: str = "session",
    act: Act | None = None,
    turn: str | None = None,
) -> Heard:
    """Run a turn; `act` sees each event when it comes."""
    heard = Heard()
    async for event in orchestrator.handle_input(session, text, turn_id=turn):
        heard.events.append(event)
        if act is not None:
            act(event)
    return heard


READS = ToolAnnotations(read_only=True)


class Desk:
    """A server whose tools a test can hold up and look into.

    Attributes:
        calls: the tools that were called, with what they were given, in order.
        aborted: tools whose calls were aborted.
        gate: `hold` and `peek` wait for it.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.running = self.most_running = 0
        self.aborted: list[str] = []
        self.gate = asyncio.Event()
        self.server = Server("desk")
        self.server.override("logging", level="error")
        self._register()

    async def _wait(self, tool: str, given: str, ctx: ToolContext) -> None:
        self.calls.append((tool, given))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        ctx.abort_signal.add_callback(lambda: self.aborted.append(tool))
        try:
            await self.gate.wait()
        finally:
            self.running -= 1

    def _register(self) -> None:
        server = self.server

        @server.tool
        def note(text: str) -> str:
            """Take a note."""
            self.calls.append(("note", text))
            return f"noted {text}"

        @server.tool(annotations=READS)
        def find(word: str) -> str:
            """Find a note."""
            self.calls.append(("find", word))
            return f"found {word}"

        @server.tool
        async def hold(text: str, ctx: ToolContext) -> str:
            """Write when the gate opens."""
            await self._wait("hold", text, ctx)
            return "held"

        @server.tool(annotations=READS)
        async def peek(text: str, ctx: ToolContext) -> str:
            """Read when the gate opens."""
            await self._wait("peek", text, ctx)
            return text

        @server.tool(annotations=READS)
        def fail(message: str) -> str:
            """Fail."""
            raise ToolError(ErrorCode.INTERNAL, message)

        @server.tool(annotations=READS)
        def draw() -> Image:
            """Draw."""
            return Image(b"png", "image/png")

        @server.tool(annotations=READS)
        async def report(steps: int, ctx: ToolContext) -> str:
            """Report progress, many times at once."""
            for step in range(steps):
                ctx.report_progress(step, steps, f"step {step}")
                await asyncio.sleep(0.001)
            return "reported"


def plans_with(servers: Mapping[str, Any], **settings: Any) -> dict[str, ServerPlan]:
    """Return the plans of servers, with these settings."""
    return {
        server: evolve(plan, settings=evolve(plan.settings, **settings))
        for server, plan in plans_of(servers).items()
    }


@asynccontextmanager
async def chat(
    model: ScriptedModel,
    servers: Mapping[str, Any] | Desk | None = None,
    *,
    histories: MemoryHistories | None = None,
    more: Mapping[str, Any] | None = None,
    revision: str | None = None,
    trust: bool = True,
    **settings: Any,
) -> AsyncIterator[ConversationOrchestrator]:
    """Yield an orchestrator with a model and servers, by default a desk."""
    desk = servers if isinstance(servers, Desk) else Desk() if servers is None else None
    given: Any = {"desk": desk.server} if desk is not None else servers
    source = partial(plans_with, given, trust=trust)
    chosen = OrchestratorSettings(**settings)
    options = connection_options(chosen.roots, chosen.approval_timeout_ms)
    options["revision"] = revision
    lists = ("tools", "skills")
    async with Coordinator.from_plans(source, lists=lists, connections=options) as coordinator:
        yield ConversationOrchestrator(
            model, coordinator, histories or MemoryHistories(), chosen, **(more or {})
        )


def approving(
    orchestrator: ConversationOrchestrator, decision: Any = "once", session: str = "session"
) -> Act:
    """Return what decides on each approval that is shown."""

    def decide(call_id: str) -> None:
        assert orchestrator.approve(session, call_id, decision)

    return when_asked(decide)


def when_asked(do: Callable[[str], object]) -> Act:
    """Return what calls a function with the id of each approval that is shown."""

    def act(event: ServerMessage) -> None:
        if event.type == "approval" and "expiresAt" in event.payload:
            do(event.payload["callId"])

    return act
