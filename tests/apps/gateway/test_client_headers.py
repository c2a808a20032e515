"""Headers of clients that their servers get: of two values nothing is ever mixed."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.client import Client, connect
from tests.apps.gateway.test_command import SECRET, run_in
from tests.apps.gateway.test_faults import APP, write
from tests.apps.gateway.test_through import NEW, OLD, speaking, status_of
from tests.lab.places.services import need_redis
from tests.lab.servers.http_server import serve_gateway, serve_http
from tests.lab.servers.process import PATIENCE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


@pytest.mark.rule("COORD-54", "GATE-43")
async def test_header_of_the_client_reaches_its_server_alone(file: Path) -> None:
    with serve_http(Path(APP)) as first, serve_http(Path(APP)) as second:
        write(
            file,
            first={"url": first.url, "headersFrom": {"Authorization": "X-First-Token"}},
            second={"url": second.url, "headersFrom": {"X-B": "X-Second"}},
        )
        with serve_gateway(str(file)) as gateway:
            sent = {"X-First-Token": f"Bearer {SECRET}", "X-Third": "never"}
            async with connect(gateway.url, headers=sent) as client, connect(gateway.url) as bare:
                got, other, none = await asyncio.gather(
                    client.call("first__headers"),
                    client.call("second__headers"),
                    bare.call("first__headers"),
                )
                assert got.value() == {"authorization": f"Bearer {SECRET}"}
                assert other.value() == none.value() == {}
            assert SECRET not in gateway.process.stderr
        assert SECRET not in first.process.stderr + second.process.stderr


@pytest.mark.rule("COORD-54", "GATE-13")
@pytest.mark.parametrize("ours", [OLD, NEW])
async def test_two_values_at_one_server_are_never_mixed(file: Path, ours: str) -> None:
    """The clients differ by nothing but the header; the server keeps a counter for each session."""
    with serve_http(Path(APP)) as server:
        write(file, one={"url": server.url, "headersFrom": {"Authorization": "X-Token"}})
        with serve_gateway(str(file), env=speaking(OLD)) as gateway:
            async with (
                connect(gateway.url, revision=ours, headers={"X-Token": "ann"}) as ann,
                connect(gateway.url, revision=ours, headers={"X-Token": "bob"}) as bob,
            ):
                await asyncio.gather(_calls(ann, "ann"), _calls(bob, "bob"))
                await _subscriptions(ann, bob)


async def _calls(client: Client, name: str) -> None:
    """Make 200 calls; the server has seen this client's header and counter alone."""

    async def call(number: int) -> Any:
        seen = (await client.call("one__headers")).value()
        assert seen == {"authorization": name}
        return (await client.call("one__count", {"mine": f"{name} {number}"})).value()

    counted = await asyncio.gather(*(call(number) for number in range(100)))
    assert [each[0] for each in counted] == [f"{name} {number}" for number in range(100)]
    assert sorted(each[2] for each in counted) == [*range(1, 101)]


async def _subscriptions(ann: Client, bob: Client) -> None:
    """Notify each session of its own resource; no other client is notified of it."""
    uris = ("note://app", "note://shared")
    async with ann.subscribe(*uris) as anns, bob.subscribe(*uris) as bobs:
        await ann.call("one__touch_mine", {"uri": uris[0]})
        assert await anext(aiter(anns)) == uris[0]
        await bob.call("one__touch_mine", {"uri": uris[1]})
        assert await anext(aiter(bobs)) == uris[1]
        await ann.call("one__touch_mine", {"uri": uris[0]})
        assert await anext(aiter(anns)) == uris[0]


LISTS_APP = """
from foundation_rt import Server


class Lists:
    capabilities = {"resources": {}}
    instructions = None

    def target(self, request):
        return None

    def list_entries(self, kind, context):
        who = context.headers.get("authorization", "nobody")
        if kind == "tools":
            return ({"name": f"of_{who}", "inputSchema": {"type": "object"}},)
        return ({"uri": f"note://{who}", "name": who},) if kind == "resources" else ()

    async def forward(self, request, context):
        who = context.headers.get("authorization")
        if request.method == "resources/read":
            return {"contents": [{"uri": request.name, "text": who}]}
        return {"content": [{"type": "text", "text": f"{request.name} for {who}"}]}

    def subscription_ended(self, request):
        pass


server = Server("lists", request_headers=["authorization"])
server.forward(Lists())
"""


@pytest.mark.rule("GATE-52")
async def test_lists_of_a_header_are_accepted_beside_those_of_others(
    file: Path, tmp_path: Path
) -> None:
    app, lock = tmp_path / "app.py", tmp_path / "mcp.lock"
    app.write_text(LISTS_APP)
    with serve_http(app) as server:
        write(file, one={"url": server.url, "headersFrom": {"Authorization": "X-Token"}})
        accept = ("gateway", "accept", str(file), "--lock", str(lock))
        for header in ((), ("--header", "x-token: ann"), ("--header", "X-Token: bob")):
            ended = await asyncio.to_thread(run_in, tmp_path, *accept, *header)
            assert ended.returncode == 0, ended.stderr
        unknown = await asyncio.to_thread(run_in, tmp_path, *accept, "--header", "X-Other: x")
        assert unknown.returncode == 1
        assert "no server takes the header 'x-other'" in unknown.stderr
        with serve_gateway(str(file), "--lock", str(lock)) as gateway:
            for token, shown in (("ann", True), ("bob", True), ("eve", False)):
                async with connect(gateway.url, headers={"X-Token": token}) as client:
                    assert (f"one__of_{token}" in await _names(client)) is shown


@pytest.mark.rule("GATE-16", "COORD-67")
@pytest.mark.parametrize("theirs", [OLD, NEW])
async def test_each_value_has_lists_of_its_own(file: Path, tmp_path: Path, theirs: str) -> None:
    app = tmp_path / "app.py"
    app.write_text(LISTS_APP)
    with serve_http(app) as server:
        write(file, one={"url": server.url, "headersFrom": {"Authorization": "X-Token"}})
        with serve_gateway(str(file), env=speaking(theirs)) as gateway:
            async with (
                connect(gateway.url, headers={"X-Token": "ann"}) as ann,
                connect(gateway.url, headers={"X-Token": "bob"}) as bob,
                connect(gateway.url) as bare,
            ):
                lists = await asyncio.gather(*(_names(client) for client in (ann, bob, bare)))
                assert lists == [{"one__of_ann"}, {"one__of_bob"}, {"one__of_nobody"}]
                for client, who in ((ann, "ann"), (bob, "bob")):
                    called = await client.call(f"one__of_{who}")
                    assert called.text == f"of_{who} for {who}"
                    read = await client.request("resources/read", {"uri": f"note://{who}"})
                    assert read["contents"][0]["text"] == who
                called = await bob.request("tools/call", {"name": "one__of_ann", "arguments": {}})
                assert called["isError"]


async def _names(client: Client) -> set[str]:
    return {each.name for each in await client.list_tools() if each.name.startswith("one__of")}


@pytest.mark.rule("GATE-16", "GATE-31")
async def test_lock_withholds_what_only_one_value_lists(file: Path, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(LISTS_APP)
    with serve_http(app) as server:
        write(file, one={"url": server.url, "headersFrom": {"Authorization": "X-Token"}})
        with serve_gateway(str(file), "--lock", str(tmp_path / "lock")) as gateway:
            async with (
                connect(gateway.url) as bare,
                connect(gateway.url, headers={"X-Token": "ann"}) as ann,
            ):
                assert await _names(bare) == {"one__of_nobody"}  # recorded
                assert await _names(ann) == set()
                called = await ann.request("tools/call", {"name": "one__of_ann", "arguments": {}})
                assert called["isError"]
                assert "of_ann" not in str((await status_of(bare, "one"))["withheld"])
            said = "tools of server 'one' is withheld, since it is new: 'of_ann'"
            gateway.process.record(message=said)


@pytest.mark.rule("GATE-16", "GATE-30", "COORD-09")
async def test_search_finds_the_allowed_tools_of_its_own_value(file: Path, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(LISTS_APP)
    listed = {"headersFrom": {"Authorization": "X-Token"}, "disabledTools": ["of_bob"]}
    with serve_http(app) as server:
        write(file, one={"url": server.url, **listed})
        with serve_gateway(str(file), "--expose", "search") as gateway:
            for who, found in (("ann", ["one__of_ann"]), ("bob", [])):
                async with connect(gateway.url, headers={"X-Token": who}) as client:
                    answer = (await client.call("search_tools", {"query": "of"})).value()
                    assert [tool["name"] for tool in answer["tools"]] == found
                    wanted = {"name": "call_tool", "arguments": {"name": f"one__of_{who}"}}
                    called = await client.request("tools/call", wanted)
                    assert called.get("isError", False) == (not found)


CLOSED_APP = """
from foundation_rt import Server

server = Server("closed")


@server.tool
def echo(text: str) -> str:
    return text
"""


@pytest.mark.rule("GATE-16", "GATE-40", "COORD-67", "COORD-69")
@pytest.mark.parametrize("theirs", [OLD, NEW])
async def test_server_that_admits_nobody_without_a_credential_serves_who_has_one(
    file: Path, tmp_path: Path, theirs: str
) -> None:
    key = "ann-key-0123456789"
    settings = {"http.api_keys": f'["ann:{key}"]'}
    app = tmp_path / "app.py"
    app.write_text(CLOSED_APP)
    with serve_http(app, "--transport", "http", settings=settings) as server:
        write(file, one={"url": server.url, "headersFrom": {"Authorization": "X-Token"}})
        with serve_gateway(str(file), env=speaking(theirs)) as gateway:
            async with (
                connect(gateway.url, headers={"X-Token": f"Bearer {key}"}) as ann,
                connect(gateway.url, headers={"X-Token": "Bearer wrong"}) as eve,
                connect(gateway.url) as bare,
            ):
                assert (await ann.call("one__echo", {"text": "x"})).value() == "x"
                for client in (eve, bare):
                    listed = await client.list_tools()
                    assert not any(tool.name.startswith("one__") for tool in listed)
                assert (await ann.call("one__echo", {"text": "y"})).value() == "y"
            ready = gateway.url.removesuffix("/mcp") + "/readyz"
            with urllib.request.urlopen(ready, timeout=PATIENCE) as response:
                assert response.read() == b'{"status":"ok"}'
            assert key not in gateway.process.stderr


@pytest.mark.rule("RATE-08", "HEAD-16")
async def test_headers_are_those_of_the_call_after_the_rate_limit_has_waited(file: Path) -> None:
    """While Redis counts a call, other requests with other headers come."""
    limited = {
        "FOUNDATION_RT_RATE_LIMIT__STORE": need_redis(),
        "FOUNDATION_RT_RATE_LIMIT__PER_KEY": "100000",
    }
    with serve_http(Path(APP)) as server:
        write(file, one={"url": server.url, "headersFrom": {"Authorization": "X-Token"}})
        with serve_gateway(str(file), env={**limited, **speaking(OLD)}) as gateway:
            async with (
                connect(gateway.url, revision=OLD, headers={"X-Token": "ann"}) as ann,
                connect(gateway.url, revision=NEW, headers={"X-Token": "bob"}) as bob,
            ):
                calls = [client.call("one__headers") for client in (ann, bob) for _ in range(20)]
                seen = [each.value() for each in await asyncio.gather(*calls)]
                assert seen == [{"authorization": who} for who in ("ann", "bob") for _ in range(20)]
