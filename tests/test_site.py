"""The site of the documentation: it builds without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from attrs import define, field

from spec.site import pages, reference
from tests.lab.pages.axe import axe_source, findings
from tests.lab.pages.chromium import chromium
from tests.lab.sizes import LONG
from tests.trace import ROOT

WRITTEN = ("index", "spec/guide/configuration", "reference/handlers")
"""The pages that are written, but in the size `long`: writing all of them takes twice as long.

Every page is read in any case and its references are resolved, so a wrong docstring, directive or
link is found.
"""

PATIENCE = 600.0
_LOADED_BY_STYLE = re.compile(r"@import\s|url\(\s*[\"']?(?:\w+:)?//", re.IGNORECASE)
_LOADED_BY_SCRIPT = re.compile(
    r"(?:fetch|import|importScripts|XMLHttpRequest)\(\s*[\"']https?:|\.src\s*=\s*[\"']https?:"
)
# The attributes with which a page loads something; a link in a text loads nothing.
_LOADING = {"src", "srcset", "poster", "data", "action", "formaction", "background"}
_LINKS_THAT_LOAD = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect"}
_LINKS_THAT_LOAD |= {"dns-prefetch", "shortcut", "manifest"}


@define
class Page(HTMLParser):
    """What a page loads, where its links lead, and its anchors."""

    loaded: list[str] = field(factory=list)
    links: list[str] = field(factory=list)
    anchors: set[str] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors.add(named.get("id", ""))
        self.loaded += [value for name, value in named.items() if name in _LOADING]
        if tag == "link" and _LINKS_THAT_LOAD & set(named.get("rel", "").split()):
            self.loaded.append(named.get("href", ""))
        if tag == "a":
            self.links.append(named.get("href", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    only = () if LONG else WRITTEN
    code = f"import sys; from spec.site.__main__ import build; from pathlib import Path; \
        sys.exit(build(Path({str(folder)!r}), {only!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text("utf-8"))
    return page


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    found = [
        f"{path.name}: {address}"
        for path in sorted(site.rglob("*.html"))
        for address in read(path).loaded
        if urlsplit(address).netloc or urlsplit(address).scheme not in {"", "data"}
    ]
    for pattern, suffix in ((_LOADED_BY_STYLE, "css"), (_LOADED_BY_SCRIPT, "js")):
        for path in sorted(site.rglob(f"*.{suffix}")):
            found += [f"{path.name}: {each}" for each in pattern.findall(path.read_text("utf-8"))]
    assert found == []


def test_links_within_the_site_lead_to_pages_and_anchors(site: Path) -> None:
    read_pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    broken = []
    for path, page in read_pages.items():
        pictures = [each for each in page.loaded if each.endswith((".png", ".svg"))]
        for link in (*page.links, *pictures):
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.scheme or (not LONG and target not in read_pages):
                continue
            if not target.is_file():
                broken.append(f"{path.name}: {link}")
            elif parts.fragment and target in read_pages:
                anchors = read_pages[target].anchors
                if unquote(parts.fragment) not in anchors:
                    broken.append(f"{path.name}: {link}")
    assert broken == []


def test_texts_stand_out_from_their_background_in_both_themes(site: Path) -> None:
    axe = axe_source()
    with chromium() as browser:
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
            for name in WRITTEN:
                page.goto((site / f"{name}.html").as_uri())
                assert findings(page, axe, ["color-contrast"]) == [], (name, scheme)
            page.close()


def test_texts_for_language_models_name_every_guide_and_every_public_name(site: Path) -> None:
    listed = (site / "llms.txt").read_text("utf-8")
    assert re.match(r"# foundation-rt\n\n> foundation-rt is .*\w\.\n\n## Guides\n", listed)
    for path in re.findall(r"\]\((.*?)\)", listed):
        assert (site / path).is_file()
    for guide in sorted((ROOT / "spec" / "guide").glob("*.md")):
        assert f"(spec/guide/{guide.name})" in listed
    whole = (site / "llms-full.txt").read_text("utf-8")
    for page in reference.pages():
        assert f"`{page.module}`" in whole
    assert "### `ToolContext.abort_signal" in whole or "### `ToolContext.elicit(" in whole


def test_every_guide_is_in_the_navigation() -> None:
    guides = {f"spec/guide/{path.stem}" for path in (ROOT / "spec" / "guide").glob("*.md")}
    assert guides <= set(pages.guides())
