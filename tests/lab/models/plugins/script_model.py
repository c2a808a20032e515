"""`script:FILE`: a provider that plays answers that were written down, for tests.

It is there for the processes that tests start, by an entry point (LLM-19).

The file is a JSON array of turns, or a turn. A turn is

    {"user": "weather|rain", "answers": [ANSWER, ...]}

`user` is a regular expression. The first turn whose expression is found in what the user has just
said is played. Else the n-th turn without `user` is played for the user's n-th message, and the
last one for all that follow. In a turn, each request to the model gets the next answer, the last
one again and again: an answer that fails is followed by that of the retry, one with a call by that
on its result. An ANSWER is an array of steps; an answer of one step may be the step alone, and a
turn of one answer without `user` may be the answer alone. Steps:

| step | what the model does |
|---|---|
| `"text"` | writes a piece of text |
| `{"text": "word ", "times": 100, "everyMs": 5}` | writes a piece many times |
| `{"call": "server:tool", "arguments": {...}, "id": "c1"}` | calls a tool; `arguments` as a string are written as they are |
| `{"echo": "user"}`, `{"echo": "result"}` | writes what the user said, or what the last result says |
| `{"delayMs": 50}`, `{"waitForFile": "PATH"}`, `{"hang": true}` | waits: a time, until a file exists, for ever |
| `{"fail": "transient", "message": "...", "retryAfter": 1, "advice": "..."}` | fails: `transient`, `bad_key`, `unknown_model`, `bad_request`, `tools_unsupported` |
| `{"cut": true}` | breaks off |
| `{"truncated": true}`, `{"refusal": "SAFETY"}` | ends at the limit of tokens, or refused by the provider |
| `{"usage": {"promptTokens": 10, "completionTokens": 2}}` | reports tokens; else they are estimated |
"""  # noqa: E501

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from foundation_rt.apps.host.chat import ChatMessage, Role
from foundation_rt.apps.host.llm.failures import AskedModel
from foundation_rt.apps.host.llm.provider import (
    CallPiece,
    EndPiece,
    ModelRequest,
    Piece,
    TextPiece,
    UsagePiece,
)
from foundation_rt.apps.host.llm.service import LLMConfig, LLMFailure, LLMServiceError
from foundation_rt.apps.host.llm.text_mode import write_call

Step = str | Mapping[str, Any]

_POLL_S = 0.01
_MAX_TURNS_KEPT = 10_000


@frozen
class ScriptedTurn:
    """The answers of the model in one turn, request by request."""

    answers: Sequence[Sequence[Step]]
    user: re.Pattern[str] | None = None


@define
class Script:
    """The turns of a script, and how far each chat has come."""

    turns: Sequence[ScriptedTurn]
    _answered: OrderedDict[tuple[str, str], int] = field(factory=OrderedDict, init=False)

    def next_answer(self, session_id: str, history: Sequence[ChatMessage]) -> Sequence[Step]:
        """Return the next answer of the turn that the history ends in."""
        newest = next((each for each in reversed(history) if each.role is Role.USER), None)
        turn = self._turn(history, (newest and newest.content) or "")
        key = (session_id, newest.id if newest else "")
        count = self._answered.pop(key, 0)
        self._answered[key] = count + 1
        if len(self._answered) > _MAX_TURNS_KEPT:
            self._answered.popitem(last=False)
        return turn.answers[min(count, len(turn.answers) - 1)]

    def _turn(self, history: Sequence[ChatMessage], said: str) -> ScriptedTurn:
        for turn in self.turns:
            if turn.user is not None and turn.user.search(said):
                return turn
        counted = [turn for turn in self.turns if turn.user is None]
        if not counted:
            return ScriptedTurn([[f"The script has no answer to: {said}"]])
        if len(counted) == 1:
            return counted[0]
        users = sum(message.role is Role.USER for message in history)
        return counted[min(max(users, 1), len(counted)) - 1]


def parse_script(text: str) -> Script:
    """Return the script of a text."""
    turns = json.loads(text)
    return Script([*map(_turn, turns if isinstance(turns, list) else [turns])])


def _turn(turn: Any) -> ScriptedTurn:
    if not (isinstance(turn, dict) and "answers" in turn):
        return ScriptedTurn([_answer(turn)])
    user = re.compile(turn["user"], re.IGNORECASE) if "user" in turn else None
    return ScriptedTurn([*map(_answer, turn["answers"])], user)


def _answer(answer: Any) -> Sequence[Step]:
    return answer if isinstance(answer, list) else [answer]


@define(eq=False)
class ScriptProvider:
    """Plays a script."""

    _path: Path
    _script: Script = field(init=False)
    name: str = field(default="script", init=False)
    takes_pictures: bool = field(default=True, init=False)
    hosts: Sequence[str] = field(default=(), init=False)
    notes: Sequence[str] = field(default=(), init=False)
    max_tools: int | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._script = parse_script(self._path.read_text())

    async def connect(self) -> None:
        """Do nothing: the file was read when the service was made."""

    async def list_models(self) -> Sequence[str]:
        """Return the file."""
        return [str(self._path)]

    async def stream(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Play the next answer."""
        end = EndPiece()
        for step in self._script.next_answer(request.session_id, request.history):
            if isinstance(step, str):
                yield TextPiece(step)
            elif "cut" in step:
                return
            elif "truncated" in step or "refusal" in step:
                end = EndPiece("truncated" in step, step.get("refusal", ""))
            elif "fail" in step:
                raise _failure(step, model)
            else:
                async for piece in _play(step, request):
                    yield piece
        yield end

    def asked(self, model: str) -> AskedModel:
        """Return the script as people know it."""
        return AskedModel(provider=self.name, model=model)

    def failure_of(self, error: Exception, model: str) -> LLMServiceError | None:
        """Return the error if it is a failure of the script."""
        return error if isinstance(error, LLMServiceError) else None

    def set_api_key(self, api_key: str) -> None:
        """Ignore the key: a script needs none."""

    async def close(self) -> None:
        """Do nothing."""


async def _play(step: Mapping[str, Any], request: ModelRequest) -> AsyncGenerator[Piece, None]:
    if "text" in step:
        for number in range(step.get("times", 1)):
            if number and "everyMs" in step:
                await asyncio.sleep(step["everyMs"] / 1000)
            yield TextPiece(step["text"])
    elif "call" in step:
        arguments = step.get("arguments", {})
        if request.is_text_mode:
            yield TextPiece(write_call(step["call"], arguments))
        else:
            yield CallPiece(step["call"], arguments, step.get("id", ""))
    elif "echo" in step:
        yield TextPiece(_said(step["echo"], request.history))
    elif "usage" in step:
        yield UsagePiece(step["usage"]["promptTokens"], step["usage"]["completionTokens"])
    else:
        await _wait(step)


def _said(whose: str, history: Sequence[ChatMessage]) -> str:
    role = Role.USER if whose == "user" else Role.TOOL
    said = (message.content or "" for message in reversed(history) if message.role is role)
    return next(said, "")


async def _wait(step: Mapping[str, Any]) -> None:
    if "delayMs" in step:
        await asyncio.sleep(step["delayMs"] / 1000)
    elif "hang" in step:
        await asyncio.Event().wait()
    else:
        path = Path(step["waitForFile"])
        while not path.exists():  # noqa: ASYNC110 -- it imports no tests
            await asyncio.sleep(_POLL_S)


def _failure(step: Mapping[str, Any], model: str) -> LLMServiceError:
    failed = AskedModel(provider="script", model=model).failure(LLMFailure(step["fail"]))
    return LLMServiceError(
        step.get("message", str(failed)),
        failure=failed.failure,
        model=model,
        advice=step.get("advice", failed.advice),
        retry_after=step.get("retryAfter"),
    )


def provider(config: LLMConfig) -> ScriptProvider:
    """Return the provider of an entry point."""
    return ScriptProvider(Path(config.model))
