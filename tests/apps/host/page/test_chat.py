"""The page with a host that does what the test says: what is sent, shown, kept and sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.lab.host.scripted_host import ScriptedHost
from tests.lab.pages.chromium import WatchedPage, wait_until
from tests.lab.servers.process import PATIENCE


def say(page: Page, text: str) -> None:
    """Write a message and send it."""
    field(page).fill(text)
    page.keyboard.press("Enter")


def field(page: Page) -> Locator:
    """Return the message field."""
    return page.get_by_label("Message", exact=True)


def begin(page: Page, host: ScriptedHost, text: str = "hello") -> str:
    """Say something and have its turn begin; return the id of the message."""
    say(page, text)
    message = host.next_said("message")
    host.event("user", {"text": text, "messageId": message["id"]})
    host.event("turn", {"state": "started"})
    expect(page.get_by_role("button", name="Stop")).to_be_visible()  # the page has read both
    return str(message["id"])


def call(host: ScriptedHost, call_id: str = "c1", **payload: Any) -> None:
    """Send the state of a call."""
    base = {"state": "processing", "tool": "demo:add", "message": "", "callId": call_id}
    host.event("status", base | payload)


APPROVAL = {
    "callId": "c1",
    "kind": "tool",
    "decisions": ["once", "session", "always", "deny"],
    "server": "demo",
    "tool": "add",
    "arguments": {"a": 1, "deep": {"b": [2]}},
    "annotations": {"destructiveHint": False},
    "description": "Add two numbers.",
    "expiresAt": 1795000000000,
}


@pytest.mark.rule("HPAGE-10", "HPAGE-24")
def test_a_text_streams_and_tokens_are_counted(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    for piece in ("Hel", "lo **wor", "ld**"):
        host.event("text", {"content": piece, "messageId": "t1", "done": False})
    expect(page.locator(".assistant strong")).to_have_text("world")
    host.event("text", {"content": "", "messageId": "t1", "done": True})
    usage = {"promptTokens": 1200, "completionTokens": 34, "isEstimated": True}
    host.event("turn", {"state": "finished", "usage": usage})
    expect(page.locator(".usage")).to_have_text("about 1,234 tokens")


@pytest.mark.rule("HPAGE-11", "HPAGE-12")
def test_a_call_is_a_card_with_progress_and_result(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    call(host, data={"arguments": {"a": 1}}, progress={"progress": 1, "total": 4, "message": "on"})
    card = page.get_by_role("article", name="Call of add, server demo")
    expect(card).to_contain_text("Running")
    expect(card).to_contain_text("on · 25 %")
    assert card.get_by_role("progressbar").get_attribute("value") == "1"
    result = {"content": [{"type": "text", "text": "seven"}]}
    call(host, state="complete", data={"result": result}, durationMs=1500)
    expect(card).to_contain_text("Done in 1.5 s")
    expect(card).to_contain_text("seven")
    card.get_by_text("Arguments").click()
    expect(card.get_by_role("group", name="Code: json")).to_have_text('{\n  "a": 1\n}')
    error = {"code": "NOT_FOUND", "message": "no such file"}
    call(host, "c2", state="complete", tool="files:read", data={"error": error}, isError=True)
    failed = page.get_by_role("article", name="Call of read, server files")
    expect(failed).to_contain_text("Failed")
    expect(failed).to_contain_text("no such file")


@pytest.mark.rule("HPAGE-13", "HPAGE-14", "HPAGE-20")
@pytest.mark.parametrize(
    ("key", "decision", "shown"),
    [
        ("1", "once", "Allowed once"),
        ("2", "session", "Allowed in this chat"),
        ("3", "always", "Always allowed"),
        ("4", "deny", "Denied"),
    ],
)
def test_an_approval_shows_exact_arguments_and_is_decided_by_a_key(
    page: Page, host: ScriptedHost, key: str, decision: str, shown: str
) -> None:
    begin(page, host)
    call(host, awaiting="approval", data={"arguments": APPROVAL["arguments"]})
    host.event("approval", APPROVAL)
    group = page.get_by_role("group", name="Run add with exactly this?")
    expect(group).to_be_focused()
    expect(group).to_contain_text('{\n  "a": 1,\n  "deep": {\n    "b": [\n      2\n    ]\n  }\n}')
    expect(group).to_contain_text("Add two numbers.")
    expect(page.locator("#assertive")).to_contain_text("Approval needed: add, server demo.")
    page.keyboard.press(key)
    assert host.next_said("approval") == {"callId": "c1", "decision": decision}
    host.event("approval", {"callId": "c1", "decision": decision})
    expect(page.get_by_text(shown)).to_be_visible()
    expect(field(page)).to_be_focused()
    expect(page.locator("#assertive")).to_be_empty()


@pytest.mark.rule("HPAGE-32")
@pytest.mark.parametrize("with_key", [True, False])
def test_an_approval_offers_to_trust_the_server(
    page: Page, host: ScriptedHost, with_key: bool
) -> None:
    begin(page, host)
    host.event("approval", APPROVAL)
    group = page.get_by_role("group", name="Run add with exactly this?")
    expect(group).to_be_focused()
    page.keyboard.press("5")  # nobody offers it
    expect(group.get_by_role("button", name="Trust")).to_have_count(0)
    host.event("approval", APPROVAL | {"decisions": [*APPROVAL["decisions"], "trust"]})
    trusting = group.get_by_role("button", name="Trust what demo says")
    expect(trusting).to_be_visible()
    expect(group).to_be_focused()
    if with_key:
        page.keyboard.press("5")
    else:
        trusting.click()
    assert host.next_said("approval") == {"callId": "c1", "decision": "trust"}
    host.event("approval", {"callId": "c1", "decision": "trust"})
    expect(page.get_by_text("Allowed, and its server is trusted")).to_be_visible()


@pytest.mark.rule("HPAGE-14")
def test_an_approval_leaves_the_focus_to_who_writes(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    field(page).fill("half a sent")
    host.event("approval", APPROVAL)
    group = page.get_by_role("group", name="Run add with exactly this?")
    expect(group).to_be_visible()
    expect(field(page)).to_be_focused()
    page.keyboard.press("Alt+A")
    expect(group).to_be_focused()
    expect(field(page)).to_have_value("half a sent")


@pytest.mark.rule("HPAGE-38")
def test_an_approval_shows_what_is_not_seen(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    arguments = {"path": "safe\u202etxt.exe", "a\u200bb": "x\u00a0 \U000e0041\ufe0f\x7f\u3164é文"}
    host.event("approval", {**APPROVAL, "tool": "demo:a\u202edd", "arguments": arguments})
    group = page.get_by_role("group", name="Run a\\u202edd with exactly this?")
    shown = group.locator("code").inner_text()
    assert all(each.isprintable() for each in shown.replace("\n", "")), shown
    assert '"x\\u00a0 \\udb40\\udc41\\ufe0f\\u007f\\u3164é文"' in shown
    assert json.loads(shown) == arguments
    group.press("4")
    assert host.next_said("approval")["decision"] == "deny"


@pytest.mark.rule("HPAGE-39")
def test_an_approval_hides_nothing_at_its_side(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    arguments = {"command": "ls" + " " * 3000 + "; rm -rf ~", "path": "x" * 3000}
    host.event("approval", {**APPROVAL, "arguments": arguments})
    shown = page.locator(".approval pre")
    expect(page.locator(".approval .code-head")).to_contain_text("characters: scroll to read all")
    assert shown.evaluate("each => each.scrollWidth <= each.clientWidth")
    assert json.loads(shown.inner_text()) == arguments


@pytest.mark.rule("HPAGE-13")
def test_a_request_of_a_server_to_the_model_is_approved_too(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    about = {"server": "demo", "tool": "demo:sampling/createMessage"}
    request = {**APPROVAL, **about, "callId": "r1", "kind": "sampling"}
    host.event("approval", {**request, "callId": "t1", "kind": "tool"})
    page.get_by_role("group", name="Run sampling/createMessage with exactly this?").wait_for()
    host.event("approval", {"callId": "t1", "decision": "stopped"})
    host.event("approval", request)
    page.get_by_role("group", name="demo asks the model. Allow it?").wait_for()
    page.get_by_role("button", name="Deny").click()
    assert host.next_said("approval") == {"callId": "r1", "decision": "deny"}
    host.event("approval", {"callId": "r1", "decision": "deny"})
    expect(page.get_by_role("article").last).to_contain_text("Denied")


QUESTION = {
    "questionId": "q1",
    "server": "demo",
    "kind": "form",
    "message": "How many?",
    "schema": {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "integer", "title": "Number", "minimum": 2}},
    },
}


@pytest.mark.rule("HPAGE-15", "HPAGE-16")
def test_a_question_is_answered_by_its_form(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    host.event("question", QUESTION)
    number = page.get_by_label("Number")
    expect(number).to_be_focused()
    number.fill("1")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Write 2 or more.")).to_be_visible()
    number.fill("2")
    page.keyboard.press("Enter")
    answer = {"questionId": "q1", "action": "accept", "content": {"n": 2}}
    assert host.next_said("answer") == answer
    host.event("question", {"questionId": "q1", "action": "accept"})
    expect(page.get_by_text("You answered.")).to_be_visible()


@pytest.mark.rule("HPAGE-15")
@pytest.mark.parametrize(("label", "action"), [("Decline", "decline"), ("Cancel", "cancel")])
def test_a_question_is_refused(page: Page, host: ScriptedHost, label: str, action: str) -> None:
    begin(page, host)
    host.event("question", QUESTION)
    page.get_by_role("button", name=label).click()
    assert host.next_said("answer") == {"questionId": "q1", "action": action}


@pytest.mark.rule("HPAGE-17")
def test_a_page_of_a_server_opens_by_a_click_only(
    page: Page, host: ScriptedHost, watched: WatchedPage
) -> None:
    begin(page, host)
    url = host.url + "api/status?a=1"
    host.event("question", {**QUESTION, "schema": None, "kind": "url", "url": url})
    named = url.split("/")[2]
    card = page.get_by_role("article", name="Question of demo")
    expect(card.locator("strong", has_text=named)).to_be_visible()
    assert len(watched.context.pages) == 1
    with watched.context.expect_page() as opened:
        card.get_by_role("link", name=f"Open {named}").click()
    assert opened.value.url == url
    assert opened.value.evaluate("window.opener") is None
    assert host.next_said("answer") == {"questionId": "q1", "action": "accept"}


@pytest.mark.rule("HPAGE-17")
def test_a_page_with_another_scheme_is_not_offered(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    host.event("question", {**QUESTION, "kind": "url", "url": "javascript:alert(1)"})
    expect(page.get_by_text("Its address cannot be opened.")).to_be_visible()
    expect(page.get_by_role("link", name="Open")).to_have_count(0)


@pytest.mark.rule("HPAGE-23")
def test_stop_and_escape_end_the_turn(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    call(host)
    page.get_by_role("button", name="Stop").click()
    host.next_said("stop")
    host.event("turn", {"state": "stopped"})
    expect(page.get_by_text("Stopped.", exact=True)).to_be_visible()
    expect(page.get_by_text("Ended with its turn")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    begin(page, host, "again")
    page.get_by_role("button", name="Stop").wait_for()
    page.keyboard.press("Escape")
    host.next_said("stop")


@pytest.mark.rule("HPAGE-02", "HPAGE-07", "HPAGE-21")
def test_after_a_cut_events_go_on_and_what_was_said_is_sent_again(
    page: Page, host: ScriptedHost, watched: WatchedPage
) -> None:
    watched.may_lose = True
    begin(page, host)
    host.event("text", {"content": "one ", "messageId": "t1", "done": False})
    host.event("approval", APPROVAL)
    expect(page.locator(".assistant")).to_contain_text("one")
    assert "session" not in host.next_opened()
    host.accepts = False
    host.cut()
    expect(page.get_by_text("The connection is lost.")).to_be_visible()
    page.keyboard.press("1")
    say(page, "kept")
    expect(page.get_by_text("Is sent when the connection is back")).to_be_visible()
    while not host.opened.empty():
        host.next_opened()
    host.event("text", {"content": "two", "messageId": "t1", "done": True})
    host.accepts = True
    page.evaluate("dispatchEvent(new Event('online'))")
    message = host.next_said("message")
    assert message["text"] == "kept"
    assert host.next_said("approval")["decision"] == "once"
    assert host.next_opened()["after"] == "4"
    expect(page.locator(".assistant")).to_contain_text("one two")
    host.cut()
    assert host.next_said("message") == message
    host.event("user", {"text": "kept", "messageId": message["id"]})
    expect(page.get_by_text("kept")).to_have_count(1)
    expect(page.locator(".unsent")).to_have_count(0)


@pytest.mark.rule("HPAGE-02")
def test_duplicates_are_ignored_and_a_gap_is_asked_for(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    for piece in "ab":
        host.event("text", {"content": piece, "messageId": "t1", "done": False})
    expect(page.locator(".assistant .markdown")).to_have_text("ab")
    host.next_opened()
    lost = {"content": "c", "messageId": "t1", "done": False}
    host.events.append({"type": "text", "payload": lost, "seq": 5, "turnId": "turn-1"})
    host.send(*host.events[:3])
    host.event("text", {"content": "d", "messageId": "t1", "done": True})
    expect(page.locator(".assistant .markdown")).to_have_text("abcd")
    assert host.next_opened() == {"session": "session-1", "after": "4"}


@pytest.mark.rule("HPAGE-05")
def test_silence_opens_the_connection_again(
    page: Page, host: ScriptedHost, watched: WatchedPage
) -> None:
    watched.may_lose = True
    page.clock.install()
    page.reload()
    expect(page.get_by_role("heading", name="scripted")).to_be_visible()
    for _ in range(2):
        host.next_opened()
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 10"))
    host.cut()
    frames_until(page, page.get_by_text("The connection is lost."))
    say(page, "sent when the connection is there")
    page.clock.run_for(600)
    host.next_opened()
    host.next_said("message")
    page.clock.run_for(29_000)
    assert host.pings.empty()
    page.clock.run_for(2_000)
    host.pings.get(timeout=PATIENCE)
    host.answers_pings = False
    page.clock.run_for(66_000)
    assert host.next_opened() == {"session": "session-1", "after": "0"}


def frames_until(page: Page, shown: Locator) -> None:
    """Let a page whose clock stands paint until it shows something."""
    for _ in range(500):
        if shown.is_visible():
            return
        page.clock.run_for(17)
    raise AssertionError(page.locator("body").inner_text())


@pytest.mark.rule("HPAGE-04", "HPAGE-21")
def test_a_browser_that_is_online_again_does_not_wait(
    page: Page, host: ScriptedHost, watched: WatchedPage
) -> None:
    watched.may_lose = True
    page.clock.install()
    page.reload()
    expect(page.get_by_role("heading", name="scripted")).to_be_visible()
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 1"))
    host.accepts = False
    host.cut()
    frames_until(page, page.get_by_text("The connection is lost."))
    host.accepts = True
    while not host.opened.empty():
        host.next_opened()
    for _ in range(500):  # an attempt before may end only now
        if host.opened.empty():
            page.evaluate("dispatchEvent(new Event('online'))")
    again = page.get_by_text("Connected again.")
    frames_until(page, again)
    page.clock.run_for(3_100)
    expect(again).to_be_hidden()


@pytest.mark.rule("HPAGE-06")
def test_a_host_that_refuses_is_left_alone(
    page: Page, host: ScriptedHost, watched: WatchedPage
) -> None:
    watched.may_lose = True
    host.refuses = True
    host.cut()
    expect(page.get_by_text("The host does not let this tab in.")).to_be_visible()
    host.refuses = False
    page.get_by_role("button", name="Try now").click()
    expect(page.get_by_text("does not let")).to_have_count(0)


@pytest.mark.rule("HPAGE-07", "HPAGE-22")
def test_a_message_survives_a_reload(page: Page, host: ScriptedHost, watched: WatchedPage) -> None:
    watched.may_lose = True
    wait_until(page, "localStorage.getItem('foundation-rt.chat') !== null")
    host.accepts = False
    host.cut()
    expect(page.get_by_text("The connection is lost.")).to_be_visible()
    say(page, "still here")
    expect(page.locator(".unsent")).to_be_visible()
    page.reload()
    expect(page.locator(".unsent")).to_contain_text("still here")
    host.accepts = True
    page.evaluate("dispatchEvent(new Event('online'))")
    assert host.next_said("message")["text"] == "still here"


@pytest.mark.rule("HPAGE-29")
def test_a_message_that_is_refused_stays_with_the_reason(page: Page, host: ScriptedHost) -> None:
    say(page, "too much")
    first = host.next_said("message")
    error = {"code": "RATE_LIMITED", "message": "Too many messages.", "id": first["id"]}
    host.send({"type": "error", "payload": error})
    expect(page.locator(".unsent")).to_contain_text("Too many messages.")
    page.get_by_role("button", name="Send again").click()
    assert host.next_said("message") == first
    host.send({"type": "error", "payload": error})
    page.get_by_role("button", name="Edit").click()
    expect(field(page)).to_have_value("too much")
    expect(page.locator(".unsent")).to_have_count(0)


@pytest.mark.rule("HPAGE-03")
def test_what_waits_at_the_host_and_what_was_used_come_with_the_history(
    page: Page, host: ScriptedHost
) -> None:
    waiting = [{"messageId": "m2", "text": "said elsewhere"}]
    turn = {"turnId": "turn-1", "state": "started"}
    usage = {"promptTokens": 5, "completionTokens": 4}
    host.history = {"waiting": waiting, "turn": turn, "usage": usage}
    wait_until(page, "localStorage.getItem('foundation-rt.chat') !== null")
    page.reload()
    expect(page.locator(".unsent")).to_contain_text("Waits for its turn")
    expect(page.locator(".usage")).to_have_text("9 tokens")
    host.event("user", {"text": "said elsewhere", "messageId": "m2"})
    expect(page.locator(".unsent")).to_have_count(0)
    expect(page.locator(".bubble")).to_have_text("said elsewhere")


@pytest.mark.rule("HPAGE-21")
def test_errors_and_maintenance_are_said(page: Page, host: ScriptedHost) -> None:
    host.send({"type": "error", "payload": {"code": "X", "message": "Something broke."}})
    expect(page.get_by_role("status").filter(has_text="Something broke.")).to_be_visible()
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_text("Something broke.")).to_have_count(0)
    payload = {"state": "reconnecting", "message": "Under maintenance."}
    host.send({"type": "connection", "payload": payload})
    expect(page.get_by_text("The host is ending.")).to_be_visible()


@pytest.mark.rule("HPAGE-03", "HPAGE-22")
def test_chats_are_opened_and_deleted(page: Page, host: ScriptedHost) -> None:
    begin(page, host, "first words\nand more")
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats.get_by_role("button", name="first words", exact=True)).to_be_visible()
    host.session_id = "session-2"
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    host.session_id = "session-1"
    said = {"id": "m", "role": "user", "content": "as the host has it"}
    host.history = {"messages": [said], "turn": None}
    chats.get_by_role("button", name="first words", exact=True).click()
    expect(page.get_by_text("as the host has it")).to_be_visible()
    page.get_by_role("button", name="Delete first words").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(chats.get_by_role("button", name="first words")).to_have_count(0)


HELD = [
    {"id": "a" * 64, "title": "Budget of March", "at": 2, "isPinned": True},
    {"id": "b" * 64, "title": "<b>Trip</b>", "at": 3, "isPinned": False},
]


@pytest.mark.rule("HPAGE-22")
def test_the_list_of_the_host_takes_the_place_of_what_the_browser_kept(
    page: Page, host: ScriptedHost, watched: WatchedPage
) -> None:
    begin(page, host, "old secret")
    expect(page.locator(".unsent")).to_have_count(0)
    host.chats = HELD
    page.reload()
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats.locator(".chat-title")).to_have_text(["Pinned: Budget of March", "<b>Trip</b>"])
    assert "old secret" not in page.evaluate("localStorage.getItem('foundation-rt.chats')")
    host.listed.queue.clear()
    host.chats = HELD[:1]
    page.get_by_label("Search chats").fill("march bill")
    expect(chats.locator(".chat-title")).to_have_count(1)
    while host.listed.get(timeout=PATIENCE).get("query") != "march bill":
        pass
    host.chats = []
    page.get_by_label("Search chats").fill("nothing")
    expect(chats.get_by_text("Nothing was found.")).to_be_visible()


@pytest.mark.rule("HPAGE-22")
def test_chats_of_this_browser_are_searched_renamed_and_pinned(
    page: Page, host: ScriptedHost
) -> None:
    for name in ("one", "two"):
        host.session_id = f"session-{name}"
        page.get_by_role("button", name="New chat").click()
        expect(page.get_by_role("heading", name="New chat")).to_be_visible()
        host.events.clear()
        begin(page, host, name)
    chats = page.get_by_role("navigation", name="Chats").locator(".chat-title")
    expect(chats).to_have_text(["two", "one"])
    page.get_by_role("button", name="Rename or pin one").click()
    page.get_by_label("Title").fill("Äpfel")
    page.get_by_label("Pin to the top").check()
    page.keyboard.press("Enter")
    expect(chats).to_have_text(["Pinned: Äpfel", "two"])
    page.get_by_label("Search chats").fill("äPF")
    expect(chats).to_have_text(["Pinned: Äpfel"])
    page.get_by_role("button", name="Rename or pin Äpfel").click()
    page.keyboard.press("Escape")
    page.get_by_label("Search chats").fill("")
    expect(chats).to_have_count(2)


def said(name: str, count: int) -> list[dict[str, Any]]:
    """Return messages of a person."""
    words = "word " * 50
    return [
        {"id": f"{name}{n}", "role": "user", "content": f"{name}{n} {words}"} for n in range(count)
    ]


@pytest.mark.rule("HPAGE-51", "HPAGE-20")
def test_older_messages_come_when_somebody_scrolls_to_them(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    expect(page.locator(".unsent")).to_have_count(0)
    host.history = {"messages": said("new", 40), "previous": "one", "turn": None}
    host.older["new0"] = {"messages": said("mid", 40), "previous": "one"}
    host.older["mid0"] = {"messages": said("old", 2), "previous": None}
    page.reload()
    bubbles = page.locator(".bubble")
    expect(bubbles).to_have_count(40)
    expect(bubbles.last).to_be_in_viewport()
    page.get_by_role("region", name="Chat").evaluate("node => (node.scrollTop = 0)")
    expect(bubbles).to_have_count(80)
    expect(page.get_by_text("new0 word")).to_be_in_viewport()
    expect(page.locator("#polite")).to_be_empty()
    page.get_by_role("button", name="Earlier messages").focus()
    page.keyboard.press("Enter")
    expect(bubbles).to_have_count(82)
    assert bubbles.first.inner_text().startswith("old0")
    expect(page.get_by_role("button", name="Earlier messages")).to_be_hidden()


@pytest.mark.rule("HPAGE-51")
def test_older_messages_come_at_once_while_there_is_room(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    expect(page.locator(".unsent")).to_have_count(0)
    host.history = {"messages": said("new", 1), "previous": "one", "turn": None}
    host.older["new0"] = {"messages": said("old", 1), "previous": None}
    page.reload()
    expect(page.locator(".bubble")).to_have_count(2)


@pytest.mark.rule("HPAGE-22")
@pytest.mark.parametrize(("label", "ending"), [("Markdown", "md"), ("JSON", "json")])
def test_a_chat_is_saved_to_a_file(page: Page, host: ScriptedHost, label: str, ending: str) -> None:
    begin(page, host, "what a day?")
    page.get_by_label("Export this chat").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name=label).click()
    assert saved.value.suggested_filename == f"what-a-day-.{ending}"
    assert saved.value.path().read_text() == f"# as {ending}\n"


@pytest.mark.rule("HPAGE-30")
def test_a_chat_that_the_host_has_lost_goes_on_as_a_new_one(
    page: Page, host: ScriptedHost, watched: WatchedPage
) -> None:
    watched.may_lose = True
    begin(page, host, "first words")
    host.event("text", {"content": "kept on screen", "messageId": "t", "done": True})
    host.session_id, host.events = "session-2", []
    expect(page.locator(".assistant .markdown")).to_have_text("kept on screen")
    host.cut()
    expect(page.locator(".ending")).to_contain_text("does not know this chat any more")
    expect(page.locator(".assistant .markdown")).to_have_text("kept on screen")
    begin(page, host, "go on")
    expect(page.locator(".bubble")).to_have_text(["first words", "go on"])
    assert page.get_by_role("navigation").locator("li").count() == 1


SERVERS: list[dict[str, Any]] = [
    {
        "id": "demo",
        "state": "ready",
        "circuit": "open",
        "lastError": "deadline",
        "tools": [
            {
                "name": "add",
                "description": "Add two numbers.",
                "forModel": ["it is called t_1", "left out"],
            }
        ],
    },
    {"id": "files", "state": "failed", "reason": "its command is not there", "tools": []},
]


@pytest.mark.rule("HPAGE-18", "HPAGE-19")
def test_servers_and_examples_are_shown(page: Page, host: ScriptedHost) -> None:
    host.status = {"model": "m", "servers": SERVERS, "hint": "No `mcp.json` here."}
    host.send({"type": "servers", "payload": {"servers": SERVERS}})
    expect(page.get_by_role("note")).to_have_text("No mcp.json here.")
    expect(page.get_by_role("heading", name="Chat with m", exact=True)).to_be_visible()
    expect(page.get_by_role("list", name="Servers")).to_have_text("demo 1 toolfiles failed")
    page.get_by_role("button", name="Add Add two numbers.").click()
    expect(field(page)).to_have_value("/demo:add")
    page.get_by_role("button", name="2 servers, 1 tool, 2 servers down").click()
    panel = page.get_by_role("dialog", name="Servers")
    for text in ("Circuit open", "Last error: deadline", "Failed", "its command is not there"):
        expect(panel).to_contain_text(text)
    panel.get_by_text("1 tool", exact=True).click()
    expect(panel.get_by_text("Add two numbers.")).to_be_visible()
    expect(panel.get_by_text("For the model: it is called t_1; left out.")).to_be_visible()


@pytest.mark.rule("HPAGE-20")
def test_only_new_words_are_read_out(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    host.event("text", {"content": "First one. Sec", "messageId": "t1", "done": False})
    expect(page.locator("#polite")).to_have_text("First one.")
    host.event("text", {"content": "ond.", "messageId": "t1", "done": True})
    expect(page.locator("#polite")).to_contain_text("Second.")
    host.history = {"messages": [{"id": "m", "role": "assistant", "content": "Old words."}]}
    page.reload()
    expect(page.get_by_text("Old words.")).to_be_visible()
    expect(page.locator("#polite")).to_be_empty()


@pytest.mark.rule("HPAGE-47")
def test_a_key_that_an_input_method_took_sends_nothing(page: Page, host: ScriptedHost) -> None:
    field(page).fill("にほん")
    page.evaluate("""document.getElementById("say").dispatchEvent(
      new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, bubbles: true, cancelable: true })
    )""")
    expect(field(page)).to_have_value("にほん")
    page.keyboard.press("Enter")
    assert host.next_said("message")["text"] == "にほん"


@pytest.mark.rule("HPAGE-48")
def test_a_draft_is_there_after_a_reload_until_it_is_sent(page: Page, host: ScriptedHost) -> None:
    begin(page, host, "first words")
    page.keyboard.type("half a sent")
    page.reload()
    expect(field(page)).to_have_value("half a sent")
    host.session_id = "session-2"
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    expect(field(page)).to_have_value("")
    host.session_id = "session-1"
    page.keyboard.press("Alt+ArrowDown")
    expect(field(page)).to_have_value("half a sent")
    page.keyboard.press("Enter")
    assert host.next_said("message")["text"] == "half a sent"
    page.reload()
    expect(field(page)).to_have_value("")


@pytest.mark.rule("HPAGE-48", "HPAGE-22")
def test_the_draft_of_a_deleted_chat_is_deleted(page: Page, host: ScriptedHost) -> None:
    begin(page, host, "first words")
    page.keyboard.type("half a sent")
    host.session_id = "session-2"
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    assert "half" in page.evaluate("localStorage.getItem('foundation-rt.drafts')")
    host.session_id = "session-1"
    page.get_by_role("button", name="Delete first words").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    wait_until(page, "localStorage.getItem('foundation-rt.drafts') === null")


@pytest.mark.rule("HPAGE-49")
def test_an_answer_is_copied_as_it_was_written(page: Page, host: ScriptedHost) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    begin(page, host)
    host.event("text", {"content": "**one**\n", "messageId": "t1", "done": False})
    copy = page.get_by_role("button", name="Copy the answer")
    expect(page.locator(".assistant strong")).to_be_visible()
    expect(copy).to_be_hidden()
    host.event("text", {"content": "- two", "messageId": "t1", "done": True})
    copy.click()
    expect(copy).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "**one**\n- two"


@pytest.mark.rule("HPAGE-01")
def test_a_chat_that_is_left_while_it_connects_logs_nothing(page: Page, host: ScriptedHost) -> None:
    host.next_opened()
    page.evaluate("""async () => {
      const { Connection } = await import("/connection.js");
      const address = () => new URL("ws", document.baseURI).href.replace("http", "ws");
      const connection = new Connection({ address, onFrame: () => {}, onStatus: () => {} });
      connection.open();
      connection.close();
    }""")
    host.next_opened()
