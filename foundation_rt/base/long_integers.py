"""Integers beyond 64 bits, which orjson refuses to write; see `exact_json.dumps`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import orjson

_PLAIN: Final = frozenset((int, dict, list, tuple))
_MIN: Final = -(2**63)
_MAX: Final = 2**64 - 1


class LongIntegers:
    """Replaces every integer beyond 64 bits by its digits, in what orjson writes by itself."""

    __slots__ = ("_default", "_option")

    def __init__(self, default: Callable[[Any], Any] | None, option: int) -> None:
        self._default = default
        self._option = option

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind is bool or (self._option & orjson.OPT_PASSTHROUGH_SUBCLASS and kind not in _PLAIN):
            return value
        if isinstance(value, int):
            return value if _MIN <= value <= _MAX else orjson.Fragment(str(int(value)))
        if isinstance(value, dict):
            return {name: self.of(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(one) for one in value]
        if isinstance(value, Enum):
            return self.of(value.value)
        names = getattr(kind, "__dataclass_fields__", None)
        if names is None or self._option & orjson.OPT_PASSTHROUGH_DATACLASS:
            return value
        # As orjson does, without the fields that begin with an underscore.
        return {name: self.of(getattr(value, name)) for name in names if name[:1] != "_"}

    def default(self, value: Any) -> Any:
        if self._default is None:
            raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
        return self.of(self._default(value))
