"""Values of JSON of others: one of another type is as good as missing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Pieces(list[str]):
    """A text that arrives in pieces: one more costs nothing for those before it (LLM-119)."""

    def __str__(self) -> str:
        return "".join(self)


def whole(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object whose members that are `Pieces` are texts."""
    return {key: str(each) if isinstance(each, Pieces) else each for key, each in value.items()}


def string(value: Any) -> str:
    """Return a value if it is a string; else ""."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a value if it is an object; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a value that is a list."""
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping):
            yield each


def number(value: Any) -> int:
    """Return a value if it is a count; else 0."""
    return value if isinstance(value, int) and value >= 0 else 0


def index_of(value: Any) -> int | None:
    """Return a value if it is an index; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
