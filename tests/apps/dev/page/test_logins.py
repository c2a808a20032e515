"""A program that waits for a login, on the page of `foundation-rt dev`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.lab.login.oauth_world import World, running_world
from tests.lab.pages.axe import axe_source, findings
from tests.lab.pages.chromium import WatchedPage, shot, watched_page
from tests.lab.servers.dev_front import dev_front


def log_in(watched: WatchedPage, world: World, place: Locator) -> None:
    """Log in by the button of a place of the page."""
    watched.visits += [world.issuer, "http://127.0.0.1:", "http://localhost:"]
    expect(place).to_contain_text(f"Run: foundation-rt login {world.url}")
    place.get_by_role("button", name="Log in to").click()
    link = place.get_by_role("link", name=f"Open {world.issuer[7:]}")
    expect(link).to_be_focused()
    assert findings(watched.page, axe_source()) == []
    with watched.page.expect_popup() as popup:
        link.press("Enter")
    expect(popup.value.locator("body")).to_contain_text("You can close this page.")


def has_its_tool(page: Page) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Tools").click()
    expect(page.get_by_role("link", name="echo")).to_be_visible()


@pytest.mark.rule("DEV-91", "DEV-17")
def test_only_program_is_logged_in_to_from_the_banner(browser: Browser, tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path)}
    with (
        running_world() as world,
        dev_front(tmp_path, world.url, env=home) as front,
        watched_page(browser, front.page_url, color_scheme="light") as watched,
    ):
        banner = watched.page.locator(".failed")
        expect(banner.get_by_role("heading")).to_have_text("server needs a login")
        assert front.server()["state"] == "needs login"
        shot(watched.page, "dev-login-light")
        log_in(watched, world, banner)
        front.wait_for_state("running")
        expect(banner).to_have_count(0)
        has_its_tool(watched.page)


@pytest.mark.rule("DEV-91")
def test_one_of_several_is_logged_in_to_in_the_list(browser: Browser, tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path)}
    with running_world() as world:
        servers = {
            "desk": {"url": world.url},
            "off": {"command": "x", "disabled": True},
        }
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        with (
            dev_front(tmp_path, "mcp.json", env=home) as front,
            watched_page(browser, front.page_url, color_scheme="dark") as watched,
        ):
            watched.page.get_by_role("link", name="See why").click()
            card = watched.page.get_by_role("region", name="Server desk")
            log_in(watched, world, card)
            expect(card.get_by_role("status")).to_have_text("Logged in.")
            expect(card).to_contain_text("Running")
            shot(watched.page, "dev-login-dark")
            has_its_tool(watched.page)


@pytest.mark.rule("DEV-91", "COORD-84")
def test_front_of_several_users_takes_nobodys_login(tmp_path: Path) -> None:
    keys = json.dumps(["ann:the-key-of-ann-at-work", "bob:the-key-of-bob-at-work"])
    env = {"XDG_DATA_HOME": str(tmp_path), "FOUNDATION_RT_HTTP__API_KEYS": keys}
    with running_world() as world:
        servers = {"plain": {"url": world.url}, "own": {"url": world.url, "oauth": {}}}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        with dev_front(tmp_path, "mcp.json", env=env) as front:
            # It was asked, without a login.
            front.reader.wait_for("state", lambda state: "HTTP status 401" in json.dumps(state))
            assert front.server("plain")["login"] is None
            assert "there are several users here" in front.server("own")["error"]["message"]
