"""The state of the gateway and its servers, for operators (GATE-40)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

URI = "gateway://status"

COLUMNS = ("SERVER", "STATE", "REVISION", "TOOLS", "CIRCUIT", "CALLS", "SESSIONS", "LAST ERROR")


def table_of(status: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a table with `COLUMNS`, of the document that `/status` returns."""
    return [_row(each) for each in status.get("servers", ())]


def text_table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table in plain text, its columns aligned."""
    lines = [COLUMNS, *(tuple(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def problems_of(status: Mapping[str, Any]) -> list[str]:
    """Return what an operator has to know besides the table, a sentence each."""
    found = [str(status["problem"])] if status.get("problem") else []
    for server in status.get("servers", ()):
        if server.get("reason"):
            found.append(f"{server['id']}: {server['reason']}")
        found += (f"{server['id']}: {each}" for each in server.get("leftOut", ()))
        for each in server.get("withheld", ()):
            what = f"{each['kind']} {each['identifier']!r} is {each['reason']}"
            found.append(f"{server['id']}: {what}: withheld until it is accepted")
    return found


def _row(server: Mapping[str, Any]) -> tuple[str, ...]:
    members = ("id", "state", "revision", "tools", "circuit", "calls", "sessions")
    # An entry that cannot be used has a reason, and was never tried.
    error = server.get("lastError") or server.get("reason")
    return (*(_cell(server.get(member)) for member in members), _cell(error))


def _cell(value: object) -> str:
    text = "-" if value is None or value == "" else " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
