"""The system's Chromium, driven by Playwright, and a page that is watched for what must not be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from tests.lab.places.services import lacking
from tests.lab.servers.process import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

SHOTS = os.environ.get("FOUNDATION_RT_TEST_SHOTS")
"""A folder: each picture that a test takes is kept there."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser.

    The sync API keeps the loop of its thread: leave the block before a test runs a loop of its own.
    """
    if CHROMIUM is None:
        lacking("Chromium is not there: install `chromium`")
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        # Without a GPU to draw with, what stands in for it takes a tenth of the CPU.
        options = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            yield browser
        finally:
            browser.close()


@define(eq=False)
class WatchedPage:
    """A page, and what it did that it must not.

    Attributes:
        problems: errors on its console, of its scripts, of its policy; requests to other hosts.
        may_lose: it may log that connections fail, since the test has them fail.
        visits: other hosts that a click leads to, in a tab of their own.
    """

    page: Page
    context: BrowserContext
    origin: str
    problems: list[str] = field(factory=list)
    may_lose: bool = False
    visits: list[str] = field(factory=list)

    def watch(self) -> None:
        """Note what happens from now on."""
        self.page.on("console", lambda message: self._console(message))
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.context.on("request", lambda request: self._requested(request.url))
        self.page.on("websocket", lambda socket: self._requested(socket.url))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        is_loss = "WebSocket" in message.text or "Failed to load resource" in message.text
        if not (self.may_lose and is_loss):
            self.problems.append(f"console: {message.text}")

    def _requested(self, url: str) -> None:
        own = (f"http://{self.origin}/", f"ws://{self.origin}/", "data:", "blob:", *self.visits)
        if not url.startswith(own):
            self.problems.append(f"foreign request: {url}")


@contextmanager
def watched_page(browser: Browser, url: str, **options: Any) -> Iterator[WatchedPage]:
    """Open a page in a profile of its own; leaving the block holds that it did nothing wrong."""
    options.setdefault("viewport", {"width": 1200, "height": 800})
    options.setdefault("reduced_motion", "reduce")
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE * 1000)
    watched = WatchedPage(context.new_page(), context, url.split("/")[2])
    watched.watch()
    try:
        watched.page.goto(url)
        yield watched
        assert not watched.problems, watched.problems
    except Exception as error:
        error.add_note(f"{watched.page.url}: {watched.problems}\n{watched.page.content()[:2000]}")
        raise
    finally:
        context.close()


def wait_until(page: Page, condition: str) -> None:
    """Wait until an expression of JavaScript is true in a page.

    What Playwright offers for this evaluates a text again for each look. Only the first look is
    exempt from the policy of a page, which forbids that.
    """
    page.evaluate(
        f"async () => {{ while (!({condition})) await new Promise(requestAnimationFrame); }}"
    )


def shot(page: Page, name: str) -> None:
    """Keep a picture of the page, if the environment names a folder for them."""
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))
