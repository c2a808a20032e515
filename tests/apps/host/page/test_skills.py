"""Skills on the page: the text that a model gets is read by a person before, as text."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.apps.host.page.test_chat import SERVERS, begin, call, field
from tests.lab.host.scripted_host import ScriptedHost

HOSTILE = (
    "<img src=x onerror=alert(1)>\n# Not a heading [x](javascript:alert(2))\n"
    "hidden:\U000e0041\u202e\x1b[2J\tend\n"
)
SKILL_TEXT = f"---\nname: refunds\ndescription: Refund an order.\n---\n{HOSTILE}" + "Wait.\n" * 200
SKILL: dict[str, Any] = {
    "callId": "s1",
    "kind": "skill",
    "decisions": ["once", "session", "always", "deny"],
    "server": "shop",
    "tool": "read_skill",
    "arguments": {"skill": "shop:refunds"},
    "annotations": {},
    "description": "Refund an order by the rules of the shop.",
    "skill": {
        "name": "refunds",
        "uri": "skill://acme/a-long-path-of-folders/refunds/SKILL.md",
        "path": "SKILL.md",
        "digest": f"sha256:{'0' * 64}",
        "text": SKILL_TEXT,
    },
    "expiresAt": 1795000000000,
}
QUESTION = "Let the model read this of the skill refunds, which shop offers?"


def skill(page: Page, host: ScriptedHost) -> None:
    """Show the approval of a skill."""
    arguments = {"data": {"arguments": SKILL["arguments"]}}
    call(host, "s1", tool="read_skill", awaiting="approval", **arguments)
    host.event("approval", SKILL)
    expect(page.get_by_role("group", name=QUESTION)).to_be_visible()


def read_skill(page: Page, host: ScriptedHost) -> None:
    """Show what the model has read."""
    host.event("approval", {"callId": "s1", "decision": "session"})
    result = {"content": [{"type": "text", "text": SKILL_TEXT}]}
    call(host, "s1", tool="read_skill", state="complete", data={"result": result}, durationMs=4)
    page.get_by_text("The model has read SKILL.md").click()
    page.evaluate("document.activeElement.blur()")


@pytest.mark.rule("HPAGE-81", "HPAGE-38", "HPAGE-39")
def test_approval_of_a_skill_shows_all_of_its_text_as_text(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    skill(page, host)
    group = page.get_by_role("group", name=QUESTION)
    expect(group).to_be_focused()
    expect(page.locator("#assertive")).to_contain_text("skill refunds, server shop")
    expect(group).to_contain_text(SKILL["description"])
    expect(group).to_contain_text(SKILL["skill"]["uri"])
    title = f"SKILL.md, in the words of shop, {len(SKILL_TEXT) + 1:,} characters"
    block = group.get_by_role("group", name="Code: SKILL.md")
    expect(group).to_contain_text("characters: scroll to read all")
    shown = block.inner_text()
    assert title.split(",")[0] in group.inner_text()
    assert "<img src=x onerror=alert(1)>\n# Not a heading" in shown
    assert r"hidden:\udb40\udc41\u202e\u001b[2J" in shown
    assert shown.count("Wait.") == 200
    expect(group.locator("img, h1, a")).to_have_count(0)
    page.keyboard.press("2")
    assert host.next_said("approval") == {"callId": "s1", "decision": "session"}


@pytest.mark.rule("HPAGE-81")
def test_skill_that_was_read_is_a_card_also_of_a_history(page: Page, host: ScriptedHost) -> None:
    begin(page, host)
    skill(page, host)
    read_skill(page, host)
    card = page.get_by_role("article", name="Skill refunds, server shop")
    expect(card).to_contain_text("skill of shop")
    expect(card).to_contain_text("Allowed in this chat")
    expect(card).to_contain_text("Done in 4 ms")
    expect(card.get_by_role("group", name="Code")).to_contain_text("<img src=x")
    expect(card.locator("img, h1, a")).to_have_count(0)
    data = {"result": {"content": [{"type": "text", "text": SKILL_TEXT}]}}
    made = {"role": "assistant", "toolName": "read_skill", "callId": "s2"}
    host.history = {
        "messages": [
            {"id": "1", **made, "data": {"arguments": SKILL["arguments"]}},
            {"id": "2", **made, "role": "tool", "data": data, "metadata": {"decision": "once"}},
        ]
    }
    page.reload()
    expect(card).to_contain_text("Allowed once")
    expect(card).to_contain_text("The model has read SKILL.md")
    expect(field(page)).to_be_editable()


@pytest.mark.rule("HPAGE-18")
def test_panel_of_servers_lists_skills(page: Page, host: ScriptedHost) -> None:
    offered = [
        {"name": "refunds", "description": "<b>Refund</b>", "uri": "skill://refunds/SKILL.md"}
    ]
    servers = [{**SERVERS[0], "skills": offered}]
    host.status = {"model": "m", "servers": servers}
    host.send({"type": "servers", "payload": {"servers": [{**servers[0], "skills": 1}]}})
    page.keyboard.press("Alt+S")
    panel = page.get_by_role("dialog", name="Servers")
    panel.get_by_text("1 skill", exact=True).click()
    expect(panel.get_by_text("<b>Refund</b>")).to_be_visible()
