"""Results of servers as pages for people (CLI-17, CLI-18).

A list is shown as the server has sent it. A member of a wrong type is left out and nothing fails:
a server with a wrong description is one that people want to look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from ..base.exact_json import loads
from ..base.tool_versions import DEPRECATED_KEY, SEPARATOR, VERSIONS_KEY
from ..protocol.content import (
    Audio,
    BlobContents,
    EmbeddedResource,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
)
from .json_schemas import kind_of, properties_of
from .render import Heading, Json, Page, Paragraph, Part, Payload, Table

if TYPE_CHECKING:
    from ..client.results.content import Content
    from ..client.results.results import CallResult, GetPromptResult, ReadResult

MAX_PROPERTIES = 200
"""The most properties of a tool that are shown: a schema can nest any number of them."""

_HINTS = {
    "readOnlyHint": ("changes things", "reads only"),
    "destructiveHint": ("destroys nothing", "may destroy"),
    "idempotentHint": ("each call counts", "may be repeated"),
    "openWorldHint": ("stays inside", "reaches outside"),
}

_KEYS = {"resources": "uri", "resourceTemplates": "uriTemplate"}
"""The members that name the entries of lists, if it is not `name`."""

Wire = Mapping[str, Any]


def tool_list(tools: Sequence[Wire]) -> Page:
    """Return the tools of a server, one line for each."""
    rows = [*_tool_rows(tools)]
    return [Table(rows)] if rows else [Paragraph("no tools")]


def _tool_rows(tools: Sequence[Wire]) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each tool, and of each older version of it."""
    named = set[str]()
    for tool in tools:
        name, version = _text(tool, "name"), _text(tool, "version")
        yield f"{name}{SEPARATOR}{version}" if name in named else name, _in_short(tool)
        named.add(name)
        meta = tool.get("_meta")
        older = meta.get(VERSIONS_KEY) if isinstance(meta, dict) else None
        for each, wire in older.items() if isinstance(older, dict) else ():
            if isinstance(wire, dict):
                yield f"{name}{SEPARATOR}{each}", _in_short(wire)


def tool_details(tool: Wire) -> Iterator[Part]:
    """Yield a tool with its schemas, readable."""
    yield Heading(_text(tool, "name"), _title(tool))
    yield from _paragraph(_text(tool, "description"))
    yield from _schema("takes", tool.get("inputSchema"))
    if tool.get("outputSchema") is not None:
        yield from _schema("returns", tool["outputSchema"])
    annotations = tool.get("annotations")
    said = annotations if isinstance(annotations, dict) else {}
    hints = [words[said[name] is True] for name, words in _HINTS.items() if name in said]
    yield from _paragraph(", ".join(hints))


def call_report(result: CallResult) -> Page:
    """Return the result of a tool; its structured result once, though many servers repeat it."""
    if result.is_wrapped:
        value = result.value()
        return [Payload(value) if type(value) is str else Json(value)]
    parts = [part for block in result.content for part in _block(block)]
    if result.has_structured:
        parts = [part for part in parts if not _says(part, result.structured)]
        parts.append(Json(result.structured))
    return parts


def read_report(result: ReadResult) -> Page:
    """Return the contents of a resource; of several, each with its URI."""
    if len(result.contents) == 1:
        return [_contents(result.contents[0])]
    return [
        part
        for each in result.contents
        for part in (Heading(each.uri, each.mime_type or ""), _contents(each))
    ]


def prompt_report(result: GetPromptResult) -> Page:
    """Return the messages of a prompt, each under its role."""
    parts: list[Part] = [*_paragraph(result.description or "")]
    for message in result.messages:
        parts += [Heading(message.role), *_block(message.content)]
    return parts


def ping_report(sent: int, lost: int, times: Mapping[str, float]) -> Page:
    """Return the round-trip times of a server: `times` in ms, by name; none without a response."""
    answered = Paragraph(f"{sent - lost} of {sent} answered")
    return [answered, Table([(name, f"{ms:.3f} ms") for name, ms in times.items()])]


def listed(name: str, entries: Sequence[Wire], *, whole: bool = True) -> Iterator[Part]:
    """Yield a list of a server under its name.

    Args:
        name: of the list, such as `tools`.
        entries: as the server has sent them.
        whole: tools and prompts are shown with what they take; otherwise each is a line.
    """
    yield Heading(title_of(name), str(len(entries)))
    details = {"tools": tool_details, "prompts": prompt_details}.get(name) if whole else None
    if details is not None:
        for each in entries:
            yield from details(each)
    elif name == "tools":
        yield from tool_list(entries)
    else:
        yield from entry_list(entries, _KEYS.get(name, "name"))


def title_of(name: str) -> str:
    """Return the heading of a list."""
    return "RESOURCE TEMPLATES" if name == "resourceTemplates" else name.upper()


def entry_list(entries: Sequence[Wire], key: str) -> Iterator[Part]:
    """Yield resources or templates, one line for each; the member `key` names an entry."""
    rows = [(_text(each, key), _text(each, "mimeType"), _in_short(each)) for each in entries]
    yield Table(rows)


def prompt_details(prompt: Wire) -> Iterator[Part]:
    """Yield a prompt with its arguments."""
    yield Heading(_text(prompt, "name"), _title(prompt))
    yield from _paragraph(_text(prompt, "description"))
    listed = prompt.get("arguments")
    arguments = listed if isinstance(listed, list) else []
    rows = [
        (
            f"  {_text(each, 'name')}",
            "required" if each.get("required") is True else "",
            _one_line(_text(each, "description")),
        )
        for each in arguments
        if isinstance(each, dict)
    ]
    if rows:
        yield Table(rows)


def capability_list(capabilities: Wire) -> str:
    """Return the capabilities of a server in a line: `tools (listChanged), completions`."""
    return ", ".join(map(_capability, capabilities.items()))


def _capability(item: tuple[str, Any]) -> str:
    name, details = item
    said = [key for key, value in details.items() if value] if isinstance(details, dict) else []
    return f"{name} ({', '.join(said)})" if said else name


def _schema(title: str, schema: Any) -> Iterator[Part]:
    """Yield the schema of arguments or results: its properties, or its kind in a word."""
    shown = [*islice(properties_of(schema), MAX_PROPERTIES + 1)]
    if not shown:
        yield Paragraph(f"{title} {kind_of(schema)}")
        return
    yield Paragraph(f"{title}:")
    rows = [
        (f"  {each.name}", each.kind, each.presence, _one_line(each.description))
        for each in shown[:MAX_PROPERTIES]
    ]
    yield Table(rows)
    if len(shown) > MAX_PROPERTIES:
        yield Paragraph("  and more, which --json shows")


def _block(block: Content) -> Iterator[Part]:
    match block:
        case Text():
            yield Payload(block.text)
        case Image() | Audio():
            yield Payload(block.data, block.mime_type)
        case ResourceLink():
            yield Table([(block.uri, block.title or block.name, block.description or "")])
        case EmbeddedResource():
            yield _contents(block.contents)
        case _:
            yield Json(block)


def _contents(contents: ResourceContents) -> Part:
    if isinstance(contents, BlobContents):
        return Payload(contents.blob, contents.mime_type)
    return Payload(contents.text, contents.mime_type)


def _says(part: Part, value: Any) -> bool:
    """Return whether a part is this value as JSON text."""
    if not isinstance(part, Payload) or isinstance(part.data, bytes):
        return False
    try:
        return bool(loads(part.data) == value)
    except orjson.JSONDecodeError:
        return False


def _paragraph(text: str) -> Iterable[Part]:
    return [Paragraph(text.strip())] if text.strip() else []


def _in_short(wire: Wire) -> str:
    """Return the first line of a description, else the title; and that it is deprecated."""
    first = _text(wire, "description").strip().split("\n", 1)[0]
    advice = "" if first.startswith("Deprecated: ") else _text(wire.get("_meta"), DEPRECATED_KEY)
    end = f" (deprecated: {advice})" if advice else ""
    return _one_line((first or _title(wire)) + end)


def _title(wire: Wire) -> str:
    annotations = wire.get("annotations")
    return _text(wire, "title") or _text(annotations, "title")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _text(wire: Any, member: str) -> str:
    value = wire.get(member) if isinstance(wire, dict) else None
    return value if isinstance(value, str) else ""
