"""Chats with a service of a language model, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from foundation_rt.apps.host.chat import THOUGHT, ChatMessage, Role, ToolPhase
from foundation_rt.apps.host.llm.model_service import ModelService
from foundation_rt.apps.host.llm.providers import make_service
from foundation_rt.apps.host.llm.service import GenerationOptions, LLMConfig, ModelTool

_ids = count(1)


def model_tool(name: str, description: str = "", **properties: Any) -> ModelTool:
    """Return a tool; a property whose name ends in `_` is not required, and loses that."""
    required = [each for each in properties if not each.endswith("_")]
    schema = {
        "type": "object",
        "properties": {each.rstrip("_"): given for each, given in properties.items()},
        "required": required,
    }
    return ModelTool(name, name.replace(":", "__"), description, schema)


TEXT = {"type": "string"}
ECHO = model_tool("demo:echo", "Send a message back.", message={**TEXT, "description": "What."})
SLEEP = model_tool(
    "demo:sleep", "Sleep.", ms={"type": "integer", "description": "How long, in milliseconds."}
)
TOOLS = (ECHO, SLEEP)


def user(text: str) -> ChatMessage:
    """Return what a user says."""
    return ChatMessage(id=f"m{next(_ids)}", role=Role.USER, content=text)


def result_of(call: ChatMessage, content: str, data: Any = None, **metadata: Any) -> ChatMessage:
    """Return the outcome of a call."""
    shown = (
        data if data is not None else {"result": {"content": [{"type": "text", "text": content}]}}
    )
    return ChatMessage(
        id=f"m{next(_ids)}",
        role=Role.TOOL,
        kind=ToolPhase.COMPLETE,
        content=content,
        data=shown,
        tool_name=call.tool_name,
        call_id=call.call_id,
        metadata=metadata,
    )


def write_script(path: Path, *turns: Any) -> LLMConfig:
    """Write a script; return the configuration that plays it."""
    path.write_text(json.dumps(turns))
    return LLMConfig(provider="script", model=str(path))


def options(session_id: str = "s", request_id: str = "r") -> GenerationOptions:
    """Return options of an answer."""
    return GenerationOptions(session_id=session_id, request_id=request_id)


@define
class Chat:
    """A chat, which keeps what is said."""

    service: ModelService
    tools: Sequence[ModelTool] = TOOLS
    history: list[ChatMessage] = field(factory=list)
    prompts: Mapping[str, str] = field(factory=dict)
    session_id: str = "s"

    async def say(self, text: str) -> list[ChatMessage]:
        """Say something; return the answer, its text in one message."""
        self.history.append(user(text))
        return await self.answer()

    async def give(
        self, call: ChatMessage, content: str, data: Any = None, **metadata: Any
    ) -> list[ChatMessage]:
        """Give the outcome of a call; return the answer."""
        self.history.append(result_of(call, content, data, **metadata))
        return await self.answer()

    async def answer(self) -> list[ChatMessage]:
        """Return the model's answer to what was said, and keep it."""
        stream = self.service.generate_chat_message(
            list(self.history), self.tools, self.prompts, options(self.session_id)
        )
        async with aclosing(stream) as messages:
            answer = merged([message async for message in messages])
        self.history += [message for message in answer if THOUGHT not in message.metadata]
        return answer


def merged(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return messages with the pieces of a text as one."""
    found: dict[str, ChatMessage] = {}
    for message in messages:
        before = found.get(message.id)
        found[message.id] = message if before is None else _joined(before, message)
    return list(found.values())


def _joined(one: ChatMessage, other: ChatMessage) -> ChatMessage:
    return evolve(one, content=(one.content or "") + (other.content or ""))


def rules_chat(*tools: ModelTool) -> Chat:
    """Return a chat with the rules."""
    return Chat(make_service(LLMConfig(provider="rules")), tools or TOOLS)


def shown(messages: Sequence[ChatMessage]) -> list[Any]:
    """Return messages without ids and times: texts, and calls as name and arguments."""
    return [
        (message.tool_name, message.data["arguments"])
        if message.is_call
        else (message.role.value, message.content)
        for message in messages
    ]
