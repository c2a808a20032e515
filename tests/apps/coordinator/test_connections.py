"""Raw requests to one server: whose connection, how many, how long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt import Server
from foundation_rt.apps.coordinator import Coordinator, ServerConnections, ServerState
from foundation_rt.apps.coordinator.connection_pool import MAX_CONNECTIONS
from foundation_rt.apps.coordinator.servers import plans_of
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.mcp_json import ServerSettings
from foundation_rt.client import MCPError
from foundation_rt.client.transports.http import HttpTransport
from tests.apps.coordinator.test_servers import entry, until_state
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.peers.script_memory import MemoryHarness
from tests.lab.programs.processes import living
from tests.lab.waiting import until


def play(nonce: str, *acts: list[Any]) -> dict[str, Any]:
    return {"name": "play", "arguments": {"nonce": nonce, **({"acts": acts} if acts else {})}}


HELD = (["wait", "go"], ["answer"])


def coordinator(server: MemoryHarness, share: int = 100, **settings: Any) -> Coordinator:
    """Return a coordinator of one server with these settings."""
    servers = Coordinator({"play": server.make_transport}, principal_share_percent=share)
    plan = servers._source()["play"]
    made = type(plan)("play", plan.target, ServerSettings(**settings))
    servers._source = lambda: {"play": made}
    return servers


def found(servers: Coordinator, name: str = "play") -> ServerConnections:
    server = servers.server(name)
    assert server is not None
    return server


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-50")
async def test_definitions_results_and_errors_are_as_they_came() -> None:
    harness = MemoryHarness("2025-11-25")
    async with coordinator(harness, disabled_tools=("play_again",)) as servers:
        server = found(servers)
        assert [tool["name"] for tool in server.definitions("tools")] == ["play"]
        assert server.description is not None
        odd = {"content": [{"type": "new", "x": 1}], "_meta": {"a": 1}, "other": [None]}
        result = await server.request("tools/call", play("n", ["reply", {"result": odd}]))
        assert result == odd
        wire = {"code": 7, "message": "mine", "data": {"x": [1]}}
        with pytest.raises(MCPError) as raised:
            await server.request("tools/call", play("n", ["reply", {"error": wire}]))
        assert raised.value.wire == wire
        assert (await server.request("resources/read", {"uri": "a:b"}))["contents"]
        tool = servers.entry("play")
        assert tool is not None
        assert (tool.reliability.success_count, tool.reliability.failure_count) == (1, 1)
        assert servers.server("other") is None


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-51", "COORD-52")
@pytest.mark.parametrize(
    ("revision", "isolation", "transports"),
    [
        ("2025-11-25", None, 3),
        ("2026-07-28", None, 1),
        ("2026-07-28", "session", 3),
        ("2025-11-25", "shared", 1),
        ("2025-11-25", "principal", 2),
    ],
)
async def test_isolation_decides_who_shares_a_connection(
    revision: str, isolation: str | None, transports: int
) -> None:
    harness = MemoryHarness(revision)
    async with coordinator(harness, isolation=isolation) as servers:
        server = found(servers)
        for session, principal in (("1", "ann"), ("2", "bob"), ("3", "ann"), ("1", "ann")):
            await server.request("tools/call", play("n"), session=session, principal=principal)
        assert len(harness.transports) == server.connections == transports


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-61")
@pytest.mark.parametrize(
    ("isolation", "principals", "transports"),
    [
        (None, "aba", 1),
        ("shared", "aba", 1),
        ("session", "aba", 3),
        ("principal", "aba", 2),
        ("principal", "   ", 3),
    ],
)
async def test_calls_share_a_connection_unless_the_entry_says_otherwise(
    isolation: str | None, principals: str, transports: int
) -> None:
    harness = MemoryHarness("2025-11-25")
    async with coordinator(harness, isolation=isolation) as servers:
        for session, principal in zip("123", principals, strict=True):
            known = principal.strip() or None
            await servers.call("play", {"nonce": "n"}, session=session, principal=known)
        assert len(harness.transports) == found(servers).connections == transports
        await servers.call("play", {"nonce": "n"})
        for session in "123":
            found(servers).end_session(session)
        await servers.call("play", {"nonce": "n"})


@pytest.mark.rule("COORD-52", "COORD-53")
async def test_first_session_takes_over_the_lists_and_gives_them_back_anew(
    clock: ManualClock,
) -> None:
    harness, changed = MemoryHarness("2025-11-25"), list[str]()
    servers = coordinator(harness, idle_timeout_ms=10_000)
    async with servers:
        server = found(servers)
        await server.request("tools/call", play("n"), session="1")
        await server.request("tools/call", play("n"), session="2")
        assert [each.is_closed for each in harness.transports] == [False, False]
        server.end_session("1")
        await asyncio.sleep(0.1)
        assert [each.is_closed for each in harness.transports] == [True, False, False]
        assert servers.states["play"].state is ServerState.READY
        assert len(servers.tools) == 2
        await asyncio.sleep(11)  # the second one is idle
        assert [each.is_closed for each in harness.transports] == [True, True, False]
        running = asyncio.create_task(
            server.request("tools/call", play("held", ["wait", "go"], ["answer"]), session="3")
        )
        await harness.until(lambda: "held" in harness.nonces())
        server.end_session("3")
        await asyncio.sleep(20)
        assert not harness.transports[-1].is_closed  # as long as its request runs
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(0.1)
        assert harness.transports[2].is_closed
        assert changed == []


@pytest.mark.rule("COORD-53")
async def test_session_beyond_sixteen_waits_for_room(clock: ManualClock) -> None:
    harness = MemoryHarness("2025-11-25")
    async with coordinator(harness, max_concurrent=MAX_CONNECTIONS + 40) as servers:
        server = found(servers)
        held = [
            asyncio.create_task(server.request("tools/call", play(f"h{n}", *HELD), session=str(n)))
            for n in range(MAX_CONNECTIONS)
        ]
        await harness.until(lambda: len(harness.nonces()) >= MAX_CONNECTIONS)
        assert server.connections == MAX_CONNECTIONS
        with pytest.raises(MCPError) as raised:
            await server.request("tools/call", play("n"), session="late", timeout_ms=100)
        assert raised.value.code == "E208"
        assert raised.value.data["reason"] == "upstream_sessions"
        waiting = [
            asyncio.create_task(server.request("tools/call", play(f"w{n}"), session=f"w{n}"))
            for n in range(40)
        ]
        await asyncio.sleep(0.1)
        await server.request("tools/call", play("n"), session="5")
        assert not any(each.done() for each in waiting)
        for number in range(MAX_CONNECTIONS):
            server.end_session(str(number))
        for each in held:
            each.cancel()
        for n, each in enumerate(waiting):
            each.add_done_callback(lambda _, n=n: server.end_session(f"w{n}"))
        assert [each["structuredContent"] for each in await asyncio.gather(*waiting)] == [
            {"nonce": f"w{n}"} for n in range(40)
        ]


async def hold(
    harness: MemoryHarness, server: ServerConnections, principal: str, count: int
) -> list[asyncio.Task[Any]]:
    """Return calls of a principal that run, each of a session of its own."""
    names = [f"{principal}{number}" for number in range(count)]
    held = [
        asyncio.create_task(
            server.request("tools/call", play(name, *HELD), session=name, principal=principal)
        )
        for name in names
    ]
    await harness.until(lambda: {*names} <= {*harness.nonces()})
    return held


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-74")
async def test_longest_idle_connection_of_the_principal_with_most_gives_way() -> None:
    harness = MemoryHarness("2025-11-25")
    async with coordinator(harness) as servers:
        server = found(servers)
        await server.request("tools/call", play("n"), session="of bob", principal="bob")
        for number in (*range(MAX_CONNECTIONS - 1), 0):  # the first is used last
            session = f"of ann {number}"
            await server.request("tools/call", play("n"), session=session, principal="ann")
            await asyncio.sleep(0.01)
        assert server.connections == MAX_CONNECTIONS
        for number, principal in ((2, "eve"), (3, "ann")):
            await server.request(
                "tools/call",
                play("n"),
                session=f"new of {principal}",
                principal=principal,
                timeout_ms=1000,
            )
            closed = [each.is_closed for each in harness.transports]
            assert closed.count(True) == number - 1
            assert closed[number]


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-73")
async def test_principal_has_its_share_of_connections_and_calls() -> None:
    harness = MemoryHarness("2025-11-25")
    async with coordinator(harness, share=25, max_concurrent=40) as servers:
        server = found(servers)
        held = await hold(harness, server, "ann", 4)
        with pytest.raises(MCPError) as raised:
            await server.request(
                "tools/call", play("n"), session="more", principal="ann", timeout_ms=100
            )
        assert raised.value.data["reason"] == "principal_share"
        held += await hold(harness, server, "bob", 4)
        held.pop(1).cancel()  # its connection is idle from now on, and gives way
        await server.request("tools/call", play("n"), session="more", principal="ann")
        for each in held:
            each.cancel()


@pytest.mark.rule("COORD-54")
async def test_each_value_of_a_header_has_a_connection_of_its_own() -> None:
    members = {
        "url": "http://127.0.0.1:9/mcp",
        "headers": {"X-Static": "1"},
        "headersFrom": {"Authorization": "X-Github-Token"},
        "isolation": "shared",
    }
    plan = plans_of({"hub": members})["hub"]
    assert "X-Github-Token" in str(plan.settings)
    servers = Coordinator({"hub": members}, start_wait_ms=0)
    async with servers:
        server, seen = found(servers, "hub"), set[str]()
        for token in ("hush-a", "hush-b", "hush-a"):
            with pytest.raises(MCPError) as raised:
                await server.request(
                    "tools/list", client_headers={"x-github-token": token, "cookie": "no"}
                )
            assert "hush" not in f"{raised.value} {raised.value!r} {servers.states}"
        pool = server._supervisor.pool
        for key, connection in pool._connections.items():
            assert "hush" not in repr(key)
            assert connection.client is not None
            transport = connection.client.make_transport()
            assert isinstance(transport, HttpTransport)
            headers = dict(transport.server.headers)
            assert headers["X-Static"] == "1"
            assert headers.keys() == {"X-Static", "Authorization"}
            seen.add(headers["Authorization"])
        assert seen == {"hush-a", "hush-b"}
        with pytest.raises(MCPError) as bad:
            await server.request("tools/list", client_headers={"x-github-token": "a\nb"})
        assert bad.value.code == "E203"


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-55")
async def test_notifications_name_the_server_and_the_owner() -> None:
    harness, seen = MemoryHarness("2025-11-25"), list[Any]()
    servers = Coordinator(
        {"play": harness.make_transport}, on_notification=lambda *given: seen.append(given)
    )
    note = {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "a:b", "odd": 1},
    }
    async with servers:
        server = found(servers)
        for session in ("1", "2"):
            acts = play("n", ["flood", 1, note], ["answer"])
            await server.request("tools/call", acts, session=session)
        assert seen == [
            ("play", owner, "notifications/resources/updated", {"uri": "a:b", "odd": 1})
            for owner in ("session 1", "session 2")
        ]


class Asked:
    """Answers every question of the server with its own name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def capabilities(self, revision: Any) -> dict[str, Any]:
        return {"roots": {}}

    async def handle(self, method: str, params: Any, revision: Any) -> dict[str, Any]:
        return {"roots": [{"uri": f"file:///{self.name}"}]}


@pytest.mark.virtual_time
@pytest.mark.rule("COORD-50")
async def test_question_goes_to_the_client_whose_request_asks() -> None:
    harness = MemoryHarness("2025-11-25")
    connections: Any = {"roots": [Path("/nowhere")]}
    async with Coordinator({"play": harness.make_transport}, connections=connections) as servers:
        server = found(servers)
        acts = [["ask", "roots/list", {}], ["wait", "answer"], ["answer"]]
        for name in ("ann", "bob"):
            await server.request(
                "tools/call", play(name, *acts), session=name, handlers=Asked(name)
            )
    answers = [each["message"]["result"]["roots"] for each in harness.events("answered")]
    assert answers == [[{"uri": "file:///ann"}], [{"uri": "file:///bob"}]]


@pytest.mark.rule("COORD-51", "COORD-29")
async def test_sessions_of_a_stateful_process_are_processes_of_their_own(tmp_path: Path) -> None:
    before = ResourceSnapshot.now()
    plans = {"notes": entry("notes", isolation="session")}
    async with Coordinator(plans) as servers:
        server = found(servers, "notes")

        async def pid(session: str) -> int:
            result = await server.request("tools/call", {"name": "pid"}, session=session)
            value = orjson.loads(result["content"][0]["text"])
            assert isinstance(value, int)
            return value

        first, second = await asyncio.gather(pid("1"), pid("2"))
        assert first != second
        assert await asyncio.gather(*(pid(each) for each in "1212")) == [first, second] * 2
        server.end_session("1")
        server.end_session("2")
        await until(lambda: server.connections <= 1, "one connection is left")
        await until_state(servers, "notes", ServerState.READY)
        # It may outlive the moment in which it is no longer counted.
        await until(lambda: not living(second), "its process ends")
        assert await pid("3") not in (first, second)
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("COORD-56")
async def test_subscription_holds_the_connection_of_its_client() -> None:
    behind = Server("one")

    @behind.resource("note://one")
    def note() -> str:
        return "one"

    async with Coordinator({"one": behind}, connections={"revision": "2025-11-25"}) as servers:
        server = found(servers, "one")
        await server.request("resources/read", {"uri": "note://one"}, session="first")
        async with server.subscribe("note://one", session="second") as changes:
            assert server.connections == 2
            server.end_session("second")
            behind.resource_updated("note://one")
            assert await anext(aiter(changes)) == "note://one"
            assert server.connections == 2
        await until(lambda: server.connections <= 1, "one connection is left")
