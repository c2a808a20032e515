"""Rank the tools of GitHub's API among 2,000: `python -m bench.tool_search api.github.com.json`.

The document is in npm's `@octokit/openapi`, below `generated`. Each line of `tool_queries.txt` is a
query of three words and the operation that it means. The queries were written from the summaries of
operations before the ranking was looked at. What the document lacks of 2,000 tools is made up.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path

from foundation_rt import Server
from foundation_rt.features.tool_search.ranking import SearchableTool, search

QUERIES = Path(__file__).with_name("tool_queries.txt")
TOOLS = 2_000
FIRST = 5

_VERBS = (
    *("list", "get", "create", "update", "delete", "export", "import", "archive", "approve"),
    *("reject", "assign", "schedule", "cancel", "send", "copy", "move", "merge", "validate"),
    *("count", "find", "restore", "print", "share", "sync", "convert"),
)
_NOUNS = (
    *("invoice", "customer", "order", "payment", "refund", "product", "price", "warehouse"),
    *("shipment", "ticket", "agent", "queue", "calendar", "meeting", "contact", "lead", "contract"),
    *("document", "folder", "page", "report", "dashboard", "metric", "sensor", "device", "room"),
    *("booking", "guest", "flight", "hotel", "course", "student", "lesson", "patient", "visit"),
    *("recipe", "menu", "table", "column", "message", "channel", "call", "voucher", "budget"),
)


def read_queries(text: str) -> list[tuple[str, str]]:
    """Return pairs of a query and an operation."""
    pairs = (line.partition(": ") for line in text.splitlines())
    return [(query, operation) for query, _, operation in pairs]


def tools_of(document: object) -> list[SearchableTool]:
    """Return the tools of an OpenAPI document, and others up to 2,000."""
    server = Server.from_openapi(document, base_url="https://api.example.com")  # type: ignore[arg-type]
    found = [
        SearchableTool(each.name, None, {"title": each.title, "description": each.description})
        for each in server.list()
    ]
    made = (
        SearchableTool(f"{verb}_{noun}", None, {"description": f"{verb.title()} a {noun}."})
        for verb, noun in product(_VERBS, _NOUNS)
    )
    return [*found, *islice(made, max(0, TOOLS - len(found)))]


def missed(
    tools: Sequence[SearchableTool], queries: Sequence[tuple[str, str]]
) -> list[tuple[str, str, list[str]]]:
    """Return the queries whose operation is not among the first tools, and those that are."""
    found = []
    for query, operation in queries:
        first = [tool.name for tool in search(tools, query)[:FIRST]]
        if _letters(operation) not in map(_letters, first):
            found.append((query, operation, first))
    return found


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def main(path: str) -> int:
    """Print what is missed, and the figures; return the exit code."""
    queries = read_queries(QUERIES.read_text("utf-8"))
    tools = tools_of(json.loads(Path(path).read_text("utf-8")))
    began = time.perf_counter()
    found = missed(tools, queries)
    each_ms = (time.perf_counter() - began) * 1000 / len(queries)
    for query, operation, first in found:
        print(f"missed: {query!r} means {operation}; first are {', '.join(first)}")
    hits = len(queries) - len(found)
    print(
        f"{hits} of {len(queries)} among the first {FIRST} of {len(tools)}; {each_ms:.1f} ms each"
    )
    return 0 if hits >= 0.9 * len(queries) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
