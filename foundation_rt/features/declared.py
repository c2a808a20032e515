"""The capabilities that an author names: experimental ones, and extensions.

A server that names none does not import this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from ..base.rich_values import problem_in
from ..errors import UsageError
from ..kernel.feature import RuntimeFeature
from .tasks.support import EXTENSION

Declaration = dict[str, dict[str, Any]]

_LABEL = "[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?"
_EXTENSION_NAME: Final = re.compile(
    rf"{_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
)


def read_experimental(given: object) -> Declaration:
    """Return a copy of the experimental capabilities, as they are sent (REV-13).

    Raises:
        UsageError: they are not an object of JSON whose members are objects.
    """
    return _copy_of("experimental", given, '{"asyncBatch": {}}')


def read_extensions(given: object) -> Declaration:
    """Return a copy of the settings of extensions, by their names, as they are sent (EXT-09).

    Raises:
        UsageError: a name has no prefix, or settings are not an object of JSON.
    """
    found = _copy_of("extensions", given, '{"com.example/reports": {}}')
    for name in found:
        if _EXTENSION_NAME.fullmatch(name) is None:
            raise UsageError(
                f"the extension {name!r} needs the reversed name of a domain of yours, a slash and"
                " a name: com.example/reports"
            )
    return found


def read_server_extensions(given: object) -> Declaration:
    """Return what `read_extensions` does, unless the runtime itself has one of them (TASK-01)."""
    found = read_extensions(given)
    if EXTENSION in found:
        raise UsageError(
            f"the server declares {EXTENSION} by itself as soon as a tool has tasks:"
            ' @server.tool(task="optional")'
        )
    return found


class Declared(RuntimeFeature):
    """Capabilities that the author names: experimental ones (REV-13), extensions (EXT-08)."""

    def __init__(self, member: str, declared: Mapping[str, Mapping[str, Any]]) -> None:
        self._member = member
        self._declared = declared

    def advertise(self, capabilities: dict[str, Any]) -> None:
        """Add them to the capabilities of the server."""
        capabilities[self._member] = {**capabilities.get(self._member, {}), **self._declared}


def _copy_of(argument: str, given: object, example: str) -> Declaration:
    if not isinstance(given, Mapping) or not all(
        isinstance(each, Mapping) for each in given.values()
    ):
        raise UsageError(f"{argument} is a mapping of mappings, as in {example}")
    try:
        written = orjson.dumps(given, default=_as_dict)
        problem = problem_in(given, _as_dict) if b"null" in written else None  # NaN is null, too
        if problem is not None:
            raise ValueError(problem)
        copy: Declaration = orjson.loads(written)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{argument} cannot be written as JSON: {error}") from None
    return copy


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")
