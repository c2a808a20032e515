"""Apps: the policy of their frames, their HTML, and their calls as the host answers them."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import ResourceDefinition, Server, ToolAnnotations, ToolDefinition
from foundation_rt.apps.coordinator import Coordinator
from foundation_rt.apps.host.orchestrator import (
    ConversationOrchestrator,
    MemoryHistories,
    connection_options,
)
from foundation_rt.apps.host.orchestrator.app_calls import AppDecision, AppRequestError
from foundation_rt.apps.host.web.apps import MAX_BODY
from foundation_rt.apps.web_page.app_frames import MAX_ORIGINS, allowed_origins, frame_policy
from foundation_rt.base.app_format import MIME_TYPE
from tests.lab.host.chat import ScriptedModel, approving, call, plans_with, say
from tests.lab.host.server import Hosting, Page, host_server, hosting
from tests.lab.waiting import until

URI = "ui://shop/orders"
HTML = "<!doctype html><title>Orders</title>"
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


@pytest.mark.rule("HAPP-03")
@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("https://api.example.com", True),
        ("https://API.example.com:8443/", True),
        ("https://*.example.com", True),
        *((each, False) for each in ("*", "https:", "https://*", "https://*.com", "http://a.com")),
        *((each, False) for each in ("https://127.0.0.1", "https://[::1]", "https://10.0.0.1")),
        *(
            (each, False)
            for each in ("https://localhost", "https://a.localhost", "https://nas.lan")
        ),
        *((each, False) for each in ("https://printer", "https://a.com/path", "data:", "'self'")),
        *((each, False) for each in ("https://a.com; script-src *", "https://a.com https://b.com")),
        *((each, False) for each in ("https://me@a.com", "https://a..com", "https://-a.com", "")),
        *((each, False) for each in ("https://host.example.org", "https://*.example.org")),
        ("https://" + "a" * 300 + ".com", False),
    ],
)
def test_origin_of_an_app_is_a_public_name(asked: str, kept: bool) -> None:
    found = allowed_origins([asked], "host.example.org")
    assert found == ([asked.lower().rstrip("/")] if kept else [])


@pytest.mark.rule("HAPP-02", "HAPP-03")
@given(st.lists(st.text(max_size=40), max_size=80), st.sampled_from(["connect", "frame", "x"]))
def test_query_adds_no_directive(words: list[str], name: str) -> None:
    query = "&".join(f"{name}=https://{word}.example.com" for word in words)
    parts = [each.strip().split(" ") for each in frame_policy(query).split(";")]
    plain = [each.strip().split(" ") for each in frame_policy("").split(";")]
    assert [each[0] for each in parts] == [each[0] for each in plain]
    for directive, *values in parts:
        extra = set(values) - {value for own in plain if own[0] == directive for value in own}
        assert len(values) <= MAX_ORIGINS + 3
        assert all(each.startswith("https://") for each in extra)


@pytest.mark.rule("HAPP-02", "HAPP-04", "HOST-34")
async def test_frame_is_public_and_the_page_is_not_framed() -> None:
    async with hosting() as one:
        query = "connect=https%3A%2F%2Fapi.example.com&connect=https%3A%2F%2F127.0.0.1"
        status, headers, _ = await one.request("GET", f"/app-frame?{query}", headers={})
        assert status == 200
        policy = headers["content-security-policy"]
        assert "connect-src https://api.example.com;" in policy
        assert "sandbox allow-scripts allow-forms;" in policy and "frame-ancestors 'self'" in policy
        assert (await one.request("POST", "/app-frame"))[0] == 405
        _, headers, _ = await one.request("GET", "/")
        policy = headers["content-security-policy"]
        assert "frame-src 'self';" in policy and "frame-ancestors 'none'" in policy


class Shop:
    """A server with an app, and what it was asked for."""

    def __init__(self, mime_type: str = MIME_TYPE) -> None:
        self.server = Server("shop", version="1.0.0", config={"logging": {"level": "error"}})
        self.reads = 0
        self.called: list[tuple[str, int]] = []
        self.add("orders", {"resourceUri": URI}, read_only=True)
        self.add("refund", {"visibility": ["app"]})
        self.add("count", {"visibility": ["app"]}, read_only=True)
        self.add("secret", {"visibility": ["model"]}, read_only=True)

        meta = {"ui": {"csp": {"connectDomains": ["https://api.example.com", "*"]}}}
        page = ResourceDefinition(uri=URI, name="orders", mime_type=mime_type, meta=meta)
        self.server.register_resource(page, self.html)

    def html(self, arguments: Any, context: Any) -> str:
        """Return the page, whose contents have no metadata."""
        self.reads += 1
        return HTML

    def add(self, name: str, ui: dict[str, Any], read_only: bool | None = None) -> None:
        """Add a tool."""

        def run(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
            self.called.append((name, arguments["id"]))
            return {"id": arguments["id"]}

        definition = ToolDefinition(
            name,
            f"The tool {name}.",
            SCHEMA,
            annotations=ToolAnnotations(read_only=read_only),
            meta={"ui": ui},
        )
        self.server.register(definition, run)


async def opened(page: Page) -> str:
    """Let the model call the tool with the app; return the path of the app."""
    await page.say("orders")
    await page.until("approval")
    await page.send("approval", callId="c1", decision="once")
    await page.until("turn", state="finished")
    return f"/api/sessions/{page.session}/app"


async def post(one: Hosting, path: str, **asked: Any) -> tuple[int, Any]:
    """Send a request of an app; return its status and its answer."""
    body = orjson.dumps({"call": "c1", **asked})
    status, _, answer = await one.request("POST", path, body=body)
    return status, orjson.loads(answer)


ANSWERS = [[call("shop:orders", "c1", id=7)], ["Here."]]


@pytest.mark.rule("HAPP-10", "HAPP-11", "HOST-69")
async def test_app_is_read_once_with_what_its_call_has() -> None:
    shop = Shop()
    async with hosting(ANSWERS, servers={"shop": shop.server}) as one, one.page() as page:
        path = await opened(page)
        told = {each.name for each in one.model.asked[0].tools}
        assert told == {"shop:orders", "shop:secret", "shop:health"}
        _, _, body = await one.request("GET", "/api/status")
        tools = orjson.loads(body)["servers"][0]["tools"]
        assert {each["name"] for each in tools if each.get("forApps")} == {"refund", "count"}
        assert {each["payload"].get("app") for each in page.of("status")[:1]} == {URI}
        for _ in range(2):
            status, _, body = await one.request("GET", f"{path}?call=c1")
            found = orjson.loads(body)
            assert status == 200
            assert (found["html"], found["arguments"]) == (HTML, {"id": 7})
            assert found["tool"]["name"] == "orders"
            assert found["outcome"]["result"]["content"][0]["text"] == '{"id":7}'
        assert shop.reads == 1
        _, _, body = await one.request("GET", f"{path}?call=c2")
        assert orjson.loads(body)["error"]["message"] == "This call has no app."
        async with one.page(session=page.session) as again:
            history = await again.until("history")
            [asked] = [each for each in history["payload"]["messages"] if each.get("callId")][:1]
            assert asked["metadata"]["app"] == URI


@pytest.mark.rule("HAPP-11")
async def test_app_of_a_call_that_waits_has_no_outcome_and_a_call_without_app_has_none() -> None:
    answers = [[call("shop:orders", "c1", id=7), call("shop:secret", "c2", id=8)]]
    async with hosting(answers, servers={"shop": Shop().server}) as one, one.page() as page:
        await page.say("orders")
        await page.until("approval")
        path = f"/api/sessions/{page.session}/app"
        _, _, body = await one.request("GET", f"{path}?call=c1")
        assert orjson.loads(body)["outcome"] is None
        _, _, body = await one.request("GET", f"{path}?call=c2")
        assert orjson.loads(body)["error"]["message"] == "This call has no app."


@pytest.mark.rule("HAPP-20", "HAPP-21")
async def test_call_of_an_app_ends_in_words_where_its_server_is_slow_changes_or_goes() -> None:
    shop, orders = Shop(), call("shop:orders", "c1", id=7)
    shop.server.tool("wait", annotations=ToolAnnotations(read_only=True))(asyncio.Event().wait)
    plans: dict[str, Any] = {}

    class Changing(MemoryHistories):
        async def decide(self, session_id: str, subject: str, word: str) -> None:
            if not shop.called:  # about the call of the model
                return
            changed = Shop()
            changed.server.unregister("refund")
            changed.add("refund", {"visibility": ["app", "model"]})
            await serve({"shop": changed.server}, "app", "model")

    async def serve(servers: dict[str, Any], *visibility: str) -> None:
        """Have these servers; wait for the visibility of the tool `refund`."""

        def found() -> Any:
            entry = coordinator.entry("shop:refund")
            are_ready = {each.state for each in coordinator.states.values()} <= {"ready"}
            return are_ready and entry and entry.definition.wire["_meta"]["ui"]["visibility"]

        plans.clear()
        plans.update(plans_with(servers, trust=True, timeout_ms=100))
        await coordinator.reload()
        await until(lambda: (found() or []) == [*visibility], "the tools are read")

    options = connection_options()
    async with Coordinator.from_plans(lambda: plans, connections=options) as coordinator:
        await serve({"shop": shop.server}, "app")
        host = ConversationOrchestrator(ScriptedModel([[orders]]), coordinator, Changing())
        await say(host, act=approving(host))

        with pytest.raises(AppRequestError, match="did not answer tools/call wait"):
            await host.apps.call("session", "c1", "wait", {})
        asked = await host.apps.call("session", "c1", "refund", {"id": 1})
        decided = AppDecision("always", asked["approval"]["meaning"])
        with pytest.raises(AppRequestError, match="The tool has changed meanwhile"):
            await host.apps.call("session", "c1", "refund", {"id": 1}, decided)
        await serve({})
        with pytest.raises(AppRequestError, match="The server shop of this app is not there any m"):
            await host.apps.open("session", "c1")
    assert [name for name, _ in shop.called] == ["orders"]


@pytest.mark.rule("HAPP-12")
async def test_app_is_what_a_client_reads_and_asks_for_what_its_entry_says() -> None:
    for lists, asked in (
        (["tools"], {}),
        (
            ["tools", "resources"],
            {"connectDomains": ["https://api.example.com"]},
        ),
    ):
        servers = {"shop": Shop().server}
        async with hosting(ANSWERS, servers=servers, lists=lists) as one, one.page() as page:
            _, _, body = await one.request("GET", f"{await opened(page)}?call=c1")
            assert orjson.loads(body)["ui"] == {"csp": asked, "prefersBorder": None}
    servers = {"shop": Shop("text/html").server}
    async with hosting(ANSWERS, servers=servers) as one, one.page() as page:
        _, _, body = await one.request("GET", f"{await opened(page)}?call=c1")
        assert "its type is 'text/html'" in orjson.loads(body)["error"]["message"]


@pytest.mark.rule("HAPP-10")
async def test_model_cannot_call_what_is_for_apps() -> None:
    shop = Shop()
    answers = [[call("shop:refund", "c1", id=7)], ["Sorry."]]
    server = host_server(host={"approve_all": True})
    servers = {"shop": shop.server}
    async with hosting(answers, server=server, servers=servers) as one, one.page() as page:
        await page.turn("refund")
        [end] = [each for each in page.of("status") if each["payload"]["state"] == "complete"]
        assert end["payload"]["data"]["error"]["code"] == "NOT_FOUND"
        assert shop.called == []


@pytest.mark.rule("HAPP-20", "HAPP-21", "HOST-69")
async def test_call_runs_when_people_have_allowed_what_they_saw() -> None:
    shop = Shop()
    async with hosting(ANSWERS, servers={"shop": shop.server}) as one, one.page() as page:
        path = await opened(page)
        shop.called.clear()
        asked = {"tool": "refund", "arguments": {"id": 3}}
        _, answer = await post(one, path, **asked)
        approval = answer["approval"]
        assert (approval["server"], approval["tool"]) == ("shop", "refund")
        assert approval["arguments"] == {"id": 3} and "once" in approval["decisions"]
        _, again = await post(one, path, **asked, decision="once", meaning="of something else")
        assert again == answer and shop.called == []
        decided = {"meaning": approval["meaning"]}
        _, refused = await post(one, path, **asked, decision="deny", **decided)
        assert "refused" in refused["error"]["message"] and shop.called == []
        _, trusted = await post(one, path, **asked, decision="trust", **decided)
        assert trusted == answer  # what was not offered is no decision
        _, found = await post(one, path, **asked, decision="session", **decided)
        assert found["result"]["content"][0]["text"] == '{"id":3}'
        _, found = await post(one, path, tool="refund", arguments={"id": 4})
        assert found["result"]["content"][0]["text"] == '{"id":4}'
        assert shop.called == [("refund", 3), ("refund", 4)]


@pytest.mark.rule("HAPP-20", "HAPP-22", "HOST-69")
async def test_app_reaches_its_server_alone() -> None:
    shop, other = Shop(), Shop()
    servers = {"shop": shop.server, "other": other.server}
    async with hosting(ANSWERS, servers=servers) as one, one.page() as page:
        path = await opened(page)
        for tool, said in (
            ("secret", "not for apps"),
            ("other:count", "has no tool"),
            ("nothing", "has no tool"),
        ):
            status, answer = await post(one, path, tool=tool, arguments={"id": 1})
            assert status == 200 and said in answer["error"]["message"]
        _, answer = await post(one, path, tool="count", arguments={"id": "x"})
        assert "Invalid arguments" in answer["error"]["message"]
        _, answer = await post(one, path, uri=URI)
        assert answer["contents"][0]["text"] == HTML
        _, answer = await post(one, path, uri="note://none")
        assert "did not give" in answer["error"]["message"]
        assert other.called == [] and other.reads == 0
        for wrong in (
            {"call": 7, "tool": "count"},
            {"tool": 7},
            {"tool": "count", "arguments": []},
            {"tool": "count", "decision": "maybe"},
            {"tool": "count", "decision": "once"},
            {"uri": ""},
        ):
            assert (await post(one, path, **wrong))[0] == 400
        assert (await one.request("POST", path, body=b"x" * (MAX_BODY + 1)))[0] == 400
        assert (await one.request("PUT", path))[0] == 405
        assert (await one.request("POST", path, headers={}, body=b"{}"))[0] == 401
        assert (await one.request("GET", "/api/sessions/nobody/app?call=c1"))[0] == 404


@pytest.mark.rule("HOST-69")
async def test_many_calls_of_apps_are_bounded() -> None:
    shop, going = Shop(), asyncio.Event()

    @shop.server.tool(annotations=ToolAnnotations(read_only=True))
    async def wait() -> str:
        await going.wait()
        return "done"

    server = host_server(host={"approve_all": True})
    servers = {"shop": shop.server}
    async with hosting(ANSWERS, server=server, servers=servers) as one, one.page() as page:
        await page.turn("orders")
        path = f"/api/sessions/{page.session}/app"
        waiting = [asyncio.create_task(post(one, path, tool="wait")) for _ in range(9)]
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result()[0] for each in done] == [429]
        going.set()
        assert {(await each)[0] for each in rest} == {200}
