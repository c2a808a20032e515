"""Links of the documents: a file or a heading that a link names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.lab.programs.guides import README
from tests.trace import ROOT

PAGES = [
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "spec").rglob("*.md")),
]
HOSTS = {"keepachangelog.com"}
"""The hosts that a document links to: a page names a foreign host only on purpose."""

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)


def links(text: str) -> Iterator[str]:
    """Yield the targets of the links of a page."""
    yield from (found[1] for found in _LINK.finditer(_CODE.sub("", text)))


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in named}


def problem_of(link: str, page: Path) -> str | None:
    """Say why a link of a page is wrong; None if it is right."""
    parts = urlsplit(link)
    if parts.scheme:
        known = parts.scheme == "https" and parts.hostname in HOSTS
        return None if known else "its host is not among HOSTS"
    target = (page.parent / parts.path).resolve() if parts.path else page
    if not target.is_file() or not target.is_relative_to(ROOT.resolve()):
        return "there is no such file"
    if parts.fragment and parts.fragment not in anchors(target):
        return "there is no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    found = {link: problem_of(link, page) for link in links(page.read_text("utf-8"))}
    assert {link: problem for link, problem in found.items() if problem} == {}


def test_wrong_links_are_found() -> None:
    page = ROOT / "spec" / "README.md"
    assert problem_of("framing.md", page) is None
    assert problem_of("../README.md#where-to-go-on", page) is None
    assert problem_of("nothing.md", page) == "there is no such file"
    assert problem_of("../README.md#nothing", page) == "there is no such heading"
    assert problem_of("http://keepachangelog.com/", page) == "its host is not among HOSTS"
    assert problem_of("https://example.com/", page) == "its host is not among HOSTS"
    assert list(links("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n")) == ["b.md"]
