"""The part of a peer that all Python clients have in common: its orders, its answers, its report.

A peer is a program in an environment of its own, since two versions of one package cannot be in the
same process. Its argument is a file of JSON: a list of orders, each with a `revision`, a `url` or a
`command` with its `env`, and `steps`. It prints the revisions that it speaks by its own account,
and a report for each order: the revision that was agreed on, and what each step saw, in a form that
all peers share.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

ANSWERS: dict[str, Any] = {
    "Who comes": {"name": "Ann", "people": 2, "day": "2030-01-02"},
    "What would": {"value": "cheese"},
    "Please pay": None,
}
"""What the user answers, by the beginning of the question."""


class Seen(Protocol):
    """A client that is connected."""

    revision: str

    async def tools(self) -> list[str]: ...

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]: ...

    async def read(self, uri: str) -> Any: ...


def answer(message: str) -> Any:
    """Return the content of an answer to a question."""
    [found] = [each for words, each in ANSWERS.items() if message.startswith(words)]
    return found


def block(content: Any) -> str:
    """Return a block of content as a text."""
    if content.type == "text":
        return str(content.text)
    if content.type == "image":
        return f"{getattr(content, 'mime_type', None) or content.mimeType} {content.data}"
    return f"{content.type} {content.uri}"


def contents(found: Any) -> str:
    """Return the contents of a resource as a text: that, or base64."""
    return str(found.text if hasattr(found, "text") else found.blob)


def outcome(
    content: list[Any], structured: Any, is_error: bool, progress: list[float]
) -> dict[str, Any]:
    """Return what a call saw; what is empty is left out."""
    seen = {
        "content": [block(each) for each in content],
        "structured": structured,
        "error": is_error,
        "progress": progress,
    }
    return {name: value for name, value in seen.items() if value not in (None, False, [])}


async def walk(client: Seen, steps: list[list[Any]]) -> list[Any]:
    """Make the steps of an order; return what each saw."""
    report: list[Any] = []
    for kind, *words in steps:
        try:
            report.append(await getattr(client, kind)(*words))
        except Exception as error:
            report.append({"raised": str(error)})
    return report


Visit = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def run(speaks: Iterable[str], offer: Callable[[str], object], visit: Visit) -> None:
    """Carry out all orders; those of one revision at once.

    Args:
        speaks: the revisions that the client knows.
        offer: makes handshakes offer this revision; clients offer their newest one otherwise.
        visit: connects, makes the steps of an order and returns the report.
    """
    with open(sys.argv[1]) as file:
        orders = json.load(file)
    reports: dict[int, dict[str, Any]] = {}

    async def carry_out(index: int) -> None:
        reports[index] = await asyncio.wait_for(visit(orders[index]), 60)

    async def together(indexes: list[int]) -> None:
        await asyncio.gather(*map(carry_out, indexes))

    for revision in sorted({each["revision"] for each in orders}):
        offer(revision)
        asyncio.run(together([i for i, each in enumerate(orders) if each["revision"] == revision]))
    ended = [reports[index] for index in range(len(orders))]
    print(json.dumps({"speaks": sorted(speaks), "reports": ended}))
