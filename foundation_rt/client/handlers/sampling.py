"""Sampling: a server asks the language model of this program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from attrs import frozen

from ...errors import UsageError
from ...features.server_requests.errors import InvalidClientResult
from ...features.server_requests.sampling import (
    ContextScope,
    ModelPreferences,
    SampledBlock,
    SampleResult,
    SamplingMessage,
    ToolChoice,
    ToolUse,
    ToolUseResult,
    check_conversation,
    read_sample,
)
from ...protocol.content import Audio, Block, Image, Text
from ...protocol.revisions import Revision
from ..errors import InvalidResponseError
from ..results.content import read_block
from .params import ServerRequestRefused, as_json, malformed, optional, required

USER_REJECTED = -1
"""The code of the specification for a refusal by the user (MCP, "Sampling")."""

_ROLES = ("user", "assistant")
_SCOPES = get_args(ContextScope)
_CHOICES = get_args(ToolChoice)


@frozen(eq=False, kw_only=True)
class SamplingRequest:
    """A conversation that a server asks this program's model to continue.

    The model's reply goes to the server. `max_tokens` is binding, the rest is advice.

    Attributes:
        messages: at least one.
        max_tokens: of the reply, at most.
        system_prompt: as the server suggests.
        model_preferences: as the server suggests.
        include_context: the context that the server suggests: its own, or that of all servers.
        stop_sequences: that end the reply.
        metadata: for the provider of the model, as it came.
        tools: that the model may use, as `tools/list` would have them; the server runs them.
        tool_choice: whether the model may (`auto`), must (`required`) or must not (`none`).
        params: the whole request, as it came.
    """

    messages: Sequence[SamplingMessage]
    max_tokens: int
    system_prompt: str | None
    model_preferences: ModelPreferences
    include_context: ContextScope
    temperature: float | None
    stop_sequences: Sequence[str]
    metadata: Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]]
    tool_choice: ToolChoice
    params: Mapping[str, Any]


# -- the request ---------------------------------------------------------------------------------


def read_sampling(
    params: Mapping[str, Any], revision: Revision, *, with_tools: bool
) -> tuple[SamplingRequest, Callable[[Any], dict[str, Any]]]:
    """Read a conversation; return it, and the function that writes the result.

    Args:
        params: of the request, as they came.
        revision: of the session.
        with_tools: whether the client declared `sampling.tools`.

    Raises:
        ServerRequestRefused: it is none (QUEST-03, QUEST-08).
    """
    asks_for_tools = params.get("tools") is not None or params.get("toolChoice") is not None
    if asks_for_tools and not with_tools:
        raise malformed("/tools", "is for clients that declared sampling.tools")
    kinds = _kinds(revision, with_tools)
    request = SamplingRequest(
        messages=_messages(params, kinds),
        max_tokens=_max_tokens(params),
        system_prompt=optional(params, "systemPrompt", str),
        model_preferences=_preferences(params),
        include_context=_one_of(params, "includeContext", _SCOPES, "none"),
        temperature=_number(params, "temperature"),
        stop_sequences=_texts(params, "stopSequences"),
        metadata=optional(params, "metadata", dict) or {},
        tools=_tools(params),
        tool_choice=_tool_choice(params),
        params=params,
    )
    return request, lambda returned: _write(returned, revision, kinds)


def _kinds(revision: Revision, with_tools: bool) -> tuple[type, ...]:
    """Return the classes of blocks that the conversation may have."""
    audio = (Audio,) if "audio" in revision.content_kinds else ()
    tools = (ToolUse, ToolUseResult) if with_tools else ()
    return (Text, Image, *audio, *tools)


def _messages(params: Mapping[str, Any], kinds: tuple[type, ...]) -> tuple[SamplingMessage, ...]:
    wires = required(params, "messages", list)
    messages = tuple(_message(one, f"/messages/{at}", kinds) for at, one in enumerate(wires))
    try:
        check_conversation(messages)
    except UsageError as error:
        raise malformed("/messages", f"is no conversation: {str(error)[:500]}") from None
    return messages


def _message(wire: Any, path: str, kinds: tuple[type, ...]) -> SamplingMessage:
    if type(wire) is not dict:
        raise malformed(path, "is not an object")
    role = _one_of(wire, "role", _ROLES, None, path)
    content = wire.get("content")
    several = content if type(content) is list else [content]
    if not several:
        raise malformed(f"{path}/content", "is empty")
    blocks = tuple(_block(one, f"{path}/content", kinds) for one in several)
    return SamplingMessage(role, blocks, optional(wire, "_meta", dict, path))


def _block(wire: Any, path: str, kinds: tuple[type, ...]) -> Any:
    kind = wire.get("type") if type(wire) is dict else None
    if kind == "tool_use":
        block: Any = _tool_use(wire, path)
    elif kind == "tool_result":
        block = _tool_result(wire, path)
    else:
        block = _content(wire, path)
    if not isinstance(block, kinds):
        raise malformed(path, "is of a kind that this client was not told to expect")
    return block


def _content(wire: Any, path: str) -> Block:
    try:
        block = read_block(wire)
    except InvalidResponseError as error:
        raise malformed(path, f"cannot be read: {error.message}") from None
    if not isinstance(block, Block):
        raise malformed(path, "is of a kind that is not known")
    return block


def _tool_use(wire: dict[str, Any], path: str) -> ToolUse:
    return ToolUse(
        required(wire, "id", str, path),
        required(wire, "name", str, path),
        required(wire, "input", dict, path),
        optional(wire, "_meta", dict, path),
    )


def _tool_result(wire: dict[str, Any], path: str) -> ToolUseResult:
    return ToolUseResult(
        required(wire, "toolUseId", str, path),
        [_content(one, f"{path}/content") for one in required(wire, "content", list, path)],
        wire.get("structuredContent"),
        wire.get("isError") is True,
    )


def _max_tokens(params: Mapping[str, Any]) -> int:
    given = _number(params, "maxTokens")
    if given is None or given < 1 or not float(given).is_integer():
        raise malformed("/maxTokens", "is not a whole number above 0")
    return int(given)


def _preferences(params: Mapping[str, Any]) -> ModelPreferences:
    path = "/modelPreferences"
    wire = optional(params, "modelPreferences", dict) or {}
    hints = optional(wire, "hints", list, path) or []
    if not all(type(hint) is dict for hint in hints):
        raise malformed(f"{path}/hints", "is not an array of objects")
    names = (optional(hint, "name", str, f"{path}/hints") for hint in hints)
    return ModelPreferences(
        hints=tuple(name for name in names if name is not None),
        cost_priority=_priority(wire, "costPriority"),
        speed_priority=_priority(wire, "speedPriority"),
        intelligence_priority=_priority(wire, "intelligencePriority"),
    )


def _priority(wire: Mapping[str, Any], name: str) -> float | None:
    value: float | None = _number(wire, name, "/modelPreferences")
    if value is not None and not 0 <= value <= 1:
        raise malformed(f"/modelPreferences/{name}", "is not from 0 to 1")
    return value


def _tools(params: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    tools = optional(params, "tools", list) or []
    for at, tool in enumerate(tools):
        if type(tool) is not dict:
            raise malformed(f"/tools/{at}", "is not an object")
        required(tool, "name", str, f"/tools/{at}")
        required(tool, "inputSchema", dict, f"/tools/{at}")
    return tuple(tools)


def _tool_choice(params: Mapping[str, Any]) -> ToolChoice:
    wire = optional(params, "toolChoice", dict) or {}
    choice: ToolChoice = _one_of(wire, "mode", _CHOICES, "auto", "/toolChoice")
    return choice


def _texts(params: Mapping[str, Any], name: str) -> tuple[str, ...]:
    texts = optional(params, name, list) or []
    if not all(type(text) is str for text in texts):
        raise malformed(f"/{name}", "is not an array of strings")
    return tuple(texts)


def _number(members: Mapping[str, Any], name: str, path: str = "") -> Any:
    value = members.get(name)
    if value is not None and type(value) not in (int, float):
        raise malformed(f"{path}/{name}", "is not a number")
    return value


def _one_of(
    members: Mapping[str, Any], name: str, allowed: Sequence[str], default: Any, path: str = ""
) -> Any:
    value = default if members.get(name) is None else members[name]
    if value not in allowed:
        raise malformed(f"{path}/{name}", f"is not one of {', '.join(allowed)}")
    return value


# -- the response --------------------------------------------------------------------------------


def _write(returned: Any, revision: Revision, kinds: tuple[type, ...]) -> dict[str, Any]:
    if returned is None:
        raise ServerRequestRefused(USER_REJECTED, "User rejected sampling request")
    if isinstance(returned, Mapping):
        returned = read_sample(as_json(dict(returned), ""))
    if not isinstance(returned, SampleResult):
        raise InvalidClientResult(("", "is not a SampleResult, nor an object that is one"))
    wire = {
        "role": returned.role,
        "content": _write_content(returned.content, revision, kinds),
        "model": returned.model,
    }
    if returned.stop_reason is not None:
        wire["stopReason"] = returned.stop_reason
    if returned.meta is not None:
        wire["_meta"] = dict(returned.meta)
    written: dict[str, Any] = as_json(wire, "")
    read_sample(written)  # a SampleResult does not check its values
    return written


def _write_content(content: Any, revision: Revision, kinds: tuple[type, ...]) -> Any:
    blocks = content if isinstance(content, (tuple, list)) else ()
    if not blocks:
        raise InvalidClientResult(("/content", "has no blocks"))
    for at, block in enumerate(blocks):
        if not isinstance(block, get_args(SampledBlock)) or not isinstance(block, kinds):
            raise InvalidClientResult((f"/content/{at}", "is of a kind that was not asked for"))
    if len(blocks) > 1 and not revision.has("sampling", "tools"):  # lists came with tools
        if not all(isinstance(block, Text) for block in blocks):
            raise InvalidClientResult(("/content", "has more blocks than the one that can be sent"))
        blocks = (Text("".join(block.text for block in blocks)),)
    wires = [block.to_wire(revision) for block in blocks]
    return wires[0] if len(wires) == 1 else wires
