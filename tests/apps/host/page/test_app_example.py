"""The example with an app in the page of the host: a table that one sorts and refunds from."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.apps.host.page.test_chat import field
from tests.lab.host.process import HostProcess, host_process
from tests.lab.pages.chromium import chromium, shot, watched_page

SCRIPT = [{"user": "show", "answers": [[{"call": "shop:list_orders"}], ["These are the orders."]]}]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium while the tests of the module run."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """Run a host of the example."""
    folder = tmp_path_factory.mktemp("orders")
    words = ["-m", "foundation_rt", "serve", "foundation_rt.examples.orders"]
    entry = {"command": sys.executable, "args": words, "alwaysAllow": ["list_orders"]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))
    with host_process(folder, script=SCRIPT) as host:
        yield host


@pytest.mark.rule("EXAMPLE-02", "HAPP-20")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 360)])
def test_orders_are_sorted_and_refunded(
    browser: Browser, ready: HostProcess, scheme: str, width: int
) -> None:
    look = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    with watched_page(browser, ready.url, **look) as watched:
        page, app = watched.page, watched.page.frame_locator("iframe")
        page.get_by_role("button", name="1 server").wait_for()
        field(page).fill("show")
        page.keyboard.press("Enter")
        # Until the answer has come and the frame has its height, what is clicked moves.
        page.get_by_role("log").get_by_text("These are the orders.").wait_for()
        expect(page.locator("iframe")).to_have_attribute("style", re.compile("height"))
        customers = app.locator("tbody td:nth-child(2)")
        expect(customers).to_have_text(["Ada", "Cy", "Ben"])
        for names in (["Ada", "Ben", "Cy"], ["Cy", "Ben", "Ada"]):
            app.get_by_role("button", name="Customer").click()
            expect(customers).to_have_text(names)
        order = 2 if width == 360 else 1
        row = app.locator("tr").filter(has_text="Cy" if order == 2 else "Ada")
        row.get_by_role("button", name="Refund").click()
        page.get_by_role("button", name="Allow once").click()
        expect(row).to_contain_text("refunded")
        shot(page, f"example-orders-{scheme}-{width}")
