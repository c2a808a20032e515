"""The arguments of a tool that the HTTP headers `Mcp-Param-*` repeat (SEP-2243).

The schema is a server's: it may be none at all, and still its annotations decide whether the tool
may be shown (CTOOL-09). So they are looked for without compiling it, along every keyword that any
dialect knows, and without recursion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...base.jsonschema.dialects import HEADER_KEYWORD, SHAPES_IN, dialects_with, subschemas
from ...base.jsonschema.header_params import HeaderParameter, header_parameters
from ...base.jsonschema.issues import ValidationIssue, place, step
from ...errors import RegistrationError

MAX_INTEGER: Final = 2**53 - 1
"""The largest integer that every intermediary reads as it is (MCP 2026-07-28, `x-mcp-header`)."""

_UNFIT: Final = f"must be text, true, false or an integer up to {MAX_INTEGER}: a header repeats it"


def find_parameters(schema: Mapping[str, Any]) -> tuple[HeaderParameter, ...]:
    """Return the arguments that headers repeat.

    Args:
        schema: the input schema of a tool, as it came.

    Raises:
        RegistrationError: an annotation breaks the rules of SCHEMA-23; the message names its place.
    """
    places = []
    for at, name in _annotations(schema):
        if type(name) is not str:
            raise RegistrationError(f"{place(at)}: `{HEADER_KEYWORD}` must be a string")
        places.append(at)
    try:
        return header_parameters(schema, places) if places else ()
    except RecursionError:
        raise RegistrationError(f"`{HEADER_KEYWORD}` stands too deep in the schema") from None


def _annotations(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each annotation in `schema`, with the place of its own schema."""
    pending: list[tuple[Any, str]] = [(schema, "")]
    while pending:
        one, at = pending.pop()
        if type(one) is not dict:
            continue
        if HEADER_KEYWORD in one:
            yield at, one[HEADER_KEYWORD]
        for keyword, value in one.items():
            if type(value) is dict or type(value) is list:
                for dialect in dialects_with(keyword, value)[:1]:
                    shape = SHAPES_IN[dialect][keyword]
                    pending.extend(subschemas(shape, value, step(at, keyword)))


def header_texts(
    parameters: tuple[HeaderParameter, ...], arguments: Mapping[str, Any]
) -> tuple[dict[str, str], list[ValidationIssue]]:
    """Return the headers, name to text, not yet encoded; and the values that fit in none.

    A value that is absent or null has no header (CTOOL-10).
    """
    texts: dict[str, str] = {}
    issues: list[ValidationIssue] = []
    for name, path, _ in parameters:
        value = _value_at(arguments, path)
        if value is None:
            continue
        text = _text(value)
        if text is None:
            issues.append(ValidationIssue(_pointer(path), _UNFIT))
        else:
            texts[name] = text
    return texts, issues


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(key)
    return arguments


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and abs(value) <= MAX_INTEGER:
        return str(value)
    return None


def _pointer(path: tuple[str, ...]) -> str:
    pointer = ""
    for key in path:
        pointer = step(pointer, key)
    return pointer
