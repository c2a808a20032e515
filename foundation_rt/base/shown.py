"""The representation that most classes of the runtime share."""

from __future__ import annotations

from reprlib import recursive_repr


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
