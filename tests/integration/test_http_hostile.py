"""Clients over HTTP that mean no good: nothing stays behind, and others don't notice."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator

import orjson
import pytest

from tests.lab.peers.raw_http import RawClient
from tests.lab.servers.http_server import HttpServerProcess, serve_http
from tests.lab.waiting import block_until

APP = '''
import asyncio, os
from foundation_rt import Server, ToolContext

server = Server("target")


@server.tool(inline=True)
def echo(text: str) -> str:
    return text


@server.tool
async def usage() -> dict[str, int]:
    """What the process holds."""
    runtime = server.runtime
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        "handlers": len(runtime.engine.running),
        "slots": runtime.resources.concurrent_executions,
    }


@server.tool
async def wait(context: ToolContext) -> str:
    await asyncio.Event().wait()


@server.tool
async def progress(count: int, context: ToolContext) -> str:
    for each in range(count):
        context.report_progress(each + 1, count)
        await asyncio.sleep(0)
    return "x" * 1000


@server.tool
async def shout(count: int) -> str:
    for _ in range(count):
        server.resource_updated("note://" + "x" * 1000)
        await asyncio.sleep(0)
    return "done"


@server.resource("note://{name}")
def note(name: str) -> str:
    return name
'''

SETTINGS = {
    "http.header_timeout_ms": 500,
    "http.body_timeout_ms": 500,
    "http.max_body_bytes": 4096,
    "http.keep_alive_ms": 100,
    "tools.cancel_grace_ms": 20,
    "logging.level": "info",
}


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServerProcess]:
    with serve_http(APP, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def bystander(server: HttpServerProcess) -> Iterator[RawClient]:
    """Run a client that is served meanwhile; check that nothing stays behind."""
    with RawClient(server.url) as client:
        before = settled(client)
        yield client
        wait_until_settled(client, before)


def usage(client: RawClient) -> dict[str, int]:
    text = client.fetch(client.call("usage")).json["result"]["content"][0]["text"]
    found: dict[str, int] = orjson.loads(text)
    return found


def settled(client: RawClient) -> dict[str, int]:
    """Return what the process holds, once it holds the same twice in a row."""
    before, after = usage(client), usage(client)
    while before != after:
        before, after = after, usage(client)
    return after


def wait_until_settled(client: RawClient, expected: dict[str, int]) -> None:
    block_until(
        lambda: usage(client),
        f"no more is left than {expected}",
        lambda found: all(found[key] <= expected[key] for key in expected),
    )


def is_served(client: RawClient) -> bool:
    answer = client.fetch(client.call("echo", text="still here"))
    return answer.status == 200 and b"still here" in answer.body


# -- heads ---------------------------------------------------------------------------------------

SMUGGLED = {
    "two lengths": "Content-Length: 2\r\nContent-Length: 3\r\n",
    "length and chunks": "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
    "a length that is none": "Content-Length: -1\r\n",
    "a length too long to be one": f"Content-Length: {'9' * 100}\r\n",
    "a folded line": "X-A: b\r\n c: d\r\nContent-Length: 2\r\n",
    "a name with a space": "Content-Length : 2\r\n",
    "a null": "X-A: \0\r\nContent-Length: 2\r\n",
    "chunks that are none": "Transfer-Encoding: identity, chunked, x\r\n",
}


@pytest.mark.rule("HTTP-30")
@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        ("POST {path} HTTP/1.1", "Host: {host}\r\nTransfer-Encoding: gzip, chunked\r\n", 501),
        ("POST {path} HTTP/1.1", "Host: {host}\r\nTransfer-Encoding: identity, chunked\r\n", 501),
        ("POST {path} HTTP/2.0", "Host: {host}\r\nContent-Length: 2\r\n", 505),
        ("POST http://evil.example{path} HTTP/1.1", "Host: {host}\r\nContent-Length: 2\r\n", 400),
        ("POST http://{host}@evil.example{path} HTTP/1.1", "Host: {host}\r\n", 400),
        ("POST http://evil.example{path} HTTP/1.1", "Host: evil.example\r\n", 421),
        ("GET http://{host}/healthz HTTP/1.1", "Host: {host}\r\n", 200),
    ],
)
def test_what_http_has_and_is_not_served_gets_a_status_of_its_own(
    server: HttpServerProcess, bystander: RawClient, line: str, headers: str, status: int
) -> None:
    with RawClient(server.url) as client:
        head = f"{line}\r\n{headers}\r\n".format(path=client.path, host=client.host)
        answer = client.fetch(head.encode())
        assert answer.status == status
        assert answer.headers["x-content-type-options"] == "nosniff"
        if status != 200:
            assert answer.headers["connection"] == "close"
            assert client.is_ended()
    assert is_served(bystander)


@pytest.mark.rule("HTTP-20")
@pytest.mark.parametrize("headers", SMUGGLED.values(), ids=SMUGGLED)
def test_ambiguous_bodies_are_refused(
    server: HttpServerProcess, bystander: RawClient, headers: str
) -> None:
    second = bystander.call("echo", text="smuggled")
    with RawClient(server.url) as client:
        json = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        client.send(client.head("POST", json + headers) + b"{}" + second)
        answer = client.answer()
        assert 400 <= answer.status < 500
        assert client.is_ended()
        assert b"smuggled" not in answer.body + client.received
    assert is_served(bystander)


@pytest.mark.rule("HTTP-20")
def test_a_head_that_does_not_come_ends_the_connection(
    server: HttpServerProcess, bystander: RawClient
) -> None:
    beginnings = (b"", b"P", b"POST /mcp HTTP/1.1\r\n", b"POST /mcp HTTP/1.1\r\nHost: a\r\nX-Y: ")
    clients = [RawClient(server.url) for _ in beginnings]
    for client, beginning in zip(clients, beginnings, strict=True):
        client.send(beginning)
    for client in clients:
        with client:
            assert client.is_ended()
            assert client.received == b""
    with RawClient(server.url) as client:  # one that was served before is no better
        assert is_served(client)
        client.send(b"POST")
        assert client.is_ended()
    assert is_served(bystander)


@pytest.mark.rule("HTTP-20")
def test_a_head_without_end_is_cut_off(server: HttpServerProcess, bystander: RawClient) -> None:
    with RawClient(server.url) as client, pytest.raises(ConnectionError):
        client.send(b"POST /mcp HTTP/1.1\r\n")
        for number in range(1_000_000):
            client.send(f"X-{number}: {'x' * 1000}\r\n".encode())
    with RawClient(server.url) as client:
        many = "".join(f"X-{number}: x\r\n" for number in range(200))
        client.send(client.head("GET", many))
        assert client.answer().status == 400
        assert client.is_ended()
    assert is_served(bystander)


@pytest.mark.rule("HTTP-20")
@pytest.mark.parametrize(
    "garbage", [b"\0" * 100, b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\r\n" * 9]
)
def test_what_is_no_http(server: HttpServerProcess, bystander: RawClient, garbage: bytes) -> None:
    with RawClient(server.url) as client:
        client.send(garbage)
        assert client.is_ended()
        assert client.received == b"" or client.received.startswith(b"HTTP/1.1 400 ")
    assert is_served(bystander)


# -- bodies --------------------------------------------------------------------------------------


def test_a_body_that_never_ends(server: HttpServerProcess, bystander: RawClient) -> None:
    json = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    with RawClient(server.url) as client:
        client.send(client.head("POST", f"{json}Content-Length: 100\r\n") + b"{")
        assert client.answer().status == 408
        assert client.is_ended()
    with RawClient(server.url) as client:
        client.send(client.head("POST", f"{json}Transfer-Encoding: chunked\r\n"))
        for _ in range(5):
            client.send(b"400\r\n" + b" " * 1024 + b"\r\n")
        assert client.answer().status == 413
        assert client.is_ended()
    with RawClient(server.url) as client:
        client.send(client.head("POST", f"{json}Content-Length: {10**12}\r\n"))
        assert client.answer().status == 413
        assert client.is_ended()
    assert is_served(bystander)


# -- sessions ------------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-04")
def test_guessed_session_ids_find_nothing(server: HttpServerProcess, bystander: RawClient) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for guess in ("0", "a" * 43, "../../etc/passwd", "x" * 8000, "%00"):
        with RawClient(server.url) as client:
            answer = client.fetch(client.post(ping, {"Mcp-Session-Id": guess}))
            assert answer.status == 404
    assert is_served(bystander)


# -- streams -------------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-17")
def test_a_subscriber_that_stops_reading(server: HttpServerProcess, bystander: RawClient) -> None:
    uri = "note://" + "x" * 1000
    listen = {"notifications": {"resourceSubscriptions": [uri]}}
    with RawClient(server.url, receive_buffer=4096) as deaf, RawClient(server.url) as keen:
        for client in (deaf, keen):
            client.send(client.request("subscriptions/listen", listen))
            client.read_until(b"acknowledged")
        done = 0
        for _ in range(40):
            assert bystander.fetch(bystander.call("shout", count=200)).status == 200
            done += 200
            for _ in range(200):
                keen.read_until(b"resources/updated")
        # What the deaf one was to be told is more than is kept for it: it has been cut off.
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        deaf.is_ended()
        assert deaf.received.count(b"resources/updated") < done


@pytest.mark.rule("HTTP-10")
def test_clients_that_drop_the_connection_at_every_byte(
    server: HttpServerProcess, bystander: RawClient
) -> None:
    probe = RawClient(server.url)
    with probe:
        params = {"name": "progress", "arguments": {"count": 3}}
        request = probe.request("tools/call", params, name="progress")
        request = request.replace(b'"_meta":{', b'"_meta":{"progressToken":1,')
        grown = len(request.partition(b"\r\n\r\n")[2])
        length = request.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
        request = request.replace(b"Content-Length: " + length, b"Content-Length: %d" % grown)
        probe.send(request)
        whole = probe.read_until(b"0\r\n\r\n")
    for sent in range(0, len(request), 7):
        with RawClient(server.url) as client:
            client.send(request[:sent])
            reset(client)
    for taken in range(1, len(whole), 7):
        with RawClient(server.url) as client:
            client.send(request)
            while len(client.received) < taken:
                client.received += client.socket.recv(min(7, taken - len(client.received)))
            reset(client)
    assert is_served(bystander)


def reset(client: RawClient) -> None:
    """End the connection at once, without a farewell."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.rule("HTTP-10", "HTTP-17")
def test_callers_that_leave_hold_no_slots(server: HttpServerProcess, bystander: RawClient) -> None:
    for _ in range(3):
        clients = [RawClient(server.url) for _ in range(5)]
        for client in clients:
            client.send(client.call("wait"))
        for client in clients:
            client.read_until(b":\n\n")
            client.socket.close()
    wait_until_settled(bystander, {"slots": 1, "handlers": 1})


def test_a_thousand_idle_connections(server: HttpServerProcess, bystander: RawClient) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1000, (hard if hard > 0 else 4096) - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    listen = {"notifications": {"toolsListChanged": True}}
    clients: list[RawClient] = []
    try:
        for _ in range(count):
            client = RawClient(server.url)
            clients.append(client)
            client.send(client.request("subscriptions/listen", listen))  # before its head is late
        for client in clients:
            client.read_until(b"acknowledged")
        assert usage(bystander)["descriptors"] >= count
        assert is_served(bystander)
    finally:
        for client in clients:
            client.socket.close()
