"""YAML as OpenAPI has it: the values of JSON, read by the rules of YAML 1.2 (extra `openapi`).

PyYAML reads YAML 1.1, where `no` is false, `010` is eight and `2020-01-01` a date. So its loader
gets the resolvers of 1.2 here. It makes no objects: a tag that JSON does not have is refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from .documents import MAX_DEPTH, MAX_VALUES

_PREFIX: Final = "tag:yaml.org,2002:"
_MAX_BYTES: Final = 16 << 20
_MAX_DIGITS: Final = 400

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """A safe loader that resolves plain scalars as YAML 1.2 does."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as PyYAML has it


def _integer(loader: Any, node: Any) -> int | float:
    """Return an integer, or the nearest float beyond 64 bits, as orjson reads JSON (OAPI-02)."""
    text = node.value
    if len(text) > _MAX_DIGITS:
        raise ValueError("a number has too many digits")
    number = int(text, 0) if text[:2] in ("0x", "0o") else int(text, 10)
    return number if -(1 << 63) <= number < 1 << 64 else float(number)


for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(
        f"{_PREFIX}{_name}", re.compile(rf"^(?:{_pattern})$"), list(_first)
    )
_Loader.add_constructor(f"{_PREFIX}int", _integer)


def parse_yaml(text: bytes) -> Any:
    """Return the value of a text in YAML, which has values of JSON only (OAPI-02).

    Raises:
        ValueError: it is not such a text; says why.
    """
    if len(text) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES >> 20} MiB: write it in JSON")
    try:
        loader = _Loader(text.decode())
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (yaml.YAMLError, TypeError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None
    return _plain(value, {}, 0)[0]


def _plain(value: Any, known: dict[int, tuple[Any, int]], depth: int) -> tuple[Any, int]:
    """Return a value of JSON, and the number of values in it with its aliases written out."""
    if value is None or isinstance(value, str | bool | int | float):
        return value, 1
    if not isinstance(value, dict | list):
        raise ValueError(f"it has a value that JSON lacks: a {type(value).__name__}")
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    if id(value) in known:
        found = known[id(value)]
        if found[1] == 0:
            raise ValueError("an alias refers to what it is in")
        return found
    known[id(value)] = (None, 0)
    size = 1
    copy: Any
    if isinstance(value, dict):
        copy = {}
        for key, each in value.items():
            if key == "<<":
                raise ValueError("merge keys (`<<`) are no part of YAML 1.2: write them out")
            copy[_key(key)], within = _plain(each, known, depth + 1)
            size += within
    else:
        copy = []
        for each in value:
            one, within = _plain(each, known, depth + 1)
            copy.append(one)
            size += within
    if size > MAX_VALUES:
        raise ValueError(f"with its aliases written out it has more than {MAX_VALUES:,} values")
    known[id(value)] = (copy, size)
    return copy, size


def _key(key: Any) -> str:
    """Return a key as JSON has it: status codes are read as numbers."""
    if isinstance(key, bool):
        return str(key).lower()
    if key is None or isinstance(key, str | int | float):
        return "null" if key is None else str(key)
    raise ValueError("it has a key that is no scalar")
