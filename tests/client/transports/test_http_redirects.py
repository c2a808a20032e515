"""Redirects of a server over HTTP, and what its refusals and refused connections say."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from foundation_rt.client import connect
from foundation_rt.client.errors import ConnectionLostError, InvalidResponseError
from foundation_rt.client.resilience.retries import RetryPolicy
from tests.lab.peers.scripted_http import ReceivedRequest, ScriptedReply, talking, whole

SECRET = "hunter2hunter2"
ONCE = RetryPolicy(max_attempts=1)


# -- redirects


@pytest.mark.rule("CHTTP-34")
@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("location", ["/mcp/", "http://{host}/mcp/", "mcp/?a=b"])
async def test_redirect_to_same_origin_is_followed_with_method_body_and_headers(
    status: int, location: str
) -> None:
    """The second request goes there at once, and so does what follows in the session."""

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        if asked.target == "/mcp":
            out.whole(status, b"moved", location=location.format(host=asked.headers["host"]))
        else:
            out.result({"method": asked.method})

    headers = {"Authorization": f"Bearer {SECRET}"}
    async with talking(answer, headers=headers) as talk:
        for _ in range(3):
            assert await talk.call("tools/call") == {"method": "POST"}
        moved, *followed = talk.server.asked
        assert moved.target == "/mcp"
        assert moved.body == followed[0].body
        assert len({each.target for each in followed}) == 1
        assert len(followed) == 3


@pytest.mark.rule("CHTTP-34", "CHTTP-14")
@pytest.mark.parametrize(
    ("status", "location"),
    [
        (301, "/mcp/"),
        (302, "/mcp/"),
        (303, "/mcp/"),
        (307, "http://localhost:{port}/mcp/"),
        (308, "https://127.0.0.1:{port}/mcp/"),
        (307, "http://127.0.0.1:1/mcp/"),
        (308, "//evil.example/mcp"),
        (307, "/mcp"),
        (307, ""),
        (308, "http://[/"),
    ],
)
async def test_other_redirects_are_refused_and_nothing_is_sent_there(
    status: int, location: str
) -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        port = asked.headers["host"].rpartition(":")[2]
        out.whole(status, location=location.format(port=port))

    async with talking(answer) as talk:
        error = await talk.refused()
        assert isinstance(error, InvalidResponseError)
        assert not error.may_have_run
        assert [each.target for each in talk.server.asked] == ["/mcp"]


@pytest.mark.rule("CHTTP-34")
async def test_one_redirect_is_followed_and_not_a_second() -> None:
    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.whole(307, location=f"{asked.target}/more")

    async with talking(answer) as talk:
        for _ in range(2):
            assert isinstance(await talk.refused(), InvalidResponseError)
        targets = [each.target for each in talk.server.asked]
        assert targets == ["/mcp", "/mcp/more"] * 2


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


# -- what refusals say


@pytest.mark.rule("CHTTP-35")
@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"Access is only allowed at localhost", "Access is only allowed at localhost"),
        (b'{"error": {"message": "only at localhost"}}', "only at localhost"),
        (b"<html>Access</html>", None),
        (b"\n<!doctype html>Access", None),
    ],
)
async def test_text_of_refusal_without_content_type_is_shown(
    body: bytes, shown: str | None
) -> None:
    async with talking(whole(403, body)) as talk:
        error = await talk.refused()
        assert error.code == "E207"
        expected = "the server answered with HTTP status 403"
        assert error.message == (f"{expected}: {shown}" if shown else expected)


@pytest.mark.rule("CHTTP-35")
async def test_too_many_requests_say_how_long_to_wait() -> None:
    async with talking(whole(429, retry_after="7")) as talk:
        error = await talk.refused()
        assert (error.code, error.retry_after) == ("E208", 7.0)
        assert "Wait 7 s" in str(error)


@pytest.mark.rule("CHTTP-15", "CHTTP-35")
async def test_refused_connection_names_its_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unused.getsockname()[1]}"
        async with connect(f"http://user:{SECRET}@{place}/mcp?a=b", retries=ONCE) as client:
            with pytest.raises(ConnectionLostError) as caught:
                await client.list_tools()
    assert (caught.value.code, caught.value.may_have_run) == ("E201", False)
    assert f"there is no connection to http://{place}/mcp:" in caught.value.message
    assert SECRET not in str(caught.value)
