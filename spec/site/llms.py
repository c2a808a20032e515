"""The documentation as text for language models (https://llmstxt.org)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from . import pages, reference

_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_TITLE = re.compile(r"^# (.*)$", re.MULTILINE)


def write(site: Path) -> None:
    """Write `llms.txt`, which lists the pages, `llms-full.txt`, which has them, and each page."""
    readme = (pages.ROOT / "README.md").read_text("utf-8")
    _, about, rest = readme.split("\n\n", 2)
    summary = " ".join(about.split()).partition(". ")[0].rstrip(".") + "."
    lines = [f"# foundation-rt\n\n> {summary}", f"## Guides\n\n{_links(list(pages.guides()))}"]
    specification = [
        path.relative_to(pages.ROOT).with_suffix("").as_posix()
        for path in sorted((pages.ROOT / "spec").glob("*.md"))
    ]
    lines.append(f"## Optional\n\n{_links(specification)}")
    (site / "llms.txt").write_text("\n\n".join(lines) + "\n", "utf-8")
    texts = [f"# foundation-rt\n\n{about}\n\n{rest}"]
    texts += [_text(path) for path in pages.guides() if path != "CHANGELOG"]
    texts += ["# API reference", *reference.as_text()]
    whole = "\n\n".join(_COMMENT.sub("", text).strip() for text in texts)
    (site / "llms-full.txt").write_text(f"{whole}\n", "utf-8")
    for path in {*pages.guides(), *specification}:
        place = site / f"{path}.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pages.ROOT / f"{path}.md", place)


def _links(paths: list[str]) -> str:
    return "\n".join(f"- [{_title(path)}]({path}.md)" for path in paths)


def _title(path: str) -> str:
    found = _TITLE.search(_text(path))
    assert found is not None, f"{path}.md has no title"
    return found[1]


def _text(path: str) -> str:
    return (pages.ROOT / f"{path}.md").read_text("utf-8")
