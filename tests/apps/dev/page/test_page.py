"""The page of a front, in Chromium, with real programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.apps.dev.page.conftest import PROGRAM, write_program
from tests.apps.dev.page.program import HOSTILE
from tests.lab.pages.chromium import shot, watched_page
from tests.lab.servers.dev_front import DevFront, dev_front
from tests.lab.servers.http_server import free_port

Opened = Callable[[str], Locator]


def run(details: Locator) -> Locator:
    """Run the tool that is shown; return the card of the call."""
    details.get_by_role("button", name="Run", exact=True).click()
    return details.get_by_role("article").first


def fill_order(details: Locator) -> None:
    """Write what `order` needs."""
    details.get_by_role("button", name="Add item to lines").click()
    details.get_by_label("customer").first.fill("Ann")
    details.get_by_label("article").fill("A-1")
    details.get_by_label("street").fill("Road 1")
    details.get_by_label("zip").fill("12345")


@pytest.mark.rule("DEV-60", "DEV-64", "DEV-66")
def test_form_becomes_a_call_and_its_result_is_read(page: Page, opened: Opened) -> None:
    details = opened("order")
    expect(details.locator(".description strong")).to_have_text("priced")
    expect(details.get_by_text("Name or number.")).to_be_visible()
    run(details)
    expect(details.get_by_label("customer").first).to_be_focused()
    expect(details.get_by_text("Fill this in.")).to_have_count(3)
    fill_order(details)
    details.get_by_label("zip").fill("1234")
    details.get_by_label("count (").fill("100")
    details.get_by_label("Kind of code").select_option("integer")
    details.get_by_label("integer").fill("7")
    details.get_by_role("button", name="Add entry to labels").click()
    details.get_by_label("Key of labels").fill("size")
    details.get_by_label("Value").fill("large")
    details.get_by_role("button", name="Run", exact=True).click()
    expect(details.get_by_text("Write 99 or less.")).to_be_visible()
    expect(details.get_by_text(r"Write a text that matches ^\d{5}$")).to_be_visible()
    expect(details.get_by_role("article")).to_have_count(0)
    details.get_by_label("zip").fill("12345")
    details.get_by_label("count (").fill("99")
    card = run(details)
    expect(card.locator("th")).to_have_text(["article", "count"])
    expect(card.locator("td")).to_have_text(["A-1", "99"])
    expect(card.get_by_label("Log records of this call")).to_contain_text("order received")
    card.get_by_role("tab", name="JSON").click()
    expect(card.locator("pre")).to_contain_text('"code": 7')
    card.get_by_role("tab", name="Wire").click()
    expect(card.locator(".wire-title").first).to_contain_text("tools/call order result in")


NUMBERS = """
from typing import Any
from foundation_rt import Server

server = Server("numbers")

@server.tool
def keep(more: list[Any], count: int = 9007199254740993, share: float = 1.0) -> dict[str, Any]:
    return {"more": more, "count": count, "share": share}
"""


@pytest.mark.rule("DEV-90")
def test_numbers_keep_their_digits(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "digits.py").write_text(NUMBERS)
    digits = "[1234567890123456789012345, 1.0, 1e5]"
    with dev_front(tmp_path, "digits.py") as front, watched_page(browser, front.page_url) as shown:
        page = shown.page
        page.get_by_role("link", name="keep").click()
        details = page.get_by_role("region", name="Details")
        expect(details.get_by_label("count (")).to_have_value("9007199254740993")
        expect(details.get_by_label("share (")).to_have_value("1.0")
        details.get_by_label("count (").fill("9007199254740995")
        details.get_by_role("tab", name="JSON").click()
        area = details.get_by_label("Arguments as JSON")
        area.fill(f'{{"more": {digits}, "share": 2.0, "count": 9007199254740995}}')
        card = run(details)
        card.get_by_role("tab", name="JSON").click()
        for written in ("1234567890123456789012345", "1.0", "100000.0", "9007199254740995", "2.0"):
            expect(card.locator("pre").first).to_contain_text(written)
        card.get_by_role("tab", name="Wire").click()
        shot(page, "numbers")


@pytest.mark.rule("DEV-65")
def test_arguments_are_written_as_json(page: Page, opened: Opened) -> None:
    details = opened("order")
    fill_order(details)
    details.get_by_role("tab", name="JSON").click()
    area = details.get_by_label("Arguments as JSON")
    written = json.loads(area.input_value())
    assert written["lines"] == [{"article": "A-1"}]
    area.fill("{broken")
    details.get_by_role("button", name="Run", exact=True).click()
    expect(details.get_by_role("alert")).to_contain_text("can't be sent")
    area.fill(json.dumps({**written, "customer": "Bob"}))
    details.get_by_role("tab", name="Form").click()
    expect(details.get_by_label("customer").first).to_have_value("Bob")
    expect(run(details)).to_contain_text("4711")


FORM = """
from foundation_rt import Server, ToolDefinition

server = Server("forms")
time = {"type": "string", "format": "date-time", "default": "2026-01-02T03:04:05+02:00"}
members = {
    "name": {"type": "string"},
    "quick": {"type": "boolean", "default": False},
    "tags": {"type": "array", "items": {"type": "string"}, "default": []},
    "notes": {"type": "array", "items": {"type": "string"}},
    "at": time,
}
schema = {"type": "object", "properties": members, "required": ["name", "at"]}
server.register(ToolDefinition("ask", "Ask.", schema), lambda arguments, context: arguments)
"""


@pytest.mark.rule("DEV-80", "DEV-81")
def test_what_nobody_touched_is_not_sent(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "forms.py").write_text(FORM)
    with dev_front(tmp_path, "forms.py") as front:
        front.wait_for_state("running")
        with watched_page(browser, front.page_url) as watched:
            page = watched.page
            page.get_by_role("heading", name="ask").wait_for()  # nobody has chosen it
            page.keyboard.press("Control+Enter")
            expect(page.get_by_text("Fill this in.")).to_have_count(1)
            page.get_by_label("name (text; required)").fill("Ann")
            sent: list[dict[str, object]] = [{"name": "Ann", "at": "2026-01-02T03:04:05+02:00"}]
            page.keyboard.press("Control+Enter")
            expect(page.get_by_role("article")).to_have_count(1)
            page.get_by_label("quick").check()
            page.get_by_label("quick").uncheck()
            sent += [{**sent[0], "quick": False}]
            page.keyboard.press("Control+Enter")
            expect(page.get_by_role("article")).to_have_count(2)
            card = page.get_by_role("article").first
            expect(card).to_have_attribute("data-state", "done")
        asked = {"leg": "client", "method": "tools/call"}  # the page may have its answer before
        front.reader.wait_for("wire", lambda _: len(front.reader.of("wire", **asked)) == len(sent))
        calls = front.reader.of("wire", **asked)
        assert [each["message"]["params"]["arguments"] for each in calls] == sent


@pytest.mark.rule("DEV-66")
def test_call_shows_progress_and_log_and_is_cancelled(
    page: Page, opened: Opened, front: DevFront
) -> None:
    details = opened("wait")
    details.get_by_label("pages").fill("10")
    card = run(details)
    expect(card.get_by_role("progressbar")).to_have_attribute("value", "3")
    expect(card).to_contain_text("page three")
    expect(card).to_contain_text("30 %")
    expect(card.get_by_label("Log records of this call")).to_contain_text("slow page")
    card.get_by_role("button", name="Cancel").click()
    expect(card).to_contain_text("Cancelled here")
    front.reader.wait_for("call", phase="end", name="wait", outcome="cancelled")
    front.reader.wait_for("wire", leg="server", method="notifications/cancelled")


@pytest.mark.rule("DEV-67")
def test_questions_are_answered_by_forms_and_addresses(page: Page, opened: Opened) -> None:
    card = run(opened("book"))
    question = card.get_by_role("region", name="The server asks")
    expect(question.get_by_label("name")).to_be_focused()
    page.keyboard.press("Enter")
    expect(question.get_by_text("Fill this in.")).to_have_count(2)
    page.get_by_role("link", name="Prompts").click()
    page.get_by_role("button", name="Answer").click()
    question = page.get_by_role("region", name="The server asks")
    question.get_by_label("name").fill("Bob")
    question.get_by_label("people").fill("2")
    question.get_by_role("button", name="Send").click()
    page.get_by_role("link", name="Tools").click()
    expect(card).to_contain_text("accept Guest(name='Bob', people=2)")
    card = run(opened("pay"))
    link = card.get_by_role("link", name="Open pay.example.com")
    expect(link).to_be_focused()
    assert link.get_attribute("rel") == "noopener noreferrer"
    card.get_by_role("button", name="Decline").click()
    expect(card.locator(".result pre")).to_have_text("decline")


@pytest.mark.rule("DEV-67")
def test_sampling_is_answered_by_hand(page: Page, opened: Opened) -> None:
    details = opened("sum_up")
    details.get_by_label("text").first.fill("A long text")
    card = run(details)
    expect(card).to_contain_text("Sum up: A long text")
    expect(card).to_contain_text("Be brief.")
    card.get_by_label("Answer of the model").fill("Short.")
    card.get_by_role("button", name="Answer", exact=True).click()
    expect(card.locator(".result pre")).to_have_text("model said Short.")


@pytest.mark.rule("DEV-60", "DEV-77")
def test_contents_are_shown_and_hostile_ones_not_run(page: Page, opened: Opened) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    card = run(opened("report"))
    expect(card.get_by_role("img", name="Picture from the tool")).to_be_visible()
    expect(card.locator("h4, h3, h2").filter(has_text="Sales")).to_be_visible()
    expect(card.locator(".result")).to_contain_text("<script>alert(2)</script>")
    expect(card.locator(".result")).to_contain_text("\\u202etxt")
    assert card.locator("script, img[src=x], a[href^=javascript]").count() == 0
    details = opened("remove")
    details.get_by_label("article").fill("A-9")
    card = run(details)
    expect(card).to_contain_text("There is no article A-9.")
    expect(card).to_have_attribute("data-state", "failed")
    expect(details.get_by_text("may destroy")).to_be_visible()


@pytest.mark.rule("DEV-70")
def test_resources_and_prompts_are_read_with_completion(page: Page, opened: Opened) -> None:
    page.get_by_role("link", name="Resources").click()
    details = opened("stock")
    details.get_by_role("button", name="Subscribe").click()
    expect(details.get_by_text("Subscribed")).to_be_visible()
    page.get_by_role("link", name="Tools").click()
    expect(run(opened("restock"))).to_contain_text("restocked")
    page.get_by_role("link", name="Resources").click()
    expect(details.get_by_text("It has changed at")).to_be_visible()
    expect(details.get_by_role("article")).to_contain_text("Bolts.")
    details = opened("article")
    kind = details.get_by_role("combobox", name="kind")
    kind.click()
    expect(page.get_by_role("option")).to_have_text(["bolt", "nut"])
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(kind).to_have_value("nut")
    details.get_by_role("combobox", name="number").fill("4/2")
    expect(details.get_by_text("shop://articles/nut/4%2F2")).to_be_visible()
    details.get_by_role("button", name="Read").click()
    expect(details.get_by_role("article")).to_contain_text("nut")
    page.get_by_role("link", name="Prompts").click()
    details = opened("offer")
    details.get_by_role("button", name="Get", exact=True).click()
    expect(details.get_by_text("Fill this in.")).to_have_count(1)
    details.get_by_role("combobox", name="customer").fill("Ann")
    details.get_by_role("combobox", name="tone").fill("s")
    page.get_by_role("option", name="strict").click()
    details.get_by_role("button", name="Get", exact=True).click()
    expect(details.get_by_role("article")).to_contain_text("Write a strict offer to Ann.")


@pytest.mark.rule("DEV-70", "DEV-81")
def test_programs_that_complete_nothing_are_not_asked(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(
        "from foundation_rt import Server\n\nserver = Server('letters')\n\n\n"
        "@server.prompt\ndef letter(to: str) -> str:\n    return f'Write to {to}.'\n"
    )
    with dev_front(tmp_path, "letters.py") as front:
        front.wait_for_state("running")
        with watched_page(browser, front.page_url) as watched:
            watched.page.goto(f"http://127.0.0.1:{front.port}/#/prompts/letter")
            page = watched.page
            page.get_by_role("combobox", name="to (required)").fill("Ann")
            page.keyboard.press("Control+Enter")
            expect(page.get_by_role("article")).to_contain_text("Write to Ann.")
            assert not front.reader.of("call", method="completion/complete")


@pytest.mark.rule("DEV-81")
def test_first_entry_is_not_chosen_once_another_was(page: Page) -> None:
    page.add_init_script("""
        const add = window.addEventListener, late = [];
        const held = (listener) => (event) => late.push(() => listener(event));
        window.addEventListener = (type, listener, ...rest) =>
            add.call(window, type, type === "hashchange" ? held(listener) : listener, ...rest);
        window.deliver = () => late.forEach((each) => each());
        add.call(window, "DOMContentLoaded", () => (location.hash = "#/tools/survey"));
    """)
    page.evaluate("location.hash = '#/tools'")
    page.reload()
    page.get_by_role("link", name="restock").wait_for()
    page.evaluate("deliver()")
    details = page.get_by_role("region", name="Details")
    expect(details.get_by_role("heading", name="survey", exact=True)).to_be_visible()


@pytest.mark.rule("DEV-71")
def test_tool_runs_as_a_task(page: Page, opened: Opened) -> None:
    opened("survey").get_by_role("button", name="Run as task").click()
    card = page.get_by_role("article", name="Task of survey")
    expect(card).to_contain_text("asking")
    page.reload()
    expect(card).to_contain_text("asks you")
    card.get_by_role("combobox").select_option("cheese")
    card.get_by_role("button", name="Send").click()
    expect(card.locator(".result pre")).to_have_text("One cheese.")
    page.get_by_role("link", name="Tools").click()
    opened("survey").get_by_role("button", name="Run as task").click()
    card.first.get_by_role("button", name="Cancel", exact=True).first.click()
    expect(card.first).to_contain_text("cancelled")


@pytest.mark.rule("DEV-72", "DEV-73", "DEV-74", "DEV-76")
def test_front_is_seen_with_wire_timings_servers_and_agents(page: Page, opened: Opened) -> None:
    expect(run(opened("restock"))).to_contain_text("restocked")
    page.get_by_role("link", name="Activity").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("restock")
    page.get_by_role("link", name="Wire").click()
    page.get_by_label("Filter messages").fill("restock")
    page.get_by_label("Side").select_option("Programs")
    page.get_by_label("Kind").select_option("Requests")
    row = page.locator(".wire-row").first
    expect(row).to_contain_text("tools/call")
    row.click()
    expect(row.locator("pre").first).to_contain_text('"method": "tools/call"')
    expect(row.locator("pre").last).to_contain_text('"result"')
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    asked, answered = page.evaluate("navigator.clipboard.readText()").splitlines()[-2:]
    assert json.loads(asked)["message"]["params"]["name"] == "restock"
    assert "result" in json.loads(answered)["message"]
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".wire-row")).to_have_count(0)
    page.get_by_role("link", name="Timings").click()
    chart = page.get_by_role("region", name="Timings of restock")
    expect(chart.locator("circle").first).to_be_attached()
    expect(chart).to_contain_text("p95")
    page.get_by_role("link", name="Servers").click()
    expect(page.get_by_role("region", name="Server shop")).to_contain_text("Running")
    expect(page.get_by_role("row").nth(1)).to_contain_text("this page")
    page.get_by_role("link", name="Agents").click()
    expect(page.get_by_role("heading", name="clerk")).to_be_visible()
    page.get_by_role("button", name="Connect").click()
    dialog = page.get_by_role("dialog", name="Connect")
    expect(dialog).to_contain_text('"Authorization": "Bearer ')
    expect(dialog).to_contain_text("foundation-rt install claude-desktop")
    expect(dialog).to_contain_text("shop.py")


@pytest.mark.rule("DEV-69")
def test_restart_is_seen_without_loading_the_page(browser: Browser, tmp_path: Path) -> None:
    program = write_program(tmp_path)
    text = program.read_text()
    with dev_front(tmp_path, "shop.py") as front:
        front.wait_for_state("running")
        with watched_page(browser, front.page_url) as watched:
            page = watched.page
            page.get_by_role("link", name="order").click()
            page.get_by_label("customer").first.fill("Ann")
            added = "\n\n@server.tool\ndef added() -> str:\n    return ''\n"
            urgent = 'urgent: bool = False,\n    unit: str = "box"'
            program.write_text(text.replace("express: bool = False", urgent) + added)
            expect(page.get_by_role("link", name="added")).to_be_visible()
            expect(page.get_by_label("urgent")).to_be_visible()
            expect(page.get_by_label("unit")).to_have_value("box")
            expect(page.get_by_label("customer").first).to_have_value("Ann")
            program.write_text(text + "\nnonsense(\n")
            failure = page.get_by_role("alert").filter(has_text="failed")
            expect(failure).to_contain_text("shop.py:")
            expect(failure).to_contain_text("nonsense(")
            program.write_text(text)
            expect(failure).to_have_count(0)
            expect(page.get_by_role("link", name="added")).to_have_count(0)
            page.get_by_role("link", name="Activity").click()
            page.get_by_role("tab", name="Restarts").click()
            expect(page.locator(".restart").last).to_contain_text("the first start")
            expect(page.locator(".restart").first).to_contain_text("shop.py changed")


@pytest.mark.rule("DEV-92", "DEV-77")
def test_skill_is_shown_with_its_front_matter_and_its_files(page: Page, opened: Opened) -> None:
    page.get_by_role("link", name="Skills").click()
    details = opened("refunds")
    for text in ("skill://refunds/SKILL.md", "3 files", "MIT", "The shop", "<img src=x"):
        expect(details).to_contain_text(text)
    files = details.get_by_role("list", name="Files")
    expect(files.get_by_role("button")).to_have_text(
        ["SKILL.md", "seal.bin", "references/rules.md"]
    )
    seal = PROGRAM.with_name("skills") / "refunds" / "seal.bin"
    expect(files).to_contain_text(f"sha256:{sha256(seal.read_bytes()).hexdigest()}")
    details.get_by_role("button", name="SKILL.md").click()
    expect(details.get_by_role("article").first).to_contain_text("<script>alert(2)</script>")
    details.get_by_role("button", name="seal.bin").click()
    for card in details.get_by_role("article").all():
        expect(card).to_contain_text("Size and digest are those of the entry.")
    expect(details.locator("img, script")).to_have_count(0)


@pytest.mark.rule("DEV-92", "DEV-82", "DEV-77")
def test_skills_of_any_form_leave_their_neighbours(page: Page) -> None:
    digest = f"sha256:{'0' * 64}"
    skills = [
        {"uri": "a"},
        {"uri": "b", "frontmatter": "text", "resources": 5},
        {"uri": "c", "frontmatter": {"name": {"a": 1}, "description": 5}, "resources": [None, 5]},
        {
            "uri": "d",
            "frontmatter": {"name": HOSTILE, "description": HOSTILE},
            "resources": "dynamic",
        },
        {"uri": "e/SKILL.md", "resources": [{"uri": "e/%ff", "digest": digest, "size": HOSTILE}]},
        {"uri": 5},
        {"uri": "f/SKILL.md", "frontmatter": {"name": "last"}, "resources": []},
    ]
    shown = page.evaluate(
        """async (skills) => {
          const { SkillsView } = await import("/page/skills_view.js");
          const view = new SkillsView({ client: { list: async () => skills } });
          await view.reload();
          return view.split.items.map(({ key }) => {
            view.open(key);
            const { textContent } = view.node.querySelector(".detail-body");
            return [textContent, view.node.querySelectorAll("img, script").length];
          });
        }""",
        skills,
    )
    assert [each[1] for each in shown] == [0] * 6
    assert "no digests" in shown[3][0]
    assert digest in shown[4][0]
    assert "last" in shown[5][0]


@pytest.mark.rule("DEV-92", "DEV-11", "DEV-69")
def test_change_of_a_skill_is_seen_without_loading_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    write_program(tmp_path)
    folder = tmp_path / "skills" / "refunds"
    manifest = (folder / "SKILL.md").read_text()
    with dev_front(tmp_path, "shop.py") as front:
        front.wait_for_state("running")
        with watched_page(browser, front.page_url) as watched:
            page = watched.page
            page.get_by_role("link", name="Skills").click()
            page.get_by_role("link", name="refunds").click()
            details = page.get_by_role("region", name="Details")
            expect(details).to_contain_text("3 files")
            (folder / "dist").mkdir()
            (folder / "dist" / "notes.txt").write_text("new")
            expect(details).to_contain_text("4 files")
            (folder / "SKILL.md").write_text("no front matter")
            failure = page.get_by_role("alert").filter(has_text="failed")
            expect(failure).to_contain_text("it has no front matter")
            (folder / "SKILL.md").write_text(manifest.replace("by the rules", "at once"))
            expect(failure).to_have_count(0)
            expect(details).to_contain_text("Refund an order at once")
            page.get_by_role("link", name="Activity").click()
            page.get_by_role("tab", name="Restarts").click()
            changed = page.locator(".restart").first
            expect(changed).to_contain_text("skills/refunds/SKILL.md changed")
            expect(changed).to_contain_text("1 skill changed: skill://refunds/SKILL.md")


@pytest.mark.rule("DEV-61", "DEV-63")
def test_page_goes_on_when_the_front_is_started_again(browser: Browser, tmp_path: Path) -> None:
    write_program(tmp_path)
    words = ("shop.py", "--port", str(free_port()))
    with dev_front(tmp_path, *words) as front:
        front.wait_for_state("running")
        with watched_page(browser, front.page_url) as watched:
            watched.may_lose = True
            page = watched.page
            page.locator("a[href='#/tools/wait']").click()
            page.get_by_label("pages").fill("10")
            page.get_by_role("button", name="Run", exact=True).click()
            expect(page.get_by_role("article")).to_contain_text("page three")
            front.process.kill()
            expect(page.get_by_text("The front does not answer.")).to_be_visible()
            expect(page.get_by_role("article")).to_contain_text("is not known")
            with dev_front(tmp_path, *words) as again:
                again.wait_for_state("running")
                expect(page.get_by_text("The front does not answer.")).to_have_count(0)
                page.locator("a[href='#/tools/remove']").click()
                page.get_by_label("article").first.fill("A-1")
                page.get_by_role("button", name="Run", exact=True).click()
                expect(page.get_by_role("article")).to_contain_text("There is no article A-1.")
                stranger = browser.new_page()
                stranger.goto(again.page_url.partition("#")[0])
                expect(stranger.locator("body")).to_contain_text("foundation-rt dev printed")
                stranger.context.close()


@pytest.mark.rule("DEV-79", "DEV-63")
def test_secret_stays_in_its_tab(page: Page, front: DevFront) -> None:
    origin = front.page_url.partition("#")[0]
    assert page.url.startswith(f"{origin}#/tools/")  # the first of them
    page.reload()
    page.get_by_role("link", name="order").wait_for()
    assert page.context.cookies() == []
    assert front.token not in page.evaluate("JSON.stringify([localStorage, document.cookie])")
    stranger = page.context.new_page()
    stranger.goto(origin)
    refused = stranger.get_by_text(f"foundation-rt dev printed: {origin}#token=")
    expect(refused).to_be_visible()
    shot(stranger, "dev-stranger")
    stranger.goto(front.page_url)  # loads nothing: only the fragment differs
    stranger.get_by_role("link", name="order").wait_for()
    expect(refused).to_have_count(0)
    assert front.token not in stranger.url


@pytest.mark.rule("DEV-61")
def test_request_without_session_is_sent_when_there_is_one(page: Page) -> None:
    found = page.evaluate("""async () => {
      const { McpClient } = await import("/page/mcp_client.js");
      const { request } = await import("/shared/page_token.js");
      const { url, token } = await (await request("/dev/connect")).json();
      const sent = [];
      const real = globalThis.fetch;
      let refused = 0;
      globalThis.fetch = (address, options = {}) => {
        const { method } = JSON.parse(options.body ?? "{}");
        sent.push(method);
        const isForgotten = method === "tools/call" && refused < 3;
        if (isForgotten) refused += 1;
        if (isForgotten) return Promise.resolve(new Response("", { status: 404 }));
        return real(address, options);
      };
      const nothing = () => {};
      const client = new McpClient({
        url: new URL(url).pathname, token, info: { name: "test", version: "1" }, capabilities: {},
        onRequest: nothing, onNotification: nothing, onStatus: nothing, onReady: nothing,
      });
      const early = client.list("tools/list", "tools");
      const cancelled = client.request("prompts/list");
      cancelled.cancel();
      const how = await cancelled.promise.catch((error) => error.constructor.name);
      const before = sent.length;
      // Two connections at once: the later one is used.
      client.connect();
      client.connect();
      const tools = (await early).map(({ name }) => name);
      const call = () => client.request("tools/call", { name: "restock", arguments: {} }).promise;
      const twice = await call().catch((error) => error.constructor.name);
      const result = await call();
      globalThis.fetch = real;
      return { before, how, hasTools: tools.includes("restock"), twice,
        text: result.content[0].text, calls: sent.filter((each) => each === "tools/call").length,
        prompts: sent.includes("prompts/list") };
    }""")
    assert found == {
        "before": 0,
        "how": "CancelledError",
        "hasTools": True,
        "twice": "SessionError",
        "text": "restocked",
        "calls": 4,
        "prompts": False,
    }


@pytest.mark.rule("DEV-62")
def test_page_is_bounded_after_ten_thousand_events(page: Page) -> None:
    sizes = page.evaluate("""async () => {
      const { Feed } = await import("/page/feed.js");
      const { WireView } = await import("/page/wire_view.js");
      const { ActivityView } = await import("/page/activity_view.js");
      const real = globalThis.fetch;
      const { readable, writable } = new TransformStream();
      globalThis.fetch = async () => new Response(readable);
      let ended;
      const end = new Promise((resolve) => { ended = resolve; });
      const onStatus = (status) => status === "lost" && ended();
      const feed = new Feed({ onChange() {}, onStatus });
      feed.open();
      globalThis.fetch = real;
      const writer = writable.getWriter();
      const encoder = new TextEncoder();
      const text = "x".repeat(15000);
      for (let n = 0; n < 10_000; n += 1) {
        const said = { at: 1e12 + n, client: "c", server: "s", call: `c${n}` };
        const message = { jsonrpc: "2.0", id: n, result: { text: n % 5 ? "" : text } };
        const wire = { ...said, leg: "client", kind: "response", id: n, bytes: 99, message };
        const call = { ...said, phase: "end", method: "tools/call", name: "t", outcome: "ok" };
        const log = { ...said, level: "info", message: text, fields: {} };
        for (const [kind, value] of Object.entries({ wire, call, log })) {
          const event = `event: ${kind}\\ndata: ${JSON.stringify(value)}\\n\\n`;
          await writer.write(encoder.encode(event));
        }
      }
      await writer.close();
      await end;
      const nodes = {};
      for (const [name, View] of Object.entries({ wire: WireView, activity: ActivityView })) {
        const view = new View({ feed });
        document.body.append(view.node);
        view.open();
        if (name === "activity") view.tabs.choose("logs", false);
        nodes[name] = view.node.querySelectorAll("*").length;
        nodes[`${name}Text`] = view.node.textContent.length;
        view.node.remove();
      }
      const { wire, logs, calls, byCall } = feed;
      return { ...nodes, kept: [wire.length, logs.length, calls.length, byCall.size] };
    }""")
    assert sizes["kept"] == [2000, 2000, 1000, 1000]
    assert sizes["wire"] < 5_000
    assert sizes["activity"] < 5_000
    assert sizes["wireText"] + sizes["activityText"] < 1_000_000


@pytest.mark.rule("DEV-62", "DEV-64")
def test_huge_lists_and_deep_schemas_are_bounded(page: Page) -> None:
    shown = page.evaluate("""async () => {
      const { MasterDetail } = await import("/page/master_detail.js");
      const { SchemaForm } = await import("/shared/schema_form.js");
      const list = new MasterDetail({ noun: "tools", picture: "tools", base: "#/tools" });
      const items = [...Array(1000).keys()].map((n) => ({ key: `t${n}`, title: `tool ${n}` }));
      document.body.append(list.node);
      list.setItems(items);
      list.filter.value = "tool 99";
      const all = list.node.querySelectorAll("li").length;
      list.filter.dispatchEvent(new Event("input"));
      const filtered = list.node.querySelectorAll("li").length;
      list.node.remove();
      const node = { type: "object", required: ["next"], properties: { next: { $ref: "#" } } };
      const form = new SchemaForm(node);
      document.body.append(form.node);
      const deep = [form.node.querySelectorAll("fieldset").length,
        form.node.querySelectorAll("textarea").length];
      form.node.remove();
      return { all, filtered, deep };
    }""")
    assert shown == {"all": 500, "filtered": 11, "deep": [8, 1]}


@pytest.mark.rule("DEV-82")
def test_a_flood_of_a_tool_leaves_the_page_usable(page: Page, opened: Opened) -> None:
    card = run(opened("flood"))
    expect(card.get_by_text("1 more block.")).to_be_visible()
    expect(card.locator("table")).to_have_count(1)
    expect(run(opened("sales")).locator("td").first).to_have_text("bolt")


@pytest.mark.rule("DEV-83")
def test_a_place_that_did_not_finish_showing_is_offered(browser: Browser, front: DevFront) -> None:
    with watched_page(browser, front.page_url) as watched:
        page = watched.page
        page.get_by_role("link", name="sales").wait_for()
        page.evaluate("""() => {
          Date.now = () => 0; // long ago
          Element.prototype.replaceChildren = () => { throw new Error("the page breaks"); };
        }""")
        with page.expect_event("pageerror"):
            page.get_by_role("link", name="sales").click()
        page.reload()
        expect(page.get_by_text("“#/tools/sales” did not finish showing")).to_be_visible()
        expect(page.get_by_role("heading", name="sales")).to_have_count(0)
        page.get_by_role("link", name="Open it").click()
        expect(page.get_by_role("heading", name="sales")).to_be_visible()
        expect(page.get_by_text("did not finish")).to_have_count(0)
        watched.problems.clear()  # those of the test
