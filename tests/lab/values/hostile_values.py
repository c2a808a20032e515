"""Hostile values and exceptions of handlers: any use of one raises.

They are in a module of their own because pytest inspects every name in a test module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foundation_rt import ErrorCode, ToolError
from foundation_rt.protocol.content import Text


class Hostile(BaseException):
    """Derived from `BaseException`, so that an `except Exception` lets it pass."""


def explode(*_: Any) -> Any:
    raise Hostile


class ClassRaises:
    __class__ = property(explode)  # type: ignore[assignment]


class EverythingRaises:
    __class__ = __attrs_attrs__ = __dataclass_fields__ = property(explode)  # type: ignore
    __len__ = __iter__ = __repr__ = __str__ = __getattr__ = explode  # type: ignore[assignment]
    __await__ = __eq__ = __hash__ = model_dump = explode  # type: ignore[assignment]


class MetaRaises(type):
    __attrs_attrs__ = __dataclass_fields__ = __name__ = property(explode)  # type: ignore
    __subclasscheck__ = __instancecheck__ = explode  # type: ignore[assignment]


class MadeByMeta(metaclass=MetaRaises):
    pass


class ListRaises(list[int]):
    __len__ = __iter__ = __getitem__ = __bool__ = explode  # type: ignore[assignment]


class BlockRaises(Text):
    to_wire = explode


RESULTS: list[Callable[[], Any]] = [
    lambda: ClassRaises(),
    lambda: EverythingRaises(),
    lambda: MadeByMeta(),
    lambda: ListRaises([1]),
    lambda: [ClassRaises()],
    lambda: {"nested": [EverythingRaises()]},
    lambda: [Text("first"), EverythingRaises()],
    lambda: BlockRaises("text"),
]


class ErrorClassRaises(Exception):
    __class__ = __traceback__ = args = property(explode)  # type: ignore[assignment]
    __str__ = __repr__ = explode  # type: ignore[assignment]


class ErrorOfMeta(Exception, metaclass=MetaRaises):
    pass


class DetailsRaise(ToolError):
    code = message = details = property(explode)  # type: ignore[assignment]

    def __init__(self) -> None:
        pass


class UnknownCode(ToolError):
    def to_structured(self) -> Any:
        explode()


ENDINGS: list[Callable[[], BaseException]] = [
    lambda: ErrorClassRaises(),
    lambda: ErrorOfMeta(),
    lambda: DetailsRaise(),
    lambda: UnknownCode(ErrorCode.NOT_FOUND, "no"),
    lambda: ToolError(ErrorCode.NOT_FOUND, "no", {"value": EverythingRaises()}),
]
