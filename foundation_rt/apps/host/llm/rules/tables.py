"""Results of tools as Markdown, for people (LLM-86). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .....base.exact_json import loads_bounded

MAX_ROWS = 50
MAX_COLUMNS = 10
MAX_CELL = 200
_MAX_TEXT = 20_000


def render(value: Any) -> str:
    """Return a value of JSON: objects and lists of objects as tables."""
    if isinstance(value, Mapping):
        return _render_object(value)
    if isinstance(value, list):
        return _render_list(value)
    return value[:_MAX_TEXT] if isinstance(value, str) else f"`{_json(value)}`"


def render_text(text: str) -> str:
    """Return a text, which may be JSON."""
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        try:
            return render(loads_bounded(stripped))
        except ValueError:
            pass
    return text[:_MAX_TEXT]


def _render_object(value: Mapping[str, Any]) -> str:
    if not value:
        return "(nothing)"
    plain = {key: each for key, each in value.items() if not _is_rows(each)}
    parts = [_table(("Field", "Value"), [(_cell(key), _cell(each)) for key, each in plain.items()])]
    parts = parts if plain else []
    for key, each in value.items():
        if _is_rows(each):
            heading = f"**{_cell(key)}**\n\n" if len(value) > 1 else ""
            parts.append(heading + _render_list(each))
    return "\n\n".join(parts)


def _is_rows(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)
    )


def _render_list(values: Sequence[Any]) -> str:
    if not values:
        return "(nothing)"
    shown = values[:MAX_ROWS]
    more = f"\n\n… and {len(values) - MAX_ROWS} more." if len(values) > MAX_ROWS else ""
    if not _is_rows(list(shown)):
        return "\n".join(f"- {_cell(each)}" for each in shown) + more
    columns = list(dict.fromkeys(key for row in shown for key in row))
    if len(columns) > MAX_COLUMNS:
        more += f"\n\n{len(columns) - MAX_COLUMNS} more columns are not shown."
        columns = columns[:MAX_COLUMNS]
    rows = [tuple(_cell(row.get(column, "")) for column in columns) for row in shown]
    return _table(tuple(_cell(column) for column in columns), rows) + more


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    text = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def _json(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping) and not any(
        isinstance(v, Mapping | list) for v in value.values()
    ):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    return json.dumps(value, ensure_ascii=False, default=str)
