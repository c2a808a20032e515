"""YAML with the values of JSON, read by the rules of YAML 1.2 (extras `openapi` and `skills`).

PyYAML makes values by the rules of YAML 1.1, where `no` is false, `010` is eight and `2020-01-01` a
date, and takes 2 s for a MiB. So only its events are used, which libyaml makes in C. A value is
counted before it is kept, an alias with all that it stands for, and nothing recurs (OAPI-02).
"""

from __future__ import annotations

import re
from math import isinf
from typing import Any, Final

import yaml

_PREFIX: Final = "tag:yaml.org,2002:"
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_BYTES: Final = (16 if hasattr(yaml, "CSafeLoader") else 1) << 20
_MAX_DIGITS: Final = 400

_CONSTANTS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NUMERIC: Final = frozenset("-+.0123456789")
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "str": str,
    "bool": bool,
    "int": int,
    "float": (int, float),
    "null": type(None),
}
"""The values of scalars by the tags that JSON has."""


def parse_yaml(text: bytes, *, max_values: int, max_depth: int) -> Any:
    """Return the value of a text in YAML, which has values of JSON only (OAPI-02).

    Args:
        text: in UTF-8.
        max_values: the most values, aliases written out.
        max_depth: the most levels.

    Raises:
        ValueError: it is not such a text; says why.
    """
    if len(text) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES >> 20} MiB: write it in JSON")
    try:
        loader = _Loader(text.decode())
        try:
            return _Composer(max_values, max_depth).value_of(loader)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None


class _Open:
    """A mapping or a sequence that has not ended.

    Attributes:
        value: what is in it so far.
        anchor: the name by which aliases refer to it; None if it has none.
        before: the number of values before it.
        key: of the member whose value comes next; None: its key comes next.
        height: the levels in it.
    """

    __slots__ = ("anchor", "before", "height", "key", "value")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None, before: int) -> None:
        self.value = value
        self.anchor = anchor
        self.before = before
        self.key: str | None = None
        self.height = 0


class _Composer:
    """Makes the value of one document from its events."""

    def __init__(self, max_values: int, max_depth: int) -> None:
        self.max_values = max_values
        self.max_depth = max_depth
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int, int] | None] = {}
        self.count = 0
        self.documents = 0
        self.found: Any = None

    def value_of(self, loader: Any) -> Any:
        """Return the value of the only document."""
        next_event = loader.get_event
        while True:
            event = next_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent:
                self._begin({}, event, "map")
            elif kind is yaml.SequenceStartEvent:
                self._begin([], event, "seq")
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event.anchor)
            elif kind is yaml.DocumentStartEvent:
                self.documents += 1
                if self.documents > 1:
                    raise ValueError("it has more than one document")
            elif kind is yaml.StreamEndEvent:
                return self.found

    def _scalar(self, event: Any) -> None:
        self._counted(1)
        if self._takes_key():
            if event.value == "<<":
                raise ValueError("merge keys (`<<`) are no part of YAML 1.2: write them out")
            value: Any = event.value  # as it is written: status codes are texts in JSON
            self.open[-1].key = value
        elif event.tag is None:
            value = _resolved(event.value) if event.implicit[0] else event.value
            self._add(value)
        else:
            value = _tagged(event.tag, event.value)
            self._add(value)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1, 0)

    def _begin(self, value: Any, event: Any, tag: str) -> None:
        if event.tag not in (None, "!", f"{_PREFIX}{tag}"):
            raise ValueError(f"it has a value that JSON lacks: {event.tag[:100]}")
        if self._takes_key():
            raise ValueError("it has a key that is no scalar")
        if len(self.open) >= self.max_depth:
            raise ValueError(f"it is nested deeper than {self.max_depth} levels")
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.open.append(_Open(value, event.anchor, self.count))
        self._counted(1)

    def _end(self) -> None:
        ended = self.open.pop()
        if ended.anchor is not None:
            self.anchors[ended.anchor] = (ended.value, self.count - ended.before, ended.height + 1)
        self._add(ended.value, ended.height + 1)

    def _alias(self, anchor: str) -> None:
        if anchor not in self.anchors:
            raise ValueError(f"the alias {anchor[:100]!r} refers to nothing")
        target = self.anchors[anchor]
        if target is None:
            raise ValueError("an alias refers to what it is in")
        value, size, height = target
        self._counted(size)
        if len(self.open) + height > self.max_depth:
            raise ValueError(f"it is nested deeper than {self.max_depth} levels")
        if not self._takes_key():
            self._add(value, height)
        elif isinstance(value, str):
            self.open[-1].key = value
        else:
            raise ValueError("it has a key that is no text")

    def _takes_key(self) -> bool:
        return bool(self.open) and self.open[-1].key is None and type(self.open[-1].value) is dict

    def _add(self, value: Any, height: int = 0) -> None:
        if not self.open:
            self.found = value
            return
        around = self.open[-1]
        if isinstance(around.value, list):
            around.value.append(value)
        elif around.key is not None:
            around.value[around.key] = value
            around.key = None
        around.height = max(around.height, height)

    def _counted(self, number: int) -> None:
        self.count += number
        if self.count > self.max_values:
            raise ValueError(f"it has more than {self.max_values:,} values, aliases written out")


def _resolved(text: str) -> Any:
    """Return the value of a plain scalar, by the core schema of YAML 1.2."""
    if text[:1] in _NUMERIC:
        if _INTEGER.fullmatch(text):
            return _integer(text)
        return _float(text) if _FLOAT.fullmatch(text) else text
    return _CONSTANTS.get(text, text)


def _tagged(tag: str, text: str) -> Any:
    """Return the value of a scalar whose tag says its type."""
    kind = tag.removeprefix(_PREFIX)
    if tag == "!" or (kind == "str" and tag != kind):
        return text
    value = _resolved(text)
    if kind == tag or kind not in _KINDS or not isinstance(value, _KINDS[kind]):
        raise ValueError(f"it has a value that JSON lacks: {tag[:100]}")
    return value


def _integer(text: str) -> int | float:
    """Return an integer, or the nearest float beyond 64 bits, as orjson reads JSON (OAPI-02)."""
    if len(text) > _MAX_DIGITS:
        raise ValueError("a number has too many digits")
    number = int(text, 0) if text[:2] in ("0x", "0o") else int(text, 10)
    if -(1 << 63) <= number < 1 << 64:
        return number
    return _float(str(number))


def _float(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError("it has a number that no double is near to")
    return number
