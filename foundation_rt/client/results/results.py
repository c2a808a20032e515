"""Results of a server: of a tool, a resource, a prompt, a completion; entries of its lists.

`read` checks the frame of a result. Its parts are decoded on first access: many callers want one
member of a result, and base64 of megabytes costs milliseconds (CTOOL-12). A result that cannot be
read is an `InvalidResponseError` (E209).

Resources, resource templates and prompts keep every member as it came in `wire`. A member that
only describes is left out where it is not what the specification has for it (CTOOL-14).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attrs import define, field, frozen

from ...base.exact_json import loads
from ...base.shown import Shown
from ...errors import ErrorCode, StructuredError
from ...protocol.methods import COMPLETION_COMPLETE, PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from ..errors import InvalidResponseError, ToolCallError

if TYPE_CHECKING:
    from typing import Self

    from ...protocol.content import ResourceContents
    from .content import Content


_CODES = frozenset(ErrorCode)


class WireResult(Shown):
    """A result that keeps what came."""

    __slots__ = ()

    wire: Mapping[str, Any]

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the result; empty if it has none."""
        meta = self.wire.get("_meta")
        return meta if type(meta) is dict else {}


@define(eq=False, repr=False)
class CallResult(WireResult):
    """The result of a tool.

    Attributes:
        wire: the result as it came.
        is_error: the tool says that it failed; `error` says how.
        unchecked: why the structured result was not checked against the tool's output schema; None
            if it was, or if there is no schema (CTOOL-04, CTOOL-19).
    """

    wire: Mapping[str, Any]
    is_error: bool
    _blocks: list[Any]
    _correlation_id: str | None
    unchecked: str | None = field(default=None, init=False)
    _content: tuple[Content, ...] | None = field(default=None, init=False)

    @classmethod
    def read(cls, wire: Any, correlation_id: str | None = None) -> CallResult:
        """Read the result of `tools/call`.

        Args:
            wire: the result, as it came.
            correlation_id: the one that was sent with the call, if any.

        Raises:
            InvalidResponseError: it is no such result (CTOOL-11).
        """
        _check_frame(wire, TOOLS_CALL)
        blocks = wire.get("content")
        if type(blocks) is not list:
            if blocks is not None:
                raise InvalidResponseError(
                    "the content of the result of tools/call is not an array"
                )
            blocks = []
        is_error = wire.get("isError", False)
        if type(is_error) is not bool:
            if is_error is not None:
                raise InvalidResponseError("isError in the result of tools/call is not a boolean")
            is_error = False
        return cls(wire, is_error, blocks, correlation_id)

    @property
    def content(self) -> tuple[Content, ...]:
        """The content blocks; one of a kind that is not known is the object that came.

        Raises:
            InvalidResponseError: one is not what its kind says (CTOOL-13).
        """
        if self._content is None:
            from .content import read_block

            self._content = tuple(map(read_block, self._blocks))
        return self._content

    @property
    def text(self) -> str:
        """All text blocks, with a line end between them.

        Raises:
            ToolCallError: the tool failed; its `message` and `content` are what the tool said.
            InvalidResponseError: a block is none, or its text is not a string.
        """
        self.raise_for_error()
        return "\n".join(self._texts())

    @property
    def has_structured(self) -> bool:
        """Return whether there is a structured result; it may be null."""
        return "structuredContent" in self.wire

    @property
    def structured(self) -> Any:
        """The structured result, any JSON; None if there is none."""
        return self.wire.get("structuredContent")

    @property
    def is_wrapped(self) -> bool:
        """Return whether the server wrapped the value: `{"result": 3}` (CTOOL-21)."""
        if type(self.structured) is not dict:
            return False

        try:
            texts = self._texts()
        except InvalidResponseError:
            return False
        return len(texts) == len(self._blocks) and is_wrapped(self.structured, texts)

    @property
    def run_id(self) -> str | None:
        """The server's id of this run, where it tells it: foundation-rt does of a failed one."""
        error = self.error
        return None if error is None else error.run_id

    @property
    def correlation_id(self) -> str | None:
        """The id under which the server has logged the call, else the one that was sent with it."""
        error = self.error
        logged = None if error is None else error.correlation_id
        return self._correlation_id if logged is None else logged

    @property
    def error(self) -> ToolCallError | None:
        """The error of the tool; None if it did not fail (CTOOL-15).

        Each access makes a new one: a kept exception, once raised, would hold its frames and with
        them this result.

        Raises:
            InvalidResponseError: it failed, and its content cannot be read.
        """
        return _tool_error(self) if self.is_error else None

    def value(self) -> Any:
        """Return the plain value of the result (CTOOL-16).

        That is the structured result, without the object that some servers put around it
        (CTOOL-21); else the only text block, read as JSON if it is JSON; else
        the text of several text blocks; else, where there is more than text, `content`.

        Raises:
            ToolCallError: the tool failed.
            InvalidResponseError: the content cannot be read.
        """
        self.raise_for_error()
        if self.is_wrapped:
            return self.structured["result"]
        if self.structured is not None:
            return self.structured
        texts = self._texts()
        if len(texts) < len(self._blocks):
            return self.content
        if len(texts) == 1:
            return _json_or_text(texts[0])
        return "\n".join(texts) if texts else None

    def raise_for_error(self) -> CallResult:
        """Return this result if the tool did not fail.

        Raises:
            ToolCallError: it did.
        """
        error = self.error
        if error is not None:
            raise error
        return self

    def _texts(self) -> list[str]:
        texts = []
        for block in self._blocks:
            if type(block) is not dict:
                raise InvalidResponseError("a content block is not an object with a type")
            if block.get("type") == "text":
                text = block.get("text")
                if type(text) is not str:
                    raise InvalidResponseError("the text of a content block is not a string")
                texts.append(text)
        return texts


@frozen(eq=False, repr=False)
class ReadResult(WireResult):
    """The contents of a resource.

    Attributes:
        wire: the result of `resources/read` as it came.
        contents: one or more; some resources are directories.
    """

    wire: Mapping[str, Any]
    contents: tuple[ResourceContents, ...]

    @classmethod
    def read(cls, wire: Any) -> ReadResult:
        """Read the result of `resources/read`.

        Raises:
            InvalidResponseError: it is no such result.
        """
        from .content import read_contents

        _check_frame(wire, RESOURCES_READ)
        return cls(wire, tuple(map(read_contents, _array(wire, "contents", RESOURCES_READ))))


@frozen
class ReceivedPromptMessage:
    """One message of a prompt.

    Attributes:
        role: who says it: ``user`` or ``assistant``.
    """

    role: str
    content: Content


@frozen(eq=False, repr=False)
class GetPromptResult(WireResult):
    """A prompt, filled in.

    Attributes:
        wire: the result of `prompts/get` as it came.
        description: None if there is none.
    """

    wire: Mapping[str, Any]
    messages: tuple[ReceivedPromptMessage, ...]
    description: str | None

    @classmethod
    def read(cls, wire: Any) -> GetPromptResult:
        """Read the result of `prompts/get`.

        Raises:
            InvalidResponseError: it is no such result.
        """
        _check_frame(wire, PROMPTS_GET)
        messages = tuple(map(_message, _array(wire, "messages", PROMPTS_GET)))
        description = wire.get("description")
        return cls(wire, messages, description if type(description) is str else None)


@frozen(eq=False, repr=False)
class CompletionResult(WireResult):
    """The completions of an argument.

    Attributes:
        wire: the result of `completion/complete` as it came.
        values: the most likely first.
        total: how many there are; None if the server does not say.
        has_more: whether there are more than `values`.
    """

    wire: Mapping[str, Any]
    values: tuple[str, ...]
    total: int | None
    has_more: bool

    @classmethod
    def read(cls, wire: Any) -> CompletionResult:
        """Read the result of `completion/complete`.

        Raises:
            InvalidResponseError: it is no such result.
        """
        _check_frame(wire, COMPLETION_COMPLETE)
        completion = wire.get("completion")
        if type(completion) is not dict:
            raise InvalidResponseError("the result of completion/complete has no completion")
        values = tuple(_array(completion, "values", COMPLETION_COMPLETE))
        if not all(type(value) is str for value in values):
            raise InvalidResponseError("a value of completion/complete is not a string")
        total = completion.get("total")
        if type(total) is not int or total < len(values):
            total = None
        more = completion.get("hasMore") is True or (total is not None and total > len(values))
        return cls(wire, values, total, more)


def completion_params(
    subject: str, argument: str, value: str, known: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the params of `completion/complete`; see `Client.complete`."""
    is_template = "{" in subject
    kind, name = ("ref/resource", "uri") if is_template else ("ref/prompt", "name")
    params: dict[str, Any] = {
        "ref": {"type": kind, name: subject},
        "argument": {"name": argument, "value": value},
    }
    return {**params, "context": {"arguments": dict(known)}} if known else params


def _check_frame(wire: Any, method: str) -> None:
    """Check that a result is an object and complete (MCP 2026-07-28, "ResultType")."""
    if type(wire) is not dict:
        raise InvalidResponseError(f"the result of {method} is not an object")
    if wire.get("resultType", "complete") != "complete":
        raise InvalidResponseError(f"the result of {method} is of an unknown resultType")


def _array(wire: dict[str, Any], name: str, method: str) -> list[Any]:
    value = wire.get(name)
    if type(value) is not list:
        raise InvalidResponseError(f"{name} in the result of {method} is not an array")
    return value


def _message(wire: Any) -> ReceivedPromptMessage:
    from .content import read_block

    if type(wire) is not dict or wire.get("role") not in ("user", "assistant"):
        raise InvalidResponseError("a message of a prompt has no role that there is")
    return ReceivedPromptMessage(wire["role"], read_block(wire.get("content")))


def _json_or_text(text: str) -> Any:
    try:
        return loads(text)
    except ValueError:
        return text


def _tool_error(result: CallResult) -> ToolCallError:
    """Return the error in a result: JSON from a foundation-rt server (ERR-02), text from others."""
    content, text = result.content, "\n".join(result._texts())
    structured_error = _structured_error(text) if len(content) == 1 else None
    if structured_error is None:
        return ToolCallError(text or "the tool failed and said nothing", content=content)
    return ToolCallError(
        structured_error.message,
        code=structured_error.code,
        details=structured_error.details,
        run_id=structured_error.run_id,
        correlation_id=structured_error.correlation_id,
        content=content,
    )


def _structured_error(text: str) -> StructuredError | None:
    """Return the error that `text` is the JSON of; None if it is something else."""
    value = _json_or_text(text)
    if type(value) is not dict:
        return None
    code, message, details = value.get("code"), value.get("message"), value.get("details")
    run_id, correlation_id = value.get("runId"), value.get("correlationId")
    if type(code) is not str or code not in _CODES or type(message) is not str:
        return None
    return StructuredError(
        ErrorCode(code),
        message,
        details if type(details) is dict else None,
        run_id if type(run_id) is str else None,
        correlation_id if type(correlation_id) is str else None,
    )


def is_wrapped(structured: Any, texts: Sequence[str]) -> bool:
    """Return whether `structured` is an object around the value that the content serializes.

    Args:
        structured: the structured result.
        texts: the text of each content block, where all blocks are text.
    """
    if type(structured) is not dict or structured.keys() != {"result"}:
        return False
    inner = structured["result"]
    if len(texts) == 1 and _serializes(texts[0], inner):
        return True
    # Servers write a list as one block for each item, and nothing for null.
    items = list(_items(inner))
    return len(items) == len(texts) and all(map(_serializes, texts, items))


def _serializes(text: str, value: Any) -> bool:
    if text == value:
        return True
    try:
        return bool(loads(text) == value)
    except ValueError:
        return False


def _items(value: Any) -> Iterator[Any]:
    """Return the items of a list and of the lists in it; None has no items."""
    pending = [value]
    while pending:
        one = pending.pop()
        if type(one) is list:
            pending.extend(reversed(one))
        elif one is not None:
            yield one


def text_of(wire: Mapping[str, Any], member: str) -> str | None:
    """Return a member that is text; None if it is absent or something else."""
    value = wire.get(member)
    return value if type(value) is str else None


_WIRE: Any = field(repr=False, eq=False)


@frozen
class Resource:
    """A resource that can be read by its URI.

    Attributes:
        uri: as `Client.read_resource` takes it.
        name: for programs; the URI if the server gives none.
        title: for people; None if there is none.
        description: None if there is none.
        mime_type: None if there is none.
        size: in bytes; None if it is not known.
        wire: the entry of `resources/list` as it came.
    """

    uri: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None
    wire: Mapping[str, Any] = _WIRE

    @classmethod
    def read(cls, wire: Any) -> Resource:
        """Return an entry of `resources`.

        Raises:
            InvalidResponseError: it is no resource (CTOOL-23).
        """
        uri = _identity(wire, "uri", "a resource")
        size = wire.get("size")
        return cls(
            uri,
            text_of(wire, "name") or uri,
            text_of(wire, "title"),
            text_of(wire, "description"),
            text_of(wire, "mimeType"),
            size if type(size) is int and size >= 0 else None,
            wire,
        )


@frozen
class ResourceTemplate:
    """Resources whose URIs have a form in common.

    Attributes:
        uri_template: RFC 6570, as in `task://{id}`.
        name: for programs; the template if the server gives none.
        title: for people; None if there is none.
        description: None if there is none.
        mime_type: of all its resources; None if there is none.
        wire: the entry of `resources/templates/list` as it came.
    """

    uri_template: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    wire: Mapping[str, Any] = _WIRE

    @classmethod
    def read(cls, wire: Any) -> ResourceTemplate:
        """Return an entry of `resourceTemplates`.

        Raises:
            InvalidResponseError: it is no template (CTOOL-23).
        """
        template = _identity(wire, "uriTemplate", "a resource template")
        return cls(
            template,
            text_of(wire, "name") or template,
            text_of(wire, "title"),
            text_of(wire, "description"),
            text_of(wire, "mimeType"),
            wire,
        )


@frozen
class ListedPromptArgument:
    """An argument of a prompt; its value is text.

    Attributes:
        title: for people; None if there is none.
        description: None if there is none.
        required: whether the prompt needs it.
    """

    name: str
    title: str | None
    description: str | None
    required: bool


@frozen
class Prompt:
    """A prompt that a server fills in.

    Attributes:
        name: as `Client.get_prompt` takes it.
        title: for people; None if there is none.
        description: None if there is none.
        arguments: in the server's order.
        wire: the entry of `prompts/list` as it came.
    """

    name: str
    title: str | None
    description: str | None
    arguments: tuple[ListedPromptArgument, ...]
    wire: Mapping[str, Any] = _WIRE

    @classmethod
    def read(cls, wire: Any) -> Prompt:
        """Return an entry of `prompts`.

        Raises:
            InvalidResponseError: it is no prompt (CTOOL-23).
        """
        name = _identity(wire, "name", "a prompt")
        listed = wire.get("arguments")
        arguments = [
            ListedPromptArgument(
                each["name"],
                text_of(each, "title"),
                text_of(each, "description"),
                each.get("required") is True,
            )
            for each in (listed if type(listed) is list else ())
            if type(each) is dict and text_of(each, "name")
        ]
        title, description = text_of(wire, "title"), text_of(wire, "description")
        return cls(name, title, description, tuple(arguments), wire)


class ListEntry(Protocol):
    """An entry of a list of a server."""

    @classmethod
    def read(cls, wire: Any) -> Self:
        """Return an entry as it came; raise `InvalidResponseError` for an invalid one."""


Entry = TypeVar("Entry", bound=ListEntry)


def _identity(wire: Any, member: str, what: str) -> str:
    """Return the member that identifies an entry."""
    value = text_of(wire, member) if type(wire) is dict else None
    if not value:
        raise InvalidResponseError(f"{what} is listed without a {member}")
    return value
