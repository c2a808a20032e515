"""Asking the client's language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from attrs import field, frozen

from ..errors import UsageError
from ..protocol.content import Audio, Block, Image, Role, Text
from .errors import ClientCapabilityError
from .questions import Prepared
from .sampled import ToolUse, read_sample

if TYPE_CHECKING:
    from ..protocol.peer import Peer
    from ..protocol.revisions import Revision
    from ..registry.tool_definition import ToolDefinition
    from .forms import Forms

METHOD = "sampling/createMessage"

ContextScope = Literal["none", "thisServer", "allServers"]
ToolChoice = Literal["auto", "required", "none"]


@frozen
class ToolUseResult:
    """What became of a `ToolUse`: a block of a user's message that holds nothing else.

    Args:
        tool_use_id: the `id` of the `ToolUse`.
        content: blocks; text may be given as it is.
        structured: JSON; None for none.
    """

    tool_use_id: str
    content: Sequence[Block | str]
    structured: Any = None
    is_error: bool = False

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """The block."""
        wire = {
            "type": "tool_result",
            "toolUseId": self.tool_use_id,
            "content": [_as_block(one).to_wire(revision) for one in self.content],
            "isError": self.is_error,
        }
        if self.structured is not None:
            wire["structuredContent"] = self.structured
        return wire


SamplingBlock = Text | Image | Audio | ToolUse | ToolUseResult


def _to_blocks(content: Any) -> Any:
    several = content if isinstance(content, (list, tuple)) else [content]
    blocks = tuple(_as_block(one) for one in several)
    for one in blocks:
        if not isinstance(one, get_args(SamplingBlock)):
            raise UsageError(f"a message to a model holds text, images, audio and tools: {one!r}")
    if not blocks:
        raise UsageError("a message to a model holds at least one block")
    return blocks


@frozen
class SamplingMessage:
    """A message to a model, or from one.

    Args:
        content: a block or several; text may be given as it is.
        meta: its `_meta`; JSON.
    """

    role: Role
    content: tuple[SamplingBlock, ...] = field(converter=_to_blocks)
    meta: Mapping[str, Any] | None = None

    def to_wire(self, revision: Revision) -> list[dict[str, Any]]:
        """The message; several, of one block each, for a revision that knows no others."""
        blocks = [one.to_wire(revision) for one in self.content]
        meta = {} if self.meta is None else {"_meta": dict(self.meta)}
        if len(blocks) > 1 and revision.has("sampling", "tools"):  # both came together
            return [{"role": self.role, "content": blocks, **meta}]
        wires = [{"role": self.role, "content": one, **meta} for one in blocks]
        return [revision.keep("sampling_message", wire) for wire in wires]


@frozen(kw_only=True)
class ModelPreferences:
    """Which model is wanted; the client decides.

    Args:
        hints: parts of names of models, the preferred one first.
        cost_priority: from 0 to 1: how much it matters that it is cheap.
        speed_priority: that it is fast.
        intelligence_priority: that it is capable.
    """

    hints: Sequence[str] = ()
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None

    def to_wire(self) -> dict[str, Any]:
        """The `modelPreferences` of a request."""
        wire = {
            "costPriority": self.cost_priority,
            "speedPriority": self.speed_priority,
            "intelligencePriority": self.intelligence_priority,
        }
        for name, value in wire.items():
            if value is not None and not 0 <= value <= 1:
                raise UsageError(f"{name} must be from 0 to 1, not {value!r}")
        present: dict[str, Any] = {name: value for name, value in wire.items() if value is not None}
        if self.hints:
            present["hints"] = [{"name": hint} for hint in self.hints]
        return present


def _to_messages(messages: Any) -> Any:
    several = messages if isinstance(messages, (list, tuple)) else [messages]
    return tuple(SamplingMessage("user", one) if isinstance(one, str) else one for one in several)


@frozen
class Sample:
    """A conversation for the client's model to go on with; the answer is a `SampleResult`.

    Args:
        messages: one or several; text is a user's.
        max_tokens: of the answer, at most.
        tools: that the model may use, for this request only; nothing calls them but the handler.
        tool_choice: whether it may (`auto`), must (`required`) or must not (`none`).
        metadata: for the provider of the model; JSON.
    """

    messages: tuple[SamplingMessage, ...] = field(converter=_to_messages)
    max_tokens: int
    system_prompt: str | None = field(default=None, kw_only=True)
    model_preferences: ModelPreferences | None = field(default=None, kw_only=True)
    include_context: ContextScope | None = field(default=None, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    stop_sequences: Sequence[str] = field(default=(), kw_only=True)
    metadata: Mapping[str, Any] | None = field(default=None, kw_only=True)
    tools: Sequence[ToolDefinition] = field(default=(), kw_only=True)
    tool_choice: ToolChoice | None = field(default=None, kw_only=True)

    def prepare(self, peer: Peer, forms: Forms, name: str) -> Prepared:
        """The request for `peer`; raises `ClientCapabilityError` or `UsageError`."""
        check_conversation(self.messages)
        self._check_capabilities(peer)
        return Prepared(METHOD, self._params(peer.revision), read_sample)

    def _params(self, revision: Revision) -> dict[str, Any]:
        messages = [wire for message in self.messages for wire in message.to_wire(revision)]
        params: dict[str, Any] = {"messages": messages, "maxTokens": self.max_tokens}
        optional = {
            "systemPrompt": self.system_prompt,
            "includeContext": self.include_context,
            "temperature": self.temperature,
        }
        params |= {name: value for name, value in optional.items() if value is not None}
        if self.model_preferences is not None:
            params["modelPreferences"] = self.model_preferences.to_wire()
        if self.stop_sequences:
            params["stopSequences"] = [*self.stop_sequences]
        if self.metadata is not None:
            params["metadata"] = dict(self.metadata)
        if self.tools:
            params["tools"] = [tool.to_wire(revision) for tool in self.tools]
        if self.tool_choice is not None:
            params["toolChoice"] = {"mode": self.tool_choice}
        return params

    def _check_capabilities(self, peer: Peer) -> None:
        """ASK-04: nothing is asked that the client has not declared."""
        revision = peer.revision
        if METHOD not in revision.client_requests or not peer.can("sampling"):
            raise ClientCapabilityError({"sampling": {}})
        kinds = {type(block) for message in self.messages for block in message.content}
        has_parts = revision.has("sampling", "tools")  # of the capability: tools and context
        wants_tools = self.tools or self.tool_choice or kinds & {ToolUse, ToolUseResult}
        if wants_tools and not (has_parts and peer.can("sampling", "tools")):
            raise ClientCapabilityError({"sampling": {"tools": {}}})
        wants_context = self.include_context not in (None, "none")
        if wants_context and has_parts and not peer.can("sampling", "context"):
            raise ClientCapabilityError({"sampling": {"context": {}}})
        if Audio in kinds and "audio" not in revision.content_kinds:
            raise ClientCapabilityError({"sampling": {}}, " and a revision that has audio")


class SampleOptions(TypedDict, total=False):
    """The options of `Sample`, for who takes them from a caller."""

    system_prompt: str | None
    model_preferences: ModelPreferences | None
    include_context: ContextScope | None
    temperature: float | None
    stop_sequences: Sequence[str]
    metadata: Mapping[str, Any] | None
    tools: Sequence[ToolDefinition]
    tool_choice: ToolChoice | None


def _as_block(one: Any) -> Any:
    return Text(one) if isinstance(one, str) else one


def check_conversation(messages: Sequence[SamplingMessage]) -> None:
    """Every use of a tool is answered by the very next message, which holds nothing else (ASK-16).

    Raises:
        UsageError: one is not, or there is no message.
    """
    if not messages:
        raise UsageError("there is no message for the model")
    pending: set[str] = set()
    for message in messages:
        results = [one.tool_use_id for one in message.content if isinstance(one, ToolUseResult)]
        if results and (message.role != "user" or len(results) != len(message.content)):
            raise UsageError("results of tools stand in a user's message that holds nothing else")
        if sorted(results) != sorted(pending):
            raise UsageError(
                f"uses of tools {sorted(pending)} must be followed by their results, and by no"
                f" others: there are {sorted(results)}"
            )
        pending = {one.id for one in message.content if isinstance(one, ToolUse)}
        if pending and message.role != "assistant":
            raise UsageError("only a message of the assistant uses tools")
    if pending:
        raise UsageError(f"uses of tools {sorted(pending)} must be followed by their results")
