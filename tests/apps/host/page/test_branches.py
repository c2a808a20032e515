"""Branches: an answer is asked for again, a message is edited, and both can be gone back to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.apps.host.page.test_attachments import give
from tests.apps.host.page.test_chat import begin, field, say
from tests.lab.host.process import host_process
from tests.lab.host.scripted_host import ScriptedHost
from tests.lab.pages.chromium import shot, watched_page

SCRIPT: list[dict[str, Any]] = [{"answers": [[{"echo": "user"}]]}]


@pytest.fixture
def chat(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """Open the page of a host process whose model repeats what it reads."""
    with (
        host_process(tmp_path, "--store", "sqlite:chats.db", script=SCRIPT) as host,
        watched_page(browser, host.url) as watched,
    ):
        yield watched.page


def bubbles(page: Page, *texts: str) -> None:
    """Expect what the person has said, on the branch that is shown."""
    expect(page.locator(".user:not(.unsent) .bubble")).to_have_text(texts)


@pytest.mark.rule("HPAGE-50", "CHAT-40")
def test_a_message_is_edited_and_the_old_branch_is_there(chat: Page) -> None:
    for number, text in enumerate(("one", "two"), 1):
        say(chat, text)
        expect(chat.locator(".assistant .markdown")).to_have_count(number)
    chat.locator(".message.user").first.hover()
    chat.get_by_role("button", name="Edit this message").first.click()
    expect(field(chat)).to_have_value("one")
    say(chat, "uno")
    bubbles(chat, "uno")
    expect(chat.get_by_role("group", name="Branches")).to_have_text("2 of 2")
    say(chat, "dos")
    bubbles(chat, "uno", "dos")
    shot(chat, "branches-1")
    chat.get_by_role("button", name="Branch before").click()
    bubbles(chat, "one", "two")
    expect(chat.get_by_role("button", name="Next branch")).to_be_focused()
    say(chat, "three")
    bubbles(chat, "one", "two", "three")
    expect(chat.locator(".assistant .markdown").last).to_have_text("three")
    chat.reload()
    bubbles(chat, "one", "two", "three")
    chat.keyboard.press("Shift+Tab")
    chat.get_by_role("button", name="Next branch").press("Enter")
    bubbles(chat, "uno", "dos")


@pytest.mark.rule("HPAGE-50")
def test_an_answer_is_asked_for_again(chat: Page) -> None:
    say(chat, "one")
    expect(chat.locator(".assistant .markdown")).to_have_text("one")
    chat.get_by_role("button", name="Answer again").click()
    expect(chat.get_by_role("group", name="Branches")).to_have_text("2 of 2")
    bubbles(chat, "one")
    expect(chat.locator(".assistant .markdown")).to_have_text("one")


@pytest.mark.rule("HPAGE-50")
def test_an_edit_is_given_up_and_a_refused_one_stays_one(page: Page, host: ScriptedHost) -> None:
    first = begin(page, host, "one")
    host.event("turn", {"state": "finished"})
    field(page).fill("half a sent")
    edit = page.get_by_role("button", name="Edit this message")
    edit.click()
    page.keyboard.press("Escape")
    expect(field(page)).to_have_value("half a sent")
    edit.click()
    say(page, "uno")
    expect(field(page)).to_have_value("half a sent")
    said = host.next_said("message")
    assert (said["text"], said["after"]) == ("uno", None)
    error = {"code": "RATE_LIMITED", "message": "Too many.", "id": said["id"]}
    host.send({"type": "error", "payload": error})
    page.get_by_role("button", name="Edit", exact=True).click()
    say(page, "due")
    said = host.next_said("message")
    assert (said["text"], said["after"]) == ("due", None)
    say(page, "waits")
    assert "after" not in host.next_said("message")
    host.event("user", {"text": "due", "messageId": said["id"], "after": None})
    bubbles(page, "due")
    page.get_by_role("button", name="Branch before").click()
    bubbles(page, "one")
    say(page, "here")
    assert "after" not in host.next_said("message")  # it follows the one that waits
    assert first


@pytest.mark.rule("HPAGE-50")
def test_a_refused_message_does_not_lead_to_another_branch(page: Page, host: ScriptedHost) -> None:
    first = begin(page, host, "one")
    host.event("turn", {"state": "finished"})
    host.event("user", {"text": "uno", "messageId": "m2", "after": None})
    host.event("turn", {"state": "finished"})
    bubbles(page, "uno")
    page.get_by_role("button", name="Branch before").click()
    for text in ("two", "three"):
        say(page, text)
        said = host.next_said("message")
        assert (said["text"], said["after"]) == (text, first)
        error = {"code": "RATE_LIMITED", "message": "Too many.", "id": said["id"]}
        host.send({"type": "error", "payload": error})
        expect(page.get_by_text("Too many.").last).to_be_visible()
        bubbles(page, "one")


@pytest.mark.rule("HPAGE-50", "HPAGE-52")
def test_files_of_a_draft_wait_while_a_message_is_edited(page: Page, host: ScriptedHost) -> None:
    begin(page, host, "one")
    host.event("turn", {"state": "finished"})
    give(page, "drop", "mine.txt", "text/plain", b"mine")
    mine = page.get_by_role("button", name="Remove mine.txt")
    edit = page.get_by_role("button", name="Edit this message")
    for end in ("Escape", "Enter"):
        expect(mine).to_be_visible()
        edit.click()
        expect(mine).to_have_count(0)
        page.keyboard.press(end)
    expect(mine).to_be_visible()
    assert "attachments" not in host.next_said("message")


@pytest.mark.rule("HPAGE-50")
@pytest.mark.parametrize(
    ("chosen", "shown", "forks"),
    [
        ([], ["x", "d", "e"], {"d": ["b", "d"]}),
        ([["a", "b"]], ["x", "b", "c"], {"b": ["b", "d"]}),
        ([["a", "nobody"], ["other", "b"]], ["x", "d", "e"], {"d": ["b", "d"]}),
    ],
)
def test_a_branch_of_a_part_begins_where_it_is_known(
    modules: Page, chosen: list[list[str]], shown: list[str], forks: dict[str, list[str]]
) -> None:
    users = [("b", "a"), ("c", None), ("d", "a"), ("e", None)]
    items = [{"kind": "text", "id": "x"}]
    items += [{"kind": "user", "id": name, **({"after": of} if of else {})} for name, of in users]
    found = modules.evaluate(
        """async ([items, chosen]) => {
          const { branchOf } = await import("/branches.js");
          const { items: shown, last, forks } = branchOf(items, new Map(chosen));
          return [shown.map(({ id }) => id), last, Object.fromEntries(forks)];
        }""",
        [items, chosen],
    )
    assert found == [shown[1:], shown[-1], forks]
