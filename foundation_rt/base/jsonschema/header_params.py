"""Arguments that HTTP headers repeat: `x-mcp-header` in the input schema of a tool (SEP-2243).

A client must drop a tool whose annotations break the rules of the specification, so a server must
never advertise one: registration refuses it (SCHEMA-23).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from string import ascii_letters, digits
from typing import Any, Final, NamedTuple

from ...errors import RegistrationError
from .dialects import HEADER_KEYWORD
from .issues import place, step

_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~" + digits + ascii_letters)
"""The characters of a header's name (RFC 9110, 5.6.2)."""

_TYPES: Final = ("boolean", "integer", "string")


class HeaderParameter(NamedTuple):
    """An argument that the header `Mcp-Param-{name}` repeats.

    Attributes:
        name: the last part of the header's name.
        path: the keys of its value in the arguments.
        type: `boolean`, `integer` or `string`.
    """

    name: str
    path: tuple[str, ...]
    type: str


def header_parameters(
    schema: Mapping[str, Any], places: Iterable[str]
) -> tuple[HeaderParameter, ...]:
    """Return the arguments that headers repeat, checked.

    Args:
        schema: the input schema of a tool. It need not compile; its annotations are strings.
        places: the places of its `x-mcp-header` annotations, from the analysis.

    Raises:
        RegistrationError: the place or the name of one is not allowed (SCHEMA-23).
    """
    found = list(_reachable(schema, "", ()))
    reachable = {at for at, _ in found}
    for at in places:
        if at not in reachable:
            raise _refusal(at, "may stand on properties only, reached through `properties` alone")
    taken: set[str] = set()
    for at, (name, _, kind) in found:
        if not name or not _TOKEN.issuperset(name):
            raise _refusal(at, "must be a token: letters, digits, and any of !#$%&'*+-.^_`|~")
        if kind not in _TYPES:
            raise _refusal(at, f"needs a `type` beside it that is one of {', '.join(_TYPES)}")
        if name.lower() in taken:
            raise _refusal(at, f"{name!r} is there twice, and the case of letters does not count")
        taken.add(name.lower())
    return tuple(parameter for _, parameter in found)


def _reachable(
    schema: Mapping[str, Any], at: str, path: tuple[str, ...]
) -> Iterator[tuple[str, HeaderParameter]]:
    if path and HEADER_KEYWORD in schema:
        yield at, HeaderParameter(schema[HEADER_KEYWORD], path, schema.get("type", ""))
    properties = schema.get("properties")
    for key, one in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(one, Mapping):
            yield from _reachable(one, step(step(at, "properties"), key), (*path, key))


def _refusal(at: str, why: str) -> RegistrationError:
    return RegistrationError(f"{place(at)}: `{HEADER_KEYWORD}` {why}")
