"""Servers that wait for a login, on the page: the button, the page to open, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.lab.host.process import HostProcess, host_process
from tests.lab.login.oauth_world import World, running_world, where_it_leads
from tests.lab.pages.axe import axe_source, findings
from tests.lab.pages.chromium import WatchedPage, shot, watched_page


@contextmanager
def host_of(world: World, folder: Path, **variables: str) -> Iterator[HostProcess]:
    """Run a host of one server that wants a login."""
    servers = {"desk": {"url": world.url}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    named = {"XDG_DATA_HOME": str(folder), **variables}
    words = ("--servers", "mcp.json", "--model", "rules")
    with host_process(folder, *words, env=named) as host:
        yield host


@contextmanager
def opened(
    browser: Browser, world: World, host: HostProcess, **options: Any
) -> Iterator[tuple[WatchedPage, Locator]]:
    """Open the page, and the panel of servers; yield what the panel says of the server."""
    with watched_page(browser, host.url, **options) as watched:
        watched.visits += [world.issuer, "http://127.0.0.1:", "http://localhost:"]
        watched.page.get_by_role("button", name="1 needs a login").click()
        yield watched, watched.page.get_by_role("region", name="Server desk")


@pytest.mark.rule("HPAGE-80", "HOST-66", "COORD-83")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_person_logs_in_on_the_page(browser: Browser, tmp_path: Path, scheme: str) -> None:
    with running_world() as world, host_of(world, tmp_path) as host:
        with opened(browser, world, host, color_scheme=scheme) as (watched, server):
            page = watched.page
            expect(server).to_contain_text("Needs a login")
            expect(server).to_contain_text(f"Run: foundation-rt login {world.url}")
            assert findings(page, axe_source()) == []
            shot(page, f"login-wanted-{scheme}")
            server.get_by_role("button", name="Log in to desk").click()
            link = server.get_by_role("link", name=f"Open {world.issuer[7:]}")
            expect(link).to_be_focused()
            assert (link.get_attribute("rel"), link.get_attribute("target")) == (
                "noopener noreferrer",
                "_blank",
            )
            assert findings(page, axe_source()) == []
            shot(page, f"login-page-{scheme}")
            with page.expect_popup() as popup:
                link.press("Enter")
            expect(popup.value.locator("body")).to_contain_text("You can close this page.")
            expect(server.get_by_role("status")).to_have_text("Logged in.")
            expect(server).to_contain_text("Ready")
            expect(server.get_by_text("1 tool")).to_be_visible()
            shot(page, f"login-done-{scheme}")
        assert len(world.paths("/token")) == 1


@pytest.mark.rule("HPAGE-80", "HOST-66")
def test_failed_login_says_why_and_can_be_begun_again(browser: Browser, tmp_path: Path) -> None:
    small = {"viewport": {"width": 360, "height": 700}}
    with (
        running_world() as world,
        host_of(world, tmp_path) as host,
        opened(browser, world, host, **small) as (_, server),
    ):
        begin = server.get_by_role("button", name="Log in to desk")
        world.answers["/.well-known/oauth-authorization-server"] = (
            200,
            json.dumps({"issuer": "https://other.example"}).encode(),
        )
        begin.click()
        named = f"The metadata of {world.issuer} names https://other.example as its issuer"
        expect(server.get_by_role("alert")).to_contain_text(f"{named} and was not used.")
        world.answers.clear()
        world.callback = {"error": "access_denied", "code": None}
        begin.click()
        expect(server.get_by_role("link")).to_be_focused()
        address = server.get_by_role("link").get_attribute("href")
        assert address is not None
        server.get_by_text("The browser ended at a page that it cannot show").click()
        field = server.get_by_label("The address of that page")
        field.fill(where_it_leads(address))
        shot(server.page, "login-pasted")
        server.get_by_role("button", name="Send").click()
        expect(server.get_by_role("alert")).to_contain_text("access_denied")
        shot(server.page, "login-failed")
        world.callback = {}
        begin.click()
        server.get_by_text("The browser ended at a page that it cannot show").click()
        address = server.get_by_role("link").get_attribute("href")
        assert address is not None
        field.fill(where_it_leads(address))
        field.press("Enter")
        expect(server.get_by_role("status")).to_have_text("Logged in.")


@pytest.mark.rule("HPAGE-80")
def test_place_for_an_address_stays_open_when_the_server_is_shown_anew(modules: Page) -> None:
    shown = modules.evaluate("""async () => {
      const { Logins } = await import("/login.js");
      const logins = new Logins("api/logins", () => {});
      const server = { id: "desk", login: { page: "https://login.example/authorize" } };
      const place = () => logins.node(server).querySelector("details");
      const seen = [];
      const first = place();
      document.body.append(first);
      for (let n = 0; n < 2; n += 1) {
        first.querySelector("summary").click();
        seen.push([first.open, place().open]);
      }
      first.remove();
      return seen;
    }""")
    assert shown == [[True, True], [False, False]]
