"""Streamable HTTP against a server that does what each test says; and against our own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.client import connect
from foundation_rt.client.errors import ConnectionLostError, MCPError
from foundation_rt.client.resilience.retries import RetryPolicy
from foundation_rt.client.targets import HttpServer
from foundation_rt.client.transports import http_streams, http_wire
from foundation_rt.client.transports.http import HttpTransport
from foundation_rt.client.transports.http_streams import ReconnectBackoff
from foundation_rt.client.transports.transport import ClientMessage
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.peers.scripted_http import (
    PATIENCE,
    SESSIONS,
    STATELESS,
    Heard,
    ReceivedRequest,
    ScriptedReply,
    Talk,
    answer_to,
    empty_result,
    in_session,
    never,
    self_signed,
    talking,
)
from tests.lab.servers.http_server import serve_http
from tests.lab.sizes import examples
from tests.lab.waiting import settle, until

SECRET = "hunter2hunter2"
TOLD = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for a server that is silent."""
    monkeypatch.setattr(http_streams, "_RETRY_MS", 5)
    monkeypatch.setattr(http_streams, "_MOST_RETRY", 0.02)


# -- what is sent


@pytest.mark.rule("CHTTP-07", "CHTTP-27")
async def test_nothing_overtakes_the_end_of_the_handshake() -> None:
    taken = asyncio.Event()

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "notifications/initialized":
            await taken.wait()
        await in_session()(asked, out)

    async with talking(answer) as talk:
        await talk.begin()
        asked = talk.send("tools/list")
        await talk.server.until(lambda: len(talk.server.asked) >= 2)
        await settle(20)
        assert [each.rpc for each in talk.server.asked][1:] == ["notifications/initialized"]
        taken.set()
        await talk.outcome(asked)
        assert talk.server.of("GET") or talk.server.asked[2].rpc == "tools/list"


class Failing(httpx2.Auth):
    """Has no token."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[Any, Any]:
        raise RuntimeError(SECRET)
        yield


class Leaking(httpx2.Auth):
    """Puts into a header what no header can hold."""

    def auth_flow(self, request: httpx2.Request) -> Any:
        request.headers["authorization"] = f"{SECRET}\r\nX: y"
        yield request


class Stopping(httpx2.Auth):
    """Fails over what the server says."""

    def auth_flow(self, request: httpx2.Request) -> Any:
        yield request
        raise RuntimeError(SECRET)


@pytest.mark.rule("CHTTP-03", "CHTTP-37", "CHTTP-15")
@pytest.mark.parametrize(
    "auth", [Failing(), Leaking(), Stopping()], ids=lambda it: type(it).__name__
)
async def test_nothing_that_authentication_holds_stands_in_an_error_or_the_log(
    auth: httpx2.Auth, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(empty_result, auth=auth) as talk:
        error = await talk.refused()
        assert error.code == "E201"
        assert error.may_have_run is not isinstance(auth, Leaking)
        assert len(talk.server.asked) == isinstance(auth, Stopping)
        assert SECRET not in f"{error} {error!r} {caplog.text}"


@pytest.mark.rule("CHTTP-27")
async def test_listening_survives_authentication_that_fails() -> None:
    class NotAtFirst(httpx2.Auth):
        times = 0

        def auth_flow(self, request: httpx2.Request) -> Any:
            self.times += request.method == "GET"
            if request.method == "GET" and self.times < 3:
                raise RuntimeError("no token to be had")
            yield request

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "GET":
            out.stream()
            out.event(TOLD)
        else:
            await in_session()(asked, out)

    async with talking(answer, auth=NotAtFirst()) as talk:
        await talk.begin()
        await talk.heard.until(lambda: talk.heard.told)


class Renewing(httpx2.Auth):
    """Authentication that asks again with another token."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[Any, Any]:
        request.headers["authorization"] = "old"
        response = yield request
        if response.status_code == 401:
            request.headers["authorization"] = "new"
            yield request


@pytest.mark.rule("CHTTP-34")
async def test_authentication_is_carried_out_where_a_redirect_leads() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.target == "/mcp":
            out.whole(307, location="/mcp/")
        elif asked.headers["authorization"] == "old":
            out.whole(401)
        else:
            out.result("in")

    async with talking(answer, auth=Renewing()) as talk:
        assert await talk.call("tools/call") == "in"


class Elsewhere(httpx2.Auth):
    """Fetches a token from another server, with a body in pieces."""

    def __init__(self) -> None:
        self.url = ""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[Any, Any]:
        async def pieces() -> AsyncGenerator[bytes]:
            yield b'{"gr'
            yield b'ant": 1}'

        response = yield httpx2.Request("POST", self.url, content=pieces())
        await response.aread()
        request.headers["authorization"] = response.text
        yield request


async def test_token_may_come_from_another_server() -> None:
    async def grant(asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert asked.message == {"grant": 1}
        out.whole(200, b"granted")

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.result(asked.headers["authorization"])

    auth = Elsewhere()
    async with talking(grant) as other, talking(answer, auth=auth) as talk:
        auth.url = other.server.url
        assert await talk.call("tools/list") == "granted"


@pytest.mark.rule("CHTTP-10", "CHTTP-11", "CHTTP-15")
async def test_where_no_connection_is_free_nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_wire, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(http_wire, "CONNECT_SECONDS", 0.02)

    async with talking(never) as talk:
        talk.send("tools/call")
        await talk.server.until(lambda: talk.server.asked)
        error = await talk.refused()
        assert (error.code, error.may_have_run) == ("E201", False)
        assert "are in use" in error.message


@pytest.mark.rule("CHTTP-11", "CHTTP-15")
async def test_refusal_of_a_proxy_is_reported_without_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert (asked.method, asked.target) == ("CONNECT", "server.example:443")
        out.raw(f"HTTP/1.1 407 {SECRET}\r\nContent-Length: 0\r\n\r\n".encode())

    async with talking(answer) as talk:
        monkeypatch.setenv("https_proxy", talk.server.url.split("/")[2])
        monkeypatch.setenv("no_proxy", "")
        transport, heard = HttpTransport(HttpServer("https://server.example/mcp")), Heard()
        await transport.open(heard)
        error = await Talk(transport, heard, talk.server).refused()
        assert (error.code, error.may_have_run) == ("E201", False)
        place = "https://server.example/mcp"
        assert error.message == f"the proxy refused the connection to {place}"
        await transport.close()


@pytest.mark.rule("CHTTP-03")
@pytest.mark.parametrize("headers", [{}, {"Host": "there.example"}])
async def test_host_is_that_of_the_url_unless_one_is_given(headers: dict[str, str]) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.result()

    async with talking(answer, headers=headers) as talk:
        assert await talk.call("tools/list") == {}
        [asked] = talk.server.asked
        assert asked.headers["host"] == headers.get("Host", talk.server.url.split("/")[2])


@pytest.mark.rule("CHTTP-15", "CHTTP-35")
async def test_refused_connection_names_its_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unused.getsockname()[1]}"
        url, once = f"http://user:{SECRET}@{place}/mcp?a=b", RetryPolicy(max_attempts=1)
        async with connect(url, retries=once) as client:
            with pytest.raises(ConnectionLostError) as caught:
                await client.list_tools()
    assert (caught.value.code, caught.value.may_have_run) == ("E201", False)
    assert f"there is no connection to http://{place}/mcp:" in caught.value.message
    assert SECRET not in str(caught.value)


@pytest.mark.rule("CHTTP-10")
async def test_transport_is_congested_while_all_slots_are_taken() -> None:
    go = asyncio.Event()

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        await go.wait()
        out.result()

    async with talking(answer, max_connections=3) as talk:
        waiting = [talk.send("tools/list") for _ in range(2)]
        assert not talk.transport.is_congested
        await talk.transport.drained()
        waiting.append(talk.send("tools/list"))
        assert talk.transport.is_congested
        drained = asyncio.ensure_future(talk.transport.drained())
        await asyncio.sleep(0)
        assert not drained.done()
        futures = [talk.heard.waiting[each] for each in waiting]
        go.set()
        await asyncio.gather(drained, *futures)
        assert not talk.transport.is_congested


@pytest.mark.rule("CHTTP-12")
async def test_a_request_that_is_forgotten_closes_its_exchange() -> None:
    left = asyncio.Event()

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "tools/list":
            out.result()
            return
        out.stream()
        out.event(TOLD)
        await out.gone()
        left.set()

    async with talking(answer) as talk:
        slow = talk.send("tools/call")
        await talk.heard.until(lambda: talk.heard.told)
        del talk.heard.waiting[slow]
        talk.transport.forget(slow)
        await left.wait()
        assert await talk.call("tools/list") == {}
        talk.transport.forget(slow)
        talk.transport.forget("never heard of")
    assert talk.heard.told[0][1] == slow


# -- what comes


@pytest.mark.rule("CHTTP-40")
@pytest.mark.parametrize(
    "more",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1", b"\0" * 100],
    ids=["another response", "half a head", "zeros"],
)
async def test_unrequested_response_is_no_response(more: bytes) -> None:
    """The next call may suffer from it, but it does not take it for its own answer."""

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.result(asked.message["id"])
        out.raw(more if asked.message["id"] == "request-1" else b"")

    async with talking(answer) as talk:
        assert await talk.call("tools/call") == "request-1"
        try:
            assert await talk.call("tools/call") == "request-2"
        except MCPError as error:
            assert error.may_have_run
        assert await talk.call("tools/call") == "request-3"


@pytest.mark.rule("CHTTP-33")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_bug_of_the_client_leaves_no_request_pending(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        body = orjson.dumps(answer_to(asked))
        out.whole(200, body if "json" in kind else b"data: " + body + b"\n\n", content_type=kind)

    def received(self: Heard, line: Any, request_id: Any) -> None:
        raise ZeroDivisionError(SECRET)

    async with talking(answer) as talk:
        monkeypatch.setattr(Heard, "received", received)
        error = await talk.refused()
        assert (error.code, error.may_have_run) == ("E201", True)
        assert "ZeroDivisionError" in error.message
        assert "ZeroDivisionError" in caplog.text
        assert SECRET not in f"{error} {caplog.text}"


@pytest.mark.rule("CHTTP-13", "CHTTP-15", "CHTTP-22")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("chunked", [True, False])
async def test_cut_after_any_byte_a_response_is_an_answer_or_may_have_run(
    kind: str, chunked: bool
) -> None:
    def whole(asked: ReceivedRequest) -> bytes:
        body = orjson.dumps(answer_to(asked, {"n": 1}))
        if kind == "text/event-stream":
            body = b"event: message\ndata: " + body + b"\n\n"
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
        if chunked:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n" % (kind.encode(), framing)
        return head + body

    sizes: list[int] = []
    cut = 0

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        data = whole(asked)
        sizes.append(len(data))
        out.raw(data[:cut])
        await out.writer.drain()
        out.writer.close()

    async with talking(answer) as talk:
        answered = []
        while not sizes or cut <= sizes[-1]:
            try:
                assert await talk.call("tools/call") == {"n": 1}
                answered.append(cut)
            except ConnectionLostError as error:
                assert error.may_have_run
            cut += 1
        # The answer counts from its last byte on; of JSON that is the last byte of all.
        assert answered == [*range(answered[0], cut)]
        assert answered[0] <= sizes[-1]


@pytest.mark.rule("CHTTP-17")
async def test_a_server_that_asks_on_and_takes_no_answer_costs_no_more_than_a_hundred() -> None:
    takes = asyncio.Event()

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "tools/list":
            out.result()
        else:
            await takes.wait()
            out.whole(202)

    def answers(talk: Talk) -> int:
        return [asked.rpc for asked in talk.server.asked].count(None)

    async with talking(answer) as talk:
        for _ in range(1_000):
            talk.notify(None)
        assert len(talk.transport._tasks) == 100
        assert await talk.call("tools/list") == {}
        takes.set()
        await until(lambda: not talk.transport._tasks, "no task is left")
        assert answers(talk) == 100
        talk.notify(None)
        await until(lambda: not talk.transport._tasks, "no task is left")
        assert answers(talk) == 101


# -- streams that are resumed


@pytest.mark.rule("CHTTP-24", "CHTTP-26")
@given(st.none() | st.integers(0, 10**9 - 1), st.integers(0, 5_000), st.floats(0, 1))
@settings(max_examples=examples(300))
def test_stream_is_not_resumed_before_the_servers_retry_time(
    retry_ms: int | None, failures: int, draw: float
) -> None:
    seconds = ReconnectBackoff(failures).delay(retry_ms, draw)
    wanted = (http_streams._RETRY_MS if retry_ms is None else retry_ms) / 1000
    assert wanted <= seconds <= max(wanted, http_streams._MOST_RETRY)
    if failures == 0:
        assert seconds == max(wanted, http_streams._LEAST_RETRY)


@pytest.mark.rule("CHTTP-26")
def test_the_longest_wait_doubles_up_to_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_streams, "_MOST_RETRY", 30.0)
    assert [ReconnectBackoff(n).delay(1_000, 1.0) for n in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert {ReconnectBackoff(n).delay(1_000, 0.0) for n in range(7)} == {1}
    assert ReconnectBackoff(3).delay(60_000, 1.0) == 60


# -- the old transport


async def old_server(asked: ReceivedRequest, out: ScriptedReply) -> None:
    """Refuse what is POSTed to the place of the stream, and end that after its first event."""
    if asked.method == "GET":
        out.stream()
        out.say(b"event: endpoint\ndata: /x\n\n")
        out.end()
    else:
        out.whole(404 if asked.target == "/mcp" else 202)


@pytest.mark.rule("CHTTP-32")
async def test_a_stream_that_names_its_endpoint_and_ends_is_lost_at_once() -> None:
    async with talking(old_server) as talk:
        with pytest.raises(ConnectionLostError):
            await talk.call("initialize")
        assert len(talk.heard.ended) == 1


@pytest.mark.rule("CHTTP-30")
async def test_where_authentication_fails_for_the_stream_the_refusal_counts() -> None:
    class Once(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Any:
            if request.method == "GET":
                raise RuntimeError("no token to be had")
            yield request

    async with talking(old_server, auth=Once()) as talk:
        assert (await talk.refused("initialize")).data == {"status": 404}


@pytest.mark.rule("CHTTP-30")
async def test_a_request_that_is_forgotten_while_it_is_looked_for_leaves_nothing() -> None:
    looked = asyncio.Event()

    async def script(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "GET":
            out.stream()
            looked.set()
            await out.gone()
        else:
            out.whole(405)

    async with talking(script) as talk:
        request_id = talk.send("initialize")
        await looked.wait()
        talk.transport.forget(request_id)
        await until(lambda: not talk.transport._tasks, "no task is left")


# -- the end


@pytest.mark.rule("CHTTP-19")
async def test_close_ends_all_that_runs_and_is_there_to_be_called_twice() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "GET":
            out.stream()
        else:
            await in_session(never)(asked, out)

    before = ResourceSnapshot.now()
    async with talking(answer) as talk:
        await talk.begin()
        for _ in range(10):
            talk.send("tools/call")
        await talk.server.until(lambda server=talk.server: len(server.asked) >= 13)
        await asyncio.gather(talk.transport.close(), talk.transport.close())
        assert not talk.transport._tasks
        talk.send("tools/list")
        talk.transport.forget("request-2")
    assert talk.server.of("DELETE")
    assert not talk.heard.ended
    del talk
    await asyncio.sleep(0)
    ResourceSnapshot.now().must_equal(before)


@pytest.mark.rule("CHTTP-19")
async def test_cancelled_close_leaves_a_server_that_does_not_take_the_end_of_its_session() -> None:
    asked_to_end = asyncio.Event()

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "DELETE":
            asked_to_end.set()
            await out.gone()
        else:
            await in_session()(asked, out)

    async with talking(answer) as talk:
        await talk.begin()
        closing = asyncio.ensure_future(talk.transport.close())
        await asked_to_end.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await talk.transport.close()


@pytest.mark.rule("CHTTP-19")
async def test_transport_that_was_not_opened_can_be_closed() -> None:
    transport = HttpTransport(HttpServer("http://127.0.0.1:9/"))
    await transport.close()
    transport.send(ClientMessage(b"{}", "1", "ping"))
    assert transport.stderr_tail() == ""


@pytest.mark.rule("CHTTP-11")
@pytest.mark.parametrize("proxy", ["http://[::1", "gopher://me:hunter2hunter2@host", "socks4://a"])
async def test_invalid_proxy_is_reported_without_its_password(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")

    with pytest.raises(ConnectionLostError, match="environment") as raised:
        await HttpTransport(HttpServer("http://example.org/")).open(Heard())
    assert SECRET not in str(raised.value)


@pytest.mark.rule("CHTTP-11", "CHTTP-03")
async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert asked.target == "http://server.example/mcp"
        out.result()

    async with talking(answer) as talk:
        monkeypatch.setenv("http_proxy", talk.server.url.split("/")[2])
        monkeypatch.setenv("no_proxy", "")
        transport, heard = HttpTransport(HttpServer("http://server.example/mcp")), Heard()
        await transport.open(heard)
        assert await Talk(transport, heard, talk.server).call("tools/list") == {}
        await transport.close()


@pytest.mark.rule("CHTTP-11")
async def test_a_certificate_that_is_not_trusted_is_not_worth_another_try(tmp_path: Path) -> None:
    async with talking(never, tls=self_signed(tmp_path)) as talk:
        error = await talk.refused()
        assert (error.code, error.may_have_run, error.retryable) == ("E201", False, False)
        assert "SSL_CERT_FILE" in str(error)
        assert not talk.server.asked


# -- our own server

APP = '''
from foundation_rt import Server

server = Server("there")

@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text
'''


@pytest.mark.rule("CHTTP-05", "CHTTP-06", "CHTTP-08", "CHTTP-27", "CHTTP-30")
def test_our_own_server_in_both_modes_and_by_the_old_transport(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)

    async def main(url: str) -> None:
        for revision in (None, SESSIONS.name, STATELESS.name):
            async with connect(url, revision=revision) as client:
                assert (await client.call("echo", {"text": "hi"})).value() == "hi"
        async with connect(url.replace("/mcp", "/sse")) as client:
            assert (await client.call("echo", {"text": "hi"})).value() == "hi"

    with serve_http(app) as server:
        asyncio.run(asyncio.wait_for(main(server.url), PATIENCE))
