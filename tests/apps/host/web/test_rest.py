"""REST, the files of the page, and what the start of a host waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from foundation_rt import UsageError
from foundation_rt.apps.host.sessions.memory import MemoryChatStore
from foundation_rt.apps.host.sessions.store import chat_key
from foundation_rt.apps.host.texts import STORE_AWAY
from foundation_rt.base.database.errors import DatabaseUnavailableError
from tests.lab.host.chat import call
from tests.lab.host.server import Hosting, host_server, hosting
from tests.lab.waiting import until


@pytest.mark.rule("HOST-30", "HOST-33")
async def test_chat_is_read_exported_and_deleted() -> None:
    answers = [[call("demo:echo", "c1", message="hi")], ["it said ```hi```"]]
    server = host_server(host={"approve_all": True})
    async with hosting(answers, server=server) as one, one.page() as page:
        await page.turn("say <b>hi</b>")
        path = f"/api/sessions/{page.session}"
        status, _, body = await one.request("GET", path)
        chat = orjson.loads(body)
        assert status == 200 and page.session.encode() not in body
        assert chat["messages"][0]["role"] == "user"
        assert chat["seq"] == page.seq
        status, headers, body = await one.request("GET", f"{path}/export?format=md")
        assert status == 200 and b"say <b>hi</b>" in body and page.session.encode() not in body
        assert headers["content-disposition"] == 'attachment; filename="chat.md"'
        assert headers["content-type"].startswith("text/markdown")
        status, _, body = await one.request("GET", f"{path}/export?format=json")
        assert orjson.loads(body)["messages"] == chat["messages"]
        assert (await one.request("GET", f"{path}/export?format=xml"))[0] == 400
        assert (await one.request("PUT", path))[1]["allow"] == "get, patch, delete, head"
        assert (await one.request("DELETE", path))[0] == 204
        assert await page.close_code() == 1000
        assert (await one.request("DELETE", path))[0] == 404
        assert (await one.request("GET", path))[0] == 404


ALICE, BOB = "alice-key-" + "a" * 24, "bob-key-" + "b" * 24
KEYS = {"api_keys": (f"alice:{ALICE}", f"bob:{BOB}")}


async def listed(one: Hosting, query: str = "", key: str = ALICE) -> dict[str, Any]:
    """Return the list of chats of a principal."""
    _, _, body = await one.request("GET", f"/api/sessions{query}", {"X-API-Key": key})
    found: dict[str, Any] = orjson.loads(body)
    return found


@pytest.mark.rule("HOST-10", "HOST-46", "CHAT-35")
async def test_person_lists_opens_and_changes_chats_begun_elsewhere() -> None:
    server = host_server(http=KEYS)
    async with hosting([["Grüße"]], server=server) as one:
        async with one.page(key=ALICE) as page:
            await page.turn("hello")
            session = page.session
        [chat] = (await listed(one))["chats"]
        assert (chat["id"], chat["title"], chat["isPinned"]) == (session, "hello", False)
        async with one.page(session, key=ALICE) as other:
            assert other.frames[0]["payload"]["state"] == "reconnected"
            assert (await other.until("history"))["payload"]["messages"]
        path, bob = f"/api/sessions/{session}", {"X-API-Key": BOB}
        unknown = f"/api/sessions/{'0' * 64}", "/api/sessions/*"
        change = b'{"title":"  Of\\nBob ","isPinned":true}'
        for method, body in (("GET", None), ("PATCH", change), ("DELETE", None)):
            refused = [await one.request(method, each, bob, body) for each in (path, *unknown)]
            assert refused[0] == refused[1] == refused[2] and refused[0][0] == 404
        assert (await listed(one, key=BOB)) == {"chats": [], "next": None}
        assert (await listed(one, "?query=hello", BOB))["chats"] == []
        alice = {"X-API-Key": ALICE}
        assert (await one.request("PATCH", path, alice, change))[0] == 204
        [chat] = (await listed(one, "?query=BOB%20gr%C3%BCsse"))["chats"]
        assert (chat["title"], chat["isPinned"]) == ("Of Bob", True)
        place = f"1-{chat['at']}-{session}"
        assert (await listed(one, f"?after={place}"))["chats"] == []
        assert (await one.request("DELETE", path, alice))[0] == 204
        assert (await listed(one))["chats"] == []


@pytest.mark.rule("HOST-47", "CHAT-13")
async def test_long_chat_is_read_page_by_page() -> None:
    async with hosting([["one"]] * 60, server=host_server(http=KEYS)) as one:
        async with one.page(key=ALICE) as page:
            for count in range(60):
                one.host._sessions.now = lambda count=count: count * 10_000  # type: ignore[misc]
                await page.turn(f"say {count}")
            path = f"/api/sessions/{page.session}/messages?before="
            async with one.page(page.session, key=ALICE) as other:
                history = (await other.until("history"))["payload"]
        assert len(history["messages"]) == 100 and history["previous"]
        alice, bob = {"X-API-Key": ALICE}, {"X-API-Key": BOB}
        status, _, body = await one.request("GET", path + history["messages"][0]["id"], alice)
        older = orjson.loads(body)
        assert (status, len(older["messages"]), older["previous"]) == (200, 20, None)
        for key, message in ((alice, "unknown"), (alice, ""), (bob, older["messages"][0]["id"])):
            assert (await one.request("GET", path + message, key))[0] == 404


@pytest.mark.rule("HOST-30", "HOST-46")
async def test_wrong_changes_and_lists_are_refused() -> None:
    async with hosting() as one, one.page() as page:
        path = f"/api/sessions/{page.session}"
        bodies = [
            b"",
            b"[]",
            b"{",
            b"[" * 9_000,
            b'{"isPinned":1}',
            b'{"title":" "}',
            b'{"title":3}',
        ]
        for body in [*bodies, b'{"title":"%s"}' % (b"x" * 201), b"{}" + b" " * 8_191]:
            status, _, answer = await one.request("PATCH", path, body=body)
            assert (status, b"invalid_request" in answer) == (400, True), body[:20]
        words = "%20".join("abcdefghi")
        for query in ("after=1", f"after=2-1-{'0' * 64}", f"query={'x' * 201}", f"query={words}"):
            assert (await one.request("GET", f"/api/sessions?{query}"))[0] == 400
        assert (await one.request("GET", f"/api/sessions?{'a&' * 30}"))[0] == 200
        assert (await one.request("POST", "/api/sessions"))[0] == 405


@pytest.mark.rule("HOST-10", "HOST-46", "CHAT-01")
async def test_where_nobody_is_known_chats_are_opened_by_their_secret_alone() -> None:
    async with hosting(server=host_server(http={"no_auth": True})) as one:
        async with one.page() as page:
            await page.turn("hello")
        assert await listed(one) == {"chats": None, "next": None}
        session_id = chat_key(page.session).hex()
        assert (await one.request("GET", f"/api/sessions/{page.session}"))[0] == 200
        for method in ("GET", "PATCH", "DELETE"):
            assert (await one.request(method, f"/api/sessions/{session_id}", {}, b"{}"))[0] == 404


@pytest.mark.rule("HOST-37", "HTTP-51")
async def test_host_alone_serves_no_mcp() -> None:
    async with hosting() as one:
        for path in ("/mcp", "/sse", "/messages"):
            status, _, body = await one.request("POST", path)
            assert (status, b"path_not_found" in body) == (404, True)


@pytest.mark.rule("HOST-31")
async def test_status_has_model_servers_and_tools() -> None:
    async with hosting() as one, one.page() as page:
        await page.turn("wait for the server")
        while True:
            status, _, body = await one.request("GET", "/api/status")
            found = orjson.loads(body)
            if found["servers"][0]["state"] == "ready":
                break
        assert status == 200
        assert (found["provider"], found["model"]) == ("test", "model")
        names = [each["name"] for each in found["servers"][0]["tools"]]
        assert {"echo", "sleep"} <= set(names)
        assert found["servers"][0]["circuit"] == "closed"


@pytest.mark.rule("HOST-13")
async def test_change_of_a_server_is_told() -> None:
    async with hosting(servers={"gone": "false"}) as one, one.page() as page:
        frame = await page.until(
            lambda each: (
                each["type"] == "servers" and each["payload"]["servers"][0]["state"] != "starting"
            )
        )
        assert frame["payload"]["servers"][0]["id"] == "gone"


@pytest.mark.rule("HOST-34", "HOST-35", "HOST-03")
async def test_page_has_a_strict_policy_and_an_etag() -> None:
    async with hosting() as one:
        status, headers, body = await one.request("GET", "/")
        assert status == 200 and body.startswith(b"<!doctype html>")
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'") and "unsafe" not in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-cache"
        tag = {**one.headers, "If-None-Match": headers["etag"]}
        status, again, body = await one.request("GET", "/", tag)
        assert (status, body) == (304, b"") and again["etag"] == headers["etag"]
        status, headers, _ = await one.request("GET", "/app.js")
        assert headers["content-type"] == "text/javascript; charset=utf-8"
        assert (await one.request("POST", "/"))[0] == 405
        for path in ("/nothing", "/../settings.py", "/page/index.html", "/api/sessions/"):
            assert (await one.request("GET", path))[0] == 404
        assert (await one.request("GET", "/ws"))[0] == 426
        assert (await one.request("GET", "/", {}))[0] == 200
        assert (await one.request("GET", "/api/status", {}))[0] == 401


class BrokenStore(MemoryChatStore):
    """A store that can be taken away."""

    is_gone = False

    def _check(self) -> None:
        if self.is_gone:
            raise DatabaseUnavailableError("gone")

    async def probe(self) -> None:
        self._check()
        await super().probe()

    async def create(self, *arguments: Any) -> None:
        self._check()
        await super().create(*arguments)

    async def submit(self, *arguments: Any) -> bool:
        self._check()
        return await super().submit(*arguments)

    async def write(self, *arguments: Any) -> int:
        self._check()
        return await super().write(*arguments)


@pytest.mark.rule("HOST-32", "HOST-19")
async def test_store_that_is_gone_and_comes_back() -> None:
    going = asyncio.Event()
    store = BrokenStore()
    store.is_immediate = False  # as a database is
    async with hosting([["begun ", going, "ended"]], store=store) as one, one.page() as page:
        await page.say("go")
        await page.until("text")
        store.is_gone = True
        await page.say("more", id="m2")
        error = await page.until("error")
        assert error["payload"] == {"code": "MAINTENANCE", "message": STORE_AWAY, "id": "m2"}
        status, _, body = await one.request("GET", "/readyz")
        assert status == 503 and orjson.loads(body)["failing"] == ["store"]
        async with one.page() as other:
            assert other.frames[0]["payload"]["state"] == "error"
            assert (await other.until("error"))["payload"]["code"] == "MAINTENANCE"
            assert await other.close_code() == 1013
        going.set()
        await page.until("turn", state="finished")
        assert page.text == "begun ended"
        store.is_gone = False
        await until(
            lambda: one.request("GET", "/readyz"), "the store is back", lambda got: got[0] == 200
        )
        await page.turn("again")


class SlowModel:
    """A model whose start never ends."""

    async def initialize(self) -> None:
        await asyncio.get_running_loop().create_future()


class WrongModel:
    """A model that cannot be used."""

    async def initialize(self) -> None:
        raise UsageError("openai lists several models (a, b); name one")


class FineModel:
    """A model that can be used."""

    async def initialize(self) -> None:
        return


def _initialize_as(one: Any, kind: Any) -> None:
    one._llm.initialize = kind().initialize


@pytest.mark.rule("HOST-01", "HOST-02")
async def test_page_waits_for_no_model_and_no_server() -> None:
    def slow(host: Any) -> None:
        _initialize_as(host, SlowModel)

    async with hosting(change=slow, servers={"slow": "sleep 1000"}) as one, one.page():
        assert (await one.request("GET", "/"))[0] == 200
    app = one.host.asgi_app()
    assert callable(app)


@pytest.mark.rule("HOST-06", "HOST-16", "HOST-31")
async def test_model_that_cannot_be_used_is_said() -> None:
    def wrong(host: Any) -> None:
        _initialize_as(host, WrongModel)

    async with hosting(change=wrong) as one:
        while True:
            hint = orjson.loads((await one.request("GET", "/api/status"))[2])["hint"]
            if hint is not None:
                break
        assert "several models" in hint
        one.host._try_model_again()  # the keys were read again, and still it cannot be used
        await asyncio.sleep(0)
        assert orjson.loads((await one.request("GET", "/api/status"))[2])["hint"] == hint
        _initialize_as(one.host, FineModel)
        one.host._try_model_again()
        while hint is not None:
            hint = orjson.loads((await one.request("GET", "/api/status"))[2])["hint"]

    def nameless(host: Any) -> None:
        wrong(host)
        host._llm.label = "openai:"

    # A provider that has to list its models is asked at the start.
    with pytest.raises(UsageError, match="several models"):
        async with hosting(change=nameless) as one:
            await asyncio.wait([one.task])
            one.task.result()
