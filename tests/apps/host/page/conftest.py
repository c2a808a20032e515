"""A browser for each module, a scripted host and a page of it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.lab.host.scripted_host import ScriptedHost, scripted_host
from tests.lab.pages.chromium import WatchedPage, chromium, watched_page
from tests.lab.servers.http_server import free_port


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium while the tests of a module run."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Page]:
    """Open a page whose modules the tests import."""
    with scripted_host() as host, watched_page(browser, host.url) as watched:
        watched.may_lose = True  # a picture whose data are no base64 is a resource that fails
        yield watched.page


@pytest.fixture
def host() -> Iterator[ScriptedHost]:
    """Serve the page from a host that does what the test says."""
    with scripted_host() as serving:
        yield serving


@pytest.fixture
def watched(browser: Browser, host: ScriptedHost, options: dict[str, Any]) -> Iterator[WatchedPage]:
    """Open the page of the host."""
    with watched_page(browser, host.url, **options) as open_page:
        yield open_page


@pytest.fixture
def page(watched: WatchedPage) -> Page:
    """Return the open page."""
    return watched.page


@pytest.fixture
def page_port() -> int:
    """Return a port that nothing listens on now."""
    return free_port()
