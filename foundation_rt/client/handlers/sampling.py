"""Sampling: a server asks the language model of this program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from attrs import asdict, field, frozen

from ...base.structuring import Structurer, StructuringError
from ...errors import UsageError
from ...features.server_requests.answers import read_sample
from ...features.server_requests.errors import InvalidClientResult
from ...features.server_requests.sampling import (
    ContextScope,
    ModelPreferences,
    SampledBlock,
    SampleResult,
    SamplingBlock,
    SamplingMessage,
    ToolChoice,
    ToolUse,
    ToolUseResult,
    check_conversation,
)
from ...protocol.block_reader import KnownBlock
from ...protocol.content import Audio, Block, Image, Role, Text
from ...protocol.revisions import Revision
from ..results.content import BLOCKS
from .params import ServerRequestRefused, as_json, malformed, read_params

USER_REJECTED = -1
"""The code of the specification for a refusal by the user (MCP, "Sampling")."""


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


def _above_zero(instance: Any, described: Any, value: int) -> None:
    if value < 1:
        raise StructuringError(("", "is not a whole number above 0"))


def _share(instance: Any, described: Any, value: float | None) -> None:
    if value is not None and not 0 <= value <= 1:
        raise StructuringError(("", "is not from 0 to 1"))


@frozen
class _Hint:
    name: str | None = None


@frozen(kw_only=True)
class _Preferences:
    hints: tuple[_Hint, ...] = ()
    cost_priority: float | None = field(default=None, validator=_share)
    speed_priority: float | None = field(default=None, validator=_share)
    intelligence_priority: float | None = field(default=None, validator=_share)


@frozen
class _Tool:
    name: str
    input_schema: Mapping[str, Any]


@frozen
class _Choice:
    mode: ToolChoice = "auto"


@frozen
class _Message:
    role: Role
    content: tuple[SamplingBlock, ...]
    meta: Mapping[str, Any] | None = field(default=None, metadata={"wire": "_meta"})


@frozen(kw_only=True)
class _Params:
    """The params of `sampling/createMessage`."""

    messages: tuple[_Message, ...]
    max_tokens: int = field(validator=_above_zero)
    system_prompt: str | None = None
    model_preferences: _Preferences = _Preferences()
    include_context: ContextScope = "none"
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(factory=dict)
    tools: tuple[_Tool, ...] = ()
    tool_choice: _Choice = _Choice()


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
    read: _Params = read_params(_PARAMS, params, _Params)
    preferences = asdict(read.model_preferences, recurse=False)
    names = (hint.name for hint in read.model_preferences.hints)
    preferences["hints"] = tuple(name for name in names if name is not None)
    request = SamplingRequest(
        messages=_conversation(read.messages, kinds),
        max_tokens=read.max_tokens,
        system_prompt=read.system_prompt,
        model_preferences=ModelPreferences(**preferences),
        include_context=read.include_context,
        temperature=read.temperature,
        stop_sequences=read.stop_sequences,
        metadata=read.metadata,
        tools=tuple(params.get("tools") or ()),
        tool_choice=read.tool_choice.mode,
        params=params,
    )
    return request, lambda returned: _write(returned, revision, kinds)


def _kinds(revision: Revision, with_tools: bool) -> tuple[type, ...]:
    """Return the classes of blocks that the conversation may have."""
    audio = (Audio,) if "audio" in revision.content_kinds else ()
    tools = (ToolUse, ToolUseResult) if with_tools else ()
    return (Text, Image, *audio, *tools)


def _conversation(read: Sequence[_Message], kinds: tuple[type, ...]) -> tuple[SamplingMessage, ...]:
    for at, message in enumerate(read):
        if not message.content:
            raise malformed(f"/messages/{at}/content", "is empty")
        if not all(isinstance(block, kinds) for block in message.content):
            what = "is of a kind that this client was not told to expect"
            raise malformed(f"/messages/{at}/content", what)
    messages = tuple(SamplingMessage(each.role, each.content, each.meta) for each in read)
    try:
        check_conversation(messages)
    except UsageError as error:
        raise malformed("/messages", f"is no conversation: {str(error)[:500]}") from None
    return messages


_PARAMS = Structurer()
_PARAMS.register_kinds(SamplingBlock)
_PARAMS.register_one_or_several(tuple[SamplingBlock, ...])
for _kind in (Text, Image, Audio):  # a hint that is wrong does not matter
    _PARAMS.register(_kind, BLOCKS.structure)
_PARAMS.register(Block | str, lambda wire, _: BLOCKS.structure(wire, KnownBlock))


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
