"""`sampling/createMessage`: a request to the client's language model, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, get_args

from attrs import field, frozen

from ...errors import UsageError
from ...protocol.content import Audio, Block, Image, Role, Text
from ...protocol.methods import SAMPLING_CREATE_MESSAGE
from .errors import ClientCapabilityError
from .requests import PreparedRequest

if TYPE_CHECKING:
    from ...kernel.registry.tool_definition import ToolDefinition
    from ...protocol.peer import Peer
    from ...protocol.revisions import Revision
    from .forms import Forms


ContextScope = Literal["none", "thisServer", "allServers"]
ToolChoice = Literal["auto", "required", "none"]

_META = {"wire": "_meta"}


@frozen
class ToolUse:
    """The model's request to call a tool; the handler decides whether to call it.

    Attributes:
        id: repeated in the `ToolUseResult`.
        arguments: from the model; not validated against the tool's schema.
        meta: its `_meta`.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(metadata={"wire": "input"})
    meta: Mapping[str, Any] | None = field(default=None, metadata=_META)

    kind: ClassVar[str] = "tool_use"

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the content block."""
        wire = {"type": self.kind, "id": self.id, "name": self.name, "input": self.arguments}
        return wire if self.meta is None else {**wire, "_meta": self.meta}


@frozen
class ToolUseResult:
    """The result of a `ToolUse`: a block of a user message that holds no other kind.

    Args:
        tool_use_id: the `id` of the `ToolUse`.
        content: blocks; a string stands for a text block.
        structured: the structured content, as JSON; None for none.
    """

    tool_use_id: str
    content: Sequence[Block | str]
    structured: Any = field(default=None, metadata={"wire": "structuredContent"})
    is_error: bool = False

    kind: ClassVar[str] = "tool_result"

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the content block."""
        wire = {
            "type": self.kind,
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
    """A message to or from a model.

    Args:
        content: one block or several; a string stands for a text block.
        meta: its `_meta`, as JSON.
    """

    role: Role
    content: tuple[SamplingBlock, ...] = field(converter=_to_blocks)
    meta: Mapping[str, Any] | None = field(default=None, metadata=_META)

    def to_wire(self, revision: Revision) -> list[dict[str, Any]]:
        """Return the message; as several of one block each, where the revision allows one block."""
        blocks = [one.to_wire(revision) for one in self.content]
        meta = {} if self.meta is None else {"_meta": dict(self.meta)}
        if len(blocks) > 1 and revision.has("sampling", "tools"):  # both came together
            return [{"role": self.role, "content": blocks, **meta}]
        wires = [{"role": self.role, "content": one, **meta} for one in blocks]
        return [revision.keep("sampling_message", wire) for wire in wires]


@frozen(kw_only=True)
class ModelPreferences:
    """Preferences for the choice of a model; the client decides.

    Args:
        hints: substrings of model names, in the order of preference.
        cost_priority: the importance of a low cost, from 0 to 1.
        speed_priority: the importance of speed, from 0 to 1.
        intelligence_priority: the importance of capability, from 0 to 1.
    """

    hints: Sequence[str] = ()
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the `modelPreferences` of a request."""
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


def _to_preferences(given: Any) -> Any:
    if isinstance(given, str):
        return ModelPreferences(hints=(given,))
    return ModelPreferences(hints=given) if isinstance(given, (list, tuple)) else given


def _to_messages(messages: Any) -> Any:
    several = messages if isinstance(messages, (list, tuple)) else [messages]
    return tuple(SamplingMessage("user", one) if isinstance(one, str) else one for one in several)


@frozen
class Sample:
    """A conversation for the client's model to continue; the value is a `SampleResult`.

    Args:
        messages: one or several; a string stands for a user message.
        max_tokens: the maximum number of tokens to generate.
        tools: those that the model may use in this request; only the handler calls them.
        tool_choice: whether the model may (`auto`), must (`required`) or must not (`none`) use one.
        model_preferences: a text, or several, are names of models: the hints.
        metadata: JSON for the provider of the model.
    """

    messages: tuple[SamplingMessage, ...] = field(converter=_to_messages)
    max_tokens: int
    system_prompt: str | None = field(default=None, kw_only=True)
    model_preferences: ModelPreferences | None = field(
        default=None, converter=_to_preferences, kw_only=True
    )
    include_context: ContextScope | None = field(default=None, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    stop_sequences: Sequence[str] = field(default=(), kw_only=True)
    metadata: Mapping[str, Any] | None = field(default=None, kw_only=True)
    tools: Sequence[ToolDefinition] = field(default=(), kw_only=True)
    tool_choice: ToolChoice | None = field(default=None, kw_only=True)

    def prepare(self, peer: Peer, forms: Forms, name: str) -> PreparedRequest:
        """Return the request for `peer`; raise `ClientCapabilityError` or `UsageError`."""
        from .answers import read_sample

        check_conversation(self.messages)
        self._check_capabilities(peer)
        return PreparedRequest(SAMPLING_CREATE_MESSAGE, self._params(peer.revision), read_sample)

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
        kinds = {type(block) for message in self.messages for block in message.content}
        require(
            peer,
            tools=bool(self.tools or self.tool_choice or kinds & {ToolUse, ToolUseResult}),
            context=self.include_context not in (None, "none"),
            audio=Audio in kinds,
        )


def require(peer: Peer, *, tools: bool, context: bool, audio: bool) -> None:
    """Raise `ClientCapabilityError` for what the client did not declare (ASK-04).

    Args:
        peer: the client.
        tools: whether the model may use tools, or has used some.
        context: whether the context of other servers is included.
        audio: whether a message has audio.
    """
    revision = peer.revision
    if SAMPLING_CREATE_MESSAGE not in revision.client_requests or not peer.can("sampling"):
        raise ClientCapabilityError({"sampling": {}})
    has_parts = revision.has("sampling", "tools")  # of the capability: tools and context
    if tools and not (has_parts and peer.can("sampling", "tools")):
        raise ClientCapabilityError({"sampling": {"tools": {}}})
    if context and has_parts and not peer.can("sampling", "context"):
        raise ClientCapabilityError({"sampling": {"context": {}}})
    if audio and "audio" not in revision.content_kinds:
        raise ClientCapabilityError({"sampling": {}}, " and a revision that has audio")


class SampleOptions(TypedDict, total=False):
    """The options of `Sample`, for callers that pass them through."""

    system_prompt: str | None
    model_preferences: ModelPreferences | str | Sequence[str] | None
    include_context: ContextScope | None
    temperature: float | None
    stop_sequences: Sequence[str]
    metadata: Mapping[str, Any] | None
    tools: Sequence[ToolDefinition]
    tool_choice: ToolChoice | None


def _as_block(one: Any) -> Any:
    return Text(one) if isinstance(one, str) else one


def check_conversation(messages: Sequence[SamplingMessage]) -> None:
    """Check that each use of a tool is followed by a message with its result alone (ASK-16).

    Raises:
        UsageError: a result is missing or misplaced, or there is no message.
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


# -- the client's result -----------------------------------------------------------------------


SampledBlock = Text | Image | Audio | ToolUse


@frozen
class SampleResult:
    """The answer of a model.

    Attributes:
        model: the name of the model.
        stop_reason: `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or a value of the provider's;
            None if it is unknown.
    """

    role: Role
    content: tuple[SampledBlock, ...]
    model: str
    stop_reason: str | None = None
    meta: Mapping[str, Any] | None = field(default=None, metadata=_META)

    @property
    def text(self) -> str:
        """Return the text of all text blocks."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """Return the requests to call tools."""
        return tuple(block for block in self.content if isinstance(block, ToolUse))

    def to_message(self) -> SamplingMessage:
        """Return the answer as a message, for the next request of the same conversation."""
        return SamplingMessage(self.role, self.content, self.meta)
