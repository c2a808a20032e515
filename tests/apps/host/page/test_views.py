"""Every view, light and dark, wide and narrow: what axe-core finds, and what the keyboard reaches.

With `FOUNDATION_RT_TEST_SHOTS=FOLDER` a picture of each view is kept there, to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.apps.host.page.test_chat import APPROVAL, SERVERS, begin, call, field
from tests.apps.host.page.test_skills import read_skill, skill
from tests.lab.host.scripted_host import ScriptedHost, scripted_host
from tests.lab.pages.axe import axe_source, findings
from tests.lab.pages.chromium import shot, watched_page

WORDS = """## A summary

Words that are **strong**, *soft*, `code` and a [link](https://example.org/).

- one
  1. nested

| city | degrees |
|------|--------:|
| Oslo | 4 |

> quoted

```python
print("a line of code that is longer than a narrow page is wide, which has to scroll in its box")
```
"""

FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "title": "Full name", "description": "As on the letter box."},
        "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
        "gift": {"type": "boolean", "title": "It is a gift"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["ribbon", "card"]}},
        "day": {"type": "string", "format": "date"},
    },
}


def welcome(page: Page, host: ScriptedHost) -> None:
    """Show an empty chat."""
    host.send({"type": "servers", "payload": {"servers": SERVERS}})
    expect(page.get_by_role("note")).to_be_visible()


def words(page: Page, host: ScriptedHost) -> None:
    """Show a question and an answer."""
    begin(page, host, "What did you find?\nTell me all.")
    host.event("text", {"content": WORDS, "messageId": "t1", "done": True})
    expect(page.get_by_role("heading", name="A summary")).to_be_visible()


def cards(page: Page, host: ScriptedHost) -> None:
    """Show calls in every state."""
    rows = [{"day": "Mon", "degrees": 4}, {"day": "Tue", "degrees": 7}]
    values = {"data": {"arguments": {"place": "Oslo"}}}
    call(host, "c1", tool="demo:forecast", **values)
    done = {"result": {"content": [], "structuredContent": {"result": rows}}}
    call(host, "c1", state="complete", data=done, durationMs=1200)
    error = {"error": {"code": "NOT_FOUND", "message": "There is no file notes.txt."}}
    call(host, "c2", tool="files:read", state="complete", data=error, isError=True, durationMs=3)
    progress = {"progress": 40, "total": 100, "message": "page 40"}
    call(host, "c3", tool="demo:crawl", progress=progress, **values)
    lost = {"error": {"code": "OUTCOME_UNKNOWN", "message": "Nobody knows whether it ran."}}
    call(host, "c4", tool="demo:pay", state="complete", data=lost, isError=True)
    expect(page.get_by_text("Outcome unknown")).to_be_visible()


def approval(page: Page, host: ScriptedHost) -> None:
    """Show an approval."""
    decisions = [*APPROVAL["decisions"], "trust"]
    host.event("approval", {**APPROVAL, "callId": "c5", "annotations": {}, "decisions": decisions})
    expect(page.get_by_role("group", name="Run add with exactly this?")).to_be_focused()


def form(page: Page, host: ScriptedHost) -> None:
    """Show a form that is not filled in."""
    host.event("approval", {"callId": "c5", "decision": "deny"})
    question = {"questionId": "q1", "server": "demo", "kind": "form", "message": "Where to?"}
    host.event("question", {**question, "schema": FORM})
    expect(page.get_by_label("Full name")).to_be_visible()
    page.keyboard.press("Alt+A")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Fill this in.")).to_be_visible()


def address(page: Page, host: ScriptedHost) -> None:
    """Show a page that a server asks to open."""
    host.event("question", {"questionId": "q1", "action": "decline"})
    question = {"questionId": "q2", "server": "demo", "kind": "url", "message": "Please sign in."}
    host.event("question", {**question, "url": "https://login.example.org/authorize?client=demo"})
    expect(page.get_by_role("link", name="Open login.example.org")).to_be_visible()
    page.keyboard.press("Alt+A")


def writing(page: Page, host: ScriptedHost) -> None:
    """Show a message that is edited, with a file, and the resources that may go with it."""
    host.event("question", {"questionId": "q2", "action": "decline"})
    host.event("turn", {"state": "finished"})
    page.get_by_role("button", name="Edit this message").click()
    files = [{"name": "a long name of notes.md", "mimeType": "", "buffer": b"# Notes"}]
    page.locator("input[type=file]").set_input_files(files)  # type: ignore[arg-type]
    expect(page.get_by_role("button", name="Remove")).to_be_visible()
    field(page).fill("see ")
    field(page).press("End")
    page.keyboard.type("@")
    expect(page.get_by_role("listbox").get_by_role("option", selected=True)).to_be_visible()


def branches(page: Page, host: ScriptedHost) -> None:
    """Show a branch, and the switch to the other one."""
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    said = host.next_said("message")
    while "after" not in said:
        said = host.next_said("message")
    files = [{"name": "a long name of notes.md", "bytes": 7}]
    user = {"text": said["text"], "messageId": said["id"], "after": None, "files": files}
    host.event("user", user, "turn-2")
    host.event("turn", {"state": "started"}, "turn-2")
    text = {"content": "They are **short**.", "messageId": "t2", "done": True}
    host.event("text", text, "turn-2")
    host.event("turn", {"state": "finished"}, "turn-2")
    expect(page.get_by_role("button", name="Answer again")).to_be_visible()
    page.get_by_role("button", name="Branch before").click()
    expect(page.get_by_role("heading", name="A summary")).to_be_visible()


def ended(page: Page, host: ScriptedHost) -> None:
    """Show a turn that failed, an error, and a message that is refused."""
    text = "I can't reach the language model right now. Please try again in a moment."
    payload = {"state": "failed", "code": "LLM_ERROR", "message": text}
    host.event("turn", {**payload, "usage": {"promptTokens": 1200, "completionTokens": 34}})
    field(page).fill("once more")
    page.keyboard.press("Enter")
    error = {"code": "RATE_LIMITED", "message": "At most 10 messages in 10 s."}
    host.send({"type": "error", "payload": {**error, "id": host.next_said("message")["id"]}})
    expect(page.get_by_role("button", name="Send again")).to_be_visible()


def servers(page: Page, host: ScriptedHost) -> None:
    """Show the panel of servers."""
    page.keyboard.press("Alt+S")
    page.get_by_role("dialog").get_by_text("1 tool", exact=True).click()


def shortcuts(page: Page, host: ScriptedHost) -> None:
    """Show the list of shortcuts."""
    page.keyboard.press("Escape")
    page.keyboard.press("Alt+/")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()


def change_of_a_chat(page: Page, host: ScriptedHost) -> None:
    """Show the dialog in which a chat is renamed."""
    page.keyboard.press("Escape")
    if page.get_by_role("button", name="Chats").is_visible():
        page.get_by_role("button", name="Chats").click()
    page.get_by_role("button", name="Rename or pin What did you find?").click()
    expect(page.get_by_role("dialog", name="Rename or pin")).to_be_visible()


def question_before_loss(page: Page, host: ScriptedHost) -> None:
    """Show the question before a chat is deleted."""
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    if page.get_by_role("button", name="Chats").is_visible():
        page.get_by_role("button", name="Chats").click()
    page.get_by_role("button", name="Delete What did you find?").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def lost(page: Page, host: ScriptedHost) -> None:
    """Show a connection that is lost."""
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    host.accepts = False
    host.cut()
    expect(page.get_by_text("The connection is lost.")).to_be_visible()


VIEWS: list[Callable[[Page, ScriptedHost], None]] = [
    *(welcome, words, cards, skill, read_skill, approval, form, address, writing, branches),
    *(ended, servers),
    shortcuts,
    *(change_of_a_chat, question_before_loss, lost),
]


# All rules once for each width; the dark colours are on the same nodes.
SCHEMES: dict[int, dict[Any, list[str] | None]] = {
    1200: {"light": None, "dark": ["color-contrast"]},
    360: {"dark": None},
}


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the source of axe-core."""
    return axe_source()


@pytest.fixture(scope="module")
def script() -> Iterator[ScriptedHost]:
    """Serve the page for all views."""
    with scripted_host() as host:
        host.models = ["m", "a-model-with-a-name-that-is-very-long-indeed-2026-11-28"]
        resources = [
            {"server": "demo", "uri": f"demo://{at}", "name": f"Notes {at}"} for at in "ab"
        ]
        host.offers["offers"] = {"prompts": [], "resources": resources}
        host.status = {"model": "m", "servers": SERVERS, "hint": "There is no `mcp.json` here."}
        yield host


@pytest.mark.rule("HPAGE-01", "HPAGE-25", "HPAGE-26", "HPAGE-28")
@pytest.mark.parametrize("width", [*SCHEMES])
def test_axe_finds_nothing_in_any_view(
    browser: Browser, script: ScriptedHost, axe: str, width: int
) -> None:
    script.events, script.accepts = [], True
    viewport = {"width": width, "height": 760}
    with watched_page(browser, script.url, viewport=viewport) as watched:
        watched.may_lose = True
        page = watched.page
        for number, view in enumerate(VIEWS, 1):
            view(page, script)
            for scheme, rules in SCHEMES[width].items():
                page.emulate_media(color_scheme=scheme)
                shot(page, f"{width}-{scheme}-{number:02}-{view.__name__}")
                assert findings(page, axe, rules) == [], (view.__name__, scheme)
            wide, high = page.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
            )
            assert wide <= width and high <= 760, (view.__name__, wide, high)


@pytest.mark.rule("HPAGE-25")
def test_colours_are_the_systems_or_as_chosen(page: Page) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.get_by_role("radio", name="Light").check(force=True)
    assert page.evaluate(ground) == light
    page.reload()
    assert page.evaluate(ground) == light


@pytest.mark.rule("HPAGE-27")
def test_the_keyboard_reaches_everything_and_the_focus_is_seen(
    page: Page, host: ScriptedHost
) -> None:
    words(page, host)
    cards(page, host)
    # But for the button that leads to the end of the chat: it is there while that is out of sight,
    # which the focus and the fonts of the machine decide.
    everything = page.evaluate("""() => [...document.querySelectorAll(
      "button, a[href], input, textarea, summary, [tabindex='0']"
    )].filter((node) => node.checkVisibility({ visibilityProperty: true }) && !node.disabled
      && !(node.type === "radio" && !node.checked) && !node.matches(".jump")).length""")
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(everything + 5):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("""() => {
              const node = document.activeElement;
              if (node === document.body || node.matches(".jump")) return null;
              window.seen ??= [];
              if (!window.seen.includes(node)) window.seen.push(node);
              const styles = [node, node.parentElement, node.closest(".say-box") ?? node]
                .map((each) => getComputedStyle(each));
              const isSeen = styles.some((style) => style.outlineStyle !== "none");
              return isSeen ? window.seen.indexOf(node) : `unseen: ${node.outerHTML}`;
            }""")
        )
    assert not [each for each in reached if isinstance(each, str)]
    assert len(reached - {None}) == everything


@pytest.mark.rule("HPAGE-27")
def test_a_chat_needs_no_mouse(page: Page, host: ScriptedHost) -> None:
    expect(field(page)).to_be_focused()
    page.keyboard.type("first chat")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    assert host.next_said("message")["text"] == "first chat\nsecond line"
    page.keyboard.press("Alt+S")
    expect(page.get_by_role("dialog", name="Servers")).to_be_visible()
    page.keyboard.press("Escape")
    host.session_id = "session-2"
    page.keyboard.press("Alt+N")
    expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    expect(field(page)).to_be_focused()
    host.session_id = "session-1"
    page.keyboard.press("Alt+ArrowDown")
    expect(page.get_by_role("heading", level=1)).to_have_text("first chat")
    page.keyboard.press("Alt+M")
    expect(field(page)).to_be_focused()


@pytest.mark.rule("HPAGE-26", "HPAGE-27")
@pytest.mark.options(viewport={"width": 360, "height": 640})
def test_the_chats_are_a_drawer_on_a_narrow_page(page: Page, host: ScriptedHost) -> None:
    begin(page, host, "only one")
    page.get_by_role("button", name="Chats").click()
    expect(page.get_by_role("button", name="New chat")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Chats")).to_be_focused()
    page.get_by_role("button", name="Chats").click()
    page.get_by_role("button", name="only one", exact=True).click()
    expect(page.get_by_role("navigation")).to_be_hidden()
