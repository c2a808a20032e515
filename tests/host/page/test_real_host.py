"""The page with the host itself: a process, its servers, a proxy that cuts, and Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from playwright.sync_api import Browser, Page, expect

from tests.host.page.test_chat import field
from tests.support.chromium import shot, watched_page
from tests.support.host_process import HostProcess, cable, host_process, serve_entry
from tests.support.process import PATIENCE

TOOLS = Path(__file__).with_name("tools.py")

WORD_COUNT = 200

SCRIPT: list[dict[str, Any]] = [
    {
        "user": "stream",
        "answers": [
            [{"text": "word ", "times": WORD_COUNT, "everyMs": 2}, "**end**"],
        ],
    },
    {
        "user": "weather",
        "answers": [[{"call": "tools:weather", "arguments": {"city": "Oslo"}}], ["It is cold."]],
    },
    {
        "user": "remove",
        "answers": [[{"call": "tools:remove", "arguments": {"path": "a.txt"}}], ["It is gone."]],
    },
    {"user": "post", "answers": [[{"call": "tools:post"}], [{"echo": "result"}]]},
    {"user": "wait", "answers": [["I wait.", {"call": "tools:wait"}], ["never"]]},
    {"answers": [["Hello."]]},
]


@frozen
class Ready:
    """A host with a script and the tools, and the log of their server."""

    host: HostProcess
    tools_log: Path


def write_files(folder: Path) -> tuple[str, ...]:
    """Write a script and servers; return the words that name them."""
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    entry = serve_entry(TOOLS, folder / "tools.log")
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
    return ("--model", f"script:{folder / 'script.json'}")


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """Run a host for the module."""
    folder = tmp_path_factory.mktemp("host")
    with host_process(folder, *write_files(folder)) as host:
        yield Ready(host, folder / "tools.log")


@pytest.fixture
def chat(browser: Browser, ready: Ready) -> Iterator[Page]:
    """Open the page, with the tools there."""
    with watched_page(browser, ready.host.url) as watched:
        watched.page.get_by_role("button", name="1 server, 5 tools").wait_for()
        yield watched.page


def say(page: Page, text: str) -> None:
    """Write a message and send it."""
    field(page).fill(text)
    page.keyboard.press("Enter")


@pytest.mark.rule("HPAGE-01", "HPAGE-19")
def test_fresh_install_answers_without_key_and_network(browser: Browser, tmp_path: Path) -> None:
    with host_process(tmp_path) as host, watched_page(browser, host.url) as watched:
        page = watched.page
        expect(page.get_by_role("note")).to_contain_text("mcp.json")
        expect(page.get_by_role("note")).to_contain_text("GEMINI_API_KEY")
        assert "token" not in page.url
        page.get_by_role("button", name="Echo").click()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Allow once").click()
        expect(page.locator(".assistant")).to_contain_text("hello")
        expect(page.get_by_role("article")).to_contain_text("Allowed once")
        shot(page, "real-1-first-answer")


@pytest.mark.rule("HPAGE-10", "HPAGE-24")
def test_an_answer_streams(chat: Page) -> None:
    say(chat, "stream")
    expect(chat.locator(".assistant[data-growing=true]")).to_contain_text("word word")
    expect(chat.locator(".assistant strong")).to_have_text("end")
    expect(chat.locator(".usage")).to_contain_text("about")


@pytest.mark.rule("HPAGE-11", "HPAGE-12")
def test_a_call_is_a_card_before_and_after_a_reload(chat: Page) -> None:
    say(chat, "weather")
    for _ in range(2):
        card = chat.get_by_role("article", name="Call of weather, server tools")
        expect(card).to_contain_text("Done in")
        assert card.locator("th").all_inner_texts() == ["city", "day", "degrees"]
        expect(chat.locator(".assistant")).to_contain_text("It is cold.")
        shot(chat, "real-2-card")
        chat.reload()


@pytest.mark.rule("HPAGE-13", "HPAGE-14")
def test_an_approval_is_decided_by_the_keyboard(chat: Page) -> None:
    say(chat, "remove")
    group = chat.get_by_role("group", name="Run remove with exactly this?")
    expect(group).to_be_focused()
    expect(group).to_contain_text('"path": "a.txt"')
    shot(chat, "real-3-approval")
    chat.keyboard.press("1")
    expect(chat.locator(".assistant")).to_contain_text("It is gone.")
    expect(chat.get_by_role("article")).to_contain_text("removed a.txt")


@pytest.mark.rule("HPAGE-02", "HPAGE-22")
def test_tabs_agree_and_a_chat_is_saved_and_deleted(chat: Page) -> None:
    say(chat, "remove")
    group = chat.get_by_role("group", name="Run remove with exactly this?")
    group.wait_for()
    other = chat.context.new_page()
    other.goto(chat.url)
    other.get_by_role("button", name="Deny").click()
    expect(chat.get_by_text("Denied")).to_be_visible()
    other.close()
    expect(chat.locator(".assistant")).to_contain_text("It is gone.")
    chat.get_by_label("Export this chat").click()
    with chat.expect_download() as saved:
        chat.get_by_role("button", name="Markdown").click()
    assert "It is gone." in saved.value.path().read_text()
    chat.get_by_role("button", name="Delete remove").click()
    chat.get_by_role("button", name="Delete", exact=True).click()
    expect(chat.get_by_role("heading", name="What can I do")).to_be_visible()
    expect(chat.get_by_role("button", name="remove", exact=True)).to_have_count(0)


@pytest.mark.rule("HPAGE-15")
def test_a_form_of_a_server_is_filled_in(chat: Page) -> None:
    say(chat, "post")
    name = chat.get_by_label("name")
    expect(name).to_be_focused()
    name.fill("Ann")
    chat.get_by_label("count").fill("3")
    shot(chat, "real-4-form")
    chat.keyboard.press("Enter")
    expect(chat.locator(".assistant")).to_contain_text("accept: Parcel(name='Ann', count=3)")


@pytest.mark.rule("HPAGE-23")
def test_stop_reaches_the_server(chat: Page, ready: Ready) -> None:
    say(chat, "wait")
    expect(chat.get_by_role("article")).to_contain_text("waiting · 30 %")
    shot(chat, "real-5-running")
    chat.keyboard.press("Escape")
    expect(chat.locator(".ending")).to_have_text("Stopped.")
    expect(field(chat)).to_be_focused()
    record = completion(ready.tools_log, "wait", chat)
    assert record["outcome"] == "aborted"


def completion(log: Path, tool: str, page: Page) -> dict[str, Any]:
    """Wait for the record that a server writes of a call."""
    for _ in range(int(PATIENCE * 50)):
        for line in log.read_text().splitlines():
            record = json.loads(line)
            if record.get("toolName") == tool and "outcome" in record:
                return dict(record)
        page.wait_for_timeout(20)  # the record is on its way to the file
    raise AssertionError(log.read_text())


@pytest.mark.rule("HPAGE-02", "HPAGE-04", "HPAGE-07", "HPAGE-21")
def test_cuts_at_any_byte_lose_and_double_nothing(browser: Browser, ready: Ready) -> None:
    with cable(ready.host.port) as wire:
        url = ready.host.at_port(wire.port)
        with watched_page(browser, url) as watched:
            watched.may_lose = True
            page = watched.page
            page.get_by_role("button", name="1 server, 5 tools").wait_for()
            wire.cuts = [1500, 1, 700, 333, 2000, 1777]
            say(page, "stream")
            expect(page.locator(".assistant strong")).to_have_text("end")
            words = page.locator(".assistant .markdown").inner_text().split()
            assert words == ["word"] * WORD_COUNT + ["end"]
            assert wire.cut_count > 0
            wire.cuts = []
            wire.cut()
            expect(page.get_by_text("The connection is lost.")).to_be_visible()
            say(page, "weather")
            expect(page.locator(".unsent")).to_be_visible()
            shot(page, "real-6-cut")
            wire.mend()
            page.evaluate("dispatchEvent(new Event('online'))")
            expect(page.locator(".assistant").last).to_contain_text("It is cold.")
            assert page.locator(".bubble").all_inner_texts() == ["stream", "weather"]


@pytest.mark.rule("HPAGE-03", "HPAGE-04")
def test_a_host_that_is_killed_comes_back_with_the_chat(
    browser: Browser, tmp_path: Path, page_port: int
) -> None:
    words = (*write_files(tmp_path), "--store", "sqlite:chats.db", "--port", str(page_port))
    with host_process(tmp_path, *words) as host, watched_page(browser, host.url) as watched:
        watched.may_lose = True
        page = watched.page
        page.get_by_role("button", name="1 server, 5 tools").wait_for()
        say(page, "weather")
        expect(page.locator(".assistant")).to_contain_text("It is cold.")
        say(page, "wait")
        expect(page.get_by_role("article", name="Call of wait")).to_contain_text("waiting")
        host.kill()
        expect(page.get_by_text("The connection is lost.")).to_be_visible()
        with host_process(tmp_path, *words):
            page.evaluate("dispatchEvent(new Event('online'))")
            expect(page.locator(".ending")).to_contain_text("interrupted")
            for _ in range(2):
                card = page.get_by_role("article", name="Call of wait")
                expect(card).to_contain_text("Outcome unknown")
                expect(page.locator(".assistant").first).to_contain_text("It is cold.")
                shot(page, "real-7-killed")
                page.reload()
