"""A chat as turns of user and assistant, in the form that all wires share (LLM-20 to LLM-24). Pure.

Every wire wants the same: user and assistant in turn, the user first; the calls of one answer
together, and directly after them one result for each. An adapter only writes these turns down.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from attrs import define, field, frozen

from foundation_rt.coordinator import outside_name

from ..chat import ChatMessage, Role, ToolPhase
from .provider import ModelRequest
from .text_mode import write_call

NO_OUTCOME = "There is no outcome: the call was interrupted. It may have run, or not."
NO_PICTURE = "[A picture of type {} is not shown here.]"
BEGINNING = "(The chat began earlier.)"
NO_CONTENT = "(The tool said nothing.)"
_NOTE = "[Note of the host] "
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_AT_TOP = ("oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else")


@frozen
class Picture:
    """A picture: its media type, and its bytes in base64."""

    mime_type: str
    data: str


@frozen
class CallPart:
    """A call that the model has made.

    Attributes:
        call_id: in characters that every wire takes.
        name: for models.
        arguments: an object.
        given_back: what its provider wants back; None if another provider made the call.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    given_back: Mapping[str, Any] | None


@frozen
class ResultPart:
    """The result of a call."""

    call_id: str
    name: str
    content: str
    is_error: bool
    pictures: Sequence[Picture] = ()


@define
class WireTurn:
    """The words of one side until the other speaks; of a user, the results come first."""

    is_user: bool
    texts: list[str] = field(factory=list)
    calls: list[CallPart] = field(factory=list)
    results: list[ResultPart] = field(factory=list)
    pictures: list[Picture] = field(factory=list)

    @property
    def text(self) -> str:
        """All texts as one."""
        return "\n\n".join(self.texts)


@define
class _Answer:
    """One answer of the model: its text and its calls, wherever their results stand."""

    id: str | None
    texts: list[str] = field(factory=list)
    calls: list[ChatMessage] = field(factory=list)
    has_result: bool = False

    def takes(self, call: ChatMessage) -> bool:
        """Tell whether a call belongs to this answer."""
        own = call.metadata.get("answer")
        if own is not None and self.calls:
            return bool(own == self.id)
        return not self.has_result


def build_turns(
    request: ModelRequest, provider: str, picture_types: Collection[str]
) -> list[WireTurn]:
    """Return the history of a request as turns.

    Args:
        request: the request.
        provider: under whose name calls keep what is given back.
        picture_types: media types that the model reads; a note stands for any other picture.
    """
    results: dict[str | None, ChatMessage] = {}
    turns: list[WireTurn] = []
    for item in _answers_and_words(request.history, results):
        if isinstance(item, ChatMessage):
            turn = _turn_of(turns, is_user=True)
            if item.content and not item.content.isspace():
                prefix = _NOTE if item.role is Role.SYSTEM else ""
                turn.texts.append(prefix + item.content)
            turn.pictures += _pictures(item, picture_types, turn.texts)
        else:
            _add_answer(turns, item, results, request, provider, picture_types)
    turns = [each for each in turns if each.texts or each.calls or each.results or each.pictures]
    if not turns or not turns[0].is_user:
        turns.insert(0, WireTurn(is_user=True, texts=[BEGINNING]))
    return turns


def _answers_and_words(
    history: Sequence[ChatMessage], results: dict[str | None, ChatMessage]
) -> list[_Answer | ChatMessage]:
    """Gather the parts of each answer, and the results by the id of their calls (LLM-20)."""
    items: list[_Answer | ChatMessage] = []
    for message in history:
        last = items[-1] if items and isinstance(items[-1], _Answer) else None
        if message.role is Role.TOOL:
            if message.kind in (None, ToolPhase.COMPLETE):
                results[message.call_id] = message
                if last is not None:
                    last.has_result = True
        elif message.role is not Role.ASSISTANT:
            items.append(message)
        elif message.is_call:
            if last is None or not last.takes(message):
                items.append(last := _Answer(message.metadata.get("answer")))
            last.id = message.metadata.get("answer", last.id)
            last.calls.append(message)
        elif message.content and not message.content.isspace():
            if last is None or (last.calls and message.id != last.id):
                items.append(last := _Answer(message.id))
            last.texts.append(message.content)
    return items


def _add_answer(
    turns: list[WireTurn],
    answer: _Answer,
    results: Mapping[str | None, ChatMessage],
    request: ModelRequest,
    provider: str,
    picture_types: Collection[str],
) -> None:
    turn = _turn_of(turns, is_user=False)
    turn.texts += answer.texts
    if not answer.calls:
        return
    following = WireTurn(is_user=True)
    for call in answer.calls:
        result = results.get(call.call_id)
        if request.is_text_mode:
            turn.texts.append(write_call(call.tool_name or "", _arguments(call)))
            following.texts.append(_result_text(call, result))
            if result is not None:
                following.pictures += _pictures(result, picture_types, following.texts)
        else:
            part = _call_part(call, request, provider)
            turn.calls.append(part)
            following.results.append(_result_part(part, result, picture_types))
    turns.append(following)


def _turn_of(turns: list[WireTurn], *, is_user: bool) -> WireTurn:
    """Return the last turn if it is of that side, else a new one."""
    if not turns or turns[-1].is_user is not is_user:
        turns.append(WireTurn(is_user))
    return turns[-1]


def _call_part(call: ChatMessage, request: ModelRequest, provider: str) -> CallPart:
    name = call.tool_name or ""
    server, _, tool = name.partition(":")
    return CallPart(
        _wire_call_id(call.call_id or call.id),
        request.outside_names.get(name) or outside_name(server, tool),
        _arguments(call),
        call.metadata.get(provider),
    )


def _result_part(
    call: CallPart, result: ChatMessage | None, picture_types: Collection[str]
) -> ResultPart:
    if result is None:
        return ResultPart(call.call_id, call.name, NO_OUTCOME, is_error=True)
    texts = [result.content] if result.content else []
    pictures = _pictures(result, picture_types, texts)
    content = "\n\n".join(texts) or NO_CONTENT
    return ResultPart(call.call_id, call.name, content, _is_error(result), pictures)


def _result_text(call: ChatMessage, result: ChatMessage | None) -> str:
    if result is None:
        return f"No outcome of {call.tool_name}: {NO_OUTCOME}"
    what = "Error" if _is_error(result) else "Result"
    return f"{what} of {call.tool_name}:\n{result.content or NO_CONTENT}"


def _arguments(call: ChatMessage) -> Mapping[str, Any]:
    arguments = call.data.get("arguments") if isinstance(call.data, Mapping) else None
    return arguments if isinstance(arguments, Mapping) else {}


def _is_error(result: ChatMessage) -> bool:
    has_error = isinstance(result.data, Mapping) and "error" in result.data
    return bool(result.metadata.get("isError", has_error))


def _pictures(
    message: ChatMessage, picture_types: Collection[str], texts: list[str]
) -> list[Picture]:
    """Return the pictures that the model reads; a note for each other one (LLM-22)."""
    taken = []
    for given in message.metadata.get("pictures") or ():
        if given["mimeType"] in picture_types:
            taken.append(Picture(given["mimeType"], given["data"]))
        else:
            texts.append(NO_PICTURE.format(given["mimeType"]))
    return taken


def _wire_call_id(call_id: str) -> str:
    """Return an id that every wire takes: other providers' ids may have other characters."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def model_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of arguments as vendors take it: at its top an object alone (LLM-23).

    What is left out there still holds: the call is checked by the whole schema.
    """
    kept = {key: value for key, value in schema.items() if key not in _NOT_AT_TOP}
    return {**kept, "type": "object", "properties": dict(schema.get("properties") or {})}
