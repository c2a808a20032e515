"""The value of a prompt's handler, as the result of `prompts/get` (PROMPT-05).

A server whose prompts return plain text imports this with the first request, not at its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from attrs.validators import in_, instance_of, optional

from ...errors import ErrorCode, ToolError
from ...protocol.content import Block, Role, Text

if TYPE_CHECKING:
    from ...protocol.revisions import Revision


def _to_block(content: Block | str) -> Block:
    return Text(content) if isinstance(content, str) else content


@frozen
class PromptMessage:
    """One message of a prompt.

    Args:
        role: the speaker: ``user`` or ``assistant``.
        content: a content block; a string stands for a block of text.

    Raises:
        TypeError: `content` is no content block.
        ValueError: there is no such role.
    """

    role: Role = field(validator=in_(("user", "assistant")))
    content: Block | str = field(
        converter=_to_block,
        validator=instance_of(Block),  # type: ignore[type-abstract]
    )

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the message as a member of `messages`."""
        assert isinstance(self.content, Block)
        return {"role": self.role, "content": self.content.to_wire(revision)}


_Message = PromptMessage | Block | str


def _to_messages(messages: Sequence[_Message] | _Message) -> tuple[_Message, ...]:
    return (messages,) if isinstance(messages, _Message) else tuple(messages)


@frozen
class PromptResult:
    """The result of a prompt, with all of its members.

    Args:
        messages: one, or several in order; a block or a string is a message of the user.
        description: of this result; by default that of the definition.
        meta: the `_meta` of the result; JSON.
    """

    messages: Sequence[_Message] = field(converter=_to_messages)
    description: str | None = field(default=None, validator=optional(instance_of(str)))
    meta: Mapping[str, Any] | None = field(
        default=None,
        validator=optional(instance_of(Mapping)),  # type: ignore[type-abstract]
    )


def shape_prompt(value: Any, description: str | None, revision: Revision) -> dict[str, Any]:
    """Return the result of `prompts/get` (PROMPT-05).

    Args:
        value: of the handler.
        description: of the prompt, for a result without a description of its own.
        revision: of the protocol, as the peer speaks it.

    Raises:
        ToolError: INTERNAL, `not_a_prompt`.
    """
    full = value if isinstance(value, PromptResult) else PromptResult(_several(value))
    messages = [_message(each).to_wire(revision) for each in full.messages]
    result: dict[str, Any] = {"messages": messages}
    description = description if full.description is None else full.description
    if description is not None:
        result["description"] = description
    if full.meta is not None:
        result["_meta"] = dict(full.meta)
    return result


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _message(value: Any) -> PromptMessage:
    if isinstance(value, PromptMessage):
        return value
    if isinstance(value, Block | str):
        return PromptMessage("user", value)
    if isinstance(value, Mapping):
        return _written_message(value)
    raise _not_a_prompt() from TypeError(
        f"the handler returned {type(value).__name__}: return a str, a content block, a "
        "PromptMessage, a list of these, or a PromptResult"
    )


def _written_message(value: Mapping[str, Any]) -> PromptMessage:
    """Return a message that is written as on the wire."""
    try:
        content = value["content"]
        if isinstance(content, Mapping):
            content = _read_block(dict(content))
        return PromptMessage(value["role"], content)
    except (KeyError, TypeError, ValueError) as error:
        raise _not_a_prompt() from TypeError(
            'a message as a dict has "role" and "content", which is a str or a content block as on'
            f" the wire: {error!r}"
        )


def _read_block(content: dict[str, Any]) -> Any:
    from ...protocol.block_reader import KnownBlock, block_structurer

    return block_structurer(leaves_out=False).structure(content, KnownBlock)


def _not_a_prompt() -> ToolError:
    return ToolError(ErrorCode.INTERNAL, "The prompt has no messages.", {"reason": "not_a_prompt"})
