"""The representation that most classes of the runtime share."""

from __future__ import annotations

from reprlib import recursive_repr
from typing import Any, ClassVar


class Shown:
    """Shows the public attributes of an instance, in a failing test or a debugger.

    Written once, because attrs would take 0.35 ms of the start to generate it for each class.
    """

    __slots__ = ()

    @recursive_repr()
    def __repr__(self) -> str:
        names = [
            name
            for cls in reversed(type(self).__mro__)
            for name in getattr(cls, "__slots__", ())
            if not name.startswith("_")
        ]
        shown = ", ".join(f"{name}={getattr(self, name, ...)!r}" for name in names)
        return f"{type(self).__name__}({shown})"


class Compared(Shown):
    """Compares instances of a frozen attrs class by value, as attrs would; see `Shown`."""

    __slots__ = ()
    __attrs_attrs__: ClassVar[Any]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, each.name) for each in self.__attrs_attrs__ if each.eq)
