"""Every view of the page, light and dark, wide and narrow: axe-core, and the keyboard.

With `FOUNDATION_RT_TEST_SHOTS=FOLDER` a picture of each view is kept there, to be looked at.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.apps.dev.page.conftest import write_program
from tests.lab.pages.axe import axe_source, findings
from tests.lab.pages.chromium import shot, watched_page
from tests.lab.servers.dev_front import DevFront, dev_front
from tests.lab.servers.process import command


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevFront]:
    """Develop three servers of an `mcp.json`, one of which can't run."""
    folder = tmp_path_factory.mktemp("servers")
    write_program(folder)
    serve, *words = command("serve")
    broken = {"command": sys.executable, "args": ["-c", "raise SystemExit('no database')"]}
    servers = {
        "shop": {"command": serve, "args": [*words, str(folder / "shop.py")]},
        "plain": {"command": serve, "args": words},
        "broken": broken,
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    with dev_front(folder, "mcp.json") as running:
        running.wait_for_state("running", "shop")
        running.wait_for_state("running", "plain")
        running.wait_for_state("failed", "broken")
        yield running


def go(page: Page, view: str) -> None:
    """Go to a view."""
    page.evaluate("(view) => (location.hash = `#/${view}`)", view)


def run(page: Page, name: str, **values: str) -> Locator:
    """Run a tool; return the card of the call."""
    go(page, f"tools/{name}")
    details = page.get_by_role("region", name="Details")
    details.get_by_role("heading", name=name, exact=True).wait_for()
    for label, value in values.items():
        details.get_by_label(label).first.fill(value)
    details.get_by_role("button", name="Run", exact=True).click()
    return details.get_by_role("article").first


def tools(page: Page) -> None:
    """Show the list."""
    page.get_by_role("link", name="shop__order").wait_for()


def form(page: Page) -> None:
    """Show a form that is not filled in."""
    go(page, "tools/shop__order")
    details = page.get_by_role("region", name="Details")
    details.get_by_role("button", name="Add item to lines").click()
    details.get_by_role("button", name="Run", exact=True).click()
    expect(details.get_by_text("Fill this in.").first).to_be_visible()


def arguments_as_json(page: Page) -> None:
    """Show arguments as JSON, and the definition."""
    page.get_by_role("tab", name="JSON").click()
    page.get_by_text("Definition", exact=True).click()


def progress(page: Page) -> None:
    """Show a call that runs."""
    card = run(page, "shop__wait", pages="10")
    expect(card).to_contain_text("slow page")
    expect(card.get_by_role("progressbar")).to_be_visible()


def question(page: Page) -> None:
    """Show a form that a server asks for."""
    run(page, "shop__book").get_by_label("name").first.wait_for()


def address(page: Page) -> None:
    """Show an address that a server asks to open."""
    run(page, "shop__pay").get_by_role("link", name="Open pay.example.com").wait_for()


def sampling(page: Page) -> None:
    """Show what a server asks a model."""
    run(page, "shop__sum_up", text="A text").get_by_label("Answer of the model").wait_for()


def result(page: Page) -> None:
    """Show a picture and texts."""
    run(page, "shop__report").get_by_role("img").wait_for()


def table(page: Page) -> None:
    """Show a table with structured content, and log records beside it."""
    card = run(page, "shop__sales")
    expect(card.get_by_role("table")).to_contain_text("bolt")
    expect(card.get_by_label("Log records of this call")).to_contain_text("counted")


def error(page: Page) -> None:
    """Show an error of a tool, and its wire."""
    card = run(page, "shop__remove", article="A-1")
    expect(card).to_contain_text("There is no article A-1.")
    card.get_by_role("tab", name="Wire").click()


def resource(page: Page) -> None:
    """Show a resource."""
    go(page, "resources/" + "shop%3A%2F%2Fstock")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("article").first).to_contain_text("Bolts.")


def template(page: Page) -> None:
    """Show a template, and values for a variable."""
    go(page, "resources")
    page.get_by_role("link", name="article").click()
    page.get_by_role("combobox", name="kind").fill("b")
    page.get_by_role("option", name="bolt").wait_for()


def prompt(page: Page) -> None:
    """Show a prompt."""
    go(page, "prompts")
    page.get_by_role("link", name="offer").click()
    page.get_by_role("combobox", name="customer").fill("Ann")
    page.get_by_role("button", name="Get", exact=True).click()
    expect(page.get_by_role("article").first).to_contain_text("offer to Ann")


def skill(page: Page) -> None:
    """Show a skill, and a file of it."""
    go(page, "skills")
    page.get_by_role("link", name="refunds").click()
    page.get_by_role("button", name="references/rules.md").click()
    expect(page.get_by_role("article").first).to_contain_text("digest are those of the entry")


def tasks(page: Page) -> None:
    """Show a task that asks."""
    go(page, "tools/shop__survey")
    page.get_by_role("button", name="Run as task").click()
    page.get_by_role("button", name="Send").wait_for()


def activity(page: Page) -> None:
    """Show calls."""
    go(page, "activity")
    page.get_by_role("row").nth(1).wait_for()


def log(page: Page) -> None:
    """Show log records."""
    page.get_by_role("tab", name="Log").click()
    page.get_by_label("Least level").select_option("warn")


def restarts(page: Page) -> None:
    """Show restarts."""
    page.get_by_role("tab", name="Restarts").click()
    page.locator(".restart").first.wait_for()


def wire(page: Page) -> None:
    """Show messages, one of them open."""
    go(page, "wire")
    page.get_by_label("Filter messages").fill("survey")  # axe-core looks at each row
    page.locator(".wire-row summary").first.click()


def timings(page: Page) -> None:
    """Show charts."""
    go(page, "timings")
    page.locator(".chart").first.wait_for()


def servers(page: Page) -> None:
    """Show servers, one of which has failed."""
    go(page, "servers")
    broken = page.get_by_role("region", name="Server broken")
    expect(broken).to_contain_text("the program ended with exit code 1; its last line: no database")
    expect(broken.get_by_text("Last lines of its stderr").first).to_be_visible()
    expect(page.get_by_role("region", name="Server shop")).to_contain_text("Running")


def agents(page: Page) -> None:
    """Show the programs that have agents."""
    go(page, "agents")
    shop = page.get_by_role("region", name="Agents of shop")
    expect(shop).to_contain_text("foundation-rt dev FILE.py")


def connect(page: Page) -> None:
    """Show how to connect."""
    page.get_by_role("button", name="Connect").click()
    page.get_by_role("dialog", name="Connect").wait_for()


def shortcuts(page: Page) -> None:
    """Show the shortcuts."""
    page.keyboard.press("Escape")
    page.keyboard.press("Alt+/")
    page.get_by_role("dialog", name="Shortcuts").wait_for()


VIEWS: list[Callable[[Page], None]] = [
    *(tools, form, arguments_as_json, progress, question, address, sampling, result, table, error),
    *(resource, template, prompt, skill, tasks, activity, log, restarts, wire, timings, servers),
    *(agents, connect, shortcuts),
]

# All rules once for each width; the other colours are on the same nodes.
SCHEMES: dict[int, dict[str, list[str] | None]] = {
    1280: {"light": None, "dark": ["color-contrast"]},
    360: {"dark": None, "light": ["color-contrast"]},
}


@pytest.mark.rule("DEV-60", "DEV-74", "DEV-78")
@pytest.mark.parametrize("width", [*SCHEMES])
def test_axe_finds_nothing_in_any_view(browser: Browser, front: DevFront, width: int) -> None:
    axe = axe_source()
    with watched_page(browser, front.page_url, viewport={"width": width, "height": 800}) as watched:
        page = watched.page
        for number, view in enumerate(VIEWS, 1):
            view(page)
            for scheme, rules in SCHEMES[width].items():
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                shot(page, f"dev-{width}-{scheme}-{number:02}-{view.__name__}")
                assert findings(page, axe, rules) == [], (view.__name__, scheme)
            for stop in page.locator(".run .card-head button").all():
                stop.click()  # what waits would hold a slot
            wide, high = page.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
            )
            assert wide <= width and high <= 800, (view.__name__, wide, high)


@pytest.mark.rule("DEV-95")
@pytest.mark.parametrize("width", [*SCHEMES])
def test_list_without_entries_says_how_to_add_one(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    (tmp_path / "empty.py").write_text("from foundation_rt import Server\nserver = Server('e')\n")
    viewport = {"width": width, "height": 800}
    with (
        dev_front(tmp_path, "empty.py") as front,
        watched_page(browser, front.page_url, viewport=viewport) as watched,
    ):
        go(watched.page, "prompts")
        expect(watched.page.get_by_text("The server has no prompts.")).to_be_visible()
        expect(watched.page.get_by_text("@server.prompt")).to_be_visible()


@pytest.mark.rule("DEV-74", "DEV-78")
def test_axe_finds_nothing_in_the_ledger_of_a_program(browser: Browser, tmp_path: Path) -> None:
    write_program(tmp_path)
    axe = axe_source()
    with dev_front(tmp_path, "shop.py") as front:
        front.wait_for_state("running")
        with watched_page(browser, front.page_url) as watched:
            page = watched.page
            run(page, "file_form", request="order-7").wait_for()
            go(page, "agents")
            shop = page.get_by_role("region", name="Agents of shop")
            expect(shop.get_by_role("heading", name="clerk")).to_be_visible()
            requests = shop.get_by_label("Requests of the ledger")
            for _ in range(100):  # the call may enter its request after the page has asked
                if requests.is_visible():
                    break
                with page.expect_response("**"):
                    page.get_by_role("button", name="Refresh").click()
            expect(requests).to_contain_text("order-7")
            for width, scheme in ((1280, "light"), (360, "dark")):
                page.set_viewport_size({"width": width, "height": 800})
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                shot(page, f"dev-{width}-{scheme}-24-ledger")
                assert findings(page, axe) == []
        front.end(signal.SIGKILL)  # the request would have its time to end


FOCUSABLE = """
window.focusable = () => {
  const place = document.querySelector("dialog[open]") ?? document.getElementById("main");
  return [...place.querySelectorAll(
    "button, a[href], input, textarea, select, summary, [tabindex='0']"
  )].filter((node) => node.checkVisibility({ visibilityProperty: true }) && node.tabIndex >= 0
    && !node.disabled && !(node.type === "radio" && !node.checked));
};
window.reached = new Set();
window.unseen = new Set();
addEventListener("focusin", ({ target }) => {
  const styles = [target, target.parentElement].map((each) => getComputedStyle(each));
  const isSeen = styles.some((style) => style.outlineStyle !== "none");
  window.reached.add(target);
  if (target.tabIndex < 0) return; // the heading, which the page itself moves the focus to
  if (!isSeen) window.unseen.add(target.outerHTML);
});
"""


def reaches_everything(page: Page) -> None:
    """Press Tab until all that can be used has had the focus, and was seen to have it."""
    if page.evaluate("typeof focusable") == "undefined":
        page.evaluate(FOCUSABLE)
    page.evaluate(
        "() => { document.querySelector('h1').focus(); reached.clear(); unseen.clear(); }"
    )
    # Boxes that scroll have the focus, too; records and folds may come meanwhile.
    pressed = 0
    while pressed < page.evaluate("focusable().length") + 8:
        page.keyboard.press("Tab")
        pressed += 1
    missed = "focusable().filter((node) => !reached.has(node)).map((node) => node.outerHTML)"
    assert page.evaluate(missed) == []
    assert page.evaluate("[...unseen]") == []


@pytest.mark.rule("DEV-78")
def test_tab_reaches_everything_in_every_view(browser: Browser, front: DevFront) -> None:
    with watched_page(browser, front.page_url) as watched:
        page = watched.page
        for view in VIEWS:
            view(page)
            reaches_everything(page)
            for stop in page.locator(".run .card-head button").all():
                stop.click()


@pytest.mark.rule("DEV-78")
def test_keyboard_alone_runs_a_tool_and_reaches_all_views(
    browser: Browser, front: DevFront
) -> None:
    with watched_page(browser, front.page_url) as watched:
        page = watched.page
        page.get_by_role("link", name="shop__remove").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("article").first).to_be_focused()
        page.keyboard.type("A-1")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("article")).to_contain_text("There is no article A-1.")
        page.get_by_role("article").get_by_role("tab", name="Error").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("article").get_by_role("tab", name="JSON")).to_be_focused()
        reaches_everything(page)
        for number, view in enumerate(("Tools", "Resources", "Prompts", "Skills", "Tasks"), 1):
            page.keyboard.press(f"Alt+{number}")
            expect(page.get_by_role("heading", level=1)).to_have_text(view)
        page.keyboard.press("Alt+0")
        expect(page.get_by_role("heading", level=1)).to_have_text("Agents")


@pytest.mark.rule("DEV-62", "DEV-74")
def test_times_that_are_whole_ms_are_shown(browser: Browser, front: DevFront) -> None:
    """The front writes such a time as `1790000000000.0`, and JavaScript does not."""
    server = {"id": "shop", "state": "running", "startedAt": 1790000000000.0}
    client = {"session": "s1", "name": "an agent", "since": 1790000000000.0, "calls": 3}
    event = json.dumps({"target": "shop.py", "servers": [server], "clients": [client]})
    with watched_page(browser, front.page_url) as watched:
        page = watched.page
        stream = {"status": 200, "content_type": "text/event-stream"}
        page.route(
            "**/dev/events",
            lambda route: route.fulfill(**stream, body=f"event: state\ndata: {event}\n\n"),
        )
        page.reload()
        go(page, "servers")
        options = "day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit'"
        time = page.evaluate(
            f"new Date(1790000000000).toLocaleString([], {{ {options}, hour12: false }})"
        )  # with its date: it was another day
        expect(page.get_by_role("region", name="Server shop")).to_contain_text(time)
        expect(page.get_by_role("row").filter(has_text="an agent")).to_contain_text(time)


@pytest.mark.rule("DEV-78")
def test_views_are_a_drawer_on_a_narrow_page(browser: Browser, front: DevFront) -> None:
    with watched_page(browser, front.page_url, viewport={"width": 360, "height": 640}) as watched:
        page = watched.page
        page.get_by_role("button", name="Views").click()
        expect(page.get_by_role("link", name="Tools")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Views")).to_be_focused()
        page.get_by_role("button", name="Views").click()
        page.get_by_role("link", name="Servers").click()
        expect(page.get_by_role("navigation")).to_be_hidden()
        go(page, "tools/shop__order")
        expect(page.get_by_role("link", name="shop__order")).to_be_hidden()
        page.get_by_role("link", name="All tools").click()
        expect(page.get_by_role("link", name="shop__order")).to_be_visible()
