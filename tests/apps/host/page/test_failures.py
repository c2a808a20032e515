"""What people see of failures, with the host itself, a vendor that fails, and Chromium."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.apps.host.page.test_chat import field, say
from tests.lab.host.process import host_process, serve_entry
from tests.lab.models.failing_vendor import (
    FAILURES,
    KEY,
    FailingVendor,
    failing_vendor,
    here,
    refusal,
)
from tests.lab.pages.chromium import shot, watched_page


@pytest.fixture(scope="module")
def vendor() -> Iterator[FailingVendor]:
    """Run a vendor for the module."""
    with failing_vendor() as running:
        yield running


@pytest.mark.rule("HPAGE-60", "TURN-16", "TURN-80", "LLM-33")
def test_reason_stands_in_the_chat_and_retry_asks_once_more(
    browser: Browser, vendor: FailingVendor, tmp_path: Path
) -> None:
    with (
        host_process(tmp_path, env=vendor.variables) as host,
        watched_page(browser, host.url) as watched,
    ):
        page = watched.page
        ending = page.locator(".ending")
        retry = page.get_by_role("button", name="Retry")
        for name, failure in FAILURES.items():
            vendor.answer = failure
            say(page, f"Question {name}")
            expect(ending).to_contain_text(failure.said)
            expect(retry).to_have_count(1 if failure.may_retry else 0)
            assert KEY not in page.content()
            shot(page, f"failure-{name.replace(' ', '-')}")
            if name in ("401", "context"):  # one of each kind
                page.reload()
                expect(ending).to_contain_text(failure.said)
                expect(retry).to_have_count(1 if failure.may_retry else 0)
            if failure.may_retry:
                vendor.answer = here("Here it is.")
                retry.click()
                expect(page.locator(".assistant")).to_contain_text("Here it is.")
                expect(ending).to_have_count(0)
                said = [each["content"] for each in vendor.asked[-1] if each["role"] == "user"]
                assert said == [f"Question {name}"]
            page.get_by_role("button", name="New chat").click()
            expect(page.locator(".assistant")).to_have_count(0)
            expect(ending).to_have_count(0)
    assert KEY not in host.process.stderr


@pytest.mark.rule("TURN-81", "HPAGE-60")
def test_wait_for_a_retry_is_shown(browser: Browser, vendor: FailingVendor, tmp_path: Path) -> None:
    vendor.answer = refusal(503, "Loading model", "", headers={"retry-after": "50"})
    variables = {**vendor.variables, "FOUNDATION_RT_HOST__RETRY_ATTEMPTS": "1"}
    with (
        host_process(tmp_path, env=variables) as host,
        watched_page(browser, host.url) as watched,
    ):
        page = watched.page
        say(page, "Are you there?")
        activity = page.locator(".activity")
        for _ in range(2):
            expect(activity).to_contain_text("It says: Loading model.")
            expect(activity).to_contain_text("It is tried again in 50 s.")
            shot(page, "waiting")
            page.reload()
        expect(activity).to_contain_text("It is tried again in 50 s.")  # so that Escape stops it
        page.keyboard.press("Escape")
        expect(page.locator(".ending")).to_contain_text("Stopped.")


@pytest.mark.rule("LLM-35", "HPAGE-19")
def test_base_url_without_its_version_is_said(
    browser: Browser, vendor: FailingVendor, tmp_path: Path
) -> None:
    vendor.answer = here("Here it is.")
    variables = {**vendor.variables, "LLM_BASE_URL": f"http://127.0.0.1:{vendor.port}"}
    with (
        host_process(tmp_path, env=variables) as host,
        watched_page(browser, host.url) as watched,
    ):
        page = watched.page
        say(page, "Where is it?")
        expect(page.locator(".assistant")).to_contain_text("Here it is.")
        page.get_by_role("button", name="New chat").click()
        expect(page.get_by_role("note")).to_contain_text("add /v1 to the base URL")
        shot(page, "base-url")
    assert "add /v1 to the base URL" in host.process.stderr


@pytest.mark.rule("HPAGE-21")
def test_page_says_that_the_host_has_ended(browser: Browser, tmp_path: Path) -> None:
    with host_process(tmp_path) as host, watched_page(browser, host.url) as watched:
        watched.may_lose = True
        page = watched.page
        expect(field(page)).to_be_visible()
        page.get_by_role("button", name="1 server").wait_for()
        host.process.signal(signal.SIGTERM)
        expect(page.get_by_text("The host has ended. Start it again")).to_be_visible()
        assert host.process.wait() == 128 + signal.SIGTERM
        shot(page, "host-ended")


TOOLS = """
from foundation_rt import ErrorCode, Server, ToolError

server = Server("desk")

@server.tool
def lend(book: str) -> str:
    raise ToolError(ErrorCode.NOT_FOUND, "There is no such book.", {"book": book})
"""


@pytest.mark.rule("HPAGE-13", "HPAGE-61")
def test_error_of_a_tool_is_words_and_no_claim_is_made_for_it(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(TOOLS)
    call = {"call": "desk:lend", "arguments": {"book": "Emma"}}
    (tmp_path / "script.json").write_text(json.dumps({"answers": [[call], ["It failed."]]}))
    entry = serve_entry(tmp_path / "app.py", tmp_path / "app.log")
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"desk": entry}}))
    words = ("--model", f"script:{tmp_path / 'script.json'}")
    with host_process(tmp_path, *words) as host, watched_page(browser, host.url) as watched:
        page = watched.page
        page.get_by_role("button", name="1 server, 2 tools").wait_for()
        say(page, "Lend me Emma")
        group = page.get_by_role("group", name="Run lend with exactly this?")
        expect(group).to_contain_text("does not say what it changes")
        page.keyboard.press("1")
        for _ in range(2):
            card = page.get_by_role("article", name="Call of lend")
            expect(card).to_contain_text("There is no such book.")
            expect(card).to_contain_text("NOT_FOUND")
            expect(card).not_to_contain_text("runId")
            expect(card).not_to_contain_text('{"code"')
            shot(page, "tool-error")
            page.reload()
