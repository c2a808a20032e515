"""Apps of others in the page of the chat host: examples of `ext-apps` from npm, in Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from playwright.sync_api import Browser, expect

from tests.apps.host.page.test_chat import field
from tests.lab.host.process import HostProcess, host_process
from tests.lab.pages.chromium import chromium, shot, watched_page
from tests.lab.programs import node

FOLDER = Path(__file__).parent


@frozen
class Example:
    """A server of others with an app.

    Attributes:
        package: of npm.
        tool: that has the app.
        seen: what the app shows of its result.
    """

    package: str
    tool: str
    seen: str


EXAMPLES = {
    "time": Example("server-basic-vanillajs", "get-time", "Get Server Time"),
    "budget": Example("server-budget-allocator", "get-budget-data", "Budget Allocator"),
    "cohorts": Example("server-cohort-heatmap", "get-cohort-data", "Cohort Retention"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium while the tests of the module run."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """Run a host of the examples."""
    modules = node.install(FOLDER) / "@modelcontextprotocol"
    folder = tmp_path_factory.mktemp("apps")
    entries: dict[str, Any] = {}
    script = []
    for name, example in EXAMPLES.items():
        program = str(modules / example.package / "dist" / "index.js")
        entries[name] = {"command": str(node.NODE), "args": [program, "--stdio"]}
        entries[name]["alwaysAllow"] = ["*"]
        script.append({"user": name, "answers": [[{"call": f"{name}:{example.tool}"}], ["Here."]]})
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    with host_process(folder, script=script) as host:
        yield host


@pytest.mark.rule("HAPP-10", "HAPP-11", "HAPP-32", "HAPP-35")
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 360)])
def test_app_of_others_is_shown(
    browser: Browser, ready: HostProcess, name: str, scheme: str, width: int
) -> None:
    look = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    with watched_page(browser, ready.url, **look) as watched:
        page = watched.page
        page.get_by_role("button", name="3 servers").wait_for()
        field(page).fill(name)
        page.keyboard.press("Enter")
        app = page.frame_locator("iframe")
        expect(app.get_by_text(EXAMPLES[name].seen).first).to_be_visible()
        expect(page.locator(".assistant p")).to_have_text("Here.")
        shot(page, f"interop-{name}-{scheme}-{width}")
        watched.problems.clear()  # what the apps of others log


@pytest.mark.rule("HAPP-20", "HAPP-33", "HPAGE-92")
def test_app_of_others_calls_says_and_asks(browser: Browser, ready: HostProcess) -> None:
    with watched_page(browser, ready.url) as watched:
        page = watched.page
        page.get_by_role("button", name="3 servers").wait_for()
        field(page).fill("time")
        page.keyboard.press("Enter")
        app = page.frame_locator("iframe")
        time = app.locator("#server-time")
        expect(time).to_contain_text("20")
        before = time.inner_text()
        app.get_by_role("button", name="Get Server Time").click()
        expect(time).not_to_have_text(before)
        app.get_by_role("button", name="Send Message").click()
        expect(field(page)).to_have_value("This is message text.")
        app.get_by_role("button", name="Open Link").click()
        expect(page.get_by_role("link", name="Open modelcontextprotocol.io")).to_be_visible()
        watched.problems.clear()
