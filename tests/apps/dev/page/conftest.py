"""A browser for each module; a front of the test program and a page of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests.lab.pages.chromium import chromium, watched_page
from tests.lab.servers.dev_front import DevFront, dev_front

PROGRAM = Path(__file__).with_name("program.py")


def write_program(folder: Path) -> Path:
    """Copy the program and its skills into a folder; return its file there."""
    shutil.copytree(PROGRAM.with_name("skills"), folder / "skills")
    return Path(shutil.copy(PROGRAM, folder / "shop.py"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium while the tests of a module run."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevFront]:
    """Develop the program, for the tests of a module."""
    folder = tmp_path_factory.mktemp("dev")
    write_program(folder)
    with dev_front(folder, "shop.py") as running:
        running.wait_for_state("running")
        yield running


@pytest.fixture
def page(browser: Browser, front: DevFront, options: dict[str, Any]) -> Iterator[Page]:
    """Open the page of the front, with the tools there."""
    with watched_page(browser, front.page_url, **options) as watched:
        watched.page.get_by_role("link", name="order").wait_for()
        yield watched.page


@pytest.fixture
def opened(page: Page) -> Callable[[str], Locator]:
    """Return a function that opens an entry of the tools, and returns its details."""

    def open_tool(name: str) -> Locator:
        page.locator(".entries a").filter(has=page.get_by_text(name, exact=True)).click()
        details = page.get_by_role("region", name="Details")
        details.get_by_role("heading", name=name, exact=True).first.wait_for()
        return details

    return open_tool
