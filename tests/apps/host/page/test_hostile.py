"""What others write: it costs little, it fails alone, and never keeps a chat from being used."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.apps.host.page import fuzz
from tests.apps.host.page.test_chat import begin, call, field, say
from tests.apps.host.page.test_results import show, text
from tests.lab.host.scripted_host import ScriptedHost
from tests.lab.pages.chromium import WatchedPage
from tests.lab.sizes import size

NOTE = "This can't be shown as it should be."


@pytest.mark.rule("HPAGE-33")
@pytest.mark.parametrize("seed", [1])
def test_hostile_texts_and_results_become_few_nodes_soon(modules: Page, seed: int) -> None:
    for shown in fuzz.run(modules, seed, len(fuzz.WHOLE) + size(300, 3000)):
        assert not [str(each) for each in shown if each.is_wrong]


@pytest.mark.rule("HPAGE-33", "HPAGE-35")
def test_what_is_beyond_the_bounds_is_said(modules: Page) -> None:
    show(modules, {"content": [text(f"- {number}\n" * 3) for number in range(250)]})
    expect(modules.get_by_text("50 more blocks.")).to_be_visible()
    show(modules, {"content": [text("- a\n" * 12_000)]})
    expect(modules.get_by_text("The rest has too much in it. As it is written:")).to_be_attached()
    assert modules.locator("body").inner_text().count("a") >= 12_000


@pytest.mark.rule("HPAGE-36")
def test_a_picture_of_very_many_shapes_is_not_drawn(modules: Page) -> None:
    uses = ('<use href="#a0"/>' * 10).replace
    levels = "".join(f'<g id="a{at + 1}">{uses("0", str(at))}</g>' for at in range(8))
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg"><g id="a0"><rect/></g>{levels}</svg>'
    data = base64.b64encode(drawing.encode()).decode()
    show(modules, {"content": [{"type": "image", "mimeType": "image/svg+xml", "data": data}]})
    expect(modules.get_by_role("link", name="Save: Picture")).to_be_visible()
    expect(modules.locator("img")).to_have_count(0)


@pytest.mark.rule("HPAGE-35")
def test_a_form_that_refers_to_itself_has_few_fields(modules: Page) -> None:
    members = {name: {"$ref": "#"} for name in "abcdefghij"}
    schema = {"type": "object", "properties": members, "required": list(members)}
    fields = modules.evaluate(
        """async (schema) => {
          const { SchemaForm } = await import("/schema_form.js");
          return new SchemaForm(schema).node.querySelectorAll("textarea").length;
        }""",
        schema,
    )
    assert 0 < fields < 1500


@pytest.mark.rule("HPAGE-34")
@pytest.mark.parametrize(
    "block",
    [
        *({"type": name} for name in ("__proto__", "constructor", "toString", "new", "resource")),
        *(None, 5, {"type": "text", "text": None}, {"type": "resource_link", "uri": {}}),
        {"type": "text", "text": '[{"a": 1}, {"constructor": 2, "__proto__": 3}]'},
        {"type": "text", "text": "[" * 45_000 + "]" * 45_000},
    ],
    ids=lambda block: str(block)[:40],
)
def test_a_block_of_any_kind_leaves_its_neighbours(modules: Page, block: Any) -> None:
    for structured in (None, {"constructor": block}):
        result = {"content": [text("before"), block, text("after")]}
        show(modules, result | {"structuredContent": structured})
        shown = modules.locator("body").inner_text()
        assert "before" in shown
        assert "after" in shown
        assert "native code" not in shown


@pytest.mark.rule("HPAGE-34")
def test_each_item_of_a_chat_fails_alone(page: Page, host: ScriptedHost) -> None:
    many = ["[" * 45_000, "line\n" * 49_000, "*a " * 33_000, f"{'|' * 5_001}\n{'|-' * 5_000}|\n"]
    messages = [
        {"id": f"m{at}", "role": "assistant", "content": each} for at, each in enumerate(many)
    ]
    messages.append({"id": "m9", "role": "tool", "callId": "c9", "data": {}})  # a call of no tool
    messages.append({"id": "m10", "role": "assistant", "content": "Still **here**."})
    host.history = {"messages": messages}
    begin(page, host)
    page.reload()
    expect(page.locator(".assistant strong")).to_have_text("here")
    expect(page.get_by_text(NOTE)).to_have_count(1)
    expect(page.locator(".assistant")).to_have_count(5)
    host.history = {}
    say(page, "go on")
    host.event("user", {"text": "go on", "messageId": host.next_said("message")["id"]})
    call(host, "c2", state="complete", data={"result": {"content": [{"type": "resource"}]}})
    card = page.get_by_role("article", name="Call of add, server demo")
    expect(card).to_contain_text("Done")
    expect(card).to_contain_text(NOTE)
    expect(field(page)).to_be_editable()


@pytest.mark.rule("HPAGE-37")
def test_a_chat_that_did_not_finish_showing_is_offered(
    page: Page, host: ScriptedHost, watched: WatchedPage
) -> None:
    begin(page, host, "first words")
    expect(page.locator(".bubble")).to_have_text("first words")
    page.evaluate("""() => {
      Date.now = () => 0; // long ago
      Node.prototype.insertBefore = () => { throw new Error("the page breaks"); };
    }""")
    with page.expect_event("pageerror"):
        host.event("text", {"content": "fatal", "messageId": "t", "done": True})
    said = {"id": "m", "role": "user", "content": "as the host has it"}
    host.history, host.session_id = {"messages": [said]}, "session-2"
    page.reload()
    expect(page.get_by_text("“first words” did not finish showing")).to_be_visible()
    expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    host.session_id = "session-1"
    page.get_by_role("button", name="Open it").click()
    expect(page.get_by_text("as the host has it")).to_be_visible()
    expect(page.get_by_text("did not finish")).to_have_count(0)
    page.reload()
    expect(page.get_by_text("as the host has it")).to_be_visible()
    watched.problems.clear()  # those of the test
