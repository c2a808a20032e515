"""The page with the host itself: a process, its servers, a proxy that cuts, and Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from playwright.sync_api import Browser, Page, expect

from tests.apps.host.page.test_chat import field, say
from tests.lab.host.process import HostProcess, host_process, serve_entry
from tests.lab.pages.chromium import shot, watched_page
from tests.lab.places.cable import cable_in_thread
from tests.lab.places.services import postgres_database
from tests.lab.servers.process import PATIENCE

TOOLS = Path(__file__).with_name("tools.py")

WORD_COUNT = 200

NUMBERS = {"values": [1234567890123456789, 10**24 + 1, 1.0, -0.5]}

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
    {
        "user": "parcel",
        "answers": [
            [{"call": "read_skill", "arguments": {"skill": "tools:parcels"}}],
            [
                {
                    "call": "read_skill",
                    "arguments": {"skill": "tools:parcels", "path": "forms.md"},
                }
            ],
            [{"echo": "result"}],
        ],
    },
    {"user": "post", "answers": [[{"call": "tools:post"}], [{"echo": "result"}]]},
    {"user": "wait", "answers": [["I wait.", {"call": "tools:wait"}], ["never"]]},
    {"user": "numbers", "answers": [[{"call": "tools:keep", "arguments": NUMBERS}], ["Kept."]]},
    {"user": "think", "answers": [["<think>Two ", "cities.</think>", "It rains."]]},
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
    entry = serve_entry(TOOLS, folder / "tools.log") | {"trust": True}
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
        watched.page.get_by_role("button", name="1 server, 6 tools").wait_for()
        yield watched.page


@pytest.mark.rule("HPAGE-01", "HPAGE-19")
def test_fresh_install_answers_without_key_and_network(browser: Browser, tmp_path: Path) -> None:
    with host_process(tmp_path) as host, watched_page(browser, host.url) as watched:
        page = watched.page
        expect(page.get_by_role("note")).to_contain_text("mcp.json")
        expect(page.get_by_role("note")).to_contain_text("GEMINI_API_KEY")
        page.get_by_role("button", name="Echo").click()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Allow once").click()
        expect(page.locator(".assistant")).to_contain_text("hello")
        expect(page.get_by_role("article")).to_contain_text("Allowed once")
        shot(page, "real-1-first-answer")


@pytest.mark.rule("HPAGE-13", "HPAGE-71", "LLM-94")
def test_approval_and_result_have_the_digits_that_are_sent(chat: Page) -> None:
    digits = re.compile(r"1234567890123456789,\s*1000000000000000000000001,\s*1\.0,\s*-0\.5")
    say(chat, "numbers")
    expect(chat.locator(".approval code")).to_contain_text(digits)
    shot(chat, "real-numbers")
    chat.get_by_role("button", name="Allow once").click()
    expect(chat.locator(".assistant p")).to_have_text("Kept.")
    for _ in range(2):
        expect(chat.locator(".arguments code").first).to_contain_text(digits)
        expect(chat.get_by_role("article")).to_contain_text(digits)
        chat.reload()


@pytest.mark.rule("HPAGE-70", "LLM-97")
def test_thought_is_folded_also_after_a_reload(chat: Page) -> None:
    say(chat, "think")
    for _ in range(2):
        expect(chat.locator(".assistant p")).to_have_text("It rains.")
        folded = chat.locator("details.thought")
        expect(folded.locator("summary")).to_have_text("Thought")
        expect(folded.locator(".thought-text")).to_be_hidden()
        folded.locator("summary").click()
        expect(folded.locator(".thought-text")).to_have_text("Two cities.")
        shot(chat, "real-thought")
        chat.reload()


@pytest.mark.rule("HPAGE-31", "HPAGE-06", "HTTP-44")
def test_the_secret_stays_in_its_tab(browser: Browser, ready: Ready) -> None:
    origin, _, token = ready.host.url.partition("#token=")
    with watched_page(browser, ready.host.url) as watched:
        watched.may_lose = True
        page = watched.page
        page.get_by_role("button", name="1 server, 6 tools").wait_for()
        assert page.url == origin
        page.reload()
        page.get_by_role("button", name="1 server, 6 tools").wait_for()
        assert watched.context.cookies() == []
        assert token not in page.evaluate("JSON.stringify([localStorage, document.cookie])")
        stranger = watched.context.new_page()
        stranger.goto(origin)
        expect(stranger.get_by_text(f"foundation-rt host printed: {origin}#token=")).to_be_visible()
        shot(stranger, "real-8-stranger")
        stranger.goto(ready.host.url)  # loads nothing: only the fragment differs
        stranger.get_by_role("button", name="1 server, 6 tools").wait_for()
        assert stranger.url == origin


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


@pytest.mark.rule("HPAGE-81", "TURN-93", "TURN-94", "HPAGE-18")
def test_skill_is_read_once_a_person_has_read_it(chat: Page) -> None:
    chat.keyboard.press("Alt+S")
    chat.get_by_role("dialog").get_by_text("1 skill", exact=True).click()
    expect(chat.get_by_role("dialog")).to_contain_text("Send parcels abroad.")
    shot(chat, "real-skills")
    chat.keyboard.press("Escape")
    say(chat, "parcel")
    group = chat.get_by_role("group", name="Let the model read this of the skill parcels")
    expect(group).to_be_focused()
    expect(group).to_contain_text("Ask for the country first.")
    shot(chat, "real-skill-approval")
    chat.keyboard.press("2")
    for _ in range(2):
        expect(chat.locator(".assistant")).to_contain_text("Use form CN22.")
        first, second = chat.get_by_role("article", name="Skill parcels, server tools").all()
        expect(first).to_contain_text("Allowed in this chat")
        expect(second).to_contain_text("The model has read forms.md")
        shot(chat, "real-skill-read")
        chat.reload()


@pytest.mark.rule("HPAGE-02", "HPAGE-22")
def test_tabs_agree_and_a_chat_is_saved_and_deleted(chat: Page, ready: Ready) -> None:
    say(chat, "remove")
    group = chat.get_by_role("group", name="Run remove with exactly this?")
    group.wait_for()
    other = chat.context.new_page()
    other.goto(ready.host.url)
    other.get_by_role("button", name="Deny").click()
    expect(chat.get_by_text("Denied")).to_be_visible()
    other.close()
    expect(chat.locator(".assistant")).to_contain_text("It is gone.")
    chat.get_by_label("Export this chat").click()
    with chat.expect_download() as saved:
        chat.get_by_role("button", name="Markdown").click()
    assert "It is gone." in saved.value.path().read_text()
    listed = chat.get_by_role("button", name="remove", exact=True)
    before = listed.count()
    chat.get_by_role("button", name="Delete remove").first.click()
    chat.get_by_role("button", name="Delete", exact=True).click()
    expect(chat.get_by_role("list", name="Servers")).to_have_text("tools 6 tools")
    expect(listed).to_have_count(before - 1)


@pytest.mark.rule("HPAGE-22", "CHAT-34")
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_chats_follow_their_person_into_another_browser(
    browser: Browser, tmp_path: Path, store: str
) -> None:
    with ExitStack() as stack:
        dsn = "sqlite:chats.db"
        if store == "postgresql":
            dsn = stack.enter_context(postgres_database())
        host = stack.enter_context(host_process(tmp_path, *write_files(tmp_path), "--store", dsn))
        one = stack.enter_context(watched_page(browser, host.url)).page
        one.get_by_role("button", name="1 server, 6 tools").wait_for()
        say(one, "weather")
        expect(one.locator(".assistant")).to_contain_text("It is cold.")
        other = stack.enter_context(watched_page(browser, host.url)).page
        title = other.get_by_role("button", name="weather", exact=True)
        title.click()
        expect(other.locator(".assistant")).to_contain_text("It is cold.")
        other.get_by_role("button", name="Rename or pin weather").click()
        other.get_by_label("Title").fill("Cold days")
        other.get_by_label("Pin to the top").check()
        other.keyboard.press("Enter")
        expect(other.get_by_role("heading", name="Cold days")).to_be_visible()
        one.reload()
        expect(one.locator(".chat-title")).to_have_text("Pinned: Cold days")
        one.get_by_label("Search chats").fill("is COLD")
        expect(one.locator(".chat-title")).to_have_count(1)
        shot(one, f"real-9-second-browser-{store}")
        one.get_by_label("Search chats").fill("warm")
        expect(one.get_by_text("Nothing was found.")).to_be_visible()
        other.get_by_role("button", name="Delete Cold days").click()
        other.get_by_role("button", name="Delete", exact=True).click()
        expect(other.get_by_text("Your chats appear here.")).to_be_visible()
        one.get_by_label("Search chats").fill("")
        one.reload()
        expect(one.get_by_text("Your chats appear here.")).to_be_visible()


@pytest.mark.rule("HPAGE-15")
def test_a_form_of_a_server_is_filled_in(chat: Page) -> None:
    say(chat, "post")
    name = chat.get_by_role("textbox", name="name")
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
    expect(chat.locator(".ending")).to_contain_text("Stopped.")
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
    with (
        cable_in_thread(ready.host.url) as (wire, do),
        watched_page(browser, wire.url) as watched,
    ):
        watched.may_lose = True
        page = watched.page
        page.get_by_role("button", name="1 server, 6 tools").wait_for()
        wire.cuts = [1500, 1, 700, 333, 2000, 1777]
        say(page, "stream")
        expect(page.locator(".assistant strong")).to_have_text("end")
        words = page.locator(".assistant .markdown").inner_text().split()
        assert words == ["word"] * WORD_COUNT + ["end"]
        assert wire.cut_count > 0
        wire.cuts = []
        do(wire.cut())
        expect(page.get_by_text("The connection is lost.")).to_be_visible()
        say(page, "weather")
        expect(page.locator(".unsent")).to_be_visible()
        shot(page, "real-6-cut")
        do(wire.mend())
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
        page.get_by_role("button", name="1 server, 6 tools").wait_for()
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
