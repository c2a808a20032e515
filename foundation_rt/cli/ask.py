"""The command `foundation-rt ask`: one question to a chat, on the terminal (CLI-34 to CLI-37).

`Conversation` is one turn of a chat: text as it comes, calls, approvals, questions. Text goes to
stdout. All else goes to stderr, so that a program gets the answer alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..base.exact_json import dumps
from ..client.handlers.elicitation import ElicitationUrlRequest
from ..client.safe_text import printable_line, printable_text
from ..errors import MissingExtraError
from ..features.server_requests.elicitation import ElicitResult
from .args import FILES, Argument, CliCommand, CommandLine, CommandLineError, Option
from .person import TRUST, InputClosedError, Person, settle
from .questions import ask_form, ask_page
from .render import Output
from .run import FAILURE_EXIT, fill_descriptors, run_to_end, warnings_to
from .serve import CONFIG

if TYPE_CHECKING:
    from ..apps.coordinator import Coordinator
    from ..apps.host.events import Decision, ServerMessage
    from ..apps.host.llm.service import LLMService
    from ..apps.host.orchestrator import ConversationOrchestrator
    from ..apps.host.starting import HostParts


_MAX_CHARACTERS = 32_768
_UNATTENDED_EXIT = 5


def _ask(line: CommandLine) -> int:
    output = Output(sys.stdout, sys.stderr, as_json="--json" in line.options)
    if output.out is None:
        return output.write(b"")  # before a tool does work that nobody can read of
    fill_descriptors()
    question = _question(line)
    try:
        parts = _parts(line)
        assert parts.servers is not None  # there was no problem
        settle(parts.servers.waiting(), "ask", trusts=TRUST in line.options)
        for note in parts.environment.notes:
            output.warning(note)
        with warnings_to(output):
            return run_to_end(lambda: _answer(parts, question, output))
    except MissingExtraError as error:
        from .host import host_extras

        raise error.also(*host_extras(line)) from None


def _question(line: CommandLine) -> str:
    """Return the question of the command line, or of stdin."""
    text = " ".join(line.positional)
    if not text and sys.stdin is not None:
        if sys.stdin.isatty():
            raise CommandLineError("ask needs a QUESTION")
        text = sys.stdin.buffer.read(4 * _MAX_CHARACTERS + 1).decode("utf-8", "replace")
    text = text.strip()
    if not 0 < len(text) <= _MAX_CHARACTERS:
        raise CommandLineError(f"a QUESTION has 1 to {_MAX_CHARACTERS} characters")
    return text.encode("utf-8", "replace").decode()


def _parts(line: CommandLine) -> HostParts:
    """Return the model and the servers, as the chat host has them.

    Raises:
        UsageError: lists every problem, and what to write.
    """
    from ..apps.host.environment import HostEnvironment
    from ..apps.host.settings import SECTION, HostSettings
    from ..apps.host.starting import HostOptions, read_parts
    from .host import chat_settings
    from .showing_server import showing_server

    settings = chat_settings(line)
    options = HostOptions(
        overrides={"host": settings} if settings else {},
        config=line.option("--config"),
        model=line.option("--model"),
    )

    def demo() -> Any:
        server = showing_server({SECTION: HostSettings})  # the seed's variables set it
        server.override("logging", level="error")
        return server

    return read_parts(options, HostEnvironment(), demo)


async def _answer(parts: HostParts, question: str, output: Output) -> int:
    """Let the host answer; return the exit code."""
    from ..apps.host import texts
    from ..apps.host.orchestrator import ConversationOrchestrator, MemoryHistories

    llm = parts.llm
    assert llm is not None  # there was no problem
    await llm.initialize()
    try:
        async with parts.coordinator() as coordinator:
            _warn_of_servers(coordinator, output)
            total, most = len(coordinator.tools), llm.max_tools
            if most is not None and total > most:
                output.warning(texts.too_many_tools(total, most))
            orchestrator = ConversationOrchestrator(
                llm, coordinator, MemoryHistories(), parts.turns
            )
            conversation = Conversation(orchestrator, output, Person())
            await conversation.take_turn(question)
            for note in llm.notes:
                output.warning(note)
            _warn_of_tools(coordinator, llm, output)
    finally:
        await llm.close()
    return _exit_code(conversation, output, llm.label)


def _warn_of_servers(coordinator: Coordinator, output: Output) -> None:
    for server, status in coordinator.states.items():
        if status.reason is not None:
            output.warning(f"server {server!r} is {status.state}: {status.reason}")


def _warn_of_tools(coordinator: Coordinator, llm: LLMService, output: Output) -> None:
    """Name the tools that the model's provider did not take as they are (LLM-114)."""
    from ..apps.host.llm.service import ModelTool

    for entry in coordinator.tools:
        notes = llm.tool_notes(ModelTool.of(entry))
        if notes:
            output.warning(f"{entry.qualified_name}, for the model: {'; '.join(notes)}")


def _exit_code(conversation: Conversation, output: Output, model: str) -> int:
    """Print what is left to say; return the exit code (CLI-37)."""
    if conversation.exit_code:
        return conversation.exit_code
    transcript = conversation.transcript
    if transcript.end.get("state") != "finished":
        code = transcript.end.get("code", "STOPPED")
        message = transcript.end.get("message", "the turn was stopped")
        output.error({"code": code, "message": message}, message)
        return 1 if code == "INTERNAL" else FAILURE_EXIT
    if conversation.notice and not conversation.unapproved:
        output.error({"code": "NO_ANSWER", "message": conversation.notice}, conversation.notice)
        return FAILURE_EXIT
    written = output.result(transcript.to_json(model), ()) if output.as_json else 0
    if conversation.unapproved and not written:
        tools = ", ".join(dict.fromkeys(conversation.unapproved))
        message = (
            f"not called, since nobody is there who could approve it: {tools}; allow it with"
            " --yes, or with alwaysAllow or trust of its server in mcp.json"
        )
        output.error({"code": "UNATTENDED", "message": message}, message)
        return _UNATTENDED_EXIT
    return written


ASK = CliCommand(
    "ask",
    "ask a model that uses your servers",
    _ask,
    (Argument("QUESTION", "in words; without it, it is read from stdin", count="*"),),
    {
        "options": (
            Option(
                "--servers",
                "the servers; by default mcp.json, else the built-in demo server",
                "FILE",
                FILES,
            ),
            Option(
                "--model",
                "the model, such as openai:gpt-5-mini or gemini:gemini-flash-latest",
                "PROVIDER:NAME",
            ),
            Option("--yes", "call tools without asking"),
            Option(TRUST, "run the servers of this folder's mcp.json without asking"),
            CONFIG,
            Option("--json", "print one JSON object: text, calls, usage"),
        )
    },
    usage_exit=2,
    about="""\
A language model answers, and uses the tools of the servers in mcp.json. Before it calls a tool you
are asked, unless its server's entry has "alwaysAllow" with its name, or "trust": true and the tool
says that it only reads. Without a terminal other calls, and skills, need --yes.

The answer goes to stdout, all else to stderr. The model is chosen as `foundation-rt host` chooses
it: by a key in the environment or in .env; without a key, QUESTION is a command such as
/demo:echo message=hi.""",
    notes="""\
examples:
  foundation-rt ask "Which files changed today?"
  foundation-rt ask --servers mcp.json --yes "Summarise the newest issue"
  git diff | foundation-rt ask

exit codes: 0; 1 an error of the host; 2 the command line or the configuration is wrong; 3 the model
cannot be reached, or has not answered to the end; 4 stdout cannot be written; 5 a call needed an
approval, and nobody was there; 130 interrupted""",
)


SESSION = "terminal"

Ask = Callable[[Mapping[str, Any]], Coroutine[Any, Any, None]]

_MAX_SHOWN = 2000
"""The most characters of arguments and messages on a line; of an approval all are shown."""


@define(eq=False)
class Transcript:
    """The events of a turn, for programs."""

    text: str = ""
    calls: list[dict[str, Any]] = field(factory=list)
    end: Mapping[str, Any] = field(factory=dict)

    def to_json(self, model: str) -> dict[str, Any]:
        """Return it as the JSON that `--json` prints."""
        usage = self.end.get("usage")
        return {
            "text": self.text,
            "calls": self.calls,
            "state": self.end.get("state"),
            "model": model,
            "usage": dict(usage) if usage else None,
        }


@define(eq=False)
class Conversation:
    """Shows a turn, and asks the person what it asks.

    Args:
        orchestrator: runs the turn.
        output: of the command.
        person: decides; where nobody is there, calls that need an approval do not run.

    Attributes:
        exit_code: not 0 if stdout cannot be written.
        unapproved: tools that needed an approval while nobody was there.
        notice: what the host said because the model said nothing; "" if the model did.
    """

    _orchestrator: ConversationOrchestrator
    _output: Output
    _person: Person
    transcript: Transcript = field(factory=Transcript, init=False)
    exit_code: int = field(default=0, init=False)
    unapproved: list[str] = field(factory=list, init=False)
    notice: str = field(default="", init=False)
    _is_in_line: bool = field(default=False, init=False)
    _asking: dict[str, asyncio.Task[None]] = field(factory=dict, init=False)
    _turn_to_ask: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _by_call: dict[str, dict[str, Any]] = field(factory=dict, init=False)

    async def take_turn(self, question: str) -> None:
        """Run one turn."""
        try:
            async with aclosing(self._orchestrator.handle_input(SESSION, question)) as events:
                await self._show_all(events)
        finally:
            asking = [*self._asking.values()]
            for task in asking:
                task.cancel()
            if asking:
                await asyncio.wait(asking)

    async def _show_all(self, events: AsyncIterator[ServerMessage]) -> None:
        async for event in events:
            payload = event.payload
            match event.type:
                case "text" if "thought" not in payload:
                    self._show_text(payload)
                case "status":
                    self._show_status(payload)
                case "approval":
                    self._ask_or_stop(payload["callId"], payload, "expiresAt", self._decide)
                case "question":
                    self._ask_or_stop(payload["questionId"], payload, "message", self._answer)
                case "turn" if payload["state"] != "started":
                    self._end(payload)
                case "turn" if "message" in payload:
                    self._note(payload["message"])
            if self.exit_code:
                break

    # -- showing

    def _show_text(self, payload: Mapping[str, Any]) -> None:
        content = payload["content"]
        if payload["done"] and content:
            self.notice = content
        else:
            self._write(content)
            if payload["done"]:
                self._end_line()

    def _write(self, text: str) -> None:
        self.transcript.text += text
        if text and not self._output.as_json:
            is_shown = self._output.out is not None and self._output.out.isatty()
            self.exit_code = self._output.write(
                (printable_text(text) if is_shown else text).encode("utf-8", "replace")
            )
            self._is_in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._is_in_line:
            self.exit_code = self._output.write(b"\n")
            self._is_in_line = False

    def _show_status(self, payload: Mapping[str, Any]) -> None:
        call_id, data = payload["callId"], payload.get("data", {})
        if payload["state"] == "processing":
            if call_id not in self._by_call:
                call = {"tool": payload["tool"], "arguments": data["arguments"]}
                self._by_call[call_id] = call
                self.transcript.calls.append(call)
                self._note(f"{payload['tool']} {_json(data['arguments'])}")
            elif "progress" in payload:
                self._note(f"{payload['tool']}: {payload['message']}")
            return
        ms = payload["durationMs"]
        call = self._by_call.setdefault(call_id, {"tool": payload["tool"]})
        call |= {**data, "isError": payload["isError"], "durationMs": ms}
        self._note(f"{payload['message']} ({ms} ms)")

    def _note(self, text: str) -> None:
        """Write a line about the turn on stderr."""
        if not self._output.as_json:
            self._end_line()
            self._output.note(f"[{printable_line(text[:_MAX_SHOWN])}]")

    def _end(self, payload: Mapping[str, Any]) -> None:
        self.transcript.end = payload
        self._end_line()

    # -- asking

    def _ask_or_stop(self, name: str, payload: Mapping[str, Any], member: str, ask: Ask) -> None:
        """Ask the person; or stop asking: the second event, without that member, ends it."""
        if member in payload:
            self._end_line()
            self._asking[name] = asyncio.create_task(ask(payload))
        else:
            task = self._asking.pop(name, None)
            if task is not None:
                task.cancel()

    async def _decide(self, payload: Mapping[str, Any]) -> None:
        decision: Decision = "unattended"
        if self._person.is_there:
            async with self._turn_to_ask:
                decision = await self._approval(payload)
        else:
            self.unapproved.append(payload["tool"])
        self._orchestrator.approve(SESSION, payload["callId"], decision)

    async def _approval(self, payload: Mapping[str, Any]) -> Decision:
        server, given = payload["server"], _json(payload["arguments"])
        if payload["kind"] == "sampling":
            asked = printable_line(f"Let {server} ask the model {given}?")
        elif payload["kind"] == "skill":
            skill = payload["skill"]
            asked = (
                f"{printable_line(skill['uri'])} of {printable_line(server)}, in its own words:\n"
                f"{printable_text(chr(10).join([skill['text'], *skill['further']]))}\n"
                "Let the model read this?"
            )
        else:
            asked = printable_line(f"Call {payload['tool']} {given}?")
        words: dict[str, Decision] = {"y": "once", "yes": "once", "a": "session"}
        choices = "y: yes, a: yes, and again without asking"
        if "trust" in payload["decisions"]:
            words["t"] = "trust"
            choices += f", t: yes, and trust what {server} says only reads"
        try:
            said = await self._person.ask(
                f"{asked}\n{printable_line(choices)}; anything else: no > "
            )
        except InputClosedError:
            return "deny"
        return words.get(said.lower(), "deny")

    async def _answer(self, payload: Mapping[str, Any]) -> None:
        result: ElicitResult[Any] = ElicitResult("decline")
        who, message = payload["server"], payload["message"]
        if self._person.is_there:
            async with self._turn_to_ask:
                if payload["kind"] == "url":
                    page = ElicitationUrlRequest(message, payload["url"])
                    result = await ask_page(self._person, who, page)
                else:
                    result = await ask_form(self._person, who, message, payload["schema"])
        else:
            self._note(f"{who} asks, and nobody is there: {message}")
        question_id = payload["questionId"]
        self._orchestrator.answer(SESSION, question_id, result.action, result.content)


def _json(value: Any) -> str:
    return dumps(value, default=str).decode()
