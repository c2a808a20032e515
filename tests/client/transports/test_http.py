"""Streamable HTTP against a server that does what each test says; and against our own."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.client.errors import (
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
    SessionExpiredError,
)
from foundation_rt.client.resilience.error_mapping import map_http_status
from foundation_rt.client.targets import HttpServer
from foundation_rt.client.transports import http as http_channel
from foundation_rt.client.transports import http_streams, http_wire
from foundation_rt.client.transports.http import HttpTransport
from foundation_rt.client.transports.http_streams import MAX_ATTEMPTS, ReconnectBackoff
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
    whole,
)
from tests.lab.servers.http_server import serve_http
from tests.lab.sizes import examples

SECRET = "hunter2hunter2"
PACKED = gzip.compress(bytes(1_000_000))
TOLD = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for a server that is silent."""
    monkeypatch.setattr(http_streams, "_RETRY_MS", 5)
    monkeypatch.setattr(http_streams, "_MOST_RETRY", 0.02)


# -- what is sent


@pytest.mark.rule("CHTTP-05", "CHTTP-08", "CHTTP-13")
async def test_stateless_request_is_a_post_with_its_mcp_headers() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.result({"a": 1}, mcp_session_id="nobody asked", set_cookie="a=b")

    async with talking(answer) as talk:
        assert await talk.call("tools/call", "caf\xe9", header_params={"X": "y"}) == {"a": 1}
        await talk.call("tools/list")
    first, second = talk.server.asked
    assert (first.method, first.target) == ("POST", "/mcp")
    assert first.headers["accept"] == "application/json, text/event-stream"
    assert first.headers["accept-encoding"] == "identity"
    assert first.headers["host"] == talk.server.url.split("/")[2]
    assert first.headers["mcp-protocol-version"] == STATELESS.name
    assert first.headers["mcp-method"] == "tools/call"
    assert first.headers["mcp-name"] == "=?base64?Y2Fmw6k=?="
    assert first.headers["mcp-param-x"] == "y"
    assert not {"cookie", "mcp-session-id", "mcp-name"} & second.headers.keys()
    assert talk.server.connections == 1


@pytest.mark.rule("CHTTP-06", "CHTTP-19")
async def test_a_session_is_named_in_everything_that_follows_and_ended() -> None:
    async with talking(in_session()) as talk:
        await talk.begin()
        await talk.call("tools/list")
    first, *rest = talk.server.asked
    assert not {"mcp-session-id", "mcp-protocol-version"} & first.headers.keys()
    assert {asked.headers["mcp-session-id"] for asked in rest} == {"s-1"}
    assert {asked.headers["mcp-protocol-version"] for asked in rest} == {SESSIONS.name}
    assert rest[-1].method == "DELETE"


@pytest.mark.rule("CHTTP-06")
async def test_an_id_of_a_session_that_no_header_holds_is_refused() -> None:
    async with talking(in_session(session_id="a\xe9")) as talk:
        assert isinstance(await talk.refused("initialize"), InvalidResponseError)


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
        while len(talk.server.asked) < 2:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert [each.rpc for each in talk.server.asked][1:] == ["notifications/initialized"]
        taken.set()
        await talk.outcome(asked)
        assert talk.server.of("GET") or talk.server.asked[2].rpc == "tools/list"


@pytest.mark.rule("CHTTP-03", "CHTTP-02")
async def test_a_user_s_token_goes_to_the_server_and_nowhere_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        out.whole(403, f"bad token {SECRET}".encode(), content_type="text/plain")

    headers = {"Authorization": f"Bearer {SECRET}"}
    async with talking(answer, path=f"/x?key={SECRET}", headers=headers) as talk:
        error = await talk.refused()
        assert talk.server.asked[0].target == f"/x?key={SECRET}"
        assert talk.transport.description.endswith("/x")
        assert SECRET not in f"{error} {error!r} {vars(error)}"
        talk.notify("notifications/roots/list_changed")
    assert SECRET not in caplog.text


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


@pytest.mark.rule("CHTTP-10", "CHTTP-11", "CHTTP-15")
async def test_where_no_connection_is_free_nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_wire, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(http_wire, "CONNECT_SECONDS", 0.02)

    async with talking(never) as talk:
        talk.send("tools/call")
        while not talk.server.asked:
            await asyncio.sleep(0)
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


@pytest.mark.rule("CHTTP-13")
async def test_messages_before_the_response_belong_to_its_request() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.stream(content_type="Text/Event-Stream; charset=utf-8")
        out.say(b": hello\n\n")
        out.event(TOLD)
        out.event(TOLD, "event: ping\n")
        out.event(answer_to(asked, {"n": 1}), "event: message\n")
        out.end()

    async with talking(answer) as talk:
        assert await talk.call("tools/call") == {"n": 1}
        assert await talk.call("tools/call") == {"n": 1}
        assert [request_id for _, request_id in talk.heard.told] == ["request-1", "request-2"]
        assert talk.server.connections == 1


@pytest.mark.rule("CHTTP-13")
async def test_a_stream_that_does_not_end_after_its_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_streams, "_LINGER_SECONDS", 0.01)
    left = asyncio.Event()

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.stream()
        out.event(answer_to(asked))
        await out.gone()
        left.set()

    async with talking(answer) as talk:
        assert await talk.call("tools/call") == {}
        await left.wait()


@pytest.mark.rule("CHTTP-14")
@pytest.mark.parametrize(
    "answering",
    [
        {"status": 202},
        {"status": 200, "body": b"<p>hello</p>", "content_type": "text/html"},
        {"status": 200, "body": b"{}"},
        {"status": 200, "body": b"{", "content_type": "application/json"},
        {"status": 200, "body": b"", "content_type": "application/json"},
        {"status": 200, "body": b"\xff", "content_type": "application/json"},
        {"status": 200, "body": b"[]", "content_type": "application/json"},
        {"status": 200, "body": b"5", "content_type": "application/json"},
        {"status": 200, "body": b"[" * 5_000, "content_type": "application/json"},
        {"status": 200, "body": b"data: {]\n\n", "content_type": "text/event-stream"},
        {"status": 200, "body": b'{"jsonrpc":"2.0","id":"other","result":{}}'}
        | {"content_type": "application/json"},
        {"status": 200, "body": b" " * 20_000, "content_type": "application/json"},
        {"status": 200, "body": PACKED, "content_type": "application/json"}
        | {"content_encoding": "gzip"},
        {"status": 200, "body": PACKED, "content_type": "text/event-stream"}
        | {"content_encoding": "gzip, gzip"},
        {"status": 302, "location": f"https://me:{SECRET}@other/mcp?key={SECRET}"},
        {"status": 308, "location": "https://other/elsewhere"},
        {"status": 301},
        {"status": 307, "location": "http://[::1"},
        {"status": 303, "location": "\xff\xfe"},
    ],
)
async def test_a_response_that_is_no_answer_is_e209(answering: dict[str, Any]) -> None:
    async with talking(whole(**answering), max_message_bytes=10_000) as talk:
        error = await talk.refused()
        assert error.code == "E209"
        assert SECRET not in str(error)
        if answering["status"] >= 300:
            assert not error.may_have_run
            assert len(talk.server.asked) == 1
        if "me:" in answering.get("location", ""):
            assert "https://other/mcp;" in error.message


@pytest.mark.rule("CHTTP-14", "CHTTP-23")
async def test_event_that_is_too_long_is_reported_and_the_stream_goes_on() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.stream()
        for _ in range(100):
            out.say(b"data: " + b"x" * 1_000 + b"\n")
        out.say(b"\n")
        out.event(TOLD)
        out.end()

    async with talking(answer, max_message_bytes=10_000) as talk:
        with pytest.raises(InvalidResponseError, match="LineTooLong"):
            await talk.call("tools/call")


BROKEN = {
    "at once": b"",
    "no HTTP": b"\0\1\2 hello\r\n\r\n",
    "a version of the future": b"HTTP/9.9 200 OK\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Content-Length: 99\r\n\r\n{",
    "half a chunk": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata",
    "no chunk": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nhello",
    "a stream without an end": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    b"id: 7\n\ndata: {}\n\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
}


@pytest.mark.rule("CHTTP-15", "CHTTP-24")
@pytest.mark.parametrize("what", BROKEN.values(), ids=BROKEN)
async def test_request_whose_connection_breaks_may_have_run(what: bytes) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.raw(what)
        if what:
            await out.writer.drain()
        out.writer.close()

    async with talking(answer) as talk:
        error = await talk.refused()
        assert isinstance(error, ConnectionLostError)
        assert error.may_have_run
        assert len(talk.server.asked) == 1


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


@pytest.mark.rule("CHTTP-37")
async def test_a_server_that_sends_our_head_back_puts_no_secret_into_an_error() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.raw(f"POST {asked.target} {asked.headers['authorization']}\r\n\r\n".encode())

    headers = {"Authorization": SECRET}
    async with talking(answer, path=f"/mcp?key={SECRET}", headers=headers) as talk:
        error = await talk.refused()
        assert (error.code, error.may_have_run) == ("E201", True)
        assert SECRET not in f"{error} {error!r} {error.__cause__!r}"


@pytest.mark.rule("CHTTP-37")
@pytest.mark.parametrize("way", ["json", "events", "status"])
async def test_a_server_that_sends_our_head_back_in_an_error_is_not_quoted(way: str) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        head = {"target": asked.target, **asked.headers}
        error = {"code": -32603, "message": f"bad request: {head}", "data": {"head": head}}
        message = {"jsonrpc": "2.0", "id": asked.message["id"], "error": error}
        if way == "events":
            out.stream()
            out.event(message)
            out.end()
        else:
            out.json(message, 400 if way == "status" else 200)

    headers = {"Authorization": f"Bearer {SECRET}"}
    async with talking(answer, path=f"/mcp?key={SECRET}", headers=headers) as talk:
        said = f"{await talk.outcome(talk.send('tools/call'))}"
        assert "bad request" in said
        assert SECRET not in said


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


@pytest.mark.rule("CHTTP-16")
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 504, 599])
@pytest.mark.parametrize("names_none", [False, True])
async def test_http_status_maps_to_an_error(status: int, names_none: bool) -> None:
    said = {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "because"}}
    kind = "application/json" if names_none else "text/plain"
    body = orjson.dumps(said) if names_none else b"because"

    async with talking(whole(status, body, content_type=kind, retry_after="7")) as talk:
        if names_none and status == 400:
            assert await talk.call("tools/call") == said["error"]
            return
        expected = map_http_status(status, retry_after=7.0, detail="because")
        assert vars(await talk.refused()) == vars(expected)


@pytest.mark.rule("CHTTP-16")
@pytest.mark.parametrize("status", [400, 404, 403, 500, 503])
async def test_an_answer_to_the_request_counts_whatever_the_status(status: int) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        error = {"code": -32601, "message": "no such method"}
        out.json({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, status)

    async with talking(answer) as talk:
        assert (await talk.call("no/such"))["code"] == -32601


@pytest.mark.rule("CHTTP-16")
@pytest.mark.parametrize(
    "body",
    [
        b"<html>" + b"x" * 100000,
        b"\x00" * 70000,
        b'{"jsonrpc":"2.0","id":"other","result":{}}',
        b'{"error":1}',
        b"[1]",
        b"nul",
        b'{"jsonrpc":"2.0","method":"x"}',
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/html", "\xe9"])
async def test_whatever_a_refusal_says_it_is_one(body: bytes, kind: str) -> None:
    async with talking(whole(500, body, content_type=kind)) as talk:
        error = await talk.refused()
        assert (error.code, len(error.message) < 1_200) == ("E201", True)


@pytest.mark.rule("CHTTP-14", "CHTTP-16")
async def test_a_refusal_that_is_packed_is_one_by_its_status() -> None:
    async with talking(
        whole(401, PACKED, content_type="application/json", content_encoding="gzip")
    ) as talk:
        assert (await talk.refused()).code == "E207"


@pytest.mark.rule("CHTTP-17")
async def test_a_notification_that_is_refused_is_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "tools/list":
            out.result()
        elif asked.rpc == "notifications/cut":
            out.cut()
        elif asked.rpc == "notifications/stream":
            out.stream()
        else:
            out.whole(500)

    async with talking(answer) as talk:
        for method in ("notifications/x", "notifications/cut", "notifications/stream", None):
            talk.notify(method)
        while len(talk.server.asked) < 4:
            await asyncio.sleep(0)
        assert await talk.call("tools/list") == {}
        while len(talk.transport._tasks) > 0:
            await asyncio.sleep(0)
    assert not talk.heard.told
    assert not talk.heard.ended
    told = [each.getMessage() for each in caplog.records if each.name == "foundation_rt.client"]
    assert sorted(told) == [
        "the server did not take a response: E201",
        "the server did not take notifications/cut: E201",
        "the server did not take notifications/x: E201",
    ]


@pytest.mark.rule("CHTTP-07", "CHTTP-11", "CHTTP-17")
async def test_a_notification_that_is_never_taken_holds_nothing_up_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_streams, "ACKNOWLEDGE_TIMEOUT", 0.02)

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "notifications/initialized":
            await out.gone()
        else:
            await in_session()(asked, out)

    async with talking(answer) as talk:
        await talk.begin()
        assert await talk.call("tools/list") == {}
    assert "the server did not take notifications/initialized: E202" in caplog.text


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
        while talk.transport._tasks:
            await asyncio.sleep(0)
        assert answers(talk) == 100
        talk.notify(None)
        while talk.transport._tasks:
            await asyncio.sleep(0)
        assert answers(talk) == 101


# -- sessions that expire


@pytest.mark.rule("CHTTP-18")
async def test_every_request_that_an_expired_session_refused_is_known_not_to_have_run() -> None:
    is_known, slow = True, asyncio.Event()

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "tools/call":
            await slow.wait()
        if is_known:
            out.result()
        else:
            out.json({"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": ""}}, 404)

    async with talking(in_session(answer)) as talk:
        await talk.begin()
        await talk.call("tools/list")
        is_known = False
        outcomes = [talk.outcome(talk.send("tools/call")) for _ in range(3)]
        with pytest.raises(SessionExpiredError) as raised:
            await talk.call("tools/list")
        assert not raised.value.may_have_run
        assert not talk.heard.ended
        later = talk.outcome(talk.send("tools/list"))
        slow.set()
        errors = await asyncio.gather(later, *outcomes, return_exceptions=True)
        for error in errors:
            assert isinstance(error, SessionExpiredError)
            assert not error.may_have_run
        await talk.heard.until(lambda: talk.heard.ended)
    assert isinstance(talk.heard.ended[0], SessionExpiredError)
    assert not talk.server.of("DELETE")
    assert [each.rpc for each in talk.server.of("POST")].count("tools/list") == 2


@pytest.mark.rule("CHTTP-18")
async def test_unanswered_requests_fail_with_the_expired_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_channel, "_EXPIRY_SECONDS", 0.01)

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "tools/call":
            await out.gone()
        else:
            out.whole(404)

    async with talking(in_session(answer)) as talk:
        await talk.begin()
        slow = talk.outcome(talk.send("tools/call"))
        assert not (await talk.refused("tools/list")).may_have_run
        with pytest.raises(SessionExpiredError):
            await slow


# -- streams that are resumed


@pytest.mark.rule("CHTTP-24")
@pytest.mark.parametrize("how", ["ended", "cut"])
async def test_a_stream_goes_on_from_its_last_event(how: str) -> None:
    call: list[ReceivedRequest] = []

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.stream()
        if asked.method == "POST":
            call.append(asked)
            out.say(b"id: e-1\nretry: 1\ndata:\n\n")
            out.event(TOLD, "id: e-2\n")
            await out.writer.drain()
        elif asked.headers["last-event-id"] == "e-2":
            out.event(TOLD, "id: e-3\n")
        else:
            out.event(answer_to(call[0], {"n": 1}))
        out.end() if how == "ended" else out.writer.close()

    async with talking(in_session(answer)) as talk:
        await talk.begin()
        assert await talk.call("tools/call") == {"n": 1}
        assert [request_id for _, request_id in talk.heard.told] == ["request-2"] * 2
    resumed = [each for each in talk.server.of("GET") if "last-event-id" in each.headers]
    assert [each.headers["last-event-id"] for each in resumed] == ["e-2", "e-3"]
    assert {each.headers["mcp-session-id"] for each in resumed} == {"s-1"}


@pytest.mark.rule("CHTTP-24")
@pytest.mark.parametrize("stream", [b"", b"data: {}\n\n", b"id: \x01\ndata: {}\n\n", b"id: 1\n"])
async def test_a_stream_without_an_id_is_not_resumed(stream: bytes) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert asked.method == "POST"
        out.stream()
        if stream:
            out.say(stream)
        out.end()

    async with talking(in_session(answer)) as talk:
        await talk.begin()
        error = await talk.refused()
        assert (error.code, error.may_have_run) == ("E201", True)


@pytest.mark.rule("CHTTP-24")
@pytest.mark.parametrize("status", [200, 400, 404, 405])
async def test_stream_whose_resumption_is_refused_is_not_resumed_again(status: int) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "POST":
            out.stream()
            out.say(b"id: 1\n\n")
            out.end()
        else:
            out.whole(status, b"{}", content_type="application/json")

    async with talking(in_session(answer)) as talk:
        await talk.begin()
        error = await talk.refused()
        assert (error.code, error.may_have_run) == ("E201", True)
        asked = [each for each in talk.server.of("GET") if "last-event-id" in each.headers]
        assert len(asked) == 1
        assert not talk.heard.ended


@pytest.mark.rule("CHTTP-25")
@pytest.mark.parametrize("how", ["503", "cut", "empty"])
async def test_five_attempts_in_vain_are_the_last(how: str) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "POST" or how == "empty":
            out.stream()
            out.say(b"id: 1\n\n" if asked.method == "POST" else b": hello\n\n")
            out.end()
        elif how == "503":
            out.whole(503)
        else:
            out.cut()

    async with talking(in_session(answer)) as talk:
        await talk.begin()
        error = await talk.refused()
        assert (error.code, error.may_have_run) == ("E201", True)
        asked = [each for each in talk.server.of("GET") if "last-event-id" in each.headers]
        assert len(asked) == MAX_ATTEMPTS


@pytest.mark.rule("CHTTP-25")
async def test_an_attempt_that_brings_something_is_not_in_vain() -> None:
    call: list[ReceivedRequest] = []

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.stream()
        number = int(asked.headers.get("last-event-id", "0"))
        if asked.method == "POST":
            call.append(asked)
        if number < 3 * MAX_ATTEMPTS:
            out.say(b"id: %d\n\n" % (number + 1))
        else:
            out.event(answer_to(call[0]))
        out.end()

    async with talking(in_session(answer)) as talk:
        await talk.begin()
        assert await talk.call("tools/call") == {}


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


# -- listening


@pytest.mark.rule("CHTTP-27")
async def test_listening_stream_is_read_and_opened_again() -> None:
    """Also where that is in vain twice."""
    vain = iter([True, True])

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method != "GET":
            await in_session()(asked, out)
        elif "last-event-id" not in asked.headers:
            out.stream()
            out.event(TOLD, "id: 1\n")
            out.end()
        elif next(vain, False):
            out.cut()
        else:
            out.stream()
            out.event(TOLD, "id: 2\n")

    async with talking(answer) as talk:
        await talk.begin()
        await talk.heard.until(lambda: len(talk.heard.told) == 2)
        assert [request_id for _, request_id in talk.heard.told] == [None, None]
    assert next(vain, None) is None


@pytest.mark.rule("CHTTP-27")
@pytest.mark.parametrize("status", [200, 204, 400, 401, 404, 405])
async def test_server_without_a_listening_stream_gets_one_get(status: int) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "GET":
            out.whole(status)
        else:
            await in_session()(asked, out)

    async with talking(answer) as talk:
        await talk.begin()
        while talk.transport._tasks:
            await asyncio.sleep(0)
        assert await talk.call("tools/list") == {}
        assert len(talk.server.of("GET")) == 1
        assert not talk.heard.ended


@pytest.mark.rule("CHTTP-18", "CHTTP-27")
async def test_404_for_a_stream_that_was_there_means_that_the_session_has_expired() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.method == "GET" and "last-event-id" not in asked.headers:
            out.stream()
            out.say(b"id: 1\n\n")
            out.end()
        elif asked.method == "GET":
            out.whole(404)
        else:
            await in_session()(asked, out)

    async with talking(answer) as talk:
        await talk.begin()
        await talk.heard.until(lambda: talk.heard.ended)
        assert isinstance(talk.heard.ended[0], SessionExpiredError)


@pytest.mark.rule("CHTTP-27", "CHTTP-24")
async def test_in_the_stateless_mode_nothing_is_listened_to_or_resumed() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert asked.method == "POST"
        out.stream()
        out.say(b"id: 1\n\n")
        out.end()

    async with talking(answer) as talk:
        talk.transport.negotiated(STATELESS)
        error = await talk.refused()
        assert (error.code, error.may_have_run) == ("E201", True)


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
        while len(talk.server.asked) < 13:
            await asyncio.sleep(0)
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
@pytest.mark.parametrize("how", ["cancelled", "in time"])
async def test_a_server_that_does_not_take_the_end_of_its_session_is_left(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_channel, "DELETE_TIMEOUT", 0.01 if how == "in time" else PATIENCE)
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
        if how == "cancelled":
            await asked_to_end.wait()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        else:
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
        from foundation_rt.client import connect

        for revision in (None, SESSIONS.name, STATELESS.name):
            async with connect(url, revision=revision) as client:
                assert (await client.call("echo", {"text": "hi"})).value() == "hi"
        async with connect(url.replace("/mcp", "/sse")) as client:
            assert (await client.call("echo", {"text": "hi"})).value() == "hi"

    with serve_http(app) as server:
        asyncio.run(asyncio.wait_for(main(server.url), PATIENCE))
