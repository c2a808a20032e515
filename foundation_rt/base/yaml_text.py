"""YAML with the values of JSON, read by the rules of YAML 1.2 (extras `openapi` and `skills`).

PyYAML makes values by the rules of YAML 1.1, where `no` is false, `010` is eight and `2020-01-01` a
date, and takes 2 s for a MiB. So only its events are used, which libyaml makes in C. A value is
counted before it is kept, an alias with all that it stands for, and levels are bounded (OAPI-02).
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
            return _Composer(loader, max_values, max_depth).document()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None


class _Composer:
    """Makes the value of one document from its events, which a loader has."""

    def __init__(self, loader: Any, max_values: int, max_depth: int) -> None:
        self.next_event = loader.get_event
        self.max_values = max_values
        self.max_depth = max_depth
        self.anchors: dict[str, tuple[Any, int, int] | None] = {}
        self.count = 0

    def document(self) -> Any:
        """Return the value of the only document."""
        found, documents = None, 0
        while type(event := self.next_event()) is not yaml.StreamEndEvent:
            if type(event) is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise ValueError("it has more than one document")
                found, _ = self._value(self.next_event(), 0)
        return found

    def _value(self, event: Any, depth: int) -> tuple[Any, int]:
        """Return the value that begins with an event, and the levels in it.

        Args:
            event: the first one of the value.
            depth: the levels around it, `max_depth` at most.
        """
        if type(event) is yaml.AliasEvent:
            return self._target(event, depth)
        before, height = self.count, 0
        self._counted(1)
        if type(event) is yaml.ScalarEvent:
            value = _scalar(event)
        else:
            if depth >= self.max_depth:
                raise ValueError(f"it is nested deeper than {self.max_depth} levels")
            if event.anchor is not None:
                self.anchors[event.anchor] = None
            is_mapping = type(event) is yaml.MappingStartEvent
            _check_tag(event.tag, "map" if is_mapping else "seq")
            value, height = self._members(depth + 1) if is_mapping else self._items(depth + 1)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.count - before, height)
        return value, height

    def _items(self, depth: int) -> tuple[list[Any], int]:
        items, height = [], 0
        while type(event := self.next_event()) is not yaml.SequenceEndEvent:
            item, below = self._value(event, depth)
            items.append(item)
            height = max(height, below)
        return items, height + 1

    def _members(self, depth: int) -> tuple[dict[str, Any], int]:
        members, height = {}, 0
        while type(event := self.next_event()) is not yaml.MappingEndEvent:
            key = self._key(event, depth)
            if key in members:
                raise ValueError(f"it has the key {key[:100]!r} twice")
            members[key], below = self._value(self.next_event(), depth)
            height = max(height, below)
        return members, height + 1

    def _key(self, event: Any, depth: int) -> str:
        """Return a key as it is written: status codes are texts in JSON."""
        if type(event) is yaml.AliasEvent:
            target, _ = self._target(event, depth)
            if not isinstance(target, str):
                raise ValueError("it has a key that is no text")
            return target
        if type(event) is not yaml.ScalarEvent:
            raise ValueError("it has a key that is no scalar")
        self._counted(1)
        key: str = event.value
        if key == "<<":
            raise ValueError("merge keys (`<<`) are no part of YAML 1.2: write them out")
        if event.anchor is not None:
            self.anchors[event.anchor] = (key, 1, 0)
        return key

    def _target(self, alias: Any, depth: int) -> tuple[Any, int]:
        """Return what an alias stands for, counted as if it was written out, and its levels."""
        anchor = alias.anchor
        if anchor not in self.anchors:
            raise ValueError(f"the alias {anchor[:100]!r} refers to nothing")
        target = self.anchors[anchor]
        if target is None:
            raise ValueError("an alias refers to what it is in")
        value, size, height = target
        self._counted(size)
        if depth + height > self.max_depth:
            raise ValueError(f"it is nested deeper than {self.max_depth} levels")
        return value, height

    def _counted(self, number: int) -> None:
        self.count += number
        if self.count > self.max_values:
            raise ValueError(f"it has more than {self.max_values:,} values, aliases written out")


def _check_tag(tag: str | None, name: str) -> None:
    if tag not in (None, "!", f"{_PREFIX}{name}"):
        raise ValueError(f"it has a value that JSON lacks: {tag[:100]}")


def _scalar(event: Any) -> Any:
    if event.tag is not None:
        return _tagged(event.tag, event.value)
    return _resolved(event.value) if event.implicit[0] else event.value


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
