"""The pages of the site, gathered in one folder with the names that they have in the repository."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

GUIDES = {
    "Start": (
        "tutorial",
        "dev",
        "servers",
        "asking",
        "dependencies",
        "tool-lists",
        "apps",
        "features",
        "deadlines",
        "testing",
        "errors",
        "configuration",
    ),
    "Use": (
        "clients",
        "logins",
        "command-line",
        "openapi",
        "agents",
        "ledgers",
        "database",
        "embedding",
    ),
    "Applications": ("task-server", "gateway", "host"),
    "Run": (
        "deployment",
        "proxies",
        "packages",
        "authorization",
        "security",
        "operations",
        "alerts",
    ),
    "Move": ("from-fastmcp", "from-the-official-sdk"),
    "More": (
        *(
            "figures/peers",
            "figures/engines",
            "../rough-edges",
            "../threat-model",
            "glossary",
            "development",
        ),
        *("../../CONTRIBUTING", "../../SECURITY", "../../CHANGELOG"),
    ),
}
"""The guides below each heading of the navigation."""

SPECIFICATION = "spec/README"
_IMAGES = {".png", ".svg"}
_LIST = re.compile(r"^\| \[[\w.-]+\]\(([\w-]+)\.md\)", re.MULTILINE)
_RULE = re.compile(r"^\*\*([A-Z]+-\d{2,3})\*\*", re.MULTILINE)


def gather(folder: Path) -> None:
    """Copy every page into `folder`, with tables of contents, and a target for each rule."""
    for page in sorted((ROOT / "spec").rglob("*.md")):
        _copy(page, folder)
    for image in sorted(each for each in (ROOT / "spec").rglob("*") if each.suffix in _IMAGES):
        place = folder / image.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(image, place)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        _copy(ROOT / name, folder)
    readme = (ROOT / "README.md").read_text("utf-8")
    (folder / "index.md").write_text(f"{readme}\n{_navigation()}", "utf-8")
    page = folder / f"{SPECIFICATION}.md"
    page.write_text(f"{page.read_text('utf-8')}\n{_specification()}", "utf-8")


def guides() -> Iterator[str]:
    """Yield the guides in the order of the navigation, as paths in the site without a suffix."""
    for names in GUIDES.values():
        yield from (guide_path(name) for name in names)


def guide_path(name: str) -> str:
    """Return the path in the site of a guide, whose name is relative to the folder of guides."""
    place = (ROOT / "spec" / "guide" / name).resolve()
    return place.relative_to(ROOT.resolve()).as_posix()


def _copy(page: Path, folder: Path) -> None:
    place = folder / page.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    text = page.read_text("utf-8").replace("../README.md", "../index.md")
    place.write_text(_RULE.sub(r"(\1)=\n**\1**", text), "utf-8")


def _navigation() -> str:
    guide = "\n".join(
        _toctree(heading, map(guide_path, names)) for heading, names in GUIDES.items()
    )
    reference = _toctree("Reference", ["reference/index", SPECIFICATION])
    return f"{guide}\n{reference}"


def _specification() -> str:
    """Return the table of contents of the specification: the pages in the order of its list."""
    listed = _LIST.findall((ROOT / f"{SPECIFICATION}.md").read_text("utf-8"))
    return _toctree("", [*listed, "architecture", "vectors/README"])


def _toctree(caption: str, pages: Iterator[str] | list[str]) -> str:
    options = f":caption: {caption}\n" if caption else ""
    return f"```{{toctree}}\n:hidden:\n{options}\n" + "\n".join(pages) + "\n```\n"
