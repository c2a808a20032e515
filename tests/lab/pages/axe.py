"""axe-core, which finds what keeps people with disabilities from using a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.lab.programs.node import install

_FOLDER = Path(__file__).parents[2] / "apps" / "host" / "page"


def axe_source() -> str:
    """Return the source of axe-core."""
    return (install(_FOLDER) / "axe-core" / "axe.min.js").read_text()


def findings(page: Page, axe: str, rules: list[str] | None = None) -> list[Any]:
    """Return what axe-core finds, by all rules or by some."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(axe)
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        (each["id"], [(node["html"], node["failureSummary"]) for node in each["nodes"]])
        for each in found["violations"]
    ]
