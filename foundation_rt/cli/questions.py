"""Questions of servers to the person at a terminal: forms, pages, and a model's answer (CLI-47).

`Attendance` is the person who waits for a request: sees how it goes on, and is asked.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import webbrowser
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ..client.handlers.elicitation import ElicitationRequest, ElicitationUrlRequest
from ..client.safe_text import printable_line, printable_text
from ..errors import UsageError
from ..features.server_requests.elicitation import ElicitResult
from ..features.server_requests.sampling import SampleResult
from ..protocol.content import Audio, Image, Text
from .person import END_OF_INPUT, InputClosedError, Person
from .render import in_words, wrapped

if TYPE_CHECKING:
    from ..client.handlers.sampling import SamplingRequest
    from .live_view import LiveView

_MAX_SHOWN = 2000
"""The most characters of a text of a server on a line."""

_MAX_TEXT = 20_000
"""The most characters of a text of several lines."""

_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "yes or no",
    "array": "several, with commas between",
}
_YES = ("y", "yes", "true", "1")
_NO = ("n", "no", "false", "0")


async def ask_form(
    person: Person, who: str, message: str, schema: Mapping[str, Any]
) -> ElicitResult[Any]:
    """Have the person fill in a form, and agree to send it.

    Args:
        person: is there.
        who: asks; the name of a server.
        message: the reason, of the server.
        schema: of the form, as the server has sent it (QUEST-05).
    """
    _announce(who, message)
    form = ElicitationRequest(message, schema)
    fields = schema["properties"]
    if fields:
        hint = f"  Enter takes a default or leaves a field out; {END_OF_INPUT} cancels.\n"
        _write(_wrapped(hint))
    try:
        while True:
            content = await _fill_in(person, form)
            said = await _choice(person, "  Send it? y: yes, e: edit it, n: decline > ", "yen")
            if said in ("", "y"):
                return ElicitResult("accept", content)
            if said == "n":
                return ElicitResult("decline")
    except InputClosedError:
        return ElicitResult("cancel")


async def ask_page(person: Person, who: str, page: ElicitationUrlRequest) -> ElicitResult[Any]:
    """Show the whole address of a page; have the person agree to visit it."""
    _announce(who, page.message)
    _write(f"  {printable_line(page.url)}\n  is a page of {_line(page.host)}.\n")
    try:
        said = await _choice(
            person, "  Visit it? y: yes, o: yes, open my browser; n: decline > ", "yon"
        )
    except InputClosedError:
        return ElicitResult("cancel")
    if said == "o":
        if not webbrowser.open(page.url):
            _write("  There is no browser here: open the address by hand.\n")
        return ElicitResult("accept")
    return ElicitResult("accept" if said == "y" else "decline")


async def answer_as_model(
    person: Person, who: str, request: SamplingRequest
) -> SampleResult | None:
    """Show a conversation that needs a model; return what the person writes, or None (refused)."""
    _announce(who, f"a model is to answer, in at most {request.max_tokens} tokens")
    if request.system_prompt:
        _write_text("system", request.system_prompt)
    for message in request.messages:
        _write_text(message.role, "\n".join(map(_block, message.content)))
    lines: list[str] = []
    question = (
        f"  Write the answer, then {END_OF_INPUT} on a line of its own."
        f" {END_OF_INPUT} at once refuses.\n"
    )
    while (line := await person.read_line(question)) is not None:
        lines.append(line)
        question = ""
    text = "".join(lines).strip()
    if not text:
        _write("  refused\n")
        return None
    return SampleResult("assistant", (Text(text),), "person", "endTurn")


_CHOICES = {"y": "yes", "e": "edit", "o": "open", "n": "no"}


async def _choice(person: Person, question: str, letters: str) -> str:
    """Return the letter that the person has chosen, "" for an empty line; ask until it is one."""
    words = {_CHOICES[letter]: letter for letter in letters}
    while True:
        said = (await person.ask(question)).lower()
        if said in words:
            return words[said]
        if len(said) <= 1 and said in letters:
            return said
        _write(f"    is one of {', '.join(letters)}\n")


def _announce(who: str, message: str) -> None:
    _write(_wrapped(f"? {_line(who)} asks: {printable_text(message[:_MAX_TEXT])}\n"))


def _write_text(role: str, text: str) -> None:
    shown = printable_text(text[:_MAX_TEXT]).replace("\n", "\n    ")
    _write(f"  {role}: {shown}\n")


def _block(block: Any) -> str:
    match block:
        case Text():
            return block.text
        case Image() | Audio():
            return f"[{block.mime_type}, {len(block.data)} bytes]"
        case _:
            return f"[{type(block).__name__}]"


def _wrapped(text: str) -> str:
    return wrapped(text, shutil.get_terminal_size().columns)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


# -- forms ----------------------------------------------------------------------------------------


async def _fill_in(person: Person, form: ElicitationRequest) -> dict[str, Any]:
    """Return the values of a form, asked for field by field until each is valid."""
    content: dict[str, Any] = {}
    required = form.schema.get("required")
    for name, about in form.schema["properties"].items():
        is_required = isinstance(required, list) and name in required
        has_value, value = await _field(person, form, name, about, is_required)
        if has_value:
            content[name] = value
    return content


async def _field(
    person: Person, form: ElicitationRequest, name: str, about: Mapping[str, Any], is_required: bool
) -> tuple[bool, Any]:
    """Ask for a field until the answer is valid; return whether there is a value, and the value."""
    choices = _choices(about)
    question = f"  {_line(name)}{_line(_described(about, choices, is_required))}"
    for number, (value, title) in enumerate(choices, 1):
        label = title if title == value else f"{title} ({value})"
        question += f"\n    {number} {_line(label)}"
    question = _wrapped(question) + ("\n  > " if choices else " > ")
    while True:
        said = await person.ask(question)
        if not said:
            if form.defaults.get(name) is not None:
                return True, form.defaults[name]
            if not is_required:
                return False, None
            _complain(name, ["is required"])
            continue
        try:
            value = _read(said, about, choices)
            issues = form.issues(name, value)
        except (ValueError, UsageError) as error:
            issues = [str(error)]
        if not issues:
            return True, value
        _complain(name, issues)


def _complain(name: str, issues: Sequence[str]) -> None:
    _write(f"    {_line(name)} {_line('; '.join(issues))}\n")


def _described(
    about: Mapping[str, Any], choices: Sequence[tuple[str, str]], is_required: bool
) -> str:
    """Return what a person has to know of a field, behind its name."""
    kind = str(about.get("type", ""))
    is_plain = kind == "string" and (choices or about.get("format"))
    words = [str(about.get("format", ""))] if is_plain else [_KINDS.get(kind, kind)]
    words += _bounds(about)
    if about.get("default") is not None:
        words.append(f"default {in_words(about['default'])}")
    elif not is_required:
        words.append("may be left out")
    texts = [about.get("title"), about.get("description")]
    said = ": ".join(text for text in texts if isinstance(text, str) and text)
    known = ", ".join(word for word in words if word)
    return (f" ({known})" if known else "") + (f" {said}" if said else "")


def _bounds(about: Mapping[str, Any]) -> list[str]:
    least, most = about.get("minimum"), about.get("maximum")
    if least is not None and most is not None:
        return [f"{in_words(least)} to {in_words(most)}"]
    if least is not None:
        return [f"at least {in_words(least)}"]
    return [] if most is None else [f"at most {in_words(most)}"]


def _choices(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the values that a field can have, each with the title that people read."""
    items = about.get("items") if about.get("type") == "array" else about
    if not isinstance(items, Mapping):
        return []
    values = items.get("enum")
    if isinstance(values, list):
        names = about.get("enumNames")
        named = names if isinstance(names, list) and len(names) == len(values) else values
        return [(str(value), str(name)) for value, name in zip(values, named, strict=True)]
    options = items.get("oneOf", items.get("anyOf"))
    if not isinstance(options, list):
        return []
    return [
        (str(each["const"]), str(each.get("title", each["const"])))
        for each in options
        if isinstance(each, Mapping) and "const" in each
    ]


def _read(text: str, about: Mapping[str, Any], choices: Sequence[tuple[str, str]]) -> Any:
    """Return what a person wrote, as the type of its field.

    Raises:
        ValueError: it is not of that type; says which one is expected.
    """
    kind = about.get("type")
    if kind == "array":
        return [_chosen(each.strip(), choices) for each in text.split(",") if each.strip()]
    if choices:
        return _chosen(text, choices)
    if kind == "string":
        return text
    if kind == "boolean":
        if text.lower() not in (*_YES, *_NO):
            raise ValueError("is yes or no")
        return text.lower() in _YES
    if kind in ("integer", "number"):
        return _number(text, kind)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _number(text: str, kind: str) -> int | float:
    try:
        number = orjson.loads(text)
    except orjson.JSONDecodeError:
        number = None
    if type(number) is int or (type(number) is float and kind == "number"):
        return number
    raise ValueError(f"is a {_KINDS[kind]}")


def _chosen(text: str, choices: Sequence[tuple[str, str]]) -> str:
    """Return the value of a choice, named by its number, value or title."""
    for value, title in choices:
        if text in (value, title):
            return value
    if text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= len(choices):
        return choices[int(text) - 1][0]
    if choices:
        raise ValueError(f"is one of the numbers from 1 to {len(choices)}")
    return text


def _line(text: str) -> str:
    return printable_line(text[:_MAX_SHOWN])


# -- the person who waits -----------------------------------------------------------------------

_HOUR = 3600.0
"""Seconds that a person has for an answer; meanwhile no deadline of the client runs."""

_WHO = "the server"


@define(eq=False)
class Attendance:
    """Asks the person in turn, and shows the request meanwhile.

    Args:
        view: of the request.
    """

    view: LiveView
    _person: Person = field(factory=Person)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def settings(self) -> Mapping[str, Any]:
        """Return the options of `connect` with which the server can ask and report."""
        return {
            "elicitation": self._fill_in,
            "elicitation_url": self._visit,
            "sampling": self._sample,
            "handler_timeout": _HOUR,
            "on_log": self.view.log,
            "log_level": "info",
        }

    async def _fill_in(self, request: ElicitationRequest) -> ElicitResult[Any]:
        async with self._asking():
            return await ask_form(self._person, _WHO, request.message, request.schema)

    async def _visit(self, request: ElicitationUrlRequest) -> ElicitResult[Any]:
        async with self._asking():
            return await ask_page(self._person, _WHO, request)

    async def _sample(self, request: SamplingRequest) -> SampleResult | None:
        async with self._asking():
            return await answer_as_model(self._person, _WHO, request)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Leave the terminal to one question at a time."""
        async with self._turn:
            self.view.pause()
            try:
                yield
            finally:
                self.view.begin()
