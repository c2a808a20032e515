"""A chat as turns of user and assistant, in the form that all wires share (LLM-20 to LLM-24). Pure.

What one wire or one chat template refuses, no chat is written as: user and assistant in turn, the
user first and last; the calls of one answer together, directly after them one result for each, and
after these the assistant; no text that is empty, no id that another vendor would not take. So a
chat that was stopped, or failed, anywhere can go on with any model (LLM-21). An adapter only writes
these turns down.
"""

from __future__ import annotations

import re
from base64 import b32encode, b64decode
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeGuard

from attrs import define, evolve, field, frozen

from ...coordinator import outside_name
from ...coordinator.names import changed_name
from ..chat import ChatMessage, Role, ToolPhase, picture_type
from .provider import ModelRequest
from .text_mode import write_call
from .tool_forms import ToolForm, wire_name

MAX_PICTURE_BYTES = 10_000_000
"""The most bytes of the pictures of a request, in base64: vendors refuse larger requests."""

NO_OUTCOME = "There is no outcome: the call was interrupted. It may have run, or not."
NO_PICTURE = "[A picture of type {} is not shown here.]"
BEGINNING = "(The chat began earlier.)"
NO_CONTENT = "(The tool said nothing.)"
NO_ANSWER = "(I was interrupted here.)"
GO_ON = "(Please go on.)"
_NOTE = "[Note of the host] "
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID_LENGTH = 9  # characters; Mistral takes no other number


@frozen
class Picture:
    """A picture: its media type, and its bytes in base64."""

    mime_type: str
    data: str


@frozen
class CallPart:
    """A call that the model has made.

    Attributes:
        call_id: one that every wire takes.
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
    """The words of one side until the other speaks; those of a user, or results, never both."""

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
    wire_ids: Counter[str] = Counter()
    for item in _answers_and_words(_with_newest_pictures(request.history), results):
        if isinstance(item, ChatMessage):
            _add_words(turns, item, picture_types)
        else:
            _add_answer(turns, item, results, request, provider, picture_types, wire_ids)
    if not turns or not turns[0].is_user:
        turns.insert(0, WireTurn(is_user=True, texts=[BEGINNING]))
    if not turns[-1].is_user:
        turns.append(WireTurn(is_user=True, texts=[GO_ON]))
    return turns


def _add_words(turns: list[WireTurn], message: ChatMessage, picture_types: Collection[str]) -> None:
    """Add what a user, or the host, says."""
    texts = [_clean(message.content)] if _says_something(message.content) else []
    pictures = _pictures(message, picture_types, texts)
    is_note = message.role is Role.SYSTEM
    after_results = bool(turns and turns[-1].results)
    if not texts and not pictures:
        return
    if is_note and after_results:  # no user speaks within a turn
        last = turns[-1].results[-1]
        note = "\n\n".join([last.content, _NOTE + "\n\n".join(texts)])
        turns[-1].results[-1] = evolve(last, content=note)
        return
    if after_results:
        turns.append(WireTurn(is_user=False, texts=[NO_ANSWER]))
    turn = _turn_of(turns, is_user=True)
    turn.texts += [_NOTE + text for text in texts] if is_note else texts
    turn.pictures += pictures


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
        elif _says_something(message.content):
            if last is None or (last.calls and message.id != last.id):
                items.append(last := _Answer(message.id))
            last.texts.append(_clean(message.content))
    return items


def _add_answer(
    turns: list[WireTurn],
    answer: _Answer,
    results: Mapping[str | None, ChatMessage],
    request: ModelRequest,
    provider: str,
    picture_types: Collection[str],
    wire_ids: Counter[str],
) -> None:
    turn = _turn_of(turns, is_user=False)
    turn.texts += answer.texts
    if not answer.calls:
        return
    following = WireTurn(is_user=True)
    for call in answer.calls:
        result = results.get(call.call_id)
        if request.is_text_mode:
            turn.texts.append(write_call(call.tool_name or "", call.arguments))
            following.texts.append(_result_text(call, result))
            if result is not None:
                following.pictures += _pictures(result, picture_types, following.texts)
        else:
            part = _call_part(call, request, provider, wire_ids)
            turn.calls.append(part)
            following.results.append(_result_part(part, result, picture_types))
    turns.append(following)


def _turn_of(turns: list[WireTurn], *, is_user: bool) -> WireTurn:
    """Return the last turn if it is of that side, else a new one."""
    if not turns or turns[-1].is_user is not is_user:
        turns.append(WireTurn(is_user))
    return turns[-1]


def _call_part(
    call: ChatMessage, request: ModelRequest, provider: str, wire_ids: Counter[str]
) -> CallPart:
    name = call.tool_name or ""
    form = request.forms.get(name)
    if form is None:
        form = ToolForm(None, wire_name(_past_name(name)))
    call_id = call.call_id or call.id
    wire_ids[call_id] += 1
    return CallPart(
        wire_call_id(call_id, wire_ids[call_id]),
        form.name,
        form.outward(call.arguments),
        call.metadata.get(provider) if request.has_thoughts else None,
    )


def _past_name(name: str) -> str:
    """Return the name of a tool that is not there: as the model wrote it, if that is a name."""
    server, separator, tool = name.partition(":")
    if separator:
        return outside_name(server, tool)
    return name if _NAME.fullmatch(name) else changed_name(name, name)


def _result_part(
    call: CallPart, result: ChatMessage | None, picture_types: Collection[str]
) -> ResultPart:
    if result is None:
        return ResultPart(call.call_id, call.name, NO_OUTCOME, is_error=True)
    texts = [_clean(result.content)] if _says_something(result.content) else []
    pictures = _pictures(result, picture_types, texts)
    content = "\n\n".join(texts) or NO_CONTENT
    return ResultPart(call.call_id, call.name, content, _is_error(result), pictures)


def _result_text(call: ChatMessage, result: ChatMessage | None) -> str:
    if result is None:
        return f"No outcome of {call.tool_name}: {NO_OUTCOME}"
    what = "Error" if _is_error(result) else "Result"
    said = _clean(result.content) if _says_something(result.content) else NO_CONTENT
    return f"{what} of {call.tool_name}:\n{said}"


def _is_error(result: ChatMessage) -> bool:
    has_error = isinstance(result.data, Mapping) and "error" in result.data
    return bool(result.metadata.get("isError", has_error))


def _with_newest_pictures(history: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return a history in which pictures have no data where newer ones take the room (LLM-22)."""
    left, messages = MAX_PICTURE_BYTES, []
    for message in reversed(history):
        pictures = message.metadata.get("pictures") or ()
        size = sum(len(each["data"]) for each in pictures)
        if size > left:
            left, pictures = 0, [{**each, "data": ""} for each in pictures]
            message = evolve(message, metadata={**message.metadata, "pictures": pictures})
        else:
            left -= size
        messages.append(message)
    return messages[::-1]


def _pictures(
    message: ChatMessage, picture_types: Collection[str], texts: list[str]
) -> list[Picture]:
    """Return the pictures that the model reads; a note for each other one (LLM-22)."""
    taken = []
    for given in message.metadata.get("pictures") or ():
        kind = _type_of(given["data"])
        if kind in picture_types:
            taken.append(Picture(str(kind), given["data"]))
        else:
            texts.append(NO_PICTURE.format(_clean(kind or given["mimeType"])))
    return taken


def _type_of(data: str) -> str | None:
    """Return the media type that the bytes of a picture have; None if they are none."""
    try:
        return picture_type(b64decode(data[:64]))
    except ValueError:
        return None


def wire_call_id(call_id: str, times: int) -> str:
    """Return an id that every wire takes, another one for each call."""
    given = f"{call_id} {times}".encode("utf-8", "surrogatepass")
    return b32encode(sha256(given).digest())[:_ID_LENGTH].decode().lower()


def _says_something(text: str | None) -> TypeGuard[str]:
    return text is not None and bool(text.strip())


def _clean(text: str) -> str:
    """Return a text without halves of characters, which no JSON has."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
