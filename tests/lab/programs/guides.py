"""The code blocks of the README and of the guides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from tests.trace import ROOT

README = ROOT / "README.md"
GUIDES = ROOT / "spec" / "guide"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^[ >]*(?:```|~~~)", re.MULTILINE)


@frozen
class Block:
    """A fenced block of a page.

    Attributes:
        place: the page and the line, as `tutorial.md:12`.
        language: the word after the opening fence.
        text: the lines between the fences.
    """

    place: str
    language: str
    text: str


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{page.name}:{line}", found[1], found[2])


def fences_of(page: Path) -> int:
    """Return how many lines look like the begin or the end of a block, indented or not."""
    return len(_FENCE.findall(page.read_text("utf-8")))


def texts_in(test: Path, *functions: str) -> set[str]:
    """Return the texts that a test module hands to these functions, each as an argument of its own.

    A text within another argument, such as a name in a dict, names no block.
    """
    return {
        node.value
        for call in ast.walk(ast.parse(test.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in functions
        for node in call.args
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
