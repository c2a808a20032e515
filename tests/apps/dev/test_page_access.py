"""What a front shows, and to whom."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import orjson
import pytest

from foundation_rt.apps.dev.page_service import MAX_READERS
from foundation_rt.client import HttpServer, connect
from tests.lab.programs.processes import children, descriptors
from tests.lab.servers.dev_front import DevFront, EventReader, dev_front

APP = """
from foundation_rt import Server
from foundation_rt.features.context import ToolContext

server = Server("shop", version="1.0.0")


@server.tool
def big(size: int) -> str:
    return "x" * size


@server.tool
def fail() -> None:
    raise ValueError("no stock")


@server.tool
def tell(context: ToolContext) -> str:
    context.logger.warn("stock is low")
    return context.correlation_id
"""

OLD, NEW = "2025-11-25", "2026-07-28"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevFront]:
    folder = tmp_path_factory.mktemp("front")
    (folder / "tools.py").write_text(APP)
    with dev_front(folder, "tools.py") as found:
        found.reader.wait_for("restart", first=True)
        yield found


def target(front: DevFront) -> HttpServer:
    return HttpServer(front.url, headers=front.headers)


PATHS = [
    "/dev/state",
    "/dev/events",
    "/dev/agents",
    "/dev/tools",
    "/dev/connect",
    "/dev/login",
    "/mcp",
]


@pytest.mark.rule("DEV-04")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Cookie": "the token"}],
    ids=["none", "wrong token", "cookie"],
)
def test_nothing_is_shown_without_the_token(
    front: DevFront, path: str, headers: dict[str, str]
) -> None:
    if "Cookie" in headers:
        headers = {"Cookie": f"token={front.token}"}
    status, found, body = front.get(f"{path}?token={front.token}", headers)
    assert status == 401 and "set-cookie" not in found
    assert b"shop" not in body


@pytest.mark.rule("DEV-40")
def test_start_prints_page_and_endpoint(front: DevFront) -> None:
    first, page, endpoint, stop = front.printed.splitlines()[:4]
    assert first == "foundation-rt dev  tools.py"
    assert page.split()[1] == f"{front.url.removesuffix('/mcp')}/#token={front.token}"
    assert endpoint.split()[1] == front.url
    assert stop.split() == ["Stop", "Ctrl-C"]
    assert "\x1b" not in front.printed


@pytest.mark.rule("DEV-04")
def test_files_of_the_page_are_open_and_name_nothing(front: DevFront) -> None:
    for path in ("/", "/page/app.js", "/shared/page_token.js"):
        status, headers, body = front.get(path, {})
        assert status == 200 and b"shop" not in body and front.token.encode() not in body
        assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.rule("DEV-04")
@pytest.mark.parametrize("path", ["/dev/state", "/dev/login", "/mcp", "/"])
@pytest.mark.parametrize(
    "wrong", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}], ids=["host", "origin"]
)
def test_other_hosts_and_origins_are_refused(
    front: DevFront, path: str, wrong: dict[str, str]
) -> None:
    status, _, body = front.get(path, {**front.headers, **wrong})
    assert status in (403, 421)
    assert b"shop" not in body


@pytest.mark.rule("DEV-30")
@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/dev/state", 405),
        ("DELETE", "/dev/events", 405),
        ("GET", "/dev/other", 404),
        ("GET", "/page/../front.py", 404),
        ("GET", "/page/%2e%2e/front.py", 404),
        ("GET", "/elsewhere", 404),
        ("HEAD", "/dev/state", 200),
    ],
)
def test_other_methods_and_paths(front: DevFront, method: str, path: str, expected: int) -> None:
    assert front.get(path, method=method)[0] == expected


@pytest.mark.rule("DEV-30")
def test_state_has_target_servers_and_clients(front: DevFront) -> None:
    state = front.json("/dev/state")
    assert (state["target"], state["kind"], state["prefix"]) == ("tools.py", "program", False)
    (server,) = state["servers"]
    assert (server["id"], server["state"], server["error"]) == ("tools", "running", None)
    assert (server["name"], server["version"], server["tools"]) == ("shop", "1.0.0", 4)
    os.kill(server["pid"], 0)
    assert front.reader.of("state")[-1]["servers"][0]["id"] == "tools"


@pytest.mark.rule("DEV-31")
def test_what_a_client_needs_to_connect(front: DevFront) -> None:
    found = front.json("/dev/connect")
    assert found["url"] == front.url
    assert found["entry"] == {"type": "http", "url": front.url, "headers": front.headers}
    assert found["serve"]["args"][-2:] == ["serve", str(front.log.with_name("tools.py"))]


@pytest.mark.rule("DEV-24", "DEV-30")
async def test_sessions_come_and_go(front: DevFront) -> None:
    async with connect(target(front), revision=OLD, name="ann", version="3") as client:
        await client.call("big", {"size": 1})
        (session,) = [each for each in front.json("/dev/state")["clients"] if each["name"] == "ann"]
        assert (session["version"], session["revision"], session["calls"]) == ("3", OLD, 1)
    assert "ann" not in {each["name"] for each in front.json("/dev/state")["clients"]}
    async with connect(target(front), revision=NEW, name="bob") as client:
        await client.call("big", {"size": 1})
        await client.call("big", {"size": 1})
    (session,) = [each for each in front.json("/dev/state")["clients"] if each["name"] == "bob"]
    assert (session["revision"], session["calls"]) == (NEW, 2)


@pytest.mark.rule("DEV-22", "DEV-24")
@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_call_is_told_with_its_messages_and_log_records(
    front: DevFront, revision: str
) -> None:
    front.reader.forget()
    async with connect(target(front), revision=revision, name=f"c{revision}") as client:
        correlation = (await client.call("tell")).text
    end = front.reader.wait_for("call", phase="end", name="tell")
    (start,) = front.reader.of("call", phase="start", name="tell")
    assert (end["outcome"], end["error"], end["client"]) == ("ok", None, f"c{revision}")
    assert end["durationMs"] > 0
    assert start["correlationId"] == end["correlationId"] == correlation
    log = front.reader.wait_for("log", message="stock is low")
    assert (log["call"], log["server"], log["level"]) == (start["call"], "tools", "warn")
    wire = front.reader.of("wire", call=start["call"])
    assert [(each["leg"], each["direction"], each["kind"]) for each in wire] == [
        ("client", "in", "request"),
        ("server", "in", "request"),
        ("server", "out", "response"),
        ("client", "out", "response"),
    ]


@pytest.mark.rule("DEV-24")
async def test_errors_of_calls_are_told(front: DevFront) -> None:
    front.reader.forget()
    async with connect(target(front), revision=OLD) as client:
        await client.request("tools/call", {"name": "fail", "arguments": {}})
        await client.request("tools/call", {"name": "big", "arguments": {"size": "x"}})
    failed = front.reader.wait_for("call", phase="end", name="fail")
    assert (failed["outcome"], failed["error"]["code"]) == ("tool_error", "INTERNAL")
    wrong = front.reader.wait_for("call", phase="end", name="big")
    assert (wrong["outcome"], wrong["error"]["code"]) == ("tool_error", "INVALID_ARGUMENT")


@pytest.mark.rule("DEV-20", "DEV-22")
async def test_large_messages_are_cut_and_their_size_told(front: DevFront) -> None:
    front.reader.forget()
    async with connect(target(front), revision=OLD) as client:
        assert len((await client.call("big", {"size": 3_000_000})).text) == 3_000_000
    for leg in ("client", "server"):
        large = front.reader.wait_for(
            "wire", lambda each: each["bytes"] > 3_000_000, leg=leg, direction="out"
        )
        assert (large["truncated"], large["message"], len(large["text"])) == (True, None, 16 * 1024)


@pytest.mark.rule("DEV-20")
async def test_reader_that_comes_again_gets_what_it_has_missed(front: DevFront) -> None:
    front.reader.forget()
    async with connect(target(front), revision=OLD) as client:
        await client.call("big", {"size": 1})
        seen = front.reader.wait_for("call", phase="end")
        with closing(front.read_events()) as first:
            first.wait_for("call", phase="end", call=seen["call"])
        front.reader.forget()
        await client.call("big", {"size": 11})
        missed = front.reader.wait_for("call", phase="end")
    with closing(front.read_events(first.ids[-1])) as again:
        again.wait_for("call", phase="end", call=missed["call"])
        assert again.events[0][0] == "state"
        assert again.of("reset") == []
        started = again.of("call", phase="start", name="big")
        assert [each["call"] for each in started] == [missed["call"]]


@pytest.mark.rule("DEV-20")
@pytest.mark.parametrize("wrong", ["abc", "0badf00d-1", "x" * 4_000])
def test_reader_with_an_unknown_id_begins_again(front: DevFront, wrong: str) -> None:
    reader = front.read_events(wrong)
    reader.wait_for("reset")
    reader.wait_for("restart", first=True)
    reader.close()


@pytest.mark.rule("DEV-25")
def test_readers_are_limited_and_leave_their_place(front: DevFront) -> None:
    readers = [front.read_events() for _ in range(MAX_READERS - 1)]
    refused = EventReader(front.port, front.token)
    assert refused.status == 503
    refused.close()
    readers.pop().close()
    while (late := EventReader(front.port, front.token)).status == 503:
        late.close()
    readers.append(late)
    for each in readers:
        each.close()


@pytest.mark.rule("DEV-21", "DEV-24")
async def test_hostile_bodies_cost_nothing_but_their_event(front: DevFront) -> None:
    import http.client

    bodies = [
        b"",
        b"\x00\xff",
        b"[" * 100_000,
        orjson.dumps([{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}] * 50),
        orjson.dumps({"jsonrpc": "2.0", "id": {"a": []}, "method": "tools/call", "params": 3}),
        orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": [1]}}),
        orjson.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {"clientInfo": [], "protocolVersion": {"x": 1}},
            }
        ),
    ]
    for body in bodies:
        connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=30)
        headers = {
            **front.headers,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        assert response.status in (200, 202, 400)
        response.read()
        connection.close()
    async with connect(target(front), revision=OLD) as client:
        assert (await client.call("big", {"size": 2})).text == "xx"


@pytest.mark.rule("DEV-21")
def test_descriptors_of_readers_and_restarts_are_given_back(tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text(APP)
    with dev_front(tmp_path, "tools.py") as front:
        front.reader.wait_for("restart", first=True)
        front.next_restart(lambda: tools.write_text(APP + "#\n"), first=False)
        before = len(descriptors(front.process.pid))
        for number in range(3):
            front.read_events().close()
            text = APP + "#" * (number + 5) + "\n"
            front.next_restart(partial(tools.write_text, text), first=False)
        front.json("/dev/state")
        assert len(descriptors(front.process.pid)) <= before + 1
        assert front.server()["pid"] in children(front.process.pid)
        assert len(children(front.process.pid)) <= 2  # the program, and the guard of children
