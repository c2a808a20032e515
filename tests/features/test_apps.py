"""Apps: pages that a server offers, and the tools that name them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import (
    AppCsp,
    BlobContents,
    Principal,
    RegistrationError,
    ResourceDefinition,
    Server,
    TextContents,
    ToolContext,
    ToolDefinition,
    ToolError,
    ToolUi,
    UsageError,
)
from foundation_rt.base.app_format import MAX_HTML_BYTES, SETTINGS, is_domain, moved
from foundation_rt.base.clock import SystemClock
from foundation_rt.client import APPS, App, InvalidResponseError, MCPError, connect
from foundation_rt.protocol.revisions import REVISIONS, STATELESS_REVISIONS
from foundation_rt.testing import ProtocolError, TestClient

EXTENSION = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
URI = "ui://orders/table"
PAGE = "<!doctype html><title>Orders</title>"
STATELESS = STATELESS_REVISIONS[-1]


def shop(page_size: int = 100, expose: str = "all") -> Server:
    """Return a server with an app, a tool that names it, and one for it alone."""
    config = {"server": {"page_size": page_size}, "tools": {"expose": expose}}
    server = Server("shop", config=config)
    server.app(URI, PAGE)

    @server.tool(ui=URI)
    def orders() -> str:
        return "one order"

    @server.tool(ui=ToolUi(URI, visibility=("app",)), meta={"acme/own": 1})
    def refund() -> str:
        return "refunded"

    return server


# -- pages ------------------------------------------------------------------------------------


@pytest.mark.rule("APP-01", "APP-05")
async def test_app_is_a_resource_from_a_text_a_file_or_a_function(tmp_path: Path) -> None:
    server, file = Server("shop"), tmp_path / "orders.html"
    file.write_text(PAGE.replace("Orders", "é"), "utf-8")
    csp = AppCsp(connect_domains=["https://api.example.com"], frame_domains=["https://*.b.c:8443"])
    server.app(URI, PAGE, title="Orders", csp=csp, permissions=["clipboardWrite"])
    server.app("ui://file", file, domain="a.example.com", prefers_border=False, meta={"a/b": 1})

    @server.app("ui://def")
    def plain() -> str:
        """Write the page when it is read."""
        return PAGE

    @server.app("ui://described", description="Another page.")
    def described() -> str:
        """Not said."""
        return PAGE

    @server.app("ui://async")
    async def waiting(ctx: ToolContext) -> str:
        return PAGE + ctx.run_id

    file.write_text("changed")
    asked = {
        "csp": {"connectDomains": [*csp.connect_domains], "frameDomains": [*csp.frame_domains]},
        "permissions": {"clipboardWrite": {}},
    }
    others = {"domain": "a.example.com", "prefersBorder": False}
    metas = {URI: {"ui": asked}, "ui://file": {"a/b": 1, "ui": others}}
    async with connect(server) as client:
        listed = {each.uri: each.wire for each in await client.list_resources()}
        assert {each["mimeType"] for each in listed.values()} == {MIME_TYPE}
        assert listed[URI]["size"] == len(PAGE) and listed[URI]["title"] == "Orders"
        assert listed["ui://def"]["description"] == "Write the page when it is read."
        assert listed["ui://described"]["description"] == "Another page."
        for uri, wire in listed.items():
            [page] = (await client.read_resource(uri)).wire["contents"]
            assert wire.get("_meta") == page.get("_meta") == metas.get(uri)
            assert (page["uri"], page["mimeType"]) == (uri, MIME_TYPE)
            expected = PAGE.replace("Orders", "é") if uri == "ui://file" else PAGE
            assert page["text"].startswith(expected)


@pytest.mark.rule("APP-01", "APP-02", "APP-05")
@pytest.mark.parametrize(
    ("uri", "html", "options", "problem"),
    [
        ("http://orders", PAGE, {}, "its URI begins with ui://"),
        ("ui://", PAGE, {}, "its URI begins with ui://"),
        ("ui://" + "x" * 2048, PAGE, {}, "its URI begins with ui://"),
        ("ui://orders/{id}", PAGE, {}, "must not hold"),
        ("ui://a b", PAGE, {}, "must not hold"),
        ("ui://taken", PAGE, {}, "the URI is taken"),
        (URI, "", {}, "is no HTML"),
        (URI, "orders.html", {}, r"is no HTML; for a file write Path"),
        (URI, "<\ud800>", {}, "valid Unicode"),
        (URI, b"<p>", {}, "HTML as text, a Path, or a function"),
        (URI, "<" * (50 << 20), {}, "more than 16 MiB"),
        (URI, "<\n" * (MAX_HTML_BYTES // 2 - 8), {}, "more than 16 MiB as JSON"),
        (URI, Path("/nowhere/orders.html"), {}, "No such file"),
        (URI, Path("/"), {}, "cannot be read"),
        (URI, Path("/dev/zero"), {}, "is no HTML"),
        (URI, Path(sys.executable), {}, "is no HTML in UTF-8"),
        (URI, PAGE, {"csp": {"connectDomains": []}}, "csp must be AppCsp"),
        (URI, PAGE, {"csp": AppCsp(("*",))}, "connect_domains has at most 64 origins"),
        (URI, PAGE, {"csp": AppCsp((), ("https://a/b",))}, "resource_domains"),
        (URI, PAGE, {"csp": AppCsp((), (), ("https://a; sandbox",))}, "frame_domains"),
        (URI, PAGE, {"csp": AppCsp((), (), (), ("'self'",))}, "base_uri_domains"),
        (URI, PAGE, {"csp": AppCsp(("https://a",) * 65)}, "not 65"),
        (URI, PAGE, {"permissions": ["midi"]}, "camera, microphone, geolocation, clipboardWrite"),
        (URI, PAGE, {"permissions": "camera"}, "not 'c'"),
        (URI, PAGE, {"domain": "a\nb"}, "domain must be printable"),
        (URI, PAGE, {"prefers_border": 1}, "prefers_border must be bool"),
        (URI, PAGE, {"scopes": "one"}, "several strings"),
    ],
)
def test_what_is_no_app_is_refused_with_the_reason(
    uri: str, html: Any, options: dict[str, Any], problem: str
) -> None:
    server = Server("shop")
    server.app("ui://taken", PAGE)
    with pytest.raises(RegistrationError, match=problem):
        server.app(uri, html, **options)
    assert [each.uri for each in server.list_resources()] == ["ui://taken"]


@pytest.mark.rule("APP-02")
@pytest.mark.parametrize("html", [None, b"<p>", "no html", "<" * (MAX_HTML_BYTES + 1)])
async def test_function_that_returns_no_page_fails_where_it_is_read(html: Any) -> None:
    server = Server("shop")

    @server.app(URI)
    def page() -> str:
        return html

    async with TestClient(server, clock=SystemClock()) as client:
        with pytest.raises(ProtocolError) as failed:
            await client.read_resource(URI)
        assert failed.value.code == -32603 and "refused" not in str(failed.value)
        assert any(
            "app 'ui://orders/table' is refused: " in str(each) for each in client.logs or ()
        )


@pytest.mark.rule("APP-04")
async def test_app_is_there_for_those_who_may_see_it() -> None:
    server = shop()
    server.app("ui://staff", PAGE, visible=["staff"], tags=["internal"], cache_ttl_ms=5)
    async with TestClient(server) as client:
        client.connection.session.principal = Principal("ann", scopes=frozenset({"other"}))
        assert "ui://staff" not in str(await client.request("resources/list"))
        client.connection.session.principal = Principal("ben", scopes=frozenset({"staff"}))
        assert await client.read_resource("ui://staff") == PAGE
        server.disable(tags=["internal"])
        with pytest.raises(ProtocolError, match="not found"):
            await client.read_resource("ui://staff")


# -- tools ------------------------------------------------------------------------------------


@pytest.mark.rule("APP-03", "APP-07", "APP-08", "EXT-11")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("page_size", [1, 100])
async def test_tools_for_apps_alone_are_listed_to_clients_with_apps(
    revision: str, page_size: int
) -> None:
    server = shop(page_size)
    async with connect(server, revision=revision, extensions=APPS) as client:
        tools = {each.name: each.wire.get("_meta") for each in await client.list_tools()}
        if revision >= "2025-06-18":
            ui = {"resourceUri": URI, "visibility": ["app"]}
            assert tools["refund"] == {"acme/own": 1, "ui": ui}
            assert tools["orders"] == {"ui": {"resourceUri": URI}}
        assert [*tools] == ["health", "orders", "refund"]
        assert (await client.call("refund")).value() == "refunded"
        assert client.server is not None
        declared = client.server.capabilities.get("extensions")
        assert declared == ({EXTENSION: SETTINGS} if revision == STATELESS else None)
    async with connect(server, revision=revision) as client:
        assert [each.name for each in await client.list_tools()] == ["health", "orders"]
        assert (await client.call("orders")).value() == "one order"
        await client.request("tools/call", {"name": "refund", "arguments": {}})


@pytest.mark.rule("APP-06")
@pytest.mark.parametrize(
    ("ui", "problem"),
    [
        ("orders/table", "names an app by its URI"),
        (ToolUi("http://orders"), "names an app by its URI"),
        (5, "is the URI of an app"),
        (ToolUi(URI, visibility=()), 'visibility of "model", "app" or both'),
        (ToolUi(URI, visibility="app"), 'visibility of "model", "app" or both'),  # type: ignore[arg-type]
        (ToolUi(URI, visibility=("admin",)), 'visibility of "model", "app" or both'),  # type: ignore[arg-type]
    ],
)
def test_ui_that_names_nothing_is_refused_at_its_tool(ui: Any, problem: str) -> None:
    server = Server("shop")
    with pytest.raises(RegistrationError, match=f"tool 'orders' is refused: ui .*{problem}"):

        @server.tool(ui=ui)
        def orders() -> str:
            return ""

    assert server.get("orders") is None


@pytest.mark.rule("APP-06", "APP-03")
async def test_app_that_is_not_there_is_an_error_at_the_start_or_at_a_later_tool() -> None:
    server = Server("shop")

    @server.tool(ui="ui://orders/tabel")
    def orders() -> str:
        return ""

    def start() -> object:
        return server.runtime

    with pytest.raises(
        RegistrationError, match=r"there is no app 'ui://orders/tabel'; add it: @se"
    ):
        start()
    server.app(URI, PAGE)
    with pytest.raises(RegistrationError, match="did you mean 'ui://orders/table'"):
        start()
    server.unregister("orders")
    by_hand = ToolDefinition("by_hand", "", {"type": "object"}, meta={"ui/resourceUri": "ui://x"})
    server.register(by_hand, lambda arguments, context: None)
    with pytest.raises(RegistrationError, match="there is no app 'ui://x'"):
        start()

    @server.resource("ui://{name}", mime_type=MIME_TYPE)
    def page(name: str) -> str:
        return PAGE

    async with connect(server) as client:
        await client.list_tools()
        with pytest.raises(RegistrationError, match="did you mean 'ui://orders/table'"):
            server.tool("late", ui="ui://orders/tables")(orders)
        server.app("ui://late", PAGE)
        server.tool("late", ui="ui://late")(orders)
        tools = await client.request("tools/list")
        assert "late" in [each["name"] for each in tools["tools"]]
    without = Server("without")
    async with TestClient(without):
        with pytest.raises(UsageError, match="add its first app"):
            without.app(URI, PAGE)
        with pytest.raises(UsageError, match="add its first app"):
            without.tool(ui=URI)(orders)


@pytest.mark.rule("APP-03", "APP-09")
async def test_apps_of_a_mounted_server_are_named_by_its_tools() -> None:
    inner, outer = shop(), Server("outer", extensions={"acme.example/own": {}})
    middle = Server("middle")
    outer.mount(middle, "b")
    middle.mount(inner, "a")
    late = ResourceDefinition(uri="ui://late", name="late", mime_type=MIME_TYPE)
    inner.register_resource(late, lambda arguments, context: PAGE)
    async with connect(outer, extensions=APPS) as client:
        tools = {each.name: each.wire.get("_meta") for each in await client.list_tools()}
        assert tools["b_a_orders"] == {"ui": {"resourceUri": "ui://b/a/orders/table"}}
        for uri in ("ui://b/a/orders/table", "ui://b/a/late"):
            [page] = (await client.read_resource(uri)).wire["contents"]
            assert (page["uri"], page["text"]) == (uri, PAGE)
        assert client.server is not None
        assert {*client.server.capabilities["extensions"]} == {EXTENSION, "acme.example/own"}


@pytest.mark.rule("APP-10")
async def test_search_of_a_server_finds_no_tool_for_apps_alone() -> None:
    async with TestClient(shop(expose="search"), extensions=APPS) as client:
        listed = (await client.request("tools/list"))["tools"]
        names = [each["name"] for each in listed]
        assert names == ["call_tool", "describe_tool", "search_tools"]
        assert "refund" not in str(await client.call("search_tools", query=""))
        for tool, params in (
            ("describe_tool", {"name": "refund"}),
            ("call_tool", {"name": "refund", "arguments": {}}),
        ):
            with pytest.raises(ToolError, match="There is no tool 'refund'"):
                await client.call_tool(tool, params)
        orders = {"name": "orders", "arguments": {}}
        assert await client.call_tool("call_tool", orders) == "one order"
        assert await client.call("refund") == "refunded"  # by the app


# -- what others write ------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just(URI),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["ui", "resourceUri", "ui/resourceUri", "visibility", "connectDomains"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@pytest.mark.rule("APP-07")
@given(_JSON)
def test_anything_that_others_write_can_be_read(meta: Any) -> None:
    ui = ToolUi.read(meta)
    assert ui.resource_uri in (None, URI) and set(ui.visibility) <= {"model", "app"}
    if isinstance(meta, dict):
        changed = ToolUi.read(moved(meta, lambda uri: uri + "/moved"))
        assert changed.visibility == ui.visibility
        assert changed.resource_uri == (None if ui.resource_uri is None else f"{URI}/moved")
    assert all(map(is_domain, AppCsp.read(meta).connect_domains))


def _is_in_csp(text: str) -> bool:
    return not set(text) & set(" ;,'\"\n\t\r\0")


@pytest.mark.rule("APP-05")
@given(
    st.text(st.sampled_from("https:/*.ab1-;, '\n"), max_size=30).map(lambda text: f"https://{text}")
)
def test_an_origin_can_end_no_directive(text: str) -> None:
    assert not is_domain(text) or _is_in_csp(text)


# -- clients ----------------------------------------------------------------------------------


@pytest.mark.rule("CAPP-01", "CAPP-02", "CAPP-03")
async def test_client_reads_the_app_of_a_tool() -> None:
    server = shop()
    csp = AppCsp(("https://api.example.com",), base_uri_domains=("https://a.example.com",))
    server.app("ui://map", PAGE, csp=csp, permissions=["camera"], domain="d", prefers_border=True)
    late = ResourceDefinition(
        uri="ui://listed",
        name="listed",
        mime_type="Text/HTML; profile=mcp-app",
        meta={"ui": {"prefersBorder": False}},
    )
    server.register_resource(late, lambda arguments, context: PAGE.encode())
    async with connect(server, extensions=APPS) as client:
        tools = {each.name: each.ui for each in await client.list_tools()}
        assert tools["health"] == ToolUi() and tools["refund"].visibility == ("app",)
        assert tools["orders"].resource_uri == URI
        plain = await client.read_app(URI)
        assert plain == App(URI, PAGE, AppCsp(), (), None, None)
        assert await client.read_app("ui://map") == App(
            "ui://map", PAGE, csp, ("camera",), "d", True
        )
        [entry] = [each for each in await client.list_resources() if each.uri == "ui://listed"]
        assert (await client.read_app(entry)).prefers_border is False
        assert (await client.read_app(entry.uri)).prefers_border is None
        with pytest.raises(MCPError) as missing:
            await client.read_app("ui://nowhere")
        assert missing.value.code == "E204"


@pytest.mark.rule("CAPP-02")
@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ([], "0 contents"),
        ([TextContents(URI, PAGE, MIME_TYPE)] * 2, "2 contents"),
        ([TextContents(URI, PAGE, "text/html")], "its type is 'text/html'"),
        ([TextContents(URI, PAGE)], "its type is None"),
        ([BlobContents(URI, b"\xff<p>", MIME_TYPE)], "not UTF-8"),
        ([TextContents(URI, "<" * (MAX_HTML_BYTES + 1), MIME_TYPE)], "larger than an app may be"),
    ],
)
def test_client_refuses_what_is_no_app(contents: list[Any], problem: str) -> None:
    with pytest.raises(InvalidResponseError, match=problem):
        App.read(URI, tuple(contents), {})


@pytest.mark.rule("CAPP-03")
@given(_JSON, _JSON)
def test_app_asks_for_what_is_well_formed_alone(ui: Any, listed: Any) -> None:
    meta = ui if isinstance(ui, dict) else None
    page = TextContents(URI, PAGE, MIME_TYPE, meta=meta)
    app = App.read(URI, (page,), listed if isinstance(listed, dict) else {})
    assert app.html == PAGE
    assert app.csp == AppCsp() and app.permissions == () and app.domain is None


def test_csp_that_asks_for_everything_is_given_nothing() -> None:
    wide = {
        "connectDomains": ["*", "https:", "data:", "'self'", "https://*", "https://a b", 5, None],
        "resourceDomains": "https://a.example.com",
        "frameDomains": ["https://ok.example.com/", "https://x;script-src *"] * 100,
    }
    csp = AppCsp.read(wide)
    assert csp.connect_domains == csp.resource_domains == csp.base_uri_domains == ()
    assert set(csp.frame_domains) == {"https://ok.example.com"} and len(csp.frame_domains) <= 64
