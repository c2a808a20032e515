"""One turn of a chat on a terminal: text as it comes, calls, approvals, questions (CLI-34 to -37).

Text goes to stdout. All else goes to stderr, so that a program gets the answer alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..base.exact_json import dumps
from ..client.handlers.elicitation import ElicitationUrlRequest
from ..client.safe_text import printable_line, printable_text
from ..features.server_requests.elicitation import ElicitResult
from .person import InputClosedError, Person
from .questions import ask_form, ask_page
from .render import Output

if TYPE_CHECKING:
    from ..apps.host.events import Decision, ServerMessage
    from ..apps.host.orchestrator import ConversationOrchestrator

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
            asked = f"Let {server} ask the model {given}?"
        else:
            asked = f"Call {payload['tool']} {given}?"
        words: dict[str, Decision] = {"y": "once", "yes": "once", "a": "session"}
        choices = "y: yes, a: yes, and again without asking"
        if "trust" in payload["decisions"]:
            words["t"] = "trust"
            choices += f", t: yes, and trust what {server} says only reads"
        try:
            said = await self._person.ask(
                f"{printable_line(asked)}\n{printable_line(choices)}; anything else: no > "
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
