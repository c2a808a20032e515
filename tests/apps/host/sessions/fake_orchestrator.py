"""An orchestrator that is played by its test: a turn says what its text tells it to.

The text of a message is a list of steps, each a word:

    say:TEXT     a text in three pieces, added to the history as a real one does
    part:TEXT    a piece of a text that is not done
    call:TOOL    a call and its outcome
    open:TOOL    a call without an outcome, which runs until the turn ends
    ask:TOOL     a call that waits for its approval, then runs
    question:X   a question that waits for its answer
    wait         until `go`, or until the turn is stopped
    fail         raises
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from itertools import count
from typing import Any
from uuid import uuid4

from attrs import define, field

from foundation_rt.apps.host.chat import ChatMessage, Role, ToolPhase
from foundation_rt.apps.host.events import Approval, ServerMessage
from foundation_rt.apps.host.orchestrator import ConversationHistories


@define
class _Running:
    stopped: asyncio.Event = field(factory=asyncio.Event)
    waiting: dict[str, asyncio.Future[Any]] = field(factory=dict)
    is_ending: bool = False


@define(eq=False)
class FakeOrchestrator:
    """See the module.

    Attributes:
        runs: turns that run now, and the most that ever ran in one session at once.
        texts: of the turns that have begun.
        going: let turns that wait go on.
    """

    histories: ConversationHistories
    runs: dict[str, _Running] = field(factory=dict, init=False)
    texts: list[str] = field(factory=list, init=False)
    forgotten: list[str] = field(factory=list, init=False)
    closed: int = field(default=0, init=False)
    going: asyncio.Event = field(factory=asyncio.Event, init=False)
    _numbers: count[int] = field(factory=count, init=False)

    async def handle_input(
        self,
        session_id: str,
        text: str,
        *,
        turn_id: str,
        message_id: str,
        metadata: Mapping[str, Any],
    ) -> AsyncGenerator[ServerMessage, None]:
        assert session_id not in self.runs, "two turns of one session at once"
        run = self.runs[session_id] = _Running()
        self.texts.append(text)
        try:
            message = ChatMessage(id=message_id, role=Role.USER, content=text, metadata=metadata)
            await self.histories.add_message(session_id, message)
            assert self.histories.get_history(session_id)[-1] == message
            yield ServerMessage("user", {"text": text, "messageId": message_id}, turn_id)
            yield ServerMessage("turn", {"state": "started"}, turn_id)
            for step in text.split():
                if run.stopped.is_set():
                    break
                async for event in self._step(session_id, run, *step.partition(":")[::2]):
                    yield event
            state = "stopped" if run.stopped.is_set() else "finished"
            run.is_ending = True
            usage = {"promptTokens": 3, "completionTokens": 2, "totalTokens": 5}
            yield ServerMessage("turn", {"state": state, "usage": usage}, turn_id)
        finally:
            self.closed += 1
            del self.runs[session_id]

    async def _step(
        self, session_id: str, run: _Running, verb: str, word: str
    ) -> AsyncGenerator[ServerMessage, None]:
        match verb:
            case "say" | "part":
                async for event in self._say(session_id, word, done=verb == "say"):
                    yield event
            case "call" | "open" | "ask":
                async for event in self._call(session_id, run, verb, word):
                    yield event
            case "question":
                self._expect(run, word)
                yield ServerMessage("question", {"questionId": word, "kind": "form"})
                answer = await self._wait_for(run, word)
                yield ServerMessage("question", {"questionId": word, "action": answer})
            case "wait":
                await self._race(run, self.going.wait())
            case "fail":
                raise RuntimeError("the orchestrator has a bug")

    async def _say(
        self, session_id: str, word: str, *, done: bool
    ) -> AsyncGenerator[ServerMessage, None]:
        message_id = f"text-{uuid4().hex}"
        third = max(1, len(word) // 3)
        pieces = [word[:third], word[third : 2 * third], word[2 * third :]]
        for number, piece in enumerate(pieces):
            payload = {"content": piece, "messageId": message_id, "done": False}
            yield ServerMessage("text", payload)
            await asyncio.sleep(0)
            if number == 0:
                await self._add_text(session_id, message_id, piece)
        if done:
            await self._add_text(session_id, message_id, word)
            yield ServerMessage("text", {"content": "", "messageId": message_id, "done": True})

    async def _add_text(self, session_id: str, message_id: str, text: str) -> None:
        message = ChatMessage(id=message_id, role=Role.ASSISTANT, content=text)
        await self.histories.add_message(session_id, message)

    async def _call(
        self, session_id: str, run: _Running, verb: str, tool: str
    ) -> AsyncGenerator[ServerMessage, None]:
        call_id = f"call-{uuid4().hex}"
        call = ChatMessage(
            id=f"{call_id}-call",
            role=Role.ASSISTANT,
            tool_name=tool,
            call_id=call_id,
            data={"arguments": {"n": 1}},
        )
        await self.histories.add_message(session_id, call)
        status = {"state": "processing", "tool": tool, "callId": call_id, "data": call.data}
        if verb == "ask":
            self._expect(run, call_id)
            yield ServerMessage("status", {**status, "awaiting": "approval"})
            yield ServerMessage("approval", {"callId": call_id, "tool": tool})
            decision = await self._wait_for(run, call_id)
            yield ServerMessage("approval", {"callId": call_id, "decision": decision})
        else:
            yield ServerMessage("status", status)
        if verb == "open":
            await self._race(run, asyncio.Event().wait())
        outcome = {"result": {"content": [{"type": "text", "text": tool}]}}
        message = ChatMessage(
            id=f"{call_id}-outcome",
            role=Role.TOOL,
            content=tool,
            data=outcome,
            tool_name=tool,
            call_id=call_id,
            kind=ToolPhase.COMPLETE,
        )
        await self.histories.add_message(session_id, message)
        payload = {"state": "complete", "tool": tool, "callId": call_id, "data": outcome}
        yield ServerMessage("status", payload)

    def _expect(self, run: _Running, name: str) -> None:
        run.waiting[name] = asyncio.get_running_loop().create_future()

    async def _wait_for(self, run: _Running, name: str) -> str:
        try:
            return await self._race(run, run.waiting[name]) or "stopped"
        finally:
            run.waiting.pop(name, None)

    async def _race(self, run: _Running, thing: Any) -> Any:
        """Wait for something, or until the turn is stopped."""
        tasks = [asyncio.ensure_future(thing), asyncio.ensure_future(run.stopped.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[0].result() if tasks[0].done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def stop(self, session_id: str) -> bool:
        run = self.runs.get(session_id)
        if run is None or run.is_ending:
            return False
        run.stopped.set()
        return True

    def approve(self, session_id: str, call_id: str, decision: Approval) -> bool:
        return self._resolve(session_id, call_id, decision)

    def answer(
        self, session_id: str, question_id: str, action: str, content: Mapping[str, Any] | None
    ) -> bool:
        return self._resolve(session_id, question_id, action)

    def _resolve(self, session_id: str, name: str, value: str) -> bool:
        run = self.runs.get(session_id)
        future = run.waiting.get(name) if run is not None else None
        if future is None or future.done():
            return False
        future.set_result(value)
        return True

    async def forget(self, session_id: str) -> None:
        self.forgotten.append(session_id)
