"""Reading conversations over HTTP, of either side: headers, lines, and what stands in them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each conversation of a folder: its header, its `file`, its `id` and its `lines`.

    One that is held `for` several cases is yielded once for each. Lines come with their numbers.
    """
    for path in sorted(folder.glob("*.jsonl")):
        found: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            entry = orjson.loads(line)
            if "name" in entry:
                yield from (each for _, each in found)
                found = [(case, {}) for case in entry.pop("for", [{}])]
                for case, header in found:
                    texts = [f"{path.stem}: {entry['name']}", *map(str, case.values())]
                    header |= {"file": path.stem, "id": " ".join(texts), "lines": []}
                    header |= fill(entry, case)
            else:
                for case, header in found:
                    header["lines"].append((number, fill(entry, case)))
        yield from (each for _, each in found)


def fill(value: Any, names: dict[str, Any]) -> Any:
    """Return a JSON value with what the names in its texts stand for."""
    if isinstance(value, list):
        return [fill(each, names) for each in value]
    if isinstance(value, dict):
        return {fill(name, names): fill(each, names) for name, each in value.items()}
    if not isinstance(value, str) or value in names:
        return names.get(value, value)
    for name, meant in names.items():
        value = value.replace(name, str(meant))
    return value


def octets(said: Any) -> bytes:
    """Return bytes as a vector states them."""
    if isinstance(said, dict):
        return base64.b64decode(said["base64"])
    parts = [[said, 1]] if isinstance(said, str) else said
    return b"".join(text.encode() * times for text, times in parts)


def compare(found: Any, expected: Any) -> None:
    """Fail, with both, unless they are equal."""
    assert found == expected, f"{found!r} is not {expected!r}"
