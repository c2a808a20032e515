"""What helps to write and to read: prompts by `/`, resources by `@`, syntax colours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.apps.host.page.test_chat import begin, field
from tests.lab.host.process import host_process, serve_entry
from tests.lab.host.scripted_host import ScriptedHost
from tests.lab.pages.axe import axe_source, findings
from tests.lab.pages.chromium import shot, watched_page

NOTES = Path(__file__).with_name("notes.py")
CODE = "```python\ndef f():\n    return 1  # one\n```\n\n```\nplain\n```"


@pytest.fixture
def chat(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """Open the page of a host process with the server of notes."""
    answers = [{"user": "code", "answers": [[CODE]]}, {"answers": [[{"echo": "user"}]]}]
    (tmp_path / "script.json").write_text(json.dumps(answers))
    entry = serve_entry(NOTES, tmp_path / "notes.log") | {"trust": True}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
    words = ("--model", f"script:{tmp_path / 'script.json'}")
    with host_process(tmp_path, *words) as host, watched_page(browser, host.url) as watched:
        expect(watched.page.get_by_role("list", name="Servers")).to_contain_text("1 tool")
        yield watched.page


@pytest.mark.rule("HPAGE-55", "HPAGE-28")
def test_a_prompt_is_chosen_filled_in_and_sent_by_the_keyboard(chat: Page) -> None:
    axe = axe_source()
    chat.keyboard.type("/rev")
    prompts = chat.get_by_role("listbox", name="Prompts")
    expect(prompts.get_by_role("option", selected=True)).to_contain_text("review")
    shot(chat, "aids-1-prompts")
    assert findings(chat, axe, None) == []
    chat.keyboard.press("Enter")
    form = chat.get_by_role("dialog", name="review")
    language = form.get_by_label("language")
    expect(language).to_be_focused()
    chat.keyboard.type("p")
    options = form.locator("datalist").first.locator("option")
    expect(options).to_have_count(2)
    assert options.first.get_attribute("value") == "python"
    shot(chat, "aids-2-arguments")
    assert findings(chat, axe, None) == []
    chat.keyboard.type("erl")
    chat.keyboard.press("Enter")
    expect(field(chat)).to_have_value("Review this perl, short.")
    expect(field(chat)).to_be_focused()
    chat.keyboard.press("Enter")
    expect(chat.locator(".assistant .markdown")).to_have_text("Review this perl, short.")


@pytest.mark.rule("HPAGE-55")
def test_a_resource_goes_with_the_message(chat: Page) -> None:
    chat.keyboard.type("see @today")
    expect(chat.get_by_role("listbox", name="Resources").get_by_role("option")).to_have_count(1)
    chat.keyboard.press("Tab")
    expect(chat.get_by_role("button", name="Remove today")).to_be_visible()
    expect(field(chat)).to_have_value("see ")
    expect(field(chat)).to_be_focused()
    chat.keyboard.press("Enter")
    expect(chat.locator(".assistant .code")).to_contain_text("Buy milk.")


@pytest.mark.rule("HPAGE-55")
def test_what_is_no_offer_is_a_message(page: Page, host: ScriptedHost) -> None:
    resource = {"server": "s", "uri": "a://b", "name": "b", "description": 5}
    host.offers["offers"] = {"prompts": "none", "resources": [resource]}
    page.keyboard.type("/echo a=1")
    page.keyboard.press("Enter")
    assert host.next_said("message")["text"] == "/echo a=1"
    page.keyboard.type("mail me@")
    expect(page.get_by_role("listbox")).to_have_count(0)
    page.keyboard.type(" @")
    expect(page.get_by_role("listbox")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_have_count(0)
    page.keyboard.press("Enter")
    assert host.next_said("message")["text"] == "mail me@ @"
    page.keyboard.type("@")
    host.offers["resource"] = {"error": 1}
    page.get_by_role("option").click()
    expect(field(page)).to_have_value("")
    expect(field(page)).to_be_focused()


@pytest.mark.rule("HPAGE-54")
def test_code_has_colours(chat: Page) -> None:
    field(chat).fill("code")
    chat.keyboard.press("Enter")
    blocks = chat.locator(".assistant pre > code")
    expect(blocks.first.locator(".code-keyword")).to_have_text(["def", "return"])
    expect(blocks.first.locator(".code-comment")).to_have_text("# one")
    assert blocks.first.text_content() == "def f():\n    return 1  # one"
    expect(blocks.last.locator("span")).to_have_count(0)
    for scheme in ("light", "dark"):
        chat.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        shot(chat, f"aids-3-colours-{scheme}")
        assert findings(chat, axe_source(), ["color-contrast"]) == []


@pytest.mark.rule("HPAGE-54")
def test_colours_that_were_not_had_are_asked_for_again(page: Page, host: ScriptedHost) -> None:
    host.offers["colours"] = {"spans": [[3, "keyword"], [5, ""]]}
    page.route("**/api/colours", lambda route: route.fulfill(body="busy"))
    begin(page, host)
    with page.expect_response("**/api/colours"):
        host.event("text", {"content": "```js\nlet a =1\n```", "messageId": "t1", "done": True})
    keyword = page.locator(".assistant .code-keyword")
    expect(keyword).to_have_count(0)
    page.unroute("**/api/colours")
    host.event("turn", {"state": "finished"})
    expect(keyword).to_have_text("let")


@pytest.mark.rule("HPAGE-54")
def test_wrong_colours_leave_the_code_plain(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    wrong: list[Any] = [
        None,
        "x",
        [[3, "keyword"]],
        [[9, "keyword"], [-1, "name"]],
        [[1.5, "keyword"], [6.5, "name"]],
        [8, 0],
        [["8", "keyword"]],
        [[8, "<img src=x onerror=alert(1)>"]],
        [[8, "constructor"]],
    ]
    for number, spans in enumerate(wrong):
        host.offers["colours"] = {"spans": spans}
        text = f"```js\nlet a ={number}\n```"
        host.event("text", {"content": text, "messageId": f"t{number}", "done": True})
        assert host.asked.get(timeout=30)[0] == "colours"
        page.evaluate("fetch('api/colours', { method: 'POST', body: '{}' })")
        assert host.asked.get(timeout=30)[1] == {}
        code = page.locator(".assistant pre > code").last
        expect(code).to_have_text(f"let a ={number}")
        expect(code.locator("span")).to_have_count(0)
