"""The answers of a host without a model, by rules (LLM-80 to LLM-88). Pure.

Equal chats give equal answers: all state is in the history.

A question ends in the call so far, with a `?` for what it asks: the next message is read with it.
Only an answer to what the user said can be a question; text that a result brought in never is.

Results of tools are shown as Markdown (LLM-86).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from ....base.exact_json import loads, loads_bounded
from ....features.tool_search.ranking import SearchableTool, search, words_of
from ..chat import ChatMessage, Role
from .commands import (
    CommandError,
    Parameter,
    read_command,
    read_parameters,
    read_value,
    usage_of,
    write_command,
)
from .service import ModelTool

NO_MODEL = "I am no language model: I call the tools that you name."
HOW_TO_SET_ONE = (
    "For a language model set `GEMINI_API_KEY`, `ANTHROPIC_API_KEY` or `OPENAI_API_KEY` in `.env`"
    " (for one of your own, such as Ollama, `LLM_PROVIDER=openai` and `LLM_BASE_URL`), and start"
    " the host again."
)
HELP = """{no_model}

- `tools` lists the tools; `tools WORD` those with a word.
- `/server:tool key=value` calls a tool. I ask for what is missing.
- Other words list the tools that have them.
- `help` shows this.{example}

{how_to_set_one}"""

_MAX_LISTED = 50
_MAX_OFFERED = 5
_FILLER = 3  # characters: words as short as "the" say nothing of a tool
_QUESTION = re.compile(r"\n`(/.*)`\Z")
_LEAVE = {"cancel", "stop", "never mind", "nevermind", "abort", "no", "quit"}


@frozen
class Call:
    """The tool to call, and its arguments."""

    tool: ModelTool
    arguments: Mapping[str, Any]


def answer(history: Sequence[ChatMessage], tools: Sequence[ModelTool]) -> str | Call:
    """Return what to say, or the tool to call."""
    chat = [message for message in history if message.role is not Role.SYSTEM]
    if not chat:
        return _help(tools)
    if chat[-1].role is Role.TOOL:
        return _results(chat)
    if chat[-1].role is not Role.USER:
        return "Go on: `help` says what I can do."
    said = (chat[-1].content or "").strip()
    word = said.lower().strip(" .!?")
    if word in ("help", "/help", "") or said == "?":
        return _help(tools)
    if word in ("tools", "/tools") or word.startswith(("tools ", "/tools ")):
        return _list_tools(said.lstrip("/")[len("tools") :].strip(), tools)
    try:
        if said.startswith("/"):
            command = read_command(said, tools)
            return _call_or_ask(command.tool, command.arguments, command.asked)
        question = _open_question(chat)
        if question is not None:
            return _read_answer(said, question, tools)
    except CommandError as error:
        return str(error)
    return _nearest(said, tools)


# -- what the user wants


def _nearest(said: str, tools: Sequence[ModelTool]) -> str:
    """Offer the tools that have words of a text (LLM-82)."""
    words = " ".join(each for each in words_of(said) if len(each) > _FILLER)
    offered = "\n".join(f"- {_line(tool)}" for tool in _found(words, tools)[:_MAX_OFFERED])
    if offered:
        return f"These tools are the nearest:\n\n{offered}\n\n{NO_MODEL}"
    return (
        f"I found no tool for that. {NO_MODEL} `tools` lists them, `help` says more.\n\n"
        f"{HOW_TO_SET_ONE}"
    )


def _found(words: str, tools: Sequence[ModelTool]) -> list[ModelTool]:
    """Return the tools that have a word, the best first, as the gateway's search ranks them."""
    if not words_of(words):
        return []
    by_name = {tool.name: tool for tool in tools}
    known = (SearchableTool(tool.name, "", {"description": tool.description}) for tool in tools)
    return [by_name[found.name] for found in search(known, words)]


def _call_or_ask(
    tool: ModelTool, arguments: Mapping[str, Any], asked: str | None = None
) -> str | Call:
    """Call the tool, or ask for what it lacks (LLM-85)."""
    parameters = read_parameters(tool.parameters)
    lacking = [each for each in parameters if each.is_required and each.name not in arguments]
    wanted = [each for each in parameters if each.name == asked and asked not in arguments]
    if lacking or wanted:
        return _question(tool, arguments, (wanted or lacking)[0])
    return Call(tool, arguments)


def _question(
    tool: ModelTool, arguments: Mapping[str, Any], parameter: Parameter, problem: str = ""
) -> str:
    description = f" {parameter.description[:500]}" if parameter.description else ""
    return (
        f"{problem}`{tool.name}` needs **{parameter.name}**, {parameter.expected}.{description}\n\n"
        "What shall it be? (`cancel` leaves it.)\n"
        f"`{write_command(tool, arguments, parameter.name)}`"
    )


def _open_question(chat: Sequence[ChatMessage]) -> str | None:
    """Return the call that the last answer asks to complete; None if it asks nothing."""
    said: list[str] = []
    for message in reversed(chat[:-1]):
        if message.role is Role.USER:
            break
        if message.role is not Role.ASSISTANT or message.is_call:
            return None
        said.append(message.content or "")
    found = _QUESTION.search("".join(reversed(said)))
    return None if found is None else found[1]


def _read_answer(said: str, question: str, tools: Sequence[ModelTool]) -> str | Call:
    command = read_command(question, tools)
    if command.asked is None:
        return _nearest(said, tools)  # a call that somebody has shown is no question
    parameters = {each.name: each for each in read_parameters(command.tool.parameters)}
    parameter = parameters[command.asked]
    if said.lower().strip(" .!") in _LEAVE and not _is_value(said, parameter):
        return "Left. What else?"
    try:
        value = read_value(parameter, said)
    except ValueError:
        return _question(command.tool, command.arguments, parameter, "That does not fit. ")
    return _call_or_ask(command.tool, {**command.arguments, parameter.name: value})


def _is_value(said: str, parameter: Parameter) -> bool:
    """Tell whether a word that leaves a question answers it: "no" to a yes or no."""
    if parameter.type != "boolean" and not parameter.choices:
        return False
    try:
        read_value(parameter, said)
    except ValueError:
        return False
    return True


# -- what the rules say


def _help(tools: Sequence[ModelTool]) -> str:
    example = f"\n\nTry {usage_of(tools[0])}." if tools else "\n\nThere are no tools at the moment."
    return HELP.format(no_model=NO_MODEL, example=example, how_to_set_one=HOW_TO_SET_ONE)


def _list_tools(wanted: str, tools: Sequence[ModelTool]) -> str:
    found = _found(wanted, tools) if wanted else list(tools)
    if not found:
        return f"No tool has {wanted[:100]!r}." if wanted else "There are no tools at the moment."
    shown = "\n".join(f"- {_line(tool)}" for tool in found[:_MAX_LISTED])
    more = len(found) - _MAX_LISTED
    return shown + (f"\n\n… and {more} more: `tools WORD` finds them." if more > 0 else "")


def _line(tool: ModelTool) -> str:
    description = " ".join(tool.description.split())
    first = re.split(r"(?<=[.!?])\s", description, maxsplit=1)[0][:200]
    return f"{usage_of(tool)}: {first}" if first else usage_of(tool)


def _results(chat: Sequence[ChatMessage]) -> str:
    """Say the results at the end of the chat (LLM-86, LLM-87)."""
    results: list[ChatMessage] = []
    for message in reversed(chat):
        if message.role is not Role.TOOL:
            break
        results.insert(0, message)
    return "\n\n".join(_result(message) for message in results)


def _result(message: ChatMessage) -> str:
    data = message.data if isinstance(message.data, Mapping) else {}
    error = data.get("error")
    if isinstance(error, Mapping):
        code = f" ({error['code']})" if error.get("code") else ""
        return f"`{message.tool_name}` failed: {error.get('message', 'no reason given')}{code}"
    result = data.get("result")
    content = message.content or ""
    if not isinstance(result, Mapping):
        return render_text(content) or f"`{message.tool_name}` is done."
    texts = _texts(result) or content
    if result.get("isError"):
        return f"`{message.tool_name}` failed: {_error_text(texts)}"
    structured = result.get("structuredContent")
    if isinstance(structured, Mapping) and list(structured.values()) == [texts]:
        return render_text(texts)
    if structured is not None:
        only = isinstance(structured, Mapping) and structured.keys() == {"result"}
        return render(structured["result"] if only else structured)
    return render_text(texts) or f"`{message.tool_name}` is done; its result is in the card."


def _texts(result: Mapping[str, Any]) -> str:
    blocks = result.get("content")
    if not isinstance(blocks, list):
        return ""
    texts = [b["text"] for b in blocks if isinstance(b, Mapping) and isinstance(b.get("text"), str)]
    return "\n\n".join(texts)


def _error_text(text: str) -> str:
    """Return the message of a tool error in JSON, else the text."""
    shown = render_text(text)
    try:
        error = loads(text)
    except ValueError:
        return shown
    inner = error.get("error", error) if isinstance(error, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("message"), str):
        return shown
    code = f" ({inner['code']})" if isinstance(inner.get("code"), str) else ""
    return f"{inner['message']}{code}"


MAX_ROWS = 50
MAX_COLUMNS = 10
MAX_CELL = 200
_MAX_TEXT = 20_000


def render(value: Any) -> str:
    """Return a value of JSON: objects and lists of objects as tables."""
    if isinstance(value, Mapping):
        return _render_object(value)
    if isinstance(value, list):
        return _render_list(value)
    return value[:_MAX_TEXT] if isinstance(value, str) else f"`{_json(value)}`"


def render_text(text: str) -> str:
    """Return a text, which may be JSON."""
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        try:
            return render(loads_bounded(stripped))
        except ValueError:
            pass
    return text[:_MAX_TEXT]


def _render_object(value: Mapping[str, Any]) -> str:
    if not value:
        return "(nothing)"
    plain = {key: each for key, each in value.items() if not _is_rows(each)}
    parts = [_table(("Field", "Value"), [(_cell(key), _cell(each)) for key, each in plain.items()])]
    parts = parts if plain else []
    for key, each in value.items():
        if _is_rows(each):
            heading = f"**{_cell(key)}**\n\n" if len(value) > 1 else ""
            parts.append(heading + _render_list(each))
    return "\n\n".join(parts)


def _is_rows(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)
    )


def _render_list(values: Sequence[Any]) -> str:
    if not values:
        return "(nothing)"
    shown = values[:MAX_ROWS]
    more = f"\n\n… and {len(values) - MAX_ROWS} more." if len(values) > MAX_ROWS else ""
    if not _is_rows(list(shown)):
        return "\n".join(f"- {_cell(each)}" for each in shown) + more
    columns = list(dict.fromkeys(key for row in shown for key in row))
    if len(columns) > MAX_COLUMNS:
        more += f"\n\n{len(columns) - MAX_COLUMNS} more columns are not shown."
        columns = columns[:MAX_COLUMNS]
    rows = [tuple(_cell(row.get(column, "")) for column in columns) for row in shown]
    return _table(tuple(_cell(column) for column in columns), rows) + more


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    text = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def _json(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping) and not any(
        isinstance(v, Mapping | list) for v in value.values()
    ):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    return json.dumps(value, ensure_ascii=False, default=str)
