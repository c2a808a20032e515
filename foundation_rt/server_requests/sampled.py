"""What a client's language model answered."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..protocol.content import Audio, Image, Role, Text
from .errors import InvalidAnswerError

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from .sampling import SamplingMessage


@frozen
class ToolUse:
    """The model wants a tool of the request to be called; the handler does it, or does not.

    Attributes:
        id: to be repeated in the `ToolUseResult`.
        arguments: as the model made them; not checked against the tool's schema.
        meta: its `_meta`.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any] | None = None

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """The block."""
        wire = {"type": "tool_use", "id": self.id, "name": self.name, "input": self.arguments}
        return wire if self.meta is None else {**wire, "_meta": self.meta}


SampledBlock = Text | Image | Audio | ToolUse


@frozen
class SampleResult:
    """The answer of a model.

    Attributes:
        model: its name.
        stop_reason: `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or the provider's own word;
            None if it is not known.
    """

    role: Role
    content: tuple[SampledBlock, ...]
    model: str
    stop_reason: str | None = None
    meta: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The tools it wants to be called."""
        return tuple(block for block in self.content if isinstance(block, ToolUse))

    def to_message(self) -> SamplingMessage:
        """The answer as a message, for the next request of the same conversation."""
        from .sampling import SamplingMessage

        return SamplingMessage(self.role, self.content, self.meta)


def read_sample(answer: Any) -> SampleResult:
    """The client's result as a `SampleResult`.

    Raises:
        InvalidAnswerError: it is none (ASK-09).
    """
    if type(answer) is not dict:
        raise InvalidAnswerError(("", "is not an object"))
    if answer.get("role") not in ("user", "assistant"):
        raise InvalidAnswerError(("/role", "is neither user nor assistant"))
    model = _text(answer, "model", "")
    content = answer.get("content")
    if type(content) is list:
        several = [_read_block(one, f"/content/{index}") for index, one in enumerate(content)]
    else:
        several = [_read_block(content, "/content")]
    reason, meta = answer.get("stopReason"), answer.get("_meta")
    return SampleResult(
        answer["role"],
        tuple(several),
        model,
        reason if type(reason) is str else None,
        meta if type(meta) is dict else None,
    )


def _read_block(block: Any, path: str) -> SampledBlock:
    if type(block) is not dict:
        raise InvalidAnswerError((path, "is not an object"))
    read = _READERS.get(block["type"]) if type(block.get("type")) is str else None
    if read is None:
        raise InvalidAnswerError((f"{path}/type", "is not a kind of content that was asked for"))
    return read(block, path)


def _read_text(block: dict[str, Any], path: str) -> Text:
    return Text(_text(block, "text", path), meta=_meta(block))


def _read_image(block: dict[str, Any], path: str) -> Image:
    return Image(_bytes(block, path), _text(block, "mimeType", path), meta=_meta(block))


def _read_audio(block: dict[str, Any], path: str) -> Audio:
    return Audio(_bytes(block, path), _text(block, "mimeType", path), meta=_meta(block))


def _read_tool_use(block: dict[str, Any], path: str) -> ToolUse:
    arguments = block.get("input")
    if type(arguments) is not dict:
        raise InvalidAnswerError((f"{path}/input", "is not an object"))
    name = _text(block, "name", path)
    return ToolUse(_text(block, "id", path), name, arguments, _meta(block))


_READERS: dict[str, Callable[[dict[str, Any], str], SampledBlock]] = {
    "text": _read_text,
    "image": _read_image,
    "audio": _read_audio,
    "tool_use": _read_tool_use,
}


def _text(holder: dict[str, Any], name: str, path: str) -> str:
    value = holder.get(name)
    if type(value) is not str:
        raise InvalidAnswerError((f"{path}/{name}", "is not a string"))
    return value


def _bytes(block: dict[str, Any], path: str) -> bytes:
    try:
        return a2b_base64(_text(block, "data", path), strict_mode=True)
    except (Base64Error, ValueError):
        raise InvalidAnswerError((f"{path}/data", "is not base64")) from None


def _meta(block: dict[str, Any]) -> dict[str, Any] | None:
    meta = block.get("_meta")
    return meta if type(meta) is dict else None
